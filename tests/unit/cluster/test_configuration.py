"""What the settings make of the cluster's configuration."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.support.synth import ClusterApp, synthesize
from tests.unit.cluster.conftest import Make
from ultracluster.cluster_configuration import merge


def queues(app: ClusterApp) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = app.configuration["Scheduling"]["SlurmQueues"]
    return found


def queue(make: Make, text: str) -> dict[str, Any]:
    (only,) = queues(make(f'[[cluster.queues]]\nname = "train"\n{text}'))
    return only


def resource(section: dict[str, Any]) -> dict[str, Any]:
    (only,) = section["ComputeResources"]
    return dict(only)


def node_kinds(configuration: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Head node and every queue, each with its actions and rights."""
    return {
        "head": configuration["HeadNode"],
        **{one["Name"]: one for one in configuration["Scheduling"]["SlurmQueues"]},
    }


@pytest.mark.case("E01")
@pytest.mark.parametrize("environment", ["dev", "prod", "examples/trainium-and-gpu"])
def test_every_efa_queue_is_in_a_group_that_names_itself_both_ways(
    environment: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    app = synthesize(environment, tmp_path_factory.mktemp("app"))
    groups = app.world().groups
    checked = 0
    for section in queues(app):
        if resource(section).get("Efa") != {"Enabled": True}:
            continue
        checked += 1
        (own,) = section["Networking"]["AdditionalSecurityGroups"]
        for side in ("IpPermissions", "IpPermissionsEgress"):
            assert any(
                rule["IpProtocol"] == "-1" and rule["UserIdGroupPairs"] == [{"GroupId": own}]
                for rule in groups[own][side]
            )
    assert checked


@pytest.mark.case("E03")
@pytest.mark.parametrize(
    ("instance_type", "efa"),
    [
        ("trn1.32xlarge", True),
        ("trn1n.32xlarge", True),
        ("p4d.24xlarge", True),
        ("trn1.2xlarge", False),
    ],
)
def test_efa_is_on_for_the_sizes_that_have_it(make: Make, instance_type: str, efa: bool) -> None:
    section = queue(make, f'instance_type = "{instance_type}"\nmax_count = 2\n')
    assert ("Efa" in resource(section)) is efa
    assert section["Networking"]["PlacementGroup"] == {"Enabled": efa}


@pytest.mark.case("E04")
def test_efa_nodes_are_in_one_subnet(dev: ClusterApp) -> None:
    (section,) = queues(dev)
    assert len(section["Networking"]["SubnetIds"]) == 1


RESERVED = """
max_count = {count}
min_count = {low}
capacity_type = "{kind}"
[cluster.queues.reservation]
id = "cr-0123456789abcdef0"
count = 2
az_id = "usw2-az4"
"""


@pytest.mark.case("E05")
@pytest.mark.case("E07")
@pytest.mark.parametrize(
    ("kind", "low", "capacity"),
    [("ondemand", 0, "ONDEMAND"), ("capacity-block", 2, "CAPACITY_BLOCK")],
)
def test_a_reservation_is_named_once_and_brings_its_own_place(
    make: Make, kind: str, low: int, capacity: str
) -> None:
    section = queue(make, RESERVED.format(count=2, low=low, kind=kind))
    assert section["CapacityType"] == capacity
    assert section["Networking"]["PlacementGroup"] == {"Enabled": False}
    assert section["CapacityReservationTarget"] == {"CapacityReservationId": "cr-0123456789abcdef0"}
    assert json.dumps(section).count("cr-0123456789abcdef0") == 1


@pytest.mark.case("E08")
def test_without_a_reservation_no_target_is_written(dev: ClusterApp) -> None:
    assert "CapacityReservationTarget" not in json.dumps(dev.configuration)


@pytest.mark.case("K02")
def test_a_spot_queue_carries_its_price(make: Make) -> None:
    section = queue(make, 'capacity_type = "spot"\nspot_price = 9.5\n')
    assert (section["CapacityType"], resource(section)["SpotPrice"]) == ("SPOT", 9.5)


@pytest.mark.case("P02")
def test_boot_time_reaches_head_and_compute_nodes(make: Make) -> None:
    timeouts = make("[cluster]\nbootstrap_minutes = 45\n").configuration["DevSettings"]["Timeouts"]
    assert timeouts == {"HeadNodeBootstrapTimeout": 2700, "ComputeNodeBootstrapTimeout": 2700}


def scripts(kind: dict[str, Any]) -> list[str]:
    return [action["Script"] for action in kind["CustomActions"].values()]


@pytest.mark.case("P04")
@pytest.mark.parametrize("environment", ["prod", "examples/trainium-and-gpu"])
def test_every_node_kind_may_read_the_scripts_it_runs(
    environment: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    app = synthesize(environment, tmp_path_factory.mktemp("app"))
    for kind in node_kinds(app.configuration).values():
        assert "Iam" not in kind["CustomActions"]
        readable = {(one["BucketName"], one["KeyName"]) for one in kind["Iam"]["S3Access"]}
        assert len(scripts(kind)) >= 2
        for script in scripts(kind):
            bucket, _, key = script.removeprefix("s3://").partition("/")
            assert (bucket, "boot/*") in readable
            assert key.startswith("boot/")
    # Its content needs no key of ours to be read.
    (bucket,) = {
        script.split("/")[2]
        for kind in node_kinds(app.configuration).values()
        for script in scripts(kind)
    }
    boot = {name: properties for name, properties in app.resolved.of_type("AWS::S3::Bucket")}[
        bucket
    ]
    (rule,) = boot["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}


@pytest.mark.case("P04")
def test_log_in_nodes_read_their_scripts_by_a_policy(make: Make) -> None:
    app = make("[cluster.login_nodes]\ncount = 1\n")
    (pool,) = app.configuration["LoginNodes"]["Pools"]
    attached = {one["Policy"] for one in pool["Iam"]["AdditionalIamPolicies"]}
    policies = {
        name: document for name, document in app.resolved.of_type("AWS::IAM::ManagedPolicy")
    }
    reading = [arn for arn in attached & set(policies) if "boot/*" in json.dumps(policies[arn])]
    assert len(reading) == 1
    assert "S3Access" not in pool["Iam"]


def test_only_compute_nodes_publish_and_only_their_model(make: Make) -> None:
    app = make('[cluster.login_nodes]\ncount = 1\n[endpoint]\nmodel_name = "tone"\n')
    writable = {
        name: [one["KeyName"] for one in kind["Iam"]["S3Access"] if one["EnableWriteAccess"]]
        for name, kind in node_kinds(app.configuration).items()
    }
    assert writable == {"head": [], "train": ["models/tone/*"]}


@pytest.mark.case("P05")
def test_scripts_are_our_own_and_hashed_where_they_may_change(dev: ClusterApp) -> None:
    configuration = dev.configuration
    for kind in node_kinds(configuration).values():
        assert all(script.startswith("s3://ultracluster-dev-cluster-") for script in scripts(kind))
    (section,) = queues(dev)
    assert all(re.search(r"/boot/[0-9a-f]{64}/boot\.sh$", one) for one in scripts(section))
    head = configuration["HeadNode"]["CustomActions"]
    assert head["OnNodeStart"]["Script"].endswith("/boot/boot.sh")
    assert head["OnNodeConfigured"]["Script"].endswith("/boot/boot.sh")
    assert re.search(r"/boot/[0-9a-f]{64}/boot\.sh$", head["OnNodeUpdated"]["Script"])
    assert not re.search(r"https?://|latest", json.dumps(configuration))


@pytest.mark.case("P06")
def test_provider_and_cluster_have_one_version(dev: ClusterApp) -> None:
    ((_, provider),) = dev.resolved.of_type("AWS::CloudFormation::Stack")
    assert provider["TemplateURL"] == (
        "https://us-west-2-aws-parallelcluster.s3.us-west-2.amazonaws.com/parallelcluster/3.16.1/"
        "templates/custom_resource/cluster.yaml"
    )


@pytest.mark.case("P08")
def test_fifty_queues_stay_far_below_the_limits_of_the_way(make: Make) -> None:
    names = [f"q{number:02d}-with-a-long-name" for number in range(50)]
    text = "".join(f'[[cluster.queues]]\nname = "{name}"\nmax_count = 4\n' for name in names)
    app = make(text)
    configuration = json.dumps(app.configuration)
    assert len(configuration) > 30_000
    # CloudFormation takes a template of 1 MB and hands a function 256 KB; the provider keeps the
    # configuration in S3 since 3.6.1, so that its own events stay small.
    assert len(configuration) < 200_000
    assert len(json.dumps(app.templates["cluster"])) < 500_000
    assert [one["Name"] for one in queues(app)] == names


@pytest.mark.case("P09")
def test_the_clusters_name_is_no_stack_of_ours(dev: ClusterApp) -> None:
    name = dev.properties["ClusterName"]
    assert re.fullmatch(r"[a-zA-Z][a-zA-Z0-9-]{0,39}", name)
    assert name not in dev.resolved.templates


@pytest.mark.case("P17")
@pytest.mark.parametrize("environment", ["dev", "prod"])
def test_storage_is_named_and_never_managed(
    environment: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    app = synthesize(environment, tmp_path_factory.mktemp("app"))
    (shared,) = app.configuration["SharedStorage"]
    assert set(shared["FsxLustreSettings"]) == {"FileSystemId"}
    assert shared["FsxLustreSettings"]["FileSystemId"] in app.world().file_systems


@pytest.mark.case("P22")
def test_no_shell_is_open_to_the_world(make: Make) -> None:
    app = make("[cluster.login_nodes]\ncount = 1\n")
    configuration = app.configuration
    assert configuration["HeadNode"]["Ssh"] == {"AllowedIps": "10.0.0.0/16"}
    assert configuration["LoginNodes"]["Pools"][0]["Ssh"] == {"AllowedIps": "10.0.0.0/16"}
    assert "ElasticIp" not in configuration["HeadNode"]["Networking"]
    for group in app.world().groups.values():
        for rule in group["IpPermissions"]:
            assert {"CidrIp": "0.0.0.0/0"} not in rule["IpRanges"]


def test_a_public_head_node_has_an_elastic_address_and_a_range(make: Make) -> None:
    head = make(
        "[cluster.head_node]\npublic = true\nssh_key = 'team'\nssh_from = '198.51.100.0/24'\n"
    ).configuration["HeadNode"]
    assert head["Networking"]["ElasticIp"] is True
    assert head["Ssh"] == {"AllowedIps": "198.51.100.0/24", "KeyName": "team"}


def test_slurm_runs_the_health_check_and_gives_idle_nodes_back(make: Make) -> None:
    slurm = make("[cluster]\nscaledown_minutes = 30\nqueue_update = 'terminate'\n").configuration[
        "Scheduling"
    ]["SlurmSettings"]
    assert slurm["ScaledownIdletime"] == 30
    assert slurm["QueueUpdateStrategy"] == "TERMINATE"
    custom = {key: value for one in slurm["CustomSlurmSettings"] for key, value in one.items()}
    assert custom["HealthCheckProgram"] == "/opt/ultracluster/release/node_health.sh"
    assert custom["HealthCheckInterval"] == 300


def test_a_failed_cluster_is_kept_only_on_request(make: Make, dev: ClusterApp) -> None:
    # The provider refuses the key in every update, so it is not even written as true.
    assert set(dev.properties) == {"ServiceToken", "ClusterName", "ClusterConfiguration"}
    kept = make("[cluster]\nrollback_on_failure = false\n").properties
    assert kept["RollbackOnFailure"] is False


def test_overrides_reach_any_key_and_leave_the_rest(make: Make, dev: ClusterApp) -> None:
    text = """
[cluster.overrides.HeadNode.Dcv]
Enabled = true
[[cluster.overrides.Scheduling.SlurmQueues]]
Name = "train"
[cluster.overrides.Scheduling.SlurmQueues.ComputeSettings.LocalStorage.EphemeralVolume]
MountDir = "/local_scratch"
"""
    changed, plain = make(text).configuration, dev.configuration
    assert changed["HeadNode"] == plain["HeadNode"] | {"Dcv": {"Enabled": True}}
    (ours,), (own,) = (one["Scheduling"]["SlurmQueues"] for one in (plain, changed))
    storage = own["ComputeSettings"]["LocalStorage"]
    assert storage.pop("EphemeralVolume") == {"MountDir": "/local_scratch"}
    assert own == ours


@pytest.mark.parametrize(
    ("base", "over", "merged"),
    [
        ({"a": 1, "b": {"c": 2}}, {"b": {"d": 3}}, {"a": 1, "b": {"c": 2, "d": 3}}),
        (
            [{"Name": "x", "a": 1}],
            [{"Name": "x", "b": 2}, {"Name": "y"}],
            [{"Name": "x", "a": 1, "b": 2}, {"Name": "y"}],
        ),
        ([1, 2], [3], [3]),
        ({"a": 1}, {}, {"a": 1}),
        ({"a": {"b": 1}}, {"a": False}, {"a": False}),
    ],
)
def test_merging(base: Any, over: Any, merged: Any) -> None:
    assert merge(base, over) == merged


def test_a_boundary_bounds_what_parallelcluster_makes(make: Make, tmp_path: Any) -> None:
    from tests.support.synth import BASE, QUEUE, of_text

    boundary = "arn:aws:iam::111122223333:policy/boundary"
    text = BASE.replace("[aws]\n", f'[aws]\npermissions_boundary = "{boundary}"\n') + QUEUE
    app = of_text(text, tmp_path / "bounded")
    assert app.configuration["Iam"] == {"PermissionsBoundary": boundary}
    roles = [role for _, role in app.resolved.of_type("AWS::IAM::Role")]
    assert roles
    assert {role["PermissionsBoundary"] for role in roles} == {boundary}
