"""`cdk destroy` takes things away in an order in which each can go."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.deletion import DeletionOrder, Node
from tests.environments import Synthesized

Get = Callable[[str], Synthesized]


def nodes(environment: Synthesized, *types: str) -> list[Node]:
    return [(stack, name) for stack, name, _ in environment.resources(*types)]


@pytest.mark.case("S02")
@pytest.mark.case("F12")
@pytest.mark.parametrize("name", ["dev", "examples/no-nat", "examples/two-queues"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("AWS::SageMaker::Endpoint", "AWS::SageMaker::EndpointConfig"),
        ("AWS::SageMaker::EndpointConfig", "AWS::SageMaker::Model"),
        ("AWS::SageMaker::Model", "storage AWS::S3::Bucket"),
        ("Custom::DeliveryDrain", "AWS::SageMaker::Endpoint"),
        ("Custom::DeliveryDrain", "AWS::StepFunctions::StateMachine"),
        ("Custom::DeliveryDrain", "delivery AWS::Lambda::Function"),
        ("Custom::DeliveryDrain", "delivery AWS::IAM::Policy"),
        ("Custom::PclusterCluster", "AWS::FSx::DataRepositoryAssociation"),
        ("Custom::PclusterCluster", "AWS::EC2::Subnet"),
        ("Custom::PclusterCluster", "AWS::EC2::Route"),
        ("Custom::PclusterCluster", "AWS::EC2::NatGateway"),
        ("Custom::PclusterCluster", "AWS::EC2::VPCEndpoint"),
        ("AWS::FSx::DataRepositoryAssociation", "AWS::FSx::FileSystem"),
        ("AWS::FSx::FileSystem", "AWS::EC2::Subnet"),
        ("AWS::FSx::FileSystem", "AWS::EC2::VPC"),
        ("AWS::EC2::VPCEndpoint", "AWS::EC2::VPC"),
        ("AWS::EC2::NatGateway", "AWS::EC2::VPC"),
        ("AWS::EC2::FlowLog", "network AWS::Logs::LogGroup"),
    ],
)
def test_users_of_a_thing_go_before_it(
    name: str, first: str, second: str, synthesized: Get
) -> None:
    environment = synthesized(name)
    order = DeletionOrder(environment)
    stack, _, kind = second.rpartition(" ")
    pairs = [
        (a, b)
        for a in nodes(environment, first)
        for b in nodes(environment, kind)
        if stack in ("", b[0])
    ]
    gone = {"AWS::EC2::NatGateway", "AWS::EC2::Route"} if name == "examples/no-nat" else set()
    if gone & {first, kind}:
        assert pairs == []
    else:
        assert pairs
    for a, b in pairs:
        assert order.goes_before(a, b), f"{a} may outlive {b}"


@pytest.mark.case("S02")
@pytest.mark.case("F12")
def test_writers_go_before_their_bucket_is_emptied(synthesized: Get) -> None:
    environment = synthesized("dev")
    order = DeletionOrder(environment)
    emptied = {
        resource["Properties"]["BucketName"]["Ref"]: (stack, name)
        for stack, name, resource in environment.resources("Custom::S3AutoDeleteObjects")
    }
    assert emptied
    links = [
        ((stack, name), resource["Properties"]["DataRepositoryPath"]["Fn::Join"][1][1]["Ref"])
        for stack, name, resource in environment.resources("AWS::FSx::DataRepositoryAssociation")
    ]
    for link, bucket in links:
        assert order.goes_before(link, emptied[bucket])
    models = next(node for bucket, node in emptied.items() if bucket.startswith("Models"))
    for writer in nodes(environment, "Custom::PclusterCluster", "AWS::Lambda::Function"):
        if writer[0] in ("cluster", "delivery"):
            assert order.goes_before(writer, models)
    for bucket, node in emptied.items():
        assert order.goes_before(node, (node[0], bucket))


def test_file_system_goes_before_its_security_group(synthesized: Get) -> None:
    environment = synthesized("dev")
    order = DeletionOrder(environment)
    groups = [
        node for node in nodes(environment, "AWS::EC2::SecurityGroup") if node[0] != "cluster"
    ]
    file_system = nodes(environment, "AWS::FSx::FileSystem")[0]
    assert len(groups) == 2
    for group in groups:
        assert order.goes_before(file_system, group)
        assert not order.goes_before(group, file_system)
