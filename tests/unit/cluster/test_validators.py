"""ParallelCluster's own validators judge what every shipped environment would deploy."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from marshmallow import ValidationError

from tests.support.parallelcluster import ERROR, World, findings, zone_name
from tests.support.resolved import stringified
from tests.support.synth import ROOT, ClusterApp, synthesize
from tests.unit.cluster.conftest import Make

ENVIRONMENTS = sorted(
    str(path.relative_to(ROOT / "config").with_suffix(""))
    for path in (ROOT / "config").rglob("*.toml")
)
# Expected of every cluster of ours: it is reached by Session Manager, and reserved capacity stands
# where it stands.
EXPECTED = {"KeyPairValidator", "EfaPlacementGroupValidator", "AmiOsCompatibleValidator"}


def judged(app: ClusterApp) -> World:
    """The world of the templates, with what settings name of the account beside them."""
    given = app.world()
    for _, properties in app.resolved.of_type("AWS::FSx::FileSystem"):
        for subnet in properties["SubnetIds"]:
            given.subnets.setdefault(
                subnet,
                {
                    "SubnetId": subnet,
                    "VpcId": "vpc-0123456789abcdef0",
                    "CidrBlock": "10.20.8.0/22",
                    "AvailabilityZone": zone_name("usw2-az4"),
                    "MapPublicIpOnLaunch": False,
                },
            )
    for queue in app.configuration["Scheduling"]["SlurmQueues"]:
        target = queue.get("CapacityReservationTarget")
        if target:
            (resource,) = queue["ComputeResources"]
            block = queue["CapacityType"] == "CAPACITY_BLOCK"
            given.reservations[target["CapacityReservationId"]] = {
                "CapacityReservationId": target["CapacityReservationId"],
                "InstanceType": resource["InstanceType"],
                "AvailabilityZone": zone_name("usw2-az4"),
                "InstancePlatform": "Linux/UNIX",
                "TotalInstanceCount": resource["MaxCount"],
                "State": "active",
                "ReservationType": "capacity-block" if block else "default",
            }
    return given


def test_there_are_examples() -> None:
    assert {"dev", "prod", "rehearsal", "examples/two-queues", "examples/many-nodes"} <= set(
        ENVIRONMENTS
    )


@pytest.mark.case("P07")
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_parallelcluster_accepts_it_as_strings(environment: str, tmp_path: Path) -> None:
    app = synthesize(environment, tmp_path)
    given = judged(app)
    found = app.findings(given)
    assert [one for one in found if one[0] == ERROR] == []
    assert {validator for _, validator, _ in found} <= EXPECTED
    # EC2 itself was asked whether head node and first queue can be launched there.
    assert len(given.dry_runs) == 2


def broken(app: ClusterApp, path: str, value: Any) -> dict[str, Any]:
    """The configuration with one value changed; a number in the path is an index."""
    configuration = copy.deepcopy(app.configuration)
    *parents, last = (int(part) if part.isdigit() else part for part in path.split("."))
    target: Any = configuration
    for part in parents:
        target = target[part]
    target[last] = value
    return configuration


@pytest.mark.parametrize(
    ("path", "value", "validator"),
    [
        ("Image.Os", "ubuntu2204", None),
        ("HeadNode.InstanceType", "m7g.4xlarge", "ArchitectureCompatibilityValidator"),
        (
            "HeadNode.Iam.AdditionalIamPolicies.0.Policy",
            "arn:aws:iam::111122223333:policy/none",
            "IamPolicyValidator",
        ),
        (
            "Scheduling.SlurmQueues.0.ComputeResources.0.MinCount",
            9,
            "ComputeResourceSizeValidator",
        ),
        (
            "Scheduling.SlurmSettings.CustomSlurmSettings",
            [{"GresTypes": "neuron"}],
            "CustomSlurmSettingsValidator",
        ),
    ],
)
def test_the_judge_is_awake(dev: ClusterApp, path: str, value: Any, validator: str | None) -> None:
    found = findings("uc-dev", stringified(broken(dev, path, value)), dev.world())
    errors = {kind for level, kind, _ in found if level == ERROR}
    assert any(kind.endswith(validator) for kind in errors) if validator else not errors


@pytest.mark.case("F05")
def test_the_judge_sees_our_security_groups(dev: ClusterApp) -> None:
    given = dev.world()
    (interface,) = given.interfaces.values()
    for group in interface["Groups"]:
        given.groups[group["GroupId"]]["IpPermissions"] = []
    errors = {kind for level, kind, _ in dev.findings(given) if level == ERROR}
    assert errors == {"ExistingFsxNetworkingValidator"}


@pytest.mark.case("E03")
def test_efa_where_there_is_none_is_refused_by_the_judge_too(dev: ClusterApp) -> None:
    path = "Scheduling.SlurmQueues.0.ComputeResources.0.InstanceType"
    found = findings("uc-dev", stringified(broken(dev, path, "trn1.2xlarge")), dev.world())
    assert any(kind == "EfaValidator" and level == ERROR for level, kind, _ in found)


@pytest.mark.case("P04")
@pytest.mark.parametrize("path", ["CustomActions.OnNodeConfigured.Iam", "CustomActions.Iam"])
def test_rights_below_the_scripts_are_refused(dev: ClusterApp, path: str) -> None:
    """A known mistake of published examples: the rights then reach no node."""
    for kind in ("HeadNode", "Scheduling.SlurmQueues.0"):
        wrong = broken(dev, f"{kind}.{path}", {"S3Access": []})
        with pytest.raises(ValidationError, match="Unknown field"):
            findings("uc-dev", stringified(wrong), dev.world())


OPTIONS = {
    "log-in nodes": "[cluster.login_nodes]\ncount = 2\n",
    "accounting": """
