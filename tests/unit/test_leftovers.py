"""What is left of an account: nothing is hidden, and what may stay has a reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from operations.leftover_kinds import KINDS
from operations.leftovers import Leftover, find, render

PREFIX = "ultracluster-dev"
Answers = Mapping[str, Mapping[str, Any] | Exception]


class Client:
    """One service: answers from a table, an empty list of everything else."""

    def __init__(self, service: str, answers: Answers) -> None:
        self._service = service
        self._answers = answers

    def can_paginate(self, operation: str) -> bool:
        return False

    def get_paginator(self, operation: str) -> Client:
        self._operation = operation
        return self

    def paginate(self, **arguments: Any) -> Iterator[Mapping[str, Any]]:
        yield getattr(self, self._operation)(**arguments)

    def __getattr__(self, operation: str) -> Any:
        answer = self._answers.get(f"{self._service}.{operation}", {})

        def call(**arguments: Any) -> Mapping[str, Any]:
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


def findings(**answers: Mapping[str, Any] | Exception) -> list[Leftover]:
    """What is found where `service__operation` answers so and all else is empty."""
    table = {name.replace("__", "."): answer for name, answer in answers.items()}
    table.setdefault("cloudformation.list_stack_resources", {"StackResourceSummaries": []})
    table.setdefault("ec2.describe_vpcs", {"Vpcs": []})
    table.setdefault("sts.get_caller_identity", {"Account": "111122223333"})
    return find(lambda service: Client(service, table), prefix=PREFIX)


def look(**answers: Mapping[str, Any] | Exception) -> list[tuple[str, str, bool]]:
    """What is found, as kind, identifier and whether it is expected."""
    return [(item.kind, item.identifier, item.expected) for item in findings(**answers)]


def test_an_empty_account_has_no_leftovers() -> None:
    assert look() == []
    assert render([]) == "nothing is left"


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"s3__list_buckets": {"Buckets": [{"Name": "ultracluster-dev-models"}]}},
         ("s3 bucket", "ultracluster-dev-models", False)),
        ({"sqs__list_queues": {"QueueUrls": ["https://sqs.us-west-2.amazonaws.com/1/dead"]}},
         ("sqs queue", "https://sqs.us-west-2.amazonaws.com/1/dead", False)),
        ({"logs__describe_log_groups": {"logGroups": [{"logGroupName": "/aws/lambda/f"}]}},
         ("log group", "/aws/lambda/f", True)),
        ({"logs__describe_log_groups": {"logGroups": [{"logGroupName": "/ultracluster/nodes"}]}},
         ("log group", "/ultracluster/nodes", False)),
        ({"ec2__describe_nat_gateways": {"NatGateways": [
            {"NatGatewayId": "nat-1", "State": "deleted", "VpcId": "vpc-1"}]}},
         ("nat gateway", "nat-1", True)),
        ({"ec2__describe_nat_gateways": {"NatGateways": [
            {"NatGatewayId": "nat-1", "State": "deleting", "VpcId": "vpc-1"}]}},
         ("nat gateway", "nat-1", False)),
        ({"ec2__describe_instances": {"Reservations": [{"Instances": [
            {"InstanceId": "i-1", "State": {"Name": "running"}}]}]}},
         ("ec2 instance", "i-1", False)),
        ({"iam__list_roles": {"Roles": [
            {"RoleName": "AWSServiceRoleForX", "Path": "/aws-service-role/x/"}]}},
         ("iam role", "AWSServiceRoleForX", True)),
        ({"iam__list_roles": {"Roles": [{"RoleName": "someone", "Path": "/"}]}},
         ("iam role", "someone", False)),
        ({"events__list_rules": {"Rules": [{"Name": "r", "ManagedBy": "states.amazonaws.com"}]}},
         ("event rule", "r", True)),
        ({"budgets__describe_budgets": {"Budgets": [{"BudgetName": "monthly"}]}},
         ("budget", "monthly", False)),
        ({"dynamodb__list_tables": {"TableNames": ["parallelcluster-slurm-x"]}},
         ("dynamodb table", "parallelcluster-slurm-x", False)),
    ],
)  # fmt: skip
def test_one_thing(answers: dict[str, Any], expected: tuple[str, str, bool]) -> None:
    assert look(**answers) == [expected]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ({"KeyManager": "CUSTOMER", "KeyState": "Enabled"}, False),
        ({"KeyManager": "CUSTOMER", "KeyState": "PendingDeletion",
          "DeletionDate": datetime(2027, 1, 2, tzinfo=UTC)}, True),
        ({"KeyManager": "AWS", "KeyState": "Enabled"}, True),
    ],
)  # fmt: skip
def test_a_key_may_stay_while_it_waits_for_its_deletion(
    key: dict[str, Any], expected: bool
) -> None:
    found = look(
        kms__list_keys={"Keys": [{"KeyId": "k", "KeyArn": "arn:k"}]},
        kms__describe_key={"KeyMetadata": {"KeyId": "k", **key}},
    )
    assert found == [("kms key", "k", expected)]


def test_the_bootstrap_stack_s_own_parts_may_stay_and_nothing_that_is_only_named_alike() -> None:
    found = look(
        cloudformation__list_stacks={"StackSummaries": [
            {"StackName": "CDKToolkit"}, {"StackName": "ultracluster-dev-network"}]},
        cloudformation__list_stack_resources={"StackResourceSummaries": [
            {"PhysicalResourceId": "cdk-hnb659fds-assets-1-us-west-2"}]},
        s3__list_buckets={"Buckets": [
            {"Name": "cdk-hnb659fds-assets-1-us-west-2"}, {"Name": "cdk-hnb659fds-assets-2"}]},
    )  # fmt: skip
    assert found == [
        ("s3 bucket", "cdk-hnb659fds-assets-2", False),
        ("stack", "ultracluster-dev-network", False),
        ("s3 bucket", "cdk-hnb659fds-assets-1-us-west-2", True),
        ("stack", "CDKToolkit", True),
    ]


def test_an_account_that_was_never_bootstrapped() -> None:
    missing = ClientError(
        {"Error": {"Code": "ValidationError", "Message": "Stack CDKToolkit does not exist"}}, "L"
    )
    assert look(cloudformation__list_stack_resources=missing) == []


def test_the_default_vpc_may_stay_but_not_what_was_put_into_it() -> None:
    found = look(
        ec2__describe_vpcs={"Vpcs": [
            {"VpcId": "vpc-0", "IsDefault": True}, {"VpcId": "vpc-1", "IsDefault": False}]},
        ec2__describe_subnets={"Subnets": [
            {"SubnetId": "subnet-0", "VpcId": "vpc-0"}, {"SubnetId": "subnet-1", "VpcId": "vpc-1"}]},
        ec2__describe_internet_gateways={"InternetGateways": [
            {"InternetGatewayId": "igw-0", "Attachments": [{"VpcId": "vpc-0"}]},
            {"InternetGatewayId": "igw-1", "Attachments": []}]},
        ec2__describe_security_groups={"SecurityGroups": [
            {"GroupId": "sg-0", "GroupName": "default", "VpcId": "vpc-0"},
            {"GroupId": "sg-1", "GroupName": "nodes", "VpcId": "vpc-0"}]},
        ec2__describe_nat_gateways={"NatGateways": [
            {"NatGatewayId": "nat-0", "State": "available", "VpcId": "vpc-0"}]},
        ec2__describe_route_tables={"RouteTables": [
            {"RouteTableId": "rtb-0", "VpcId": "vpc-1", "Associations": [{"Main": True}]},
            {"RouteTableId": "rtb-1", "VpcId": "vpc-1", "Associations": []}]},
    )  # fmt: skip
    assert found == [
        ("internet gateway", "igw-1", False),
        ("nat gateway", "nat-0", False),
        ("route table", "rtb-1", False),
        ("security group", "sg-1", False),
        ("subnet", "subnet-1", False),
        ("vpc", "vpc-1", False),
        ("internet gateway", "igw-0", True),
        ("subnet", "subnet-0", True),
        ("vpc", "vpc-0", True),
    ]


def test_a_service_that_cannot_be_asked_is_a_leftover_itself() -> None:
    denied = ClientError({"Error": {"Code": "AccessDenied", "Message": "not you"}}, "ListModels")
    [(kind, identifier, expected)] = look(sagemaker__list_models=denied)
    assert (kind, expected) == ("sagemaker model", False)
    assert "not listed" in identifier
    assert "not you" in identifier


def test_what_carries_our_prefix_or_tag_is_ours() -> None:
    topic = "arn:aws:sns:us-west-2:1:ultracluster-dev-t"
    tags = [{"Key": "aws:cloudformation:stack-name", "Value": "ultracluster-dev-network"}]
    found = findings(
        ec2__describe_addresses={"Addresses": [
            {"AllocationId": "eipalloc-1", "Tags": tags}, {"AllocationId": "eipalloc-2"}]},
        sns__list_topics={"Topics": [{"TopicArn": topic}]},
    )  # fmt: skip
    ours = {item.identifier: item.ours for item in found}
    assert ours == {"eipalloc-1": True, "eipalloc-2": False, topic: True}


def test_the_text_has_leftovers_first_and_the_reasons_of_the_rest() -> None:
    text = render(
        findings(
            ec2__describe_vpcs={"Vpcs": [{"VpcId": "vpc-0", "IsDefault": True}]},
            s3__list_buckets={"Buckets": [{"Name": "forgotten"}]},
        )
    )
    assert text.splitlines() == [
        "left over: 1",
        "  s3 bucket forgotten",
        "stays, as it should: 1",
        "  vpc vpc-0 (part of the default VPC)",
    ]


def test_each_kind_is_listed_in_its_own_way() -> None:
    ways = [(kind.service, kind.operation, kind.items) for kind in KINDS]
    assert len(set(ways)) == len(ways)
    assert len({kind.name for kind in KINDS}) == len(KINDS)
