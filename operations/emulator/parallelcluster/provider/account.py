"""ParallelCluster's view of AWS, over the emulated account.

Its own clients read what the emulator keeps: subnets, security groups, buckets, policies, file
systems. What an emulator cannot know comes from the snapshots of AWS's answers that moto ships:
instance types, and in which zones they are offered.
"""

# mypy: disable-error-code="misc"

from __future__ import annotations

import gzip
import hashlib
import json
import os
from functools import cache
from importlib.resources import files
from typing import Any

import boto3
from pcluster import utils
from pcluster.aws.aws_api import AWSApi
from pcluster.aws.aws_resources import CapacityReservationInfo, ImageInfo, InstanceTypeInfo
from pcluster.aws.common import AWSClientError, Cache
from pcluster.aws.ec2 import Ec2Client
from pcluster.validators.s3_validators import UrlValidator

# `<this><reservation id>` holds what DescribeCapacityReservations would say, as JSON.
RESERVATIONS = "/emulated-account/capacity-reservations/"
_ROOT_VOLUME_GIB = 45  # of the official images of 3.16.1


def connect() -> None:
    """Point ParallelCluster at the emulated account, with nothing remembered."""
    Cache.clear_all()
    api = AWSApi()
    api._ec2 = EmulatedEc2()
    AWSApi._instance = api
    regions = files("pcluster").joinpath("resources", "supported-regions").read_text()
    utils.retrieve_supported_regions.cache = regions.split()
    # No name outside this machine is asked for a script that a configuration names.
    UrlValidator._validate_https_uri = lambda self, url, fail_on_error: None


class EmulatedEc2(Ec2Client):
    """EC2, with the answers that need the real one's data."""

    def __init__(self) -> None:
        super().__init__()
        self._region = os.environ["AWS_REGION"]

    def list_instance_types(self) -> list[str]:
        """The types that the region offers."""
        offered = {row["InstanceType"] for row in _offerings(self._region)}
        return sorted(offered | self.additional_instance_types_data.keys())

    def get_instance_type_info(self, instance_type: str) -> InstanceTypeInfo:
        """What DescribeInstanceTypes says of a type."""
        row = self.additional_instance_types_data.get(instance_type)
        row = row or _instance_types().get(instance_type)
        if row is None:
            raise AWSClientError(
                "describe_instance_types",
                f"The following supplied instance types do not exist: [{instance_type}]",
                "InvalidInstanceType",
            )
        # ParallelCluster changes what it gets.
        return InstanceTypeInfo(json.loads(json.dumps(row)))

    def get_supported_architectures(self, instance_type: str) -> list[str]:
        """The architectures of a type."""
        return self.get_instance_type_info(instance_type).supported_architecture()  # type: ignore[no-any-return]

    def get_official_image_id(self, os: str, architecture: str, filters: Any = None) -> str:
        """The id of ParallelCluster's image for an operating system."""
        name = f"{self._get_official_image_name_prefix(os, architecture)}{filters}"
        return f"ami-0{hashlib.sha256(name.encode()).hexdigest()[:16]}"

    def describe_image(self, ami_id: str) -> ImageInfo:
        """An image: an official one, or one of the emulated account."""
        for architecture in ("x86_64", "arm64"):
            for system in utils.get_supported_os_for_architecture(architecture):
                if ami_id == self.get_official_image_id(system, architecture):
                    return ImageInfo(_official_image(ami_id, system, architecture))
        return super().describe_image(ami_id)

    def describe_capacity_reservations(
        self, capacity_reservation_ids: list[str]
    ) -> list[CapacityReservationInfo]:
        """Reservations, which EC2 here does not keep: a parameter of each id describes it."""
        if not capacity_reservation_ids:
            return []
        names = {f"{RESERVATIONS}{wanted}": wanted for wanted in capacity_reservation_ids}
        found = boto3.client("ssm").get_parameters(Names=list(names))["Parameters"]
        if len(found) < len(names):
            missing = set(names) - {one["Name"] for one in found}
            raise AWSClientError(
                "describe_capacity_reservations",
                f"The capacity reservation {', '.join(map(names.__getitem__, sorted(missing)))} "
                "does not exist",
                "InvalidCapacityReservationId.NotFound",
            )
        return [CapacityReservationInfo(json.loads(one["Value"])) for one in found]

    def describe_capacity_block_status(self, capacity_block_ids: list[str]) -> list[Any]:
        """Nothing is known of the health of a block that is not there."""
        return []

    def get_supported_az_for_instance_types(
        self, instance_types: list[str]
    ) -> dict[str, tuple[str, ...]]:
        """The zones, by the account's names, that offer each type."""
        names = {
            zone["ZoneId"]: zone["ZoneName"]
            for zone in self._client.describe_availability_zones()["AvailabilityZones"]
        }
        return {
            wanted: tuple(
                names[row["Location"]]
                for row in _offerings(self._region)
                if row["InstanceType"] == wanted and row["Location"] in names
            )
            for wanted in instance_types
        }

    def run_instances(self, **request: Any) -> None:
        """A dry run: it fails where the zone does not offer the type."""
        wanted = request["InstanceType"]
        subnet = request["NetworkInterfaces"][0]["SubnetId"]
        zone = self.get_subnet_avail_zone(subnet)
        if zone not in self.get_supported_az_for_instance_types([wanted])[wanted]:
            raise AWSClientError(
                "run_instances",
                f"Your requested instance type ({wanted}) is not supported in your requested "
                f"Availability Zone ({zone}).",
                "Unsupported",
            )


def _official_image(ami_id: str, system: str, architecture: str) -> dict[str, Any]:
    return {
        "ImageId": ami_id,
        "Name": f"aws-parallelcluster-{utils.get_installed_version()}-{system}-{architecture}",
        "Description": f"AWS ParallelCluster AMI for {system}",
        "Architecture": architecture,
        "State": "available",
        "RootDeviceName": "/dev/xvda",
        "BlockDeviceMappings": [
            {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": _ROOT_VOLUME_GIB}}
        ],
        "Tags": [],
    }


@cache
def _instance_types() -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = _snapshot("instance_types.json.gz")
    return {name: {"InstanceType": name, **row} for name, row in rows.items()}


@cache
def _offerings(region: str) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = _snapshot(
        f"instance_type_offerings/availability-zone-id/{region}.json.gz"
    )
    return rows


def _snapshot(name: str) -> Any:
    compressed = files("moto").joinpath("ec2", "resources", *name.split("/")).read_bytes()
    return json.loads(gzip.decompress(compressed))