[cluster.accounting]
uri = "db.example.internal:3306"
user_name = "slurm"
password_secret_arn = "arn:aws:secretsmanager:us-west-2:111122223333:secret:slurm-AbCdEf"
database_name = "slurm"
""",
    "containers": "[cluster]\ncontainers = true\n",
    "a public head node": """
[cluster.head_node]
public = true
ssh_key = "team"
ssh_from = "198.51.100.0/24"
""",
    "spot": """
[[cluster.queues]]
name = "train"
capacity_type = "spot"
spot_price = 9.5
""",
    "alternatives": """
[[cluster.queues]]
name = "train"
instance_type = "c5.4xlarge"
alternatives = ["m5.4xlarge"]
""",
    "overrides": """
[cluster.overrides.HeadNode.Dcv]
Enabled = true
AllowedIps = "10.0.0.0/16"
[[cluster.overrides.Scheduling.SlurmQueues]]
Name = "train"
[cluster.overrides.Scheduling.SlurmQueues.ComputeSettings.LocalStorage.EphemeralVolume]
MountDir = "/local_scratch"
""",
    "a permissions boundary": """
[aws]
region = "us-west-2"
permissions_boundary = "arn:aws:iam::111122223333:policy/boundary"
""",
}


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_makes_a_cluster_that_parallelcluster_accepts(make: Make, option: str) -> None:
    text = OPTIONS[option]
    app = make(text) if "[aws]" not in text else make_with_aws(make, text)
    given = judged(app)
    given.key_pairs["team"] = "ed25519"
    given.policies.add("arn:aws:iam::111122223333:policy/boundary")
    errors = [one for one in app.findings(given) if one[0] == ERROR]
    assert errors == []


def make_with_aws(make: Make, text: str) -> ClusterApp:
    with pytest.MonkeyPatch.context() as patch:
        base = '[network]\naccelerator_az_id = "usw2-az4"\n'
        patch.setattr("tests.unit.cluster.conftest.BASE", base)
        return make(text)
