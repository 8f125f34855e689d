"""Buckets, key and file system: nothing is lost by an edit, and everyone who needs a key has it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.environments import ENVIRONMENTS, ROOT, Synthesized, synthesize

Get = Callable[[str], Synthesized]
LUSTRE_RANGES = {(988, 988), (1018, 1023)}


def of_type(environment: Synthesized, kind: str, stack: str = "storage") -> dict[str, Any]:
    resources = environment.templates[stack]["Resources"]
    return {name: r for name, r in resources.items() if r["Type"] == kind}


def custom(tmp_path: Path, more: str, base: str = "dev") -> Synthesized:
    text = (ROOT / "config" / f"{base}.toml").read_text() + more
    (tmp_path / "own.toml").write_text(text, encoding="utf-8")
    return synthesize(str(tmp_path / "own.toml"), tmp_path / "out")


def missing_ports(environment: Synthesized) -> set[str]:
    """Directions between servers and clients, and among servers, that lack a Lustre port."""
    servers = next(n for n in of_type(environment, "AWS::EC2::SecurityGroup") if "Lustre" in n)
    lacking = set()
    for kind, own, peer in (
        ("Ingress", "GroupId", "SourceSecurityGroupId"),
        ("Egress", "GroupId", "DestinationSecurityGroupId"),
    ):
        rules = [
            r["Properties"] for r in of_type(environment, f"AWS::EC2::SecurityGroup{kind}").values()
        ]
        for label, mark in (("servers", servers), ("clients", "Fn::ImportValue")):
            ranges = {
                (rule["FromPort"], rule["ToPort"])
                for rule in rules
                if servers in json.dumps(rule[own])
                and mark in json.dumps(rule[peer])
                and rule["IpProtocol"] == "tcp"
            }
            if not ranges >= LUSTRE_RANGES:
                lacking.add(f"{kind} {label}")
    to_clients = {
        (rule["Properties"]["FromPort"], rule["Properties"]["ToPort"])
        for rule in of_type(environment, "AWS::EC2::SecurityGroupIngress").values()
        if "Fn::ImportValue" in rule["Properties"]["GroupId"]
        and servers in json.dumps(rule["Properties"]["SourceSecurityGroupId"])
    }
    if to_clients != LUSTRE_RANGES:
        lacking.add("from servers to clients")
    return lacking


@pytest.mark.case("F05")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_lustre_ports_are_open_both_ways(name: str, synthesized: Get) -> None:
    assert missing_ports(synthesized(name)) == set()


@pytest.mark.case("F05")
@pytest.mark.parametrize(
    "drop",
    [
        lambda rule: rule["FromPort"] == 988,
        lambda rule: rule["FromPort"] == 1018,
        lambda rule: "SourceSecurityGroupId" in rule,
    ],
)
def test_a_missing_lustre_port_is_noticed(
    drop: Callable[[Mapping[str, Any]], bool], synthesized: Get
) -> None:
    environment = copy.deepcopy(synthesized("dev"))
    resources = environment.templates["storage"]["Resources"]
    for name, resource in list(resources.items()):
        rule = resource["Type"].startswith("AWS::EC2::SecurityGroup")
        if rule and "FromPort" in resource["Properties"] and drop(resource["Properties"]):
            del resources[name]
    assert missing_ports(environment) != set()


@pytest.mark.case("P17")
@pytest.mark.case("F07")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_file_system_survives_an_edit_and_names_its_version(name: str, synthesized: Get) -> None:
    (file_system,) = of_type(synthesized(name), "AWS::FSx::FileSystem").values()
    assert file_system["UpdateReplacePolicy"] == "Retain"
    kept = name == "examples/imported-vpc"
    assert file_system["DeletionPolicy"] == ("Retain" if kept else "Delete")
    assert file_system["Properties"]["FileSystemTypeVersion"] == "2.15"
    assert file_system["Properties"]["LustreConfiguration"]["DataCompressionType"] == "LZ4"


@pytest.mark.case("F08")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_file_system_is_in_the_subnet_of_the_accelerators(name: str, synthesized: Get) -> None:
    environment = synthesized(name)
    (file_system,) = of_type(environment, "AWS::FSx::FileSystem").values()
    (cluster,) = of_type(environment, "Custom::PclusterCluster", "cluster").values()
    queues = cluster["Properties"]["ClusterConfiguration"]["Scheduling"]["SlurmQueues"]
    for queue in queues:
        assert queue["Networking"]["SubnetIds"] == file_system["Properties"]["SubnetIds"]


@pytest.mark.case("F03")
@pytest.mark.case("F09")
def test_links_are_associations_made_one_after_the_other(tmp_path: Path) -> None:
    links = "".join(
        f'[[lustre.links]]\npath = "/{name}"\nprefix = "{name}"\n' for name in ("a", "b", "c")
    )
    more = '[lustre]\ndeployment_type = "PERSISTENT_2"\nthroughput_mb_per_tib = 125\n' + links
    made = custom(tmp_path, more)
    associations = of_type(made, "AWS::FSx::DataRepositoryAssociation")
    (file_system,) = of_type(made, "AWS::FSx::FileSystem").values()
    assert len(associations) == 3
    lustre = file_system["Properties"]["LustreConfiguration"]
    assert lustre["DeploymentType"] == "PERSISTENT_2"
    assert lustre["PerUnitStorageThroughput"] == 125
    assert not {"ImportPath", "ExportPath", "AutoImportPolicy", "ImportedFileChunkSize"} & set(
        lustre
    )
    before: list[str] = []
    for path in ("/a", "/b", "/c"):
        (name,) = [n for n, r in associations.items() if r["Properties"]["FileSystemPath"] == path]
        assert [n for n in associations[name]["DependsOn"] if n in associations] == before
        before = [name]


@pytest.mark.case("F12")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_no_deletion_crosses_a_link(name: str, synthesized: Get) -> None:
    for link in of_type(synthesized(name), "AWS::FSx::DataRepositoryAssociation").values():
        for policy in ("AutoExportPolicy", "AutoImportPolicy"):
            assert link["Properties"]["S3"][policy]["Events"] == ["NEW", "CHANGED"]


@pytest.mark.case("F04")
def test_persistent_1_where_the_region_has_no_other(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        '[aws]\nregion = "eu-west-3"\n[network]\naccelerator_az_id = "euw3-az1"\n'
        '[lustre]\ndeployment_type = "PERSISTENT_1"\nthroughput_mb_per_tib = 100\n'
        '[[cluster.queues]]\nname = "gpu"\ninstance_type = "g5.12xlarge"\n'
    )
    made = synthesize(str(tmp_path / "own.toml"), tmp_path / "out")
    (file_system,) = of_type(made, "AWS::FSx::FileSystem").values()
    lustre = file_system["Properties"]["LustreConfiguration"]
    assert (lustre["DeploymentType"], lustre["PerUnitStorageThroughput"]) == ("PERSISTENT_1", 100)


def test_hard_disks_own_buckets_and_backups(tmp_path: Path) -> None:
    more = (
        '[lustre]\ndeployment_type = "PERSISTENT_1"\nstorage_type = "HDD"\ncapacity_gib = 6000\n'
        'throughput_mb_per_tib = 12\ncompression = false\nversion = "2.12"\n'
        '[[lustre.links]]\npath = "/"\nbucket = "corpus"\nbucket_region = "us-west-2"\n'
    )
    made = custom(tmp_path, more)
    (file_system,) = of_type(made, "AWS::FSx::FileSystem").values()
    assert file_system["Properties"]["StorageType"] == "HDD"
    assert file_system["Properties"]["FileSystemTypeVersion"] == "2.12"
    lustre = file_system["Properties"]["LustreConfiguration"]
    assert lustre["DriveCacheType"] == "NONE"
    assert lustre["DataCompressionType"] == "NONE"
    (link,) = of_type(made, "AWS::FSx::DataRepositoryAssociation").values()
    assert link["Properties"]["DataRepositoryPath"] == "s3://corpus"
    assert link["Properties"]["FileSystemPath"] == "/"


@pytest.mark.case("S03")
def test_data_is_kept_by_default_and_in_production(synthesized: Get) -> None:
    for name, kept in (("prod", True), ("dev", False)):
        environment = synthesized(name)
        buckets = of_type(environment, "AWS::S3::Bucket")
        assert len(buckets) == 2
        for bucket in buckets.values():
            assert bucket["DeletionPolicy"] == ("Retain" if kept else "Delete")
        assert bool(of_type(environment, "Custom::S3AutoDeleteObjects")) is not kept
    # From this version on the function leaves a bucket alone whose replacement is rolled back.
    lock = (ROOT / "requirements" / "app.txt").read_text()
    version = lock.split("aws-cdk-lib==")[1].split("\n")[0]
    assert tuple(map(int, version.split("."))) >= (2, 135, 0)


@pytest.mark.case("S01")
def test_outputs_say_what_stays_and_how_to_remove_it(synthesized: Get) -> None:
    for name, stays in (("prod", True), ("dev", False)):
        outputs = synthesized(name).templates["storage"]["Outputs"]
        for output in ("ModelBucket", "DataBucket"):
            assert ("delete every version" in outputs[output].get("Description", "")) is stays


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_buckets_are_private_versioned_and_reached_by_tls_alone(
    name: str, synthesized: Get
) -> None:
    environment = synthesized(name)
    policies = of_type(environment, "AWS::S3::BucketPolicy")
    for logical_id, bucket in of_type(environment, "AWS::S3::Bucket").items():
        body = bucket["Properties"]
        assert all(body["PublicAccessBlockConfiguration"].values())
        assert body["VersioningConfiguration"] == {"Status": "Enabled"}
        (rule,) = body["LifecycleConfiguration"]["Rules"]
        assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}
        assert rule["NoncurrentVersionExpiration"]["NoncurrentDays"] == (
            90 if name == "prod" else 30
        )
        denied = [
            statement
            for policy in policies.values()
            if policy["Properties"]["Bucket"] == {"Ref": logical_id}
            for statement in policy["Properties"]["PolicyDocument"]["Statement"]
            if statement["Effect"] == "Deny"
        ]
        assert denied[0]["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        tells = "NotificationConfiguration" in body
        assert tells == logical_id.startswith("Models")


def statements(environment: Synthesized, stack: str, role: str) -> Iterator[Mapping[str, Any]]:
    for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
        for name, policy in of_type(environment, kind, stack).items():
            if role in name:
                yield from policy["Properties"]["PolicyDocument"]["Statement"]


def key_actions(environment: Synthesized, stack: str, role: str) -> set[str]:
    found: set[str] = set()
    for statement in statements(environment, stack, role):
        actions = statement["Action"]
        names = [actions] if isinstance(actions, str) else actions
        if "Key" in json.dumps(statement["Resource"]):
            found |= {action for action in names if action.startswith("kms:")}
    return found


@pytest.mark.case("S08")
def test_own_key_encrypts_and_reaches_every_reader_and_writer(synthesized: Get) -> None:
    environment = synthesized("prod")
    ((key_id, key),) = of_type(environment, "AWS::KMS::Key").items()
    assert key["Properties"]["EnableKeyRotation"] is True
    assert key["DeletionPolicy"] == "Retain"
    for bucket in of_type(environment, "AWS::S3::Bucket").values():
        (rule,) = bucket["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        assert rule["ServerSideEncryptionByDefault"] == {
            "KMSMasterKeyID": {"Fn::GetAtt": [key_id, "Arn"]},
            "SSEAlgorithm": "aws:kms",
        }
        assert rule["BucketKeyEnabled"] is True
    (file_system,) = of_type(environment, "AWS::FSx::FileSystem").values()
    assert file_system["Properties"]["KmsKeyId"] in (
        {"Ref": key_id},
        {"Fn::GetAtt": [key_id, "Arn"]},
    )
    assert "kms:Decrypt" in key_actions(environment, "endpoint", "ExecutionRole")
    for role in ("ValidateRole", "SettleRole"):
        assert "kms:Decrypt" in key_actions(environment, "delivery", role)
    assert any("GenerateDataKey" in a for a in key_actions(environment, "delivery", "RecordRole"))
    # Whoever IAM allows: the key's policy leaves it to the account.
    policy = key["Properties"]["KeyPolicy"]["Statement"]
    assert policy[0]["Principal"]["AWS"]["Fn::Join"][1][-1] == ":root"


@pytest.mark.case("F10")
@pytest.mark.case("S08")
def test_key_admits_the_role_that_fsx_makes_for_links(synthesized: Get) -> None:
    (key,) = of_type(synthesized("prod"), "AWS::KMS::Key").values()
    (statement,) = [
        s for s in key["Properties"]["KeyPolicy"]["Statement"] if s.get("Sid") == "LustreLinks"
    ]
    assert {"kms:Decrypt", "kms:GenerateDataKey*"} <= set(statement["Action"])
    assert "AWSServiceRoleForFSxS3Access_*" in json.dumps(statement["Condition"])
    assert "kms:CallerAccount" in statement["Condition"]["StringEquals"]
    assert "kms:ViaService" in statement["Condition"]["StringEquals"]


def test_without_own_key_there_is_none(synthesized: Get) -> None:
    environment = synthesized("dev")
    assert of_type(environment, "AWS::KMS::Key") == {}
    (file_system,) = of_type(environment, "AWS::FSx::FileSystem").values()
    assert "KmsKeyId" not in file_system["Properties"]


@pytest.mark.case("S09")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_buckets_are_made_in_the_region_of_their_users(name: str, synthesized: Get) -> None:
    manifest = json.loads((synthesized(name).folder / "manifest.json").read_text())
    regions = {
        artifact["environment"].rsplit("/", 1)[-1]
        for artifact in manifest["artifacts"].values()
        if artifact["type"] == "aws:cloudformation:stack"
    }
    assert regions == {"us-west-2"}
