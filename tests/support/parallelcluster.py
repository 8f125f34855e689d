"""ParallelCluster's own validators and update rules over the world that our templates describe.

Nothing is asked of AWS: subnets, groups, file systems and policies come from the templates; what
instance types are and where they are offered comes from AWS's answers that moto ships.
"""

# mypy: disable-error-code="no-any-return,misc"

from __future__ import annotations

import copy
import gzip
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("AWS_DEFAULT_REGION", "us-west-2")
os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")

from pcluster import utils
from pcluster.aws.aws_api import AWSApi
from pcluster.aws.aws_resources import (
    CapacityReservationInfo,
    FsxStorageInfo,
    ImageInfo,
    InstanceTypeInfo,
)
from pcluster.aws.common import AWSClientError, Cache
from pcluster.aws.ec2 import Ec2Client
from pcluster.config.config_patch import ConfigPatch
from pcluster.schemas.cluster_schema import ClusterSchema
from pcluster.validators import iam_validators
from pcluster.validators.common import FailureLevel, ValidatorContext

from tests.support.resolved import Resolved

_ROOT_VOLUME_GIB = 45  # of the official images
_SNAPSHOTS = Path(__file__).parents[2] / ".venv-emulator"


@dataclass
class World:
    """What ParallelCluster may ask of AWS."""

    subnets: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    file_systems: dict[str, dict[str, Any]] = field(default_factory=dict)
    interfaces: dict[str, dict[str, Any]] = field(default_factory=dict)
    reservations: dict[str, dict[str, Any]] = field(default_factory=dict)
    policies: set[str] = field(default_factory=set)
    key_pairs: dict[str, str] = field(default_factory=dict)
    dry_runs: list[dict[str, Any]] = field(default_factory=list)


def world(resolved: Resolved) -> World:
    """The world of an app's templates."""
    made = World()
    for vpc, _ in resolved.of_type("AWS::EC2::VPC"):
        for subnet, properties in resolved.of_type("AWS::EC2::Subnet"):
            made.subnets[subnet] = {
                "SubnetId": subnet,
                "VpcId": vpc,
                "CidrBlock": properties["CidrBlock"],
                "AvailabilityZone": zone_name(properties["AvailabilityZoneId"]),
                "MapPublicIpOnLaunch": properties.get("MapPublicIpOnLaunch", False),
            }
    for group, properties in resolved.of_type("AWS::EC2::SecurityGroup"):
        made.groups[group] = {
            "GroupId": group,
            "IpPermissions": _rules(properties.get("SecurityGroupIngress", [])),
            "IpPermissionsEgress": _rules(properties.get("SecurityGroupEgress", [])),
        }
    for kind, side in (("Ingress", "IpPermissions"), ("Egress", "IpPermissionsEgress")):
        for _, rule in resolved.of_type(f"AWS::EC2::SecurityGroup{kind}"):
            made.groups[rule["GroupId"]][side] += _rules([rule])
    for file_system, properties in resolved.of_type("AWS::FSx::FileSystem"):
        subnet = properties["SubnetIds"][0]
        vpc = made.subnets.get(subnet, {}).get("VpcId", "vpc-0123456789abcdef0")
        interface = f"eni-{file_system.removeprefix('fs-')}"
        made.file_systems[file_system] = {
            "FileSystemType": "LUSTRE",
            "FileSystemId": file_system,
            "VpcId": vpc,
            "SubnetIds": properties["SubnetIds"],
            "NetworkInterfaceIds": [interface],
            "DNSName": f"{file_system}.fsx.us-west-2.amazonaws.com",
            "LustreConfiguration": {"MountName": "mount"},
        }
        made.interfaces[interface] = {
            "NetworkInterfaceId": interface,
            "VpcId": vpc,
            "Groups": [{"GroupId": group} for group in properties["SecurityGroupIds"]],
        }
    made.policies = {arn for arn, _ in resolved.of_type("AWS::IAM::ManagedPolicy")}
    return made


def zone_name(az_id: str) -> str:
    """Some account's name for a zone of us-west-2."""
    return {"usw2-az1": "us-west-2b", "usw2-az4": "us-west-2d"}.get(az_id, "us-west-2a")


