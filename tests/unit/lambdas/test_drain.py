"""The drain: no new deliveries, and no deletion in the middle of one."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from drain import handler as drain
from tests.unit.lambdas.cloudformation import answers, looks, only, request

MACHINE = "arn:aws:states:us-west-2:111122223333:stateMachine:delivery"
EXECUTION = "arn:aws:states:us-west-2:111122223333:execution:delivery:run-1"
FUNCTION = "arn:aws:lambda:us-west-2:111122223333:function:drain"
PROPERTIES = {"Rule": "on-manifest", "StateMachine": MACHINE, "EndpointStack": "uc-dev-endpoint"}
SERVICES = ("events", "stepfunctions", "cloudformation", "lambda")


@functools.cache
def _client(service: str) -> Any:
    return boto3.client(
        service, region_name="us-west-2", aws_access_key_id="a", aws_secret_access_key="b"
    )


class Context:
    invoked_function_arn = FUNCTION


class Aws:
    """Real clients whose answers are given, in order; botocore checks every request."""

    def __init__(self) -> None:
        self.last_event: dict[str, Any] = {"type": "WaitStateEntered"}
        self.clients = {name: _client(name) for name in SERVICES}
        self.stubs = {name: Stubber(client) for name, client in self.clients.items()}
        for stub in self.stubs.values():
            stub.activate()

    def client(self, name: str, config: Any = None) -> Any:
        return self.clients[name]

    def running(self, *executions: str) -> None:
        self.stubs["stepfunctions"].add_response(
            "list_executions",
            {
                "executions": [
                    {
                        "executionArn": one,
                        "stateMachineArn": MACHINE,
                        "name": "run-1",
                        "status": "RUNNING",
                        "startDate": "2026-01-01",
                    }
                    for one in executions
                ]
            },
            {"stateMachineArn": MACHINE, "statusFilter": "RUNNING", "maxResults": 10},
        )
        for one in executions:
            self.stubs["stepfunctions"].add_response(
                "get_execution_history",
                {"events": [{"timestamp": "2026-01-01", "id": 7, **self.last_event}]},
                {
                    "executionArn": one,
                    "reverseOrder": True,
                    "maxResults": 1,
                    "includeExecutionData": False,
                },
            )

    def stack(self, status: str | None) -> None:
        stub = self.stubs["cloudformation"]
        if status is None:
            stub.add_client_error(
                "describe_stacks", "ValidationError", "Stack with id x does not exist"
            )
            return
        stack = {"StackName": "x", "CreationTime": "2026-01-01", "StackStatus": status}
        stub.add_response("describe_stacks", {"Stacks": [stack]}, {"StackName": "uc-dev-endpoint"})

    def rule(self, operation: str) -> None:
        self.stubs["events"].add_response(operation, {}, {"Name": "on-manifest"})

    def invoked(self) -> None:
        self.stubs["lambda"].add_response(
            "invoke",
            {"StatusCode": 202},
            {"FunctionName": FUNCTION, "InvocationType": "Event", "Payload": ANY},
        )

    def close(self) -> None:
        for stub in self.stubs.values():
            stub.deactivate()
            stub.assert_no_pending_responses()


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    account = Aws()
    monkeypatch.setattr("boto3.client", account.client)
    monkeypatch.setenv("POLL_SECONDS", "0")
    yield account
    account.close()


def ask(kind: str, **rest: Any) -> dict[str, Any]:
    with answers() as (url, received):
        drain.handler(request(kind, url, PROPERTIES, **rest), Context())
    return only(received)


def last_look() -> dict[str, Any]:
    return ask("Delete", PhysicalResourceId="drain", Deadline=0)


@pytest.mark.case("L01")
@pytest.mark.parametrize("kind", ["Create", "Update"])
def test_once_it_is_made_manifests_start_deliveries(aws: Aws, kind: str) -> None:
    aws.rule("enable_rule")
    answer = ask(kind)
    assert (answer["Status"], answer["PhysicalResourceId"]) == ("SUCCESS", "drain")


def test_its_end_lets_nothing_start_and_waits_for_what_runs(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = looks(aws.clients["lambda"], monkeypatch)
    with answers() as (url, received):
        # Events may still be on their way, so the first look ends nothing.
        aws.rule("disable_rule")
        aws.invoked()
        drain.handler(request("Delete", url, PROPERTIES, PhysicalResourceId="drain"), Context())
        aws.running(EXECUTION)
        aws.invoked()
        drain.handler(sent[-1], Context())
        aws.running()
        aws.stack("UPDATE_ROLLBACK_IN_PROGRESS")
        aws.invoked()
        drain.handler(sent[-1], Context())
        assert received == []
        assert len({event["Deadline"] for event in sent}) == 1
        aws.running()
        aws.stack("UPDATE_ROLLBACK_COMPLETE")
        drain.handler(sent[-1], Context())
    assert only(received)["Status"] == "SUCCESS"


def test_what_waits_for_a_person_is_stopped(aws: Aws) -> None:
    asked = {"resourceType": "sns", "resource": "publish.waitForTaskToken"}
    aws.last_event = {"type": "TaskSubmitted", "taskSubmittedEventDetails": asked}
    aws.running(EXECUTION)
    aws.stubs["stepfunctions"].add_response(
        "stop_execution",
        {"stopDate": "2026-01-01"},
        {"executionArn": EXECUTION, "error": "DeliveryDeleted", "cause": ANY},
    )
    # Whether it has ended is for the next look to see.
    assert last_look()["Status"] == "FAILED"


def test_a_function_under_way_is_left_alone(aws: Aws) -> None:
    called = {"resourceType": "lambda", "resource": "invoke", "region": "r", "parameters": "{}"}
    aws.last_event = {"type": "TaskScheduled", "taskScheduledEventDetails": called}
    aws.running(EXECUTION)
    assert EXECUTION in last_look()["Reason"]


@pytest.mark.parametrize("status", [None, "REVIEW_IN_PROGRESS"])
def test_without_an_endpoint_stack_there_is_nothing_to_wait_for(
    aws: Aws, status: str | None
) -> None:
    aws.running()
    aws.stack(status)
    assert last_look()["Status"] == "SUCCESS"


def test_a_rule_that_is_gone_is_as_good_as_disabled(aws: Aws) -> None:
    aws.stubs["events"].add_client_error("disable_rule", "ResourceNotFoundException")
    aws.invoked()
    with answers() as (url, received):
        drain.handler(request("Delete", url, PROPERTIES), Context())
    assert received == []


def test_a_delivery_that_does_not_end_is_named_with_what_to_do(aws: Aws) -> None:
    aws.running(EXECUTION)
    answer = last_look()
    assert answer["Status"] == "FAILED"
    assert f"still running: {EXECUTION}; let them end" in answer["Reason"]
    assert "stop-execution, then delete again" in answer["Reason"]


def test_a_stack_that_does_not_settle_is_named(aws: Aws) -> None:
    aws.running()
    aws.stack("UPDATE_IN_PROGRESS")
    answer = last_look()
    assert answer["Status"] == "FAILED"
    assert "stack uc-dev-endpoint is in UPDATE_IN_PROGRESS" in answer["Reason"]


@pytest.mark.case("L01")
@pytest.mark.parametrize(
    ("service", "operation"),
    [("stepfunctions", "list_executions"), ("cloudformation", "describe_stacks")],
)
def test_a_look_that_fails_ends_nothing(aws: Aws, service: str, operation: str) -> None:
    if service == "cloudformation":
        aws.running()
    aws.stubs[service].add_client_error(operation, "ThrottlingException", "slow down")
    answer = last_look()
    assert answer["Status"] == "FAILED"
    assert answer["Reason"].startswith("cannot see whether a delivery runs: ")


@pytest.mark.case("L01")
@pytest.mark.case("L04")
@pytest.mark.parametrize(
    ("kind", "operation"), [("Create", "enable_rule"), ("Delete", "disable_rule")]
)
def test_an_error_is_one_short_answer(aws: Aws, kind: str, operation: str) -> None:
    aws.stubs["events"].add_client_error(operation, "AccessDeniedException", "x" * 9000)
    answer = ask(kind)
    assert answer["Status"] == "FAILED"
    # Older releases of botocore have no class of its own for it.
    assert "AccessDeniedException" in answer["Reason"].partition(": x")[0]
    assert answer["PhysicalResourceId"] == "drain"


@pytest.mark.case("L01")
def test_properties_that_cannot_be_read_are_an_answer_too(aws: Aws) -> None:
    with answers() as (url, received):
        drain.handler(request("Create", url, {}), Context())
    assert only(received)["Reason"].startswith("KeyError: ")
