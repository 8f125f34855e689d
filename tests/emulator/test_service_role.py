"""The role that a roll-out lends CloudFormation: all that its calls need, and no more."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("CDK_VALIDATION", "false")
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")

import aws_cdk as cdk
import pytest
from aws_cdk import assertions
from aws_cdk import aws_s3 as s3

from operations.deploy_policy import RIGHTS
from operations.emulator import Emulator
from stacks.endpoint import EndpointStack
from tests.emulator.conftest import Stacks, model_archive
from tests.support.iam import Need, Statement, actions_of, allows, without
from tests.unit.delivery_stack import text
from ultracluster.catalog import load_catalog
from ultracluster.endpoint_role import EndpointServiceRole
from ultracluster.execution_role import execution_role_path
from ultracluster.images import aws_image
from ultracluster.settings import Scaling, load_settings

pytestmark = pytest.mark.emulator

ROOT = Path(__file__).parents[2]
REGION, ACCOUNT = "us-west-2", "000000000000"
BUCKET = "models-of-the-role"
STORAGE = "role-storage"
KINDS = {"Model": "model", "EndpointConfig": "endpoint-config", "Endpoint": "endpoint"}

# Rights that no recorded call needs, and why the role has them.
READS = "CloudFormation reads what it has made (`read` of the resource type's schema)"
TRACKS = "a scaling policy makes and deletes alarms of its own (schema of its type)"
UNRECORDED = {
    "sagemaker:DescribeModel": READS,
    "sagemaker:DescribeEndpointConfig": READS,
    "sagemaker:ListTags": READS,
    "application-autoscaling:DescribeScalableTargets": READS,
    "application-autoscaling:DescribeScalingPolicies": READS,
    "application-autoscaling:TagResource": "a target takes the stack's tags (schema of its type)",
    "cloudwatch:PutMetricAlarm": TRACKS,
    "cloudwatch:DeleteAlarms": TRACKS,
    "cloudformation:DescribeStacks": "a reference to the Storage stack is resolved with this role",
    "ssm:GetParameters": "so is the bootstrap version, a parameter of the template",
}


def own_stack(app: cdk.App, name: str) -> dict[str, Any]:
    return {
        "env": cdk.Environment(account=ACCOUNT, region=REGION),
        "synthesizer": cdk.DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
    }


@pytest.fixture(scope="module")
def policy() -> list[Statement]:
    """The statements of the role, with all references resolved."""
    settings = load_settings("rehearsal", ROOT / "config")
    app = cdk.App(analytics_reporting=False)
    stack = cdk.Stack(app, STORAGE, **own_stack(app, STORAGE))
    EndpointServiceRole(
        stack,
        "Role",
        endpoint_name=settings.prefix,
        execution_role_path=execution_role_path(settings.prefix),
        named_stacks=[STORAGE],
    )
    found = assertions.Template.from_stack(stack).find_resources("AWS::IAM::Policy")
    (resource,) = found.values()
    return [
        {**statement, "Resource": [text(item) for item in _listed(statement["Resource"])]}
        for statement in resource["Properties"]["PolicyDocument"]["Statement"]
    ]


@pytest.fixture(scope="module")
def recorded(emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The calls that CloudFormation made for the Endpoint stack in each of its operations."""
    bucket = emulator.client("s3")
    bucket.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    archives = {
        "one": model_archive("one"),
        "two": model_archive("two"),
        "torn": model_archive("", broken=True),
    }
    urls = {}
    for name, content in archives.items():
        bucket.put_object(Bucket=BUCKET, Key=f"{name}/model.tar.gz", Body=content)
        urls[name] = f"s3://{BUCKET}/{name}/model.tar.gz"
    template = endpoint_template(tmp_path_factory.mktemp("cdk.out"))
    stacks = Stacks(emulator)
    calls: dict[str, list[Any]] = {}

    def lines() -> list[str]:
        return emulator.stack_calls.read_text(encoding="utf-8").splitlines()

    def done(operation: str, stack: dict[str, Any], status: str) -> None:
        assert stack["StackStatus"] == status, stacks.reasons(stack)
        seen = before + sum(map(len, calls.values()))
        calls[operation] = [json.loads(line) for line in lines()[seen:]]

    before = len(lines())
    sections = {key: value for key, value in template.items() if key != "Resources"}
    try:
        stack = stacks.create(template["Resources"], **sections)
        done("deploy without a model", stack, "CREATE_COMPLETE")
        stack = stacks.set_parameters(stack, ModelUrl=urls["one"])
        done("first model", stack, "UPDATE_COMPLETE")
        stack = stacks.set_parameters(stack, ModelUrl=urls["two"])
        done("another model", stack, "UPDATE_COMPLETE")
        stack = stacks.set_parameters(stack, ModelUrl=urls["torn"])
        done("roll-back", stack, "UPDATE_ROLLBACK_COMPLETE")
        for resource in template["Resources"].values():
            if resource["Type"] == "AWS::SageMaker::EndpointConfig":
                (variant,) = resource["Properties"]["ProductionVariants"]
                variant["InitialInstanceCount"] = 2
        parameters = [{"ParameterKey": "ModelUrl", "UsePreviousValue": True}]
        stacks.api.update_stack(
            StackName=stack["StackName"],
            TemplateBody=json.dumps(template),
            Capabilities=["CAPABILITY_IAM"],
            Parameters=parameters,
        )
        done("other instances", stacks.settled(stack["StackId"]), "UPDATE_COMPLETE")
        stack = stacks.set_parameters(stack, ModelUrl="none")
        done("no model", stack, "UPDATE_COMPLETE")
    finally:
        stacks.clean_up()
    return calls


