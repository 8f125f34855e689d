"""Every example's network, storage and cluster, deployed to the emulated account and deleted.

The stand-in provider judges the configuration as CloudFormation hands it over. The templates go to
CloudFormation directly: the CDK CLI itself is on the road (`test_road.py`).
"""

from __future__ import annotations

import io
import json
import re
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from operations.emulator import Emulator
from tests.support.synth import ROOT, synthesize

pytestmark = pytest.mark.emulator

EXAMPLES = sorted(path.stem for path in (ROOT / "config" / "examples").glob("*.toml"))
STAGING = "cdk-hnb659fds-assets-000000000000-us-west-2"
STACKS = ("network", "storage", "cluster")
ZONE = "usw2-az4"


@pytest.fixture(scope="module")
def staged(emulator: Emulator) -> Iterator[Emulator]:
    """The account with what `cdk bootstrap` makes, as far as templates ask for it."""
    s3, ssm = emulator.client("s3"), emulator.client("ssm")
    where = {"LocationConstraint": emulator.region}
    # Another test of this account may keep it.
    mine = STAGING not in {one["Name"] for one in s3.list_buckets()["Buckets"]}
    if mine:
        s3.create_bucket(Bucket=STAGING, CreateBucketConfiguration=where)
    ssm.put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String")
    yield emulator
    ssm.delete_parameter(Name="/cdk-bootstrap/hnb659fds/version")
    for one in s3.list_objects_v2(Bucket=STAGING).get("Contents", []):
        s3.delete_object(Bucket=STAGING, Key=one["Key"])
    if mine:
        s3.delete_bucket(Bucket=STAGING)


def adapted(emulator: Emulator, text: str) -> str:
    """The example with ids of this account in place of its own."""
    ec2, ssm = emulator.client("ec2"), emulator.client("ssm")
    text = text.replace("[aws]\n", '[aws]\naccount = "000000000000"\n')
    zones = ec2.describe_availability_zones()["AvailabilityZones"]
    zone = next(one["ZoneName"] for one in zones if one["ZoneId"] == ZONE)
    for reservation in re.findall(r"cr-[0-9a-f]{17}", text):
        count = int(re.findall(r"^count = (\d+)", text, re.MULTILINE)[0])
        block = "capacity-block" in text
        told = {
            "CapacityReservationId": reservation,
            "InstanceType": "trn1.32xlarge",
            "AvailabilityZone": zone,
            "InstancePlatform": "Linux/UNIX",
            "TotalInstanceCount": count,
            "State": "active",
            "ReservationType": "capacity-block" if block else "default",
        }
        ssm.put_parameter(
            Name=f"/emulated-account/capacity-reservations/{reservation}",
            Value=json.dumps(told),
            Type="String",
            Overwrite=True,
        )
    if "custom_ami" in text:
        image = ec2.register_image(
            Name="own", Architecture="x86_64", RootDeviceName="/dev/sda1",
            BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 45}}],
        )["ImageId"]  # fmt: skip
        tags = {"parallelcluster:version": "3.16.1", "parallelcluster:build_status": "available"}
        ec2.create_tags(
            Resources=[image], Tags=[{"Key": key, "Value": value} for key, value in tags.items()]
        )
        text = re.sub(r"ami-[0-9a-f]{17}", image, text)
    if "[network.imported]" in text:
        vpc = ec2.create_vpc(CidrBlock="10.20.0.0/16")["Vpc"]["VpcId"]
        ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
        subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.20.8.0/22", AvailabilityZone=zone)
        table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
        text = re.sub(r"vpc-[0-9a-f]{17}", vpc, text)
        text = re.sub(r"subnet-[0-9a-f]{17}", subnet["Subnet"]["SubnetId"], text)
        text = re.sub(r"rtb-[0-9a-f]{17}", table, text)
    return text


def upload(emulator: Emulator, assembly: Path, stack: str) -> None:
    """Put a stack's assets where its template looks for them."""
    manifest = json.loads((assembly / f"{stack}.assets.json").read_text())
    for asset in manifest["files"].values():
        source = assembly / asset["source"]["path"]
        (place,) = asset["destinations"].values()
        body = zipped(source) if asset["source"]["packaging"] == "zip" else source.read_bytes()
        emulator.client("s3").put_object(Bucket=STAGING, Key=place["objectKey"], Body=body)


def zipped(folder: Path) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as target:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                target.write(path, path.relative_to(folder))
    return archive.getvalue()


def settled(api: Any, stack: str) -> str:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        found = api.describe_stacks(StackName=stack)["Stacks"][0]
        if not found["StackStatus"].endswith("IN_PROGRESS"):
            return str(found["StackStatus"])
        time.sleep(0.2)
    raise AssertionError(f"{stack} did not settle")


def reasons(api: Any, stack: str) -> str:
    events = api.describe_stack_events(StackName=stack)["StackEvents"]
    return "\n".join(
        event.get("ResourceStatusReason", "")
        for event in events
        if "FAILED" in event["ResourceStatus"]
    )


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_deployed_judged_and_gone(
    staged: Emulator, example: str, tmp_path: Path
) -> None:
    settings = tmp_path / f"{example}.toml"
    text = (ROOT / "config" / "examples" / f"{example}.toml").read_text(encoding="utf-8")
    settings.write_text(adapted(staged, text), encoding="utf-8")
    assembly = tmp_path / "out"
    app = synthesize(settings, assembly)
    names = {
        short: next(name for name in app.resolved.templates if name.endswith(f"-{short}"))
        for short in STACKS
    }
    api, stack_ids = staged.client("cloudformation"), {}
    for short, name in names.items():
        upload(staged, assembly, name)
        key = f"{name}.json"
        body = json.dumps(app.templates[short])
        staged.client("s3").put_object(Bucket=STAGING, Key=key, Body=body)
        made = api.create_stack(
            StackName=name,
            TemplateURL=f"https://s3.us-west-2.amazonaws.com/{STAGING}/{key}",
            Capabilities=["CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"],
        )
        stack_ids[short] = made["StackId"]
        assert settled(api, made["StackId"]) == "CREATE_COMPLETE", reasons(api, made["StackId"])
    for short in reversed(STACKS):
        api.delete_stack(StackName=names[short])
        found = settled(api, stack_ids[short])
        assert found == "DELETE_COMPLETE", reasons(api, stack_ids[short])
