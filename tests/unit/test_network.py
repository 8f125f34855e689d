"""The network: zones by id, endpoints, EFA rules, and what an imported VPC changes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.environments import ENVIRONMENTS, ROOT, Synthesized, synthesize
from ultracluster.private_access import interface_services
from ultracluster.settings import load_settings

Get = Callable[[str], Synthesized]
Resources = Mapping[str, Mapping[str, Any]]


def of_type(resources: Resources, kind: str) -> dict[str, Mapping[str, Any]]:
    return {
        name: resource["Properties"]
        for name, resource in resources.items()
        if resource["Type"] == kind
    }


def service(properties: Mapping[str, Any]) -> str:
    name = properties["ServiceName"]
    text = name if isinstance(name, str) else "".join(map(str, name["Fn::Join"][1]))
    return text.split("us-west-2")[-1].split("'AWS::Region'}")[-1].lstrip(".")


def route_tables(resources: Resources) -> tuple[set[str], set[str]]:
    """Route tables without and with a route to the internet gateway."""
    public = {
        route["RouteTableId"]["Ref"]
        for route in of_type(resources, "AWS::EC2::Route").values()
        if "GatewayId" in route
    }
    return set(of_type(resources, "AWS::EC2::RouteTable")) - public, public


def missing_access(resources: Resources, wanted: tuple[str, ...]) -> list[str]:
    """What a network without NAT lacks: gateway endpoints on private tables, interface endpoints."""
    endpoints = of_type(resources, "AWS::EC2::VPCEndpoint").values()
    private, _ = route_tables(resources)
    lacking = []
    for gateway in ("s3", "dynamodb"):
        tables = {
            table if isinstance(table, str) else table["Ref"]
            for endpoint in endpoints
            if endpoint.get("VpcEndpointType", "Gateway") == "Gateway"
            and service(endpoint) == gateway
            for table in endpoint["RouteTableIds"]
        }
        if not private <= tables:
            lacking.append(gateway)
    interfaces = {service(e) for e in endpoints if e.get("VpcEndpointType") == "Interface"}
    return [*lacking, *sorted(set(wanted) - interfaces)]


def custom(tmp_path: Path, text: str, name: str = "own") -> Synthesized:
    (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    return synthesize(str(tmp_path / f"{name}.toml"), tmp_path / "out")


@pytest.mark.case("N02")
@pytest.mark.case("N04")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_subnets_are_placed_by_az_id(name: str, synthesized: Get) -> None:
    template = synthesized(name).templates["network"]
    subnets = of_type(template["Resources"], "AWS::EC2::Subnet").values()
    zones = {"usw2-az4", "usw2-az1"} if name == "examples/serving" else {"usw2-az4"}
    assert {subnet["AvailabilityZoneId"] for subnet in subnets} <= zones
    assert all("AvailabilityZone" not in subnet for subnet in subnets)
    assert "Fn::GetAZs" not in json.dumps(template)
    counts = {"examples/imported-vpc": 0, "examples/no-nat": 1, "examples/serving": 4}
    assert len(subnets) == counts.get(name, 2)


@pytest.mark.case("N04")
@pytest.mark.case("N05")
@pytest.mark.parametrize("account", ["", 'account = "111122223333"\n'])
@pytest.mark.parametrize("second", ["", 'second_az_id = "usw2-az1"\n'])
def test_zones_and_environment_reach_every_stack(account: str, second: str, tmp_path: Path) -> None:
    made = custom(
        tmp_path,
        f'[aws]\nregion = "us-west-2"\n{account}[network]\naccelerator_az_id = "usw2-az4"\n{second}'
        '[[cluster.queues]]\nname = "train"\n',
    )
    subnets = of_type(made.templates["network"]["Resources"], "AWS::EC2::Subnet")
    zones = ["usw2-az4", "usw2-az1"] if second else ["usw2-az4"]
    private = [s for name, s in sorted(subnets.items()) if "Private" in name]
    assert [s["AvailabilityZoneId"] for s in private] == zones
    assert len(subnets) == 2 * len(zones)
    # A second zone moves nothing of the first.
    assert private[0]["CidrBlock"] == "10.0.2.0/23"
    manifest = json.loads((made.folder / "manifest.json").read_text())
    stacks = [a for a in manifest["artifacts"].values() if a["type"] == "aws:cloudformation:stack"]
    wanted = f"aws://{'111122223333' if account else 'unknown-account'}/us-west-2"
    assert {artifact["environment"] for artifact in stacks} == {wanted}


@pytest.mark.case("N08")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_no_subnet_gives_public_addresses(name: str, synthesized: Get) -> None:
    resources = synthesized(name).templates["network"]["Resources"]
    for subnet in of_type(resources, "AWS::EC2::Subnet").values():
        assert not subnet.get("MapPublicIpOnLaunch", False)


@pytest.mark.case("N11")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_vpc_resolves_names(name: str, synthesized: Get) -> None:
    vpcs = of_type(synthesized(name).templates["network"]["Resources"], "AWS::EC2::VPC").values()
    assert len(vpcs) == (0 if name == "examples/imported-vpc" else 1)
    for vpc in vpcs:
        assert vpc["EnableDnsSupport"] is True
        assert vpc["EnableDnsHostnames"] is True


@pytest.mark.case("N10")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_private_route_table_has_gateway_endpoints(name: str, synthesized: Get) -> None:
    resources = synthesized(name).templates["network"]["Resources"]
    assert missing_access(resources, ()) == []
    private, _ = route_tables(resources)
    assert private or name == "examples/imported-vpc"
    for endpoint, body in resources.items():
        if body["Type"] == "AWS::EC2::VPCEndpoint" and private and name == "dev":
            assert missing_access({k: v for k, v in resources.items() if k != endpoint}, ()) != []


@pytest.mark.case("N09")
def test_network_without_nat_has_every_endpoint(synthesized: Get, tmp_path: Path) -> None:
    resources = synthesized("examples/no-nat").templates["network"]["Resources"]
    settings = load_settings("examples/no-nat", ROOT / "config")
    wanted = interface_services(settings)
    assert {"ec2", "cloudformation", "logs", "ssm"} <= set(wanted)
    assert missing_access(resources, wanted) == []
    for name, body in resources.items():
        if body["Type"] != "AWS::EC2::VPCEndpoint":
            continue
        rest = {key: value for key, value in resources.items() if key != name}
        assert missing_access(rest, wanted) == [service(body["Properties"])]
    kinds = {resource["Type"] for resource in resources.values()}
    assert not kinds & {"AWS::EC2::NatGateway", "AWS::EC2::InternetGateway", "AWS::EC2::EIP"}


@pytest.mark.case("N09")
@pytest.mark.parametrize(
    ("more", "services"),
    [
        ("[cluster.login_nodes]\n", {"elasticloadbalancing", "autoscaling"}),
        ("[cluster]\ncontainers = true\n", {"ecr.api", "ecr.dkr"}),
        ("[buckets]\ncustomer_key = true\n", {"kms"}),
        (
            '[cluster.accounting]\nuri = "db.local"\nuser_name = "slurm"\npassword_secret_arn = '
            '"arn:aws:secretsmanager:us-west-2:111122223333:secret:db-AbCdEf"\n',
            {"secretsmanager"},
        ),
    ],
)
def test_features_bring_their_endpoints(more: str, services: set[str], tmp_path: Path) -> None:
    text = (ROOT / "config" / "examples" / "no-nat.toml").read_text()
    if more.startswith("[cluster]"):
        text = text.replace("[cluster]\n", more)
        more = ""
    (tmp_path / "own.toml").write_text(text + more)
    plain = set(interface_services(load_settings("examples/no-nat", ROOT / "config")))
    assert set(interface_services(load_settings("own", tmp_path))) - plain == services


@pytest.mark.case("N07")
def test_public_head_node_has_a_public_subnet_without_nat(tmp_path: Path) -> None:
    text = (ROOT / "config" / "examples" / "no-nat.toml").read_text()
    made = custom(tmp_path, text + "[cluster.head_node]\npublic = true\n")
    resources = made.templates["network"]["Resources"]
    _, public = route_tables(resources)
    assert len(public) == 1
    # Private ranges stay where they are without the public subnet.
    cidrs = {
        name: subnet["CidrBlock"] for name, subnet in of_type(resources, "AWS::EC2::Subnet").items()
    }
    assert sorted(cidrs.values()) == ["10.0.0.0/26", "10.0.2.0/23"]


@pytest.mark.case("E01")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_nodes_talk_efa_among_themselves_both_ways(name: str, synthesized: Get) -> None:
    resources = synthesized(name).templates["network"]["Resources"]
    groups = [n for n in of_type(resources, "AWS::EC2::SecurityGroup") if "Cluster" in n]
    assert len(groups) == 1
    own = {"Fn::GetAtt": [groups[0], "GroupId"]}
    for kind, peer in (
        ("Ingress", "SourceSecurityGroupId"),
        ("Egress", "DestinationSecurityGroupId"),
    ):
        rules = of_type(resources, f"AWS::EC2::SecurityGroup{kind}").values()
        own_rules = [r for r in rules if r["GroupId"] == own and r.get(peer) == own]
        assert [rule["IpProtocol"] for rule in own_rules] == ["-1"], kind


@pytest.mark.case("P22")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_nothing_is_open_to_the_world(name: str, synthesized: Get) -> None:
    for stack, logical_id, resource in synthesized(name).resources(
        "AWS::EC2::SecurityGroup", "AWS::EC2::SecurityGroupIngress"
    ):
        rules = resource["Properties"].get("SecurityGroupIngress", [resource["Properties"]])
        for rule in rules:
            assert rule.get("CidrIp") != "0.0.0.0/0", (stack, logical_id)
            assert rule.get("CidrIpv6") != "::/0", (stack, logical_id)


def test_flow_log_is_kept_as_long_as_the_settings_say(synthesized: Get) -> None:
    for name, days, policy in (("dev", 90, "Delete"), ("prod", 365, "Retain")):
        resources = synthesized(name).templates["network"]["Resources"]
        (group,) = [r for r in resources.values() if r["Type"] == "AWS::Logs::LogGroup"]
        assert group["Properties"]["RetentionInDays"] == days
        assert group["DeletionPolicy"] == policy
        (flow_log,) = of_type(resources, "AWS::EC2::FlowLog").values()
        assert flow_log["TrafficType"] == "ALL"


def test_imported_vpc_gets_only_what_is_ours(synthesized: Get) -> None:
    resources = synthesized("examples/imported-vpc").templates["network"]["Resources"]
    assert sorted(r["Type"] for r in resources.values()) == [
        "AWS::EC2::SecurityGroup",
        "AWS::EC2::SecurityGroupEgress",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::VPCEndpoint",
        "AWS::EC2::VPCEndpoint",
    ]
    for endpoint in of_type(resources, "AWS::EC2::VPCEndpoint").values():
        assert endpoint["RouteTableIds"] == ["rtb-0123456789abcdef0"]
        assert endpoint["VpcId"] == "vpc-0123456789abcdef0"


def test_kept_network_stays(tmp_path: Path) -> None:
    text = (ROOT / "config" / "dev.toml").read_text()
    kept = text.replace("[network]\n", "[network]\nkeep = true\n") + "[lustre]\nkeep = true\n"
    made = custom(tmp_path, kept)
    policies = {
        (resource["Type"], resource.get("DeletionPolicy"))
        for _, _, resource in made.resources(
            "AWS::EC2::VPC", "AWS::EC2::Subnet", "AWS::EC2::SecurityGroup", "AWS::FSx::FileSystem"
        )
    }
    assert {policy for _, policy in policies} == {"Retain"}


@pytest.mark.case("L10")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_no_function_lives_in_the_vpc(name: str, synthesized: Get) -> None:
    functions = list(synthesized(name).resources("AWS::Lambda::Function"))
    assert functions
    assert all("VpcConfig" not in resource["Properties"] for _, _, resource in functions)


def test_checks_of_this_file_see_a_loss(synthesized: Get) -> None:
    """A gateway endpoint that forgets one route table is noticed."""
    resources = copy.deepcopy(synthesized("dev").templates["network"]["Resources"])
    private, _ = route_tables(resources)
    for resource in resources.values():
        if resource["Type"] == "AWS::EC2::VPCEndpoint":
            tables = resource["Properties"]["RouteTableIds"]
            resource["Properties"]["RouteTableIds"] = [t for t in tables if t["Ref"] not in private]
    assert missing_access(resources, ()) == ["s3", "dynamodb"]