def endpoint_template(folder: Path) -> dict[str, Any]:
    app = cdk.App(outdir=str(folder), analytics_reporting=False)
    image = aws_image(load_catalog().graviton_image(), REGION)
    assert image is not None
    models = s3.Bucket.from_bucket_name(cdk.Stack(app, "names"), "Models", BUCKET)
    settings = load_settings("rehearsal", ROOT / "config")
    scaling = Scaling(max_count=4, requests_per_minute=60)
    endpoint = settings.endpoint.model_copy(update={"scaling": scaling})
    stack = EndpointStack(
        app,
        "endpoint",
        settings=settings.model_copy(update={"endpoint": endpoint}),
        catalog=load_catalog(),
        image=image,
        models=models,
        data=models,
        network=None,
        code=ROOT / "lambdas",
        **own_stack(app, "endpoint"),
    )
    cdk.Tags.of(stack).add("team", "language")
    template: dict[str, Any] = app.synth().get_stack_by_name("endpoint").template
    return template


def needs_of(call: dict[str, Any]) -> Iterator[Need]:
    """The rights that IAM asks of the caller of one request.

    https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonsagemaker.html
    """
    if call["service"] == "application-autoscaling":
        yield from _needs_of_scaling(call)
        return
    request, operation = call["request"], call["operation"]
    assert call["service"] == "sagemaker", call
    named = [
        f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:{resource}/{request[f'{kind}Name'].lower()}"
        for kind, resource in KINDS.items()
        if f"{kind}Name" in request
    ]
    for resource in named or [request["ResourceArn"]]:
        yield Need(action=f"sagemaker:{operation}", resource=resource)
    if operation.startswith("Create") and request.get("Tags"):
        kind = operation.removeprefix("Create")
        (created,) = [arn for arn in named if f":{KINDS[kind]}/" in arn]
        yield Need(action="sagemaker:AddTags", resource=created)
    if "ExecutionRoleArn" in request:
        yield Need(
            action="iam:PassRole",
            resource=request["ExecutionRoleArn"],
            context={"iam:PassedToService": "sagemaker.amazonaws.com"},
        )
    # https://docs.aws.amazon.com/sagemaker/latest/dg/deployment-guardrails-configuration.html
    guards = request.get("DeploymentConfig", {}).get("AutoRollbackConfiguration", {})
    for alarm in guards.get("Alarms", []):
        arn = f"arn:aws:cloudwatch:{REGION}:{ACCOUNT}:alarm:{alarm['AlarmName']}"
        yield Need(action="cloudwatch:DescribeAlarms", resource=arn)


def _needs_of_scaling(call: dict[str, Any]) -> Iterator[Need]:
    """What Application Auto Scaling asks; the first target of an account makes its role."""
    request = call["request"]
    service = "sagemaker.application-autoscaling.amazonaws.com"
    yield Need(
        action=f"application-autoscaling:{call['operation']}",
        resource=f"arn:aws:application-autoscaling:{REGION}:{ACCOUNT}:scalable-target/0a1b2c",
        context={"application-autoscaling:service-namespace": request["ServiceNamespace"]},
    )
    if call["operation"] == "RegisterScalableTarget":
        assert "RoleARN" not in request
        # https://docs.aws.amazon.com/sagemaker/latest/dg/endpoint-auto-scaling-prerequisites.html
        endpoint = request["ResourceId"].rpartition("/variant/")[0]
        yield Need(
            action="sagemaker:UpdateEndpointWeightsAndCapacities",
            resource=f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:{endpoint}",
        )
        role = "AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint"
        yield Need(
            action="iam:CreateServiceLinkedRole",
            resource=f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/{service}/{role}",
            context={"iam:AWSServiceName": service},
        )


