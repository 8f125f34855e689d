"""The interface guard: a group is let go when SageMaker has let go of its interfaces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from interface_guard import handler as guard
from tests.unit.lambdas.cloudformation import answers, only, request

GROUP = "sg-0123456789abcdef0"
FUNCTION = "arn:aws:lambda:us-west-2:111122223333:function:guard"
FILTERS = {"Filters": [{"Name": "group-id", "Values": [GROUP]}]}


class Context:
    invoked_function_arn = FUNCTION


class Aws:
    """Real clients whose answers are given, in order; botocore checks every request."""

    def __init__(self) -> None:
        self.clients = {
            name: boto3.client(
                name, region_name="us-west-2", aws_access_key_id="a", aws_secret_access_key="b"
            )
            for name in ("ec2", "lambda")
        }
        self.ec2 = Stubber(self.clients["ec2"])
        self.ec2.activate()
        self.calls: list[dict[str, Any]] = []
        self.clients["lambda"].meta.events.register("before-call.lambda.Invoke", self._invoked)

    def client(self, name: str, config: Any = None) -> Any:
        return self.clients[name]

    def interfaces(self, *names: str) -> None:
        found = {"NetworkInterfaces": [{"NetworkInterfaceId": name} for name in names]}
        self.ec2.add_response("describe_network_interfaces", found, FILTERS)

    def _invoked(self, params: dict[str, Any], **rest: Any) -> tuple[Any, dict[str, Any]]:
        self.calls.append(json.loads(params["body"]))
        answer = type("Answer", (), {"status_code": 202, "headers": {}, "content": b""})()
        return answer, {"StatusCode": 202, "ResponseMetadata": {"HTTPStatusCode": 202}}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    account = Aws()
    monkeypatch.setattr(boto3, "client", account.client)
    monkeypatch.setenv("POLL_SECONDS", "0")
    yield account
    account.ec2.assert_no_pending_responses()


def test_made_and_changed_at_once_under_the_group_s_own_id(aws: Aws) -> None:
    for kind in ("Create", "Update"):
        with answers() as (url, received):
            guard.handler(request(kind, url, {"SecurityGroup": GROUP}), Context())
        answer = only(received)
        assert (answer["Status"], answer["PhysicalResourceId"]) == ("SUCCESS", GROUP)


@pytest.mark.case("M22")
def test_a_deletion_waits_until_the_last_interface_is_gone(aws: Aws) -> None:
    for left in (("eni-1", "eni-2"), ("eni-1", "eni-2"), ("eni-2",), ("eni-2",), ()):
        aws.interfaces(*left)
    with answers() as (url, received):
        event = request("Delete", url, {"SecurityGroup": GROUP}, PhysicalResourceId=GROUP)
        for look in range(5):
            assert received == []
            guard.handler(event, Context())
            assert len(aws.calls) == min(look + 1, 4)
            event = aws.calls[-1]
    answer = only(received)
    assert (answer["Status"], answer["PhysicalResourceId"]) == ("SUCCESS", GROUP)


@pytest.mark.case("M22")
def test_interfaces_that_never_go_are_named_before_cloudformation_gives_up(aws: Aws) -> None:
    aws.interfaces("eni-1")
    with answers() as (url, received):
        event = request("Delete", url, {"SecurityGroup": GROUP}, PhysicalResourceId=GROUP)
        guard.handler(event | {"Deadline": 0}, Context())
    answer = only(received)
    assert answer["Status"] == "FAILED"
    assert f"still in {GROUP}: eni-1; see which endpoint holds them" in answer["Reason"]


def test_a_look_that_fails_proves_nothing(aws: Aws) -> None:
    aws.ec2.add_client_error("describe_network_interfaces", "UnauthorizedOperation", "not you")
    with answers() as (url, received):
        event = request("Delete", url, {"SecurityGroup": GROUP}, PhysicalResourceId=GROUP)
        guard.handler(event | {"Deadline": 0}, Context())
    answer = only(received)
    assert answer["Status"] == "FAILED"
    assert "cannot see whether interfaces are left" in answer["Reason"]