def findings(name: str, configuration: dict[str, Any], given: World) -> list[tuple[str, str, str]]:
    """Level, validator and message of each finding; raises what the schema refuses."""
    connect(given)
    cluster = ClusterSchema(cluster_name=name).load(copy.deepcopy(configuration))
    return [
        (one.level.name, one.validator_type, one.message)
        for one in cluster.validate(context=ValidatorContext())
    ]


def refused_changes(old: dict[str, Any], new: dict[str, Any], given: World) -> list[str]:
    """Changes that a running cluster does not take, each with its path."""
    connect(given)
    allowed, rows = ConfigPatch(
        _Running("LoginNodes" in old), copy.deepcopy(old), copy.deepcopy(new)
    ).check()
    if allowed:
        return []
    header, *changes = rows
    found = (dict(zip(header, row, strict=True)) for row in changes)
    return [
        ".".join([*one["param_path"], one["parameter"]])
        for one in found
        if one["check"] != "SUCCEEDED"
    ]


class _Running:
    """A cluster whose nodes all run."""

    name = stack_name = "cluster"

    def __init__(self, login_nodes: bool) -> None:
        self._login_nodes = login_nodes

    def has_running_capacity(self, updated_value: bool = False) -> bool:
        return True

    def has_running_login_nodes(
        self, updated_value: bool = False, pool_name: str | None = None
    ) -> bool:
        return self._login_nodes