def needed(recorded: dict[str, list[Any]]) -> list[tuple[str, Need]]:
    return [
        (operation, need)
        for operation, calls in recorded.items()
        for call in calls
        for need in needs_of(call)
    ]


def test_each_operation_was_recorded(recorded: dict[str, list[Any]]) -> None:
    made = {
        operation: {call["operation"] for call in calls} for operation, calls in recorded.items()
    }
    new = {"CreateModel", "CreateEndpointConfig"}
    old = {"DeleteModel", "DeleteEndpointConfig"}
    assert made["deploy without a model"] == set()
    assert made["first model"] >= {*new, "CreateEndpoint", "DescribeEndpoint"}
    assert made["another model"] >= {*new, *old, "UpdateEndpoint", "DescribeEndpoint"}
    assert made["roll-back"] >= {*new, *old, "UpdateEndpoint"}
    assert made["other instances"] >= {
        "CreateEndpointConfig", "DeleteEndpointConfig", "UpdateEndpoint",
    }  # fmt: skip
    assert made["no model"] >= {*old, "DeleteEndpoint"}
    assert made["first model"] >= {"RegisterScalableTarget", "PutScalingPolicy"}
    assert made["no model"] >= {"DeregisterScalableTarget", "DeleteScalingPolicy"}


@pytest.mark.case("M13")
def test_the_old_model_goes_after_the_new_one_has_come_and_never_when_it_has_not(
    recorded: dict[str, list[Any]],
) -> None:
    def order(operation: str) -> list[tuple[str, str]]:
        return [
            (call["operation"], call["request"][f"{kind}Name"].lower())
            for call in recorded[operation]
            for kind in KINDS
            if call["operation"] in (f"Create{kind}", f"Delete{kind}", f"Update{kind}")
        ]

    made = dict(order("first model"))
    names = [name for name, _ in order("another model")]
    assert names == [
        "CreateModel",
        "CreateEndpointConfig",
        "UpdateEndpoint",
        *names[3:],
    ]
    assert sorted(names[3:]) == ["DeleteEndpointConfig", "DeleteModel"]
    gone = dict(order("another model")[3:])
    assert gone["DeleteModel"] == made["CreateModel"]
    assert gone["DeleteEndpointConfig"] == made["CreateEndpointConfig"]
    # What fails takes only itself away.
    for kind in ("Model", "EndpointConfig"):
        (new,) = [name for call, name in order("roll-back") if call == f"Create{kind}"]
        assert {name for call, name in order("roll-back") if call == f"Delete{kind}"} == {new}


@pytest.mark.case("S10")
@pytest.mark.case("S11")
def test_the_role_may_do_all_that_cloudformation_calls(
    recorded: dict[str, list[Any]], policy: list[Statement]
) -> None:
    refused = [
        (operation, need) for operation, need in needed(recorded) if not allows(policy, need)
    ]
    assert refused == []


@pytest.mark.case("S10")
def test_without_any_one_of_its_rights_something_fails(
    recorded: dict[str, list[Any]], policy: list[Statement]
) -> None:
    """Each right is needed by a recorded call, or is listed with its reason."""
    missed = {
        action
        for action in actions_of(policy)
        for _, need in needed(recorded)
        if not allows(without(policy, action), need)
    }
    assert missed | set(UNRECORDED) == actions_of(policy)
    assert not missed & set(UNRECORDED)


def test_what_is_listed_for_a_reason_is_what_the_types_ask_for() -> None:
    table = tomllib.loads(RIGHTS.read_text(encoding="utf-8"))
    known = set(table["always"]["actions"])
    for kind, row in table["types"].items():
        if kind.startswith(("AWS::SageMaker::", "AWS::ApplicationAutoScaling::")):
            known |= set(row["actions"])
    assert set(UNRECORDED) <= known


@pytest.mark.case("S10")
def test_the_role_reaches_no_other_endpoint_and_no_other_role(policy: list[Statement]) -> None:
    passed = {"iam:PassedToService": "sagemaker.amazonaws.com"}
    for need in (
        Need(
            action="sagemaker:DeleteEndpoint",
            resource=f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:endpoint/another",
        ),
        Need(
            action="sagemaker:InvokeEndpoint",
            resource=f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:endpoint/ultracluster-rehearsal",
        ),
        Need(
            action="iam:PassRole",
            resource=f"arn:aws:iam::{ACCOUNT}:role/admin",
            context=passed,
        ),
        Need(
            action="iam:PassRole",
            resource=f"arn:aws:iam::{ACCOUNT}:role/ultracluster-rehearsal/serving",
            context={"iam:PassedToService": "ec2.amazonaws.com"},
        ),
    ):
        assert not allows(policy, need), need


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
