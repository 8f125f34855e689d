"""The delivery of a small stack of its own, and what its template says."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("CDK_VALIDATION", "false")
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")

import aws_cdk as cdk
from aws_cdk import assertions
from aws_cdk import aws_s3 as s3

from tests.unit.lambdas.models import HOST
from ultracluster.delivery import Delivery
from ultracluster.delivery_functions import Gate

LAMBDAS = Path(__file__).parents[2] / "lambdas"
FUNCTIONS = ("validate", "roll_out", "settle", "record")
BUCKET = "models-of-the-test"
ENDPOINT_STACK = "ultracluster-test-endpoint"
ROLE = "arn:aws:iam::000000000000:role/endpoint-service"


@functools.cache
def template(poll_seconds: int = 30, approval_hours: int | None = None) -> assertions.Template:
    app = cdk.App(analytics_reporting=False)
    stack = cdk.Stack(
        app,
        "ultracluster-test-delivery",
        env=cdk.Environment(account="000000000000", region="us-west-2"),
    )
    Delivery(
        stack,
        "Delivery",
        code=LAMBDAS,
        model_bucket=s3.Bucket.from_bucket_name(stack, "Models", BUCKET),
        model_name="sentiment",
        endpoint_name="ultracluster-test",
        endpoint_stack_name=ENDPOINT_STACK,
        service_role_arn=ROLE,
        gate=Gate(host=HOST, minimum_macro_f1=0.6),
        approval_hours=approval_hours,
        poll_seconds=poll_seconds,
        removal_policy=cdk.RemovalPolicy.DESTROY,
    )
    return assertions.Template.from_stack(stack)


def resources(kind: str, approval_hours: int | None = None) -> dict[str, dict[str, Any]]:
    """Properties of each resource of a type, by logical id."""
    found = template(approval_hours=approval_hours).find_resources(kind)
    return {name: resource["Properties"] for name, resource in found.items()}


def text(value: Any) -> str:
    """A value with its references written as `<LogicalId>`."""
    match value:
        case {"Ref": name}:
            return "aws" if name == "AWS::Partition" else f"<{name}>"
        case {"Fn::GetAtt": [name, *_]}:
            return f"<{name}>"
        case {"Fn::Join": [separator, parts]}:
            return str(separator.join(text(part) for part in parts))
        case _:
            return str(value)


@functools.cache
def definition(approval_hours: int | None = None) -> dict[str, Any]:
    """The state machine, each function called by the name of its folder."""
    handlers = {
        name: properties["Handler"].split(".")[0]
        for name, properties in resources("AWS::Lambda::Function").items()
    }
    (machine,) = resources("AWS::StepFunctions::StateMachine", approval_hours).values()
    written = text(machine["DefinitionString"])
    for name, folder in handlers.items():
        written = written.replace(f"<{name}>", folder)
    loaded: dict[str, Any] = json.loads(written)
    return loaded


def statements(function: str) -> list[dict[str, Any]]:
    """The statements of a function's role, by the folder of its handler."""
    (role,) = [
        text(properties["Role"])
        for properties in resources("AWS::Lambda::Function").values()
        if properties["Handler"].startswith(f"{function}.")
    ]
    return [
        statement
        for policy in resources("AWS::IAM::Policy").values()
        if role in [text(item) for item in policy["Roles"]]
        for statement in policy["PolicyDocument"]["Statement"]
    ]
