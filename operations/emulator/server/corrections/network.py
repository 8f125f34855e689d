"""VPC parts: attributes, zones by id, and what cannot be deleted while it is in use."""

from __future__ import annotations

from typing import Any

from ministack.core.responses import get_region
from ministack.services import ec2
from ministack.services.cloudformation import provisioners

from operations.emulator.server.corrections.handlers import (
    Properties,
    after_change,
    before_deletion,
)
from operations.emulator.server.fsx import FSx

# Zones of the regions that have other than three, as AWS lists them by id.
# https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-availability-zones.html
_ZONES = {"us-east-1": 6, "us-west-2": 4, "ap-northeast-1": 4, "ap-northeast-2": 4}
_USUAL_ZONES = 3


def apply(fsx: FSx) -> None:
    """Apply the corrections; `fsx` knows which subnets its file systems sit in."""
    after_change("AWS::EC2::VPC", _vpc_attributes)
    ec2._zone_name_for_az_id = _zone_name
    ec2._ACTION_MAP["DescribeAvailabilityZones"] = _describe_zones
    provisioners._ec2_subnet_zone = _subnet_zone

    def check_subnet(subnet: str) -> None:
        gateways = [
            identifier
            for identifier, gateway in ec2._nat_gateways.items()
            if gateway["SubnetId"] == subnet and gateway["State"] != "deleted"
        ]
        if gateways or subnet in fsx.subnets_in_use():
            raise ValueError(
                f"DependencyViolation: The subnet '{subnet}' has dependencies and "
                "cannot be deleted."
            )

    before_deletion("AWS::EC2::Subnet", check_subnet)
    before_deletion("AWS::EC2::SecurityGroup", _check_security_group)


def _vpc_attributes(
    vpc: str, attributes: dict[str, Any], old: Properties, new: Properties
) -> dict[str, Any]:
    """MiniStack has only three of the attributes that Fn::GetAtt may read."""
    return {
        **attributes,
        "CidrBlock": ec2._vpcs[vpc]["CidrBlock"],
        "CidrBlockAssociations": [f"vpc-cidr-assoc-{vpc.removeprefix('vpc-')}"],
        "Ipv6CidrBlocks": [],
    }


def _zone_names() -> list[str]:
    region = get_region()
    return [f"{region}{chr(ord('a') + i)}" for i in range(_ZONES.get(region, _USUAL_ZONES))]


def _zone_name(zone_id: str | None) -> str | None:
    """MiniStack has three zones in every region; Trainium is in the fourth of us-west-2."""
    names = {ec2._az_id_for_zone_name(name): name for name in _zone_names()}
    return names.get(zone_id or "")


def _subnet_zone(properties: Properties) -> str:
    """MiniStack takes the first zone for an unknown id; AWS refuses it."""
    name = properties.get("AvailabilityZone")
    zone_id = properties.get("AvailabilityZoneId")
    if name:
        return str(name)
    if zone_id is None:
        return _zone_names()[0]
    found = _zone_name(zone_id)
    if found is None:
        known = ", ".join(ec2._az_id_for_zone_name(zone) for zone in _zone_names())
        raise ValueError(
            f"Value ({zone_id}) for parameter availabilityZoneId is invalid. "
            f"Subnets can currently only be created in: {known}."
        )
    return found


def _describe_zones(params: dict[str, list[str]]) -> Any:
    region = get_region()
    fields = (
        ("regionName", region),
        ("zoneState", "available"),
        ("groupName", f"{region}-zg-1"),
        ("networkBorderGroup", region),
        ("optInStatus", "opt-in-not-required"),
        ("zoneType", "availability-zone"),
    )
    items = ""
    for name in _zone_names():
        own = (("zoneName", name), ("zoneId", ec2._az_id_for_zone_name(name)))
        items += (
            f"<item>{''.join(f'<{tag}>{text}</{tag}>' for tag, text in (*own, *fields))}</item>"
        )
    return ec2._xml(
        200,
        "DescribeAvailabilityZonesResponse",
        f"<availabilityZoneInfo>{items}</availabilityZoneInfo>",
    )


def _check_security_group(group: str) -> None:
    """AWS refuses to delete a group that a rule of another group names."""
    for other, content in ec2._security_groups.items():
        if other == group:
            continue
        rules = (*content["IpPermissions"], *content["IpPermissionsEgress"])
        if any(
            pair.get("GroupId") == group
            for rule in rules
            for pair in rule.get("UserIdGroupPairs", [])
        ):
            raise ValueError(
                f"DependencyViolation: resource {group} has a dependent object, a rule of {other}"
            )
