"""EC2 types: addresses, NAT gateways, flow logs and separate security group rules."""

from __future__ import annotations

from typing import Any, ClassVar

from operations.emulator.server.calls import already_gone_is_fine, client, typed
from operations.emulator.server.provisioners.resource_type import (
    Created,
    Properties,
    ResourceType,
)


def _tagged(kind: str, properties: Properties) -> dict[str, Any]:
    """The properties with EC2's way of tagging at creation."""
    plain = {key: value for key, value in properties.items() if key != "Tags"}
    if properties.get("Tags"):
        plain["TagSpecifications"] = [{"ResourceType": kind, "Tags": properties["Tags"]}]
    return plain


def _retag(resource: str, old: Properties, new: Properties) -> None:
    before = {tag["Key"] for tag in old.get("Tags") or []}
    after = {tag["Key"] for tag in new.get("Tags") or []}
    if before - after:
        client("ec2").delete_tags(
            Resources=[resource], Tags=[{"Key": key} for key in sorted(before - after)]
        )
    if new.get("Tags"):
        client("ec2").create_tags(Resources=[resource], Tags=new["Tags"])


class ElasticIp(ResourceType):
    """AWS::EC2::EIP; its physical id is the address."""

    name = "AWS::EC2::EIP"
    create_only = ("NetworkBorderGroup", "TransferAddress", "IpamPoolId", "Address")

    def create(self, logical_id: str, properties: Properties, stack: str) -> Created:
        """Allocate an address."""
        request = typed("ec2", "AllocateAddress", _tagged("elastic-ip", properties))
        address = client("ec2").allocate_address(**request)
        return address["PublicIp"], _pick(address, "AllocationId", "PublicIp")

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Created:
        """Change the tags, the only change in place that there is here."""
        if {**old, "Tags": None} != {**new, "Tags": None}:
            return super().update(physical_id, old, new, stack)
        address = self._find(physical_id)[0]
        _retag(address["AllocationId"], old, new)
        return physical_id, _pick(address, "AllocationId", "PublicIp")

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Release the address."""
        for address in self._find(physical_id):
            with already_gone_is_fine():
                client("ec2").release_address(AllocationId=address["AllocationId"])

    @staticmethod
    def _find(public_ip: str) -> list[dict[str, Any]]:
        addresses = client("ec2").describe_addresses()["Addresses"]
        return [address for address in addresses if address["PublicIp"] == public_ip]


class NatGateway(ResourceType):
    """AWS::EC2::NatGateway."""

    name = "AWS::EC2::NatGateway"
    create_only = (
        "VpcId",
        "SubnetId",
        "ConnectivityType",
        "AllocationId",
        "PrivateIpAddress",
        "AvailabilityMode",
    )

    def create(self, logical_id: str, properties: Properties, stack: str) -> Created:
        """Make the gateway."""
        request = typed("ec2", "CreateNatGateway", _tagged("natgateway", properties))
        gateway = client("ec2").create_nat_gateway(**request)["NatGateway"]
        return gateway["NatGatewayId"], {"NatGatewayId": gateway["NatGatewayId"]}

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Created:
        """Change the tags, the only change in place that there is here."""
        if {**old, "Tags": None} != {**new, "Tags": None}:
            return super().update(physical_id, old, new, stack)
        _retag(physical_id, old, new)
        return physical_id, {"NatGatewayId": physical_id}

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete the gateway; AWS goes on listing it as `deleted` for about an hour."""
        with already_gone_is_fine():
            client("ec2").delete_nat_gateway(NatGatewayId=physical_id)