def _rules(given: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    made = []
    for rule in given:
        one: dict[str, Any] = {"IpProtocol": str(rule["IpProtocol"])}
        if "FromPort" in rule:
            one |= {"FromPort": int(rule["FromPort"]), "ToPort": int(rule["ToPort"])}
        other = rule.get("SourceSecurityGroupId") or rule.get("DestinationSecurityGroupId")
        one["UserIdGroupPairs"] = [{"GroupId": other}] if other else []
        one["IpRanges"] = [{"CidrIp": rule["CidrIp"]}] if "CidrIp" in rule else []
        made.append(one)
    return made


def connect(given: World) -> None:
    """Have ParallelCluster ask this world instead of AWS."""
    Cache.clear_all()
    api = AWSApi()
    api._ec2 = _Ec2(given)
    api._fsx = _Fsx(given)
    for service in ("s3", "secretsmanager", "sts", "cfn", "iam", "kms"):
        setattr(api, f"_{service}", _Other(given))
    AWSApi._instance = api
    iam_validators.IamClient = lambda: _Other(given)
    regions = Path(utils.__file__).with_name("resources") / "supported-regions"
    utils.retrieve_supported_regions.cache = regions.read_text().split()


class _Ec2(Ec2Client):
    def __init__(self, given: World) -> None:
        self._given = given
        self.additional_instance_types_data: dict[str, Any] = {}
        self.security_groups_cache: dict[str, Any] = {}
        self.subnets_cache: dict[str, Any] = {}
        self.capacity_reservations_cache: dict[str, Any] = {}
        self.capacity_block_status_cache: dict[str, Any] = {}

    def list_instance_types(self) -> list[str]:
        return sorted({row["InstanceType"] for row in _offerings()})

    def get_instance_type_info(self, instance_type: str) -> InstanceTypeInfo:
        row = _instance_types().get(instance_type)
        if row is None:
            raise AWSClientError("describe_instance_types", f"no type {instance_type}")
        return InstanceTypeInfo(copy.deepcopy({"InstanceType": instance_type, **row}))

    def get_supported_architectures(self, instance_type: str) -> list[str]:
        return self.get_instance_type_info(instance_type).supported_architecture()

    def get_official_image_id(self, os: str, architecture: str, filters: Any = None) -> str:
        return "ami-0123456789abcdef9"

    def describe_image(self, ami_id: str) -> ImageInfo:
        mapping = {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": _ROOT_VOLUME_GIB}}
        return ImageInfo(
            {
                "ImageId": ami_id,
                "Architecture": "x86_64",
                "RootDeviceName": "/dev/sda1",
                "Description": "an image",
                "BlockDeviceMappings": [mapping],
                "Tags": [
                    {"Key": "parallelcluster:version", "Value": utils.get_installed_version()},
                    {"Key": "parallelcluster:build_status", "Value": "available"},
                ],
            }
        )

    def describe_subnets(self, subnet_ids: list[str]) -> list[dict[str, Any]]:
        return [_known(self._given.subnets, one, "subnet") for one in subnet_ids]

    def is_subnet_public(self, subnet_id: str) -> bool:
        return bool(_known(self._given.subnets, subnet_id, "subnet")["MapPublicIpOnLaunch"])

    def describe_vpc_attribute(self, vpc_id: str, attribute: str) -> dict[str, Any]:
        return {attribute[0].upper() + attribute[1:]: {"Value": True}}

    def describe_key_pair(self, key_name: str) -> dict[str, Any]:
        return {"KeyPairs": [{"KeyType": _known(self._given.key_pairs, key_name, "key pair")}]}

    def describe_security_groups(self, security_group_ids: list[str]) -> list[dict[str, Any]]:
        return [_known(self._given.groups, one, "security group") for one in security_group_ids]

    def describe_security_group(self, security_group_id: str) -> dict[str, Any]:
        return self.describe_security_groups([security_group_id])[0]

    def describe_network_interfaces(self, network_interface_ids: list[str]) -> list[dict[str, Any]]:
        return [_known(self._given.interfaces, one, "interface") for one in network_interface_ids]

    def describe_capacity_reservations(
        self, capacity_reservation_ids: list[str]
    ) -> list[CapacityReservationInfo]:
        return [
            CapacityReservationInfo(_known(self._given.reservations, one, "reservation"))
            for one in capacity_reservation_ids
        ]

    def describe_capacity_block_status(self, capacity_block_ids: list[str]) -> list[Any]:
        return []

    def get_supported_az_for_instance_type(self, instance_type: str) -> tuple[str, ...]:
        return tuple(
            zone_name(row["Location"])
            for row in _offerings()
            if row["InstanceType"] == instance_type
        )

    def run_instances(self, **request: Any) -> None:
        self._given.dry_runs.append(request)
        subnet = request["NetworkInterfaces"][0]["SubnetId"]
        zone = self._given.subnets[subnet]["AvailabilityZone"]
        if zone not in self.get_supported_az_for_instance_type(request["InstanceType"]):
            raise AWSClientError("run_instances", f"{request['InstanceType']} is not in {zone}")


class _Fsx:
    def __init__(self, given: World) -> None:
        self._given = given

    def get_file_systems_info(self, fsx_fs_ids: list[str]) -> list[FsxStorageInfo]:
        return [
            FsxStorageInfo(_known(self._given.file_systems, one, "file system"))
            for one in fsx_fs_ids
        ]


class _Other:
    """Answers of services of which our configurations ask little; anything else raises."""

    def __init__(self, given: World) -> None:
        self._given = given

    def head_object(
        self, bucket_name: str, object_name: str, expected_bucket_owner: str | None = None
    ) -> dict[str, Any]:
        return {}

    def head_bucket(self, bucket_name: str, **rest: Any) -> dict[str, Any]:
        return {}

    def get_policy(self, policy_arn: str) -> dict[str, Any]:
        if (
            not policy_arn.startswith("arn:aws:iam::aws:")
            and policy_arn not in self._given.policies
        ):
            raise AWSClientError("get_policy", f"{policy_arn} is not there")
        return {}

    def describe_secret(self, secret_arn: str) -> dict[str, Any]:
        return {}

    def get_account_id(self) -> str:
        return "111122223333"

    def stack_exists(self, stack_name: str) -> bool:
        return False


def _known(given: dict[str, Any], name: str, kind: str) -> Any:
    if name not in given:
        raise AWSClientError("describe", f"{kind} {name} does not exist")
    return copy.deepcopy(given[name])


@cache
def _instance_types() -> dict[str, Any]:
    return _snapshot("instance_types.json.gz")


@cache
def _offerings() -> list[dict[str, str]]:
    return _snapshot("instance_type_offerings/availability-zone-id/us-west-2.json.gz")


def _snapshot(name: str) -> Any:
    pattern = f"lib/python3*/site-packages/moto/ec2/resources/{name}"
    found = next(iter(_SNAPSHOTS.glob(pattern)), None)
    assert found, f"no {pattern} in {_SNAPSHOTS}: run `make setup`"
    return json.loads(gzip.decompress(found.read_bytes()))


ERROR, WARNING = FailureLevel.ERROR.name, FailureLevel.WARNING.name
