"""The guard: other clusters are left alone, and the network waits for the last node."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ReadTimeoutError
from botocore.stub import ANY, Stubber

from cluster_guard import handler as guard
from tests.unit.lambdas.cloudformation import STACK, answers, looks, only, request

NAME = "uc-dev"
PROPERTIES = {
    "ClusterName": NAME,
    "ClusterResource": "TrainiumCluster",
    "SecurityGroup": "sg-0123456789abcdef0",
}
FUNCTION = "arn:aws:lambda:us-west-2:111122223333:function:guard"


@functools.cache
def _client(service: str, region: str) -> Any:
    return boto3.client(
        service,
        region_name=region,
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )


class Context:
    invoked_function_arn = FUNCTION


class Aws:
    """Real clients whose answers are given; botocore checks every request against its model."""

    def __init__(self, region: str) -> None:
        self.region = region
        self.configs: dict[str, Any] = {}
        self.clients = {name: _client(name, region) for name in ("cloudformation", "ec2", "lambda")}
        self.stubs = {name: Stubber(client) for name, client in self.clients.items()}
        for stub in self.stubs.values():
            stub.activate()

    def client(self, name: str, config: Any = None) -> Any:
        self.configs[name] = config
        return self.clients[name]

    def stack(self, status: str | None) -> None:
        stub = self.stubs["cloudformation"]
        if status is None:
            stub.add_client_error(
                "describe_stacks", "ValidationError", f"Stack with id {NAME} does not exist"
            )
            return
        stack = {"StackName": NAME, "CreationTime": "2026-01-01", "StackStatus": status}
        stub.add_response("describe_stacks", {"Stacks": [stack]}, {"StackName": NAME})

    def own_resource(self, physical_id: str | None, status: str = "CREATE_COMPLETE") -> None:
        stub = self.stubs["cloudformation"]
        if physical_id is None:
            stub.add_client_error("describe_stack_resource", "ValidationError", "no such resource")
            return
        stub.add_response(
            "describe_stack_resource",
            {
                "StackResourceDetail": {
                    "LogicalResourceId": "TrainiumCluster",
                    "ResourceType": "Custom::PclusterCluster",
                    "LastUpdatedTimestamp": "2026-01-01",
                    "ResourceStatus": status,
                    "PhysicalResourceId": physical_id,
                }
            },
            {"StackName": STACK, "LogicalResourceId": "TrainiumCluster"},
        )

    def nodes(self, *instances: str, interfaces: tuple[str, ...] = ()) -> None:
        self.stubs["ec2"].add_response(
            "describe_instances",
            {"Reservations": [{"Instances": [{"InstanceId": one} for one in instances]}]},
            {
                "Filters": [
                    {"Name": "tag:parallelcluster:cluster-name", "Values": [NAME]},
                    {"Name": "instance-state-name", "Values": ANY},
                ]
            },
        )
        self.stubs["ec2"].add_response(
            "describe_network_interfaces",
            {"NetworkInterfaces": [{"NetworkInterfaceId": one} for one in interfaces]},
            {"Filters": [{"Name": "group-id", "Values": [PROPERTIES["SecurityGroup"]]}]},
        )

    def invoked(self) -> None:
        self.stubs["lambda"].add_response(
            "invoke",
            {"StatusCode": 202},
            {"FunctionName": FUNCTION, "InvocationType": "Event", "Payload": ANY},
        )

    def done(self) -> None:
        for stub in self.stubs.values():
            stub.assert_no_pending_responses()

    def close(self) -> None:
        for stub in self.stubs.values():
            stub.deactivate()


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    account = Aws("us-west-2")
    monkeypatch.setattr("boto3.client", account.client)
    monkeypatch.setenv("POLL_SECONDS", "0")
    yield account
    account.close()
    account.done()


def ask(kind: str, **rest: Any) -> dict[str, Any]:
    with answers() as (url, received):
        guard.handler(request(kind, url, PROPERTIES, **rest), Context())
    return only(received)


@pytest.mark.case("L01")
@pytest.mark.parametrize("status", [None, "DELETE_COMPLETE"])
def test_a_free_name_is_taken(aws: Aws, status: str | None) -> None:
    aws.stack(status)
    answer = ask("Create")
    assert (answer["Status"], answer["PhysicalResourceId"]) == ("SUCCESS", "guard/uc-dev")


@pytest.mark.case("P09")
def test_a_name_of_someone_else_is_refused_and_its_roll_back_touches_nothing(aws: Aws) -> None:
    aws.stack("CREATE_COMPLETE")
    aws.own_resource(None)
    answer = ask("Create")
    assert answer["Status"] == "FAILED"
    assert (
        "a stack 'uc-dev' exists (CREATE_COMPLETE) that this stack did not make"
        in (answer["Reason"])
    )
    aws.done()
    ended = ask("Delete", PhysicalResourceId=answer["PhysicalResourceId"])
    assert (ended["Status"], ended["PhysicalResourceId"]) == ("SUCCESS", "refused/uc-dev")


def test_a_cluster_that_had_no_guard_yet_is_ours(aws: Aws) -> None:
    aws.stack("UPDATE_COMPLETE")
    aws.own_resource(NAME)
    assert ask("Create")["Status"] == "SUCCESS"


@pytest.mark.parametrize(
    ("physical_id", "status"),
    [("uc-dev_TrainiumCluster_AB12", "CREATE_COMPLETE"), (NAME, "DELETE_COMPLETE")],
)
def test_a_resource_that_holds_no_cluster_is_not_ours(
    aws: Aws, physical_id: str, status: str
) -> None:
    aws.stack("CREATE_COMPLETE")
    aws.own_resource(physical_id, status)
    assert ask("Create")["Status"] == "FAILED"


@pytest.mark.case("P09")
def test_a_changed_name_fails_before_any_call(aws: Aws) -> None:
    answer = ask("Update", PhysicalResourceId="guard/old-name")
    assert answer["Status"] == "FAILED"
    assert answer["PhysicalResourceId"] == "guard/old-name"
    assert "'old-name' cannot become 'uc-dev'" in answer["Reason"]


def test_an_update_of_the_same_name_keeps_the_id(aws: Aws) -> None:
    answer = ask("Update", PhysicalResourceId="guard/uc-dev")
    assert (answer["Status"], answer["PhysicalResourceId"]) == ("SUCCESS", "guard/uc-dev")


@pytest.mark.case("L05")
def test_the_end_waits_for_instances_and_interfaces_by_looking_again(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = looks(aws.clients["lambda"], monkeypatch)
    with answers() as (url, received):
        event = request("Delete", url, PROPERTIES, PhysicalResourceId="guard/uc-dev")
        aws.nodes("i-1", interfaces=("eni-1",))
        aws.invoked()
        guard.handler(event, Context())
        aws.nodes(interfaces=("eni-1",))
        aws.invoked()
        guard.handler(sent[-1], Context())
        assert received == []
        assert sent[0]["Deadline"] == sent[1]["Deadline"]
        aws.nodes()
        guard.handler(sent[-1], Context())
    assert only(received)["Status"] == "SUCCESS"


def test_what_stays_is_named_when_patience_ends(aws: Aws) -> None:
    aws.nodes("i-1", interfaces=("eni-1",))
    answer = ask("Delete", PhysicalResourceId="guard/uc-dev", Deadline=1.0)
    assert answer["Status"] == "FAILED"
    assert "still there: i-1, eni-1; end them, then delete again" in answer["Reason"]


@pytest.mark.parametrize("other", ["refused/uc-dev", "guard/another", "uc-dev_Guard_1", "uc-dev"])
def test_any_other_id_is_ended_without_a_look(aws: Aws, other: str) -> None:
    assert ask("Delete", PhysicalResourceId=other)["Status"] == "SUCCESS"


@pytest.mark.case("L01")
@pytest.mark.case("L04")
def test_an_error_is_one_short_answer(aws: Aws) -> None:
    aws.stubs["cloudformation"].add_client_error("describe_stacks", "Throttling", "x" * 9000)
    answer = ask("Create")
    assert answer["Status"] == "FAILED"
    assert answer["Reason"].startswith("ClientError: ")


@pytest.mark.case("L11")
def test_clients_are_of_the_functions_own_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    made: list[Any] = []
    real = boto3.client

    def client(name: str, **given: Any) -> Any:
        made.append(real(name, aws_access_key_id="a", aws_secret_access_key="b", **given))
        return made[-1]

    monkeypatch.setattr("boto3.client", client)
    guard._guard({"ResourceProperties": PROPERTIES})
    assert {one.meta.region_name for one in made} == {"eu-central-1"}


def _own_deletion(url: str, **rest: Any) -> dict[str, Any]:
    return request("Delete", url, PROPERTIES, PhysicalResourceId="guard/uc-dev", **rest)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    made: list[float] = []
    monkeypatch.setattr("shared.waiting.time.sleep", made.append)
    return made


@pytest.mark.case("L05")
@pytest.mark.parametrize("kind", ["throttled", "timed out"])
def test_a_look_that_fails_is_made_again(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with answers() as (url, received):
        event = _own_deletion(url)
        with monkeypatch.context() as patch:
            if kind == "throttled":
                aws.stubs["ec2"].add_client_error("describe_instances", "RequestLimitExceeded")
            else:

                def hang(operation: str) -> Any:
                    raise ReadTimeoutError(endpoint_url="https://ec2")

                patch.setattr(aws.clients["ec2"], "get_paginator", hang)
            aws.invoked()
            guard.handler(event, Context())
        assert received == []
        assert event["Deadline"] > time.time()
        aws.nodes()
        guard.handler(event, Context())
    assert only(received)["Status"] == "SUCCESS"


def test_a_look_that_still_fails_at_the_end_says_so(aws: Aws) -> None:
    aws.stubs["ec2"].add_client_error("describe_instances", "RequestLimitExceeded")
    answer = ask("Delete", PhysicalResourceId="guard/uc-dev", Deadline=1.0)
    assert answer["Status"] == "FAILED"
    assert answer["Reason"].startswith("cannot see whether nodes are left: ")
    assert "RequestLimitExceeded" in answer["Reason"]


def test_the_call_of_the_next_look_is_not_repeated_unseen(aws: Aws) -> None:
    aws.nodes("i-1")
    aws.invoked()
    guard.handler(_own_deletion("https://unused"), Context())
    assert aws.configs["lambda"].retries == {"total_max_attempts": 1}
    assert aws.configs["lambda"].read_timeout > 60
    assert aws.configs["ec2"].read_timeout <= 10


def test_a_refused_call_is_made_again(aws: Aws, pauses: list[float]) -> None:
    aws.nodes("i-1")
    aws.stubs["lambda"].add_client_error("invoke", "TooManyRequestsException")
    aws.invoked()
    with answers() as (url, received):
        guard.handler(_own_deletion(url), Context())
    assert received == []
    assert pauses == [0.0, 1]


def test_a_call_that_is_always_refused_is_one_answer(aws: Aws, pauses: list[float]) -> None:
    aws.nodes("i-1")
    for _ in range(3):
        aws.stubs["lambda"].add_client_error("invoke", "TooManyRequestsException")
    answer = ask("Delete", PhysicalResourceId="guard/uc-dev")
    assert answer["Status"] == "FAILED"
    assert "TooManyRequestsException" in answer["Reason"]


@pytest.mark.case("L04")
@pytest.mark.parametrize("lost", [1, 2, 3])
def test_an_answer_whose_fate_is_unknown_is_repeated_and_never_turned_round(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, pauses: list[float], lost: int
) -> None:
    sent: list[bytes] = []

    class Closed:
        def close(self) -> None:
            pass

    def urlopen(asked: Any, timeout: float) -> Closed:
        sent.append(asked.data)
        if len(sent) <= lost:
            raise TimeoutError("timed out")
        return Closed()

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    aws.nodes()
    event = _own_deletion("https://unused")
    if lost < 3:
        guard.handler(event, Context())
    else:
        with pytest.raises(TimeoutError):
            guard.handler(event, Context())
    assert len(sent) == min(lost + 1, 3)
    assert len(set(sent)) == 1
    assert json.loads(sent[0])["Status"] == "SUCCESS"
