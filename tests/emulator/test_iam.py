"""One deploy with IAM enforced: every role has the rights that its part needs, and no more."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from operations.emulator import Emulator
from tests.unit.lambdas.cloudformation import answers, only, request

pytestmark = pytest.mark.emulator

ROOT = Path(__file__).parents[2]
CDK = ROOT / "node_modules" / ".bin" / "cdk"
PREFIX = "ultracluster-rehearsal"
PROPERTIES = {
    "ClusterName": PREFIX,
    "ClusterResource": "Cluster",
    "SecurityGroup": "sg-0123456789abcdef0",
}
STACKS = ("network", "storage", "cluster", "endpoint", "delivery", "monitoring")


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with Emulator(
        run_directory=tmp_path_factory.mktemp("enforced"),
        model_server_python=ROOT / ".venv-training" / "bin" / "python",
        settle_seconds=0.2,
        enforce_iam=True,
    ) as running:
        yield running


def cdk(account: Emulator, *arguments: str) -> None:
    command: list[str | Path] = [CDK, *arguments, "--no-notices", "-c", "environment=rehearsal"]
    app = f"{ROOT / '.venv' / 'bin' / 'python'} app.py"
    result = subprocess.run(
        [*command, "--app", app, "--output", account.log.parent / "out"],
        cwd=ROOT,
        env=account.environment(),
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-4000:]


def guard_of(account: Emulator) -> tuple[str, str]:
    """Name of the guard's function, and its role."""
    functions = account.client("lambda").list_functions()["Functions"]
    (found,) = [one for one in functions if one["Handler"] == "cluster_guard.handler.handler"]
    return found["FunctionName"], found["Role"].rpartition("/")[2]


def test_the_whole_application_is_deployed_and_destroyed_with_its_own_rights(
    account: Emulator,
) -> None:
    cdk(account, "bootstrap", "aws://000000000000/us-west-2")
    cdk(account, "deploy", "--all", "--require-approval", "never")
    stacks = account.client("cloudformation")
    for name in STACKS:
        (stack,) = stacks.describe_stacks(StackName=f"{PREFIX}-{name}")["Stacks"]
        assert stack["StackStatus"] == "CREATE_COMPLETE"
    boot_files_are_there(account)
    the_guard_waits_for_the_last_node(account)
    a_right_that_is_taken_away_is_missed(account)
    cdk(account, "destroy", "--all", "--force")
    left = {one["StackName"] for one in stacks.describe_stacks()["Stacks"]}
    assert not {name for name in left if name.startswith(PREFIX)}


def boot_files_are_there(account: Emulator) -> None:
    s3 = account.client("s3")
    (bucket,) = [
        one["Name"] for one in s3.list_buckets()["Buckets"] if "trainiumboot" in one["Name"]
    ]
    keys = {one["Key"] for one in s3.list_objects_v2(Bucket=bucket)["Contents"]}
    release = s3.get_object(Bucket=bucket, Key="boot/current")["Body"].read().decode()
    assert {f"boot/{release}/scripts.zip", f"boot/{release}/boot.env", "boot/boot.sh"} <= keys
    told = json.loads(s3.get_object(Bucket=bucket, Key="boot/platform.json")["Body"].read())
    assert told["facts"]["region"] == "us-west-2"
    assert told["instances"]["trn1.32xlarge"]["accelerators"] == 16


def the_guard_waits_for_the_last_node(account: Emulator) -> None:
    """It calls itself for each look, with its own rights."""
    function, _ = guard_of(account)
    ec2 = account.client("ec2")
    tags = [{"Key": "parallelcluster:cluster-name", "Value": PREFIX}]
    (node,) = ec2.run_instances(
        ImageId="ami-0123456789abcdef0",
        InstanceType="m5.large",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )["Instances"]
    with answers() as (url, received):
        given = request("Delete", url, PROPERTIES, PhysicalResourceId=f"guard/{PREFIX}")
        account.client("lambda").invoke(
            FunctionName=function, InvocationType="Event", Payload=json.dumps(given)
        )
        time.sleep(5)
        assert received == []
        ec2.terminate_instances(InstanceIds=[node["InstanceId"]])
        deadline = time.monotonic() + 120
        while not received and time.monotonic() < deadline:
            time.sleep(0.5)
        assert only(received)["Status"] == "SUCCESS"


def a_right_that_is_taken_away_is_missed(account: Emulator) -> None:
    function, role = guard_of(account)
    assert ask(account, function)["Status"] == "SUCCESS"
    iam = account.client("iam")
    policies = {
        name: iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        for name in iam.list_role_policies(RoleName=role)["PolicyNames"]
    }
    (looks,) = [name for name, text in policies.items() if "ec2:Describe" in json.dumps(text)]
    iam.delete_role_policy(RoleName=role, PolicyName=looks)
    refused = ask(account, function)
    assert refused["Status"] == "FAILED"
    assert "is not authorized to perform: ec2:DescribeInstances" in refused["Reason"]
    iam.put_role_policy(RoleName=role, PolicyName=looks, PolicyDocument=json.dumps(policies[looks]))


def ask(account: Emulator, function: str) -> dict[str, Any]:
    """Send the guard the last look of a deletion of the cluster; what it answered."""
    with answers() as (url, received):
        given = request("Delete", url, PROPERTIES, PhysicalResourceId=f"guard/{PREFIX}")
        given["Deadline"] = 0
        account.client("lambda").invoke(FunctionName=function, Payload=json.dumps(given))
    return only(received)
