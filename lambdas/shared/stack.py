"""The Endpoint stack as CloudFormation sees it: the one truth for what serves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from botocore.exceptions import ClientError

PARAMETER = "ModelUrl"

_EVENT_PAGES = 50
NEVER_DEPLOYED = "REVIEW_IN_PROGRESS"
"""A change set asked for the stack and nobody carried it out; no operation is under way."""
_STUCK = ("ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED")


class StackProblem(Exception):
    """The Endpoint stack is not there, or in a state that only a person can mend."""


@dataclass(frozen=True, kw_only=True)
class StackFacts:
    """The stack now: status, URL of the model that serves or is on its way, outputs."""

    name: str
    status: str
    model_url: str
    outputs: dict[str, str]
    other_parameters: tuple[str, ...]

    @property
    def busy(self) -> bool:
        """Whether an operation is under way."""
        return self.status.endswith("_IN_PROGRESS")


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What became of one update, told by the stack's events.

    `failure` is the first resource that failed, with CloudFormation's reason; empty if none did.
    """

    state: Literal["unknown", "running", "complete", "rolled-back"]
    failure: str = ""


def describe(client: Any, name: str) -> StackFacts:
    """Read the stack.

    Raises:
        StackProblem: it does not exist, has no `ModelUrl`, or is stuck in a failed state.
    """
    try:
        stack = client.describe_stacks(StackName=name)["Stacks"][0]
    except ClientError as error:
        if "does not exist" not in error.response["Error"].get("Message", ""):
            raise
        raise StackProblem(
            f"stack {name} does not exist; deploy it, then announce the model again"
        ) from None
    parameters = {
        item["ParameterKey"]: item.get("ParameterValue", "") for item in stack.get("Parameters", [])
    }
    if PARAMETER not in parameters:
        raise StackProblem(f"stack {name} has no parameter {PARAMETER}; deploy it again")
    status = stack["StackStatus"]
    if status.endswith(_STUCK) or status in ("ROLLBACK_COMPLETE", NEVER_DEPLOYED):
        raise StackProblem(
            f"stack {name} is in {status}: {stack.get('StackStatusReason', 'no reason given')}; "
            "mend it in CloudFormation, then announce the model again"
        )
    return StackFacts(
        name=name,
        status=status,
        model_url=parameters.pop(PARAMETER),
        outputs={item["OutputKey"]: item["OutputValue"] for item in stack.get("Outputs", [])},
        other_parameters=tuple(sorted(parameters)),
    )


def operation(client: Any, name: str, token: str) -> Operation:
    """Read what became of the update with this client request token.

    Told from the events and not from the stack's status: another update may have begun since.
    """
    state: Literal["unknown", "running", "complete", "rolled-back"] = "unknown"
    failure = ""
    for event in _events(client, name):
        if event.get("ClientRequestToken") != token:
            if state == "unknown":
                continue
            break
        status = event["ResourceStatus"]
        reason = event.get("ResourceStatusReason", "")
        if state == "unknown":
            state = "running"
        own = event["PhysicalResourceId"] == event["StackId"]
        if own and status == "UPDATE_COMPLETE":
            state = "complete"
        elif own and status == "UPDATE_ROLLBACK_COMPLETE":
            state = "rolled-back"
        elif status.endswith("_FAILED"):
            # Events come newest first: the last one to be seen is the cause, the others followed.
            failure = f"{event['LogicalResourceId']} ({event['ResourceType']}): {reason}"
    return Operation(state=state, failure=failure)


def tokens(client: Any, name: str) -> Iterator[str]:
    """The client request tokens in the stack's events, newest first."""
    return (
        event["ClientRequestToken"]
        for event in _events(client, name)
        if "ClientRequestToken" in event
    )


def _events(client: Any, name: str) -> Iterator[dict[str, Any]]:
    request = {"StackName": name}
    for _ in range(_EVENT_PAGES):
        page = client.describe_stack_events(**request)
        yield from page["StackEvents"]
        if "NextToken" not in page:
            return
        request["NextToken"] = page["NextToken"]