class FlowLog(ResourceType):
    """AWS::EC2::FlowLog."""

    name = "AWS::EC2::FlowLog"
    create_only = (
        "DeliverCrossAccountRole",
        "DeliverLogsPermissionArn",
        "LogGroupName",
        "LogDestination",
        "ResourceId",
        "TrafficType",
        "LogDestinationType",
        "ResourceType",
        "LogFormat",
        "MaxAggregationInterval",
        "DestinationOptions",
        "TagFieldSpecifications",
    )

    def create(self, logical_id: str, properties: Properties, stack: str) -> Created:
        """Start the flow log."""
        request = _tagged("vpc-flow-log", properties)
        request["ResourceIds"] = [request.pop("ResourceId")]
        made = client("ec2").create_flow_logs(**typed("ec2", "CreateFlowLogs", request))
        return made["FlowLogIds"][0], {"Id": made["FlowLogIds"][0]}

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Created:
        """Change the tags, the only property that is not create-only."""
        _retag(physical_id, old, new)
        return physical_id, {"Id": physical_id}

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Stop the flow log; its log group is another resource."""
        with already_gone_is_fine():
            client("ec2").delete_flow_logs(FlowLogIds=[physical_id])


class _SecurityGroupRule(ResourceType):
    """A rule that stands apart from its security group."""

    direction: ClassVar[str]  # ingress or egress
    peer: ClassVar[str]  # Source or Destination

    def create(self, logical_id: str, properties: Properties, stack: str) -> Created:
        """Add the rule."""
        answer = self._call("authorize", properties)
        rule = answer["SecurityGroupRules"][0]["SecurityGroupRuleId"]
        return rule, {"Id": rule}

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Created:
        """Change the description, the only property that is not create-only."""
        self._call("update", new)
        return physical_id, {"Id": physical_id}

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Take the rule back."""
        with already_gone_is_fine():
            self._call("revoke", properties)

    def _call(self, verb: str, properties: Properties) -> dict[str, Any]:
        calls = client("ec2")
        method = getattr(
            calls,
            {
                "authorize": f"authorize_security_group_{self.direction}",
                "revoke": f"revoke_security_group_{self.direction}",
                "update": f"update_security_group_rule_descriptions_{self.direction}",
            }[verb],
        )
        operation = calls.meta.method_to_api_mapping[method.__name__]
        answer: dict[str, Any] = method(**typed("ec2", operation, self._request(properties)))
        return answer

    def _request(self, properties: Properties) -> dict[str, Any]:
        rest = dict(properties)
        request: dict[str, Any] = {"GroupId": rest.pop("GroupId")}
        note = {"Description": rest.pop("Description")} if "Description" in rest else {}
        permission: dict[str, Any] = {
            key: rest.pop(key) for key in ("IpProtocol", "FromPort", "ToPort") if key in rest
        }
        for key, ranges in (("CidrIp", "IpRanges"), ("CidrIpv6", "Ipv6Ranges")):
            if key in rest:
                permission[ranges] = [{key: rest.pop(key), **note}]
        prefix_list = rest.pop(f"{self.peer}PrefixListId", None)
        if prefix_list:
            permission["PrefixListIds"] = [{"PrefixListId": prefix_list, **note}]
        group = rest.pop(f"{self.peer}SecurityGroupId", None)
        if group:
            owner = rest.pop("SourceSecurityGroupOwnerId", None)
            pair = {"GroupId": group, **({"UserId": owner} if owner else {}), **note}
            permission["UserIdGroupPairs"] = [pair]
        return {**request, "IpPermissions": [permission], **rest}


class SecurityGroupIngress(_SecurityGroupRule):
    """AWS::EC2::SecurityGroupIngress."""

    name = "AWS::EC2::SecurityGroupIngress"
    direction = "ingress"
    peer = "Source"
    create_only = (
        "GroupName",
        "IpProtocol",
        "SourceSecurityGroupId",
        "SourcePrefixListId",
        "ToPort",
        "CidrIp",
        "SourceSecurityGroupName",
        "SourceSecurityGroupOwnerId",
        "FromPort",
        "GroupId",
        "CidrIpv6",
    )


class SecurityGroupEgress(_SecurityGroupRule):
    """AWS::EC2::SecurityGroupEgress."""

    name = "AWS::EC2::SecurityGroupEgress"
    direction = "egress"
    peer = "Destination"
    create_only = (
        "IpProtocol",
        "DestinationSecurityGroupId",
        "ToPort",
        "CidrIp",
        "FromPort",
        "GroupId",
        "CidrIpv6",
        "DestinationPrefixListId",
    )


def _pick(source: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: source[key] for key in keys}
