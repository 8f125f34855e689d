"""`cdk destroy` waits for deliveries before it takes away what they need."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.unit.delivery_stack import ENDPOINT_STACK, resources, template, text


@functools.cache
def everything() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = template().to_json()["Resources"]
    return found


def needs(name: str) -> set[str]:
    """Logical ids that a resource depends on, directly or not."""
    found: set[str] = set()
    todo = [name]
    while todo:
        resource = everything()[todo.pop()]
        listed = resource.get("DependsOn", [])
        for other in [*([listed] if isinstance(listed, str) else listed), *_named(resource)]:
            if other in everything() and other not in found:
                found.add(other)
                todo.append(other)
    return found


def _named(value: Any) -> list[str]:
    match value:
        case {"Ref": str(name)}:
            return [name]
        case {"Fn::GetAtt": [name, *_]}:
            return [name]
        case dict():
            return [name for item in value.values() for name in _named(item)]
        case list():
            return [name for item in value for name in _named(item)]
        case _:
            return []


def drain() -> str:
    (name,) = template().find_resources("Custom::DeliveryDrain")
    return name


@pytest.mark.case("L01")
def test_the_drain_goes_before_everything_that_a_delivery_needs() -> None:
    """CloudFormation deletes what depends on a thing before the thing."""
    assert set(everything()) - needs(drain()) == {drain()}
    assert not any(drain() in needs(name) for name in needs(drain()))


def test_it_is_told_of_the_rule_the_machine_and_the_stack() -> None:
    properties = everything()[drain()]["Properties"]
    ((rule, _),) = [
        item for item in resources("AWS::Events::Rule").items() if "OnManifest" in item[0]
    ]
    ((machine, _),) = resources("AWS::StepFunctions::StateMachine").items()
    given = {key: text(value) for key, value in properties.items() if key != "ServiceToken"}
    assert given == {
        "Rule": f"<{rule}>",
        "StateMachine": f"<{machine}>",
        "EndpointStack": ENDPOINT_STACK,
    }


def test_its_function_may_do_that_and_no_more() -> None:
    ((rule, _),) = [
        item for item in resources("AWS::Events::Rule").items() if "OnManifest" in item[0]
    ]
    ((machine, _),) = resources("AWS::StepFunctions::StateMachine").items()
    ((function, properties),) = [
        item
        for item in resources("AWS::Lambda::Function").items()
        if item[1]["Handler"] == "drain.handler.handler"
    ]
    role = text(properties["Role"])
    granted = {
        action: text(statement["Resource"])
        for policy in resources("AWS::IAM::Policy").values()
        if role in [text(item) for item in policy["Roles"]]
        for statement in policy["PolicyDocument"]["Statement"]
        for action in (
            statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        )
        if not action.startswith("logs:")
    }
    stack = f"arn:aws:cloudformation:us-west-2:000000000000:stack/{ENDPOINT_STACK}/*"
    executions = "arn:aws:states:us-west-2:000000000000:execution"
    assert granted == {
        "events:EnableRule": f"<{rule}>",
        "events:DisableRule": f"<{rule}>",
        "states:ListExecutions": f"<{machine}>",
        "states:GetExecutionHistory": f"{executions}:<{machine}>:*",
        "states:StopExecution": f"{executions}:<{machine}>:*",
        "cloudformation:DescribeStacks": stack,
        "lambda:InvokeFunction": f"<{function}>",
    }
    # A look, a pause and the call for the next one.
    assert properties["Timeout"] > int(properties["Environment"]["Variables"]["POLL_SECONDS"])
    assert properties["RecursiveLoop"] == "Allow"
