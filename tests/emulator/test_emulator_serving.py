"""SageMaker in stacks: models are replaced and endpoints updated as CloudFormation does it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from operations.emulator import Emulator
from tests.emulator.conftest import Stacks, model_archive, outputs

pytestmark = pytest.mark.emulator

BUCKET = "serving-models"
IMAGE = "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-inference-arm64:2.6.0-cpu-py312"
PARAMETERS = {"ModelUrl": {"Type": "String", "Default": "none"}}
CONDITIONS = {"HasModel": {"Fn::Not": [{"Fn::Equals": [{"Ref": "ModelUrl"}, "none"]}]}}
OUTPUTS = {
    "Config": {
        "Condition": "HasModel",
        "Value": {"Fn::GetAtt": ["Configuration", "EndpointConfigName"]},
    },
    "ModelUrl": {"Condition": "HasModel", "Value": {"Ref": "ModelUrl"}},
}


def resources(endpoint: str) -> dict[str, Any]:
    return {
        "Role": {
            "Type": "AWS::IAM::Role",
            "Properties": {
                "AssumeRolePolicyDocument": {
                    "Version": "2012-10-17",
                    "Statement": [
                        {
                            "Effect": "Allow",
                            "Principal": {"Service": "sagemaker.amazonaws.com"},
                            "Action": "sts:AssumeRole",
                        }
                    ],
                }
            },
        },
        "Model": {
            "Type": "AWS::SageMaker::Model",
            "Condition": "HasModel",
            "Properties": {
                "ExecutionRoleArn": {"Fn::GetAtt": ["Role", "Arn"]},
                "EnableNetworkIsolation": "true",
                "PrimaryContainer": {
                    "Image": IMAGE,
                    "ModelDataUrl": {"Ref": "ModelUrl"},
                    "Environment": {"SAGEMAKER_PROGRAM": "inference.py"},
                },
            },
        },
        "Configuration": {
            "Type": "AWS::SageMaker::EndpointConfig",
            "Condition": "HasModel",
            "Properties": {
                "ProductionVariants": [
                    {
                        "VariantName": "main",
                        "ModelName": {"Fn::GetAtt": ["Model", "ModelName"]},
                        "InstanceType": "ml.c7g.xlarge",
                        "InitialInstanceCount": "1",
                        "InitialVariantWeight": "1",
                    }
                ]
            },
        },
        "Endpoint": {
            "Type": "AWS::SageMaker::Endpoint",
            "Condition": "HasModel",
            "Properties": {
                "EndpointName": endpoint,
                "EndpointConfigName": {"Fn::GetAtt": ["Configuration", "EndpointConfigName"]},
            },
        },
    }


@pytest.fixture(scope="module")
def urls(emulator: Emulator) -> Iterator[dict[str, str]]:
    s3 = emulator.client("s3")
    s3.create_bucket(
        Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": emulator.region}
    )
    archives = {
        "one": model_archive("one"),
        "two": model_archive("two"),
        "broken": model_archive("", broken=True),
    }
    for name, archive in archives.items():
        s3.put_object(Bucket=BUCKET, Key=f"{name}/model.tar.gz", Body=archive)
    yield {name: f"s3://{BUCKET}/{name}/model.tar.gz" for name in archives}
    for name in archives:
        s3.delete_object(Bucket=BUCKET, Key=f"{name}/model.tar.gz")
    s3.delete_bucket(Bucket=BUCKET)


def ask(emulator: Emulator, endpoint: str) -> str:
    answer = emulator.client("sagemaker-runtime").invoke_endpoint(
        EndpointName=endpoint, Body=b"{}", ContentType="application/json"
    )
    text: str = answer["Body"].read().decode()
    return text


def names(emulator: Emulator) -> tuple[set[str], set[str]]:
    """The models and the endpoint configurations of this file's stacks."""
    sagemaker = emulator.client("sagemaker")
    models = sagemaker.list_models(NameContains="test-")["Models"]
    configs = sagemaker.list_endpoint_configs(NameContains="test-")["EndpointConfigs"]
    return (
        {model["ModelName"] for model in models},
        {config["EndpointConfigName"] for config in configs},
    )


def endpoints(emulator: Emulator, name: str) -> list[Any]:
    found: list[Any] = emulator.client("sagemaker").list_endpoints(NameContains=name)["Endpoints"]
    return found


def create(stacks: Stacks, endpoint: str) -> dict[str, Any]:
    stack = stacks.create(
        resources(endpoint), Parameters=PARAMETERS, Conditions=CONDITIONS, Outputs=OUTPUTS
    )
    assert stack["StackStatus"] == "CREATE_COMPLETE", stacks.reasons(stack)
    return stack


def test_a_model_is_rolled_out_replaced_rolled_back_and_removed(
    emulator: Emulator, stacks: Stacks, urls: dict[str, str]
) -> None:
    sagemaker = emulator.client("sagemaker")
    stack = create(stacks, "road")
    assert names(emulator) == (set(), set())
    assert outputs(stack) == {}

    stack = stacks.set_parameters(stack, ModelUrl=urls["one"])
    assert stack["StackStatus"] == "UPDATE_COMPLETE", stacks.reasons(stack)
    assert ask(emulator, "road") == "one"
    first = names(emulator)
    assert len(first[0]) == 1
    assert first[1] == {outputs(stack)["Config"]}

    with pytest.raises(ClientError, match="No updates are to be performed"):
        stacks.set_parameters(stack, ModelUrl=urls["one"])

    stack = stacks.set_parameters(stack, ModelUrl=urls["two"])
    assert stack["StackStatus"] == "UPDATE_COMPLETE", stacks.reasons(stack)
    assert ask(emulator, "road") == "two"
    second = names(emulator)
    assert len(second[0]) == len(second[1]) == 1
    assert not second[0] & first[0]
    assert second[1] == {outputs(stack)["Config"]}
    assert not second[1] & first[1]

    stack = stacks.set_parameters(stack, ModelUrl=urls["broken"])
    assert stack["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert "Endpoint road failed" in stacks.reasons(stack)
    assert names(emulator) == second
    assert stack["Parameters"] == [{"ParameterKey": "ModelUrl", "ParameterValue": urls["two"]}]
    assert outputs(stack)["ModelUrl"] == urls["two"]
    assert ask(emulator, "road") == "two"
    described = sagemaker.describe_endpoint(EndpointName="road")
    assert described["EndpointConfigName"] == outputs(stack)["Config"]
    assert described["FailureReason"] in stacks.reasons(stack)

    stack = stacks.set_parameters(stack, ModelUrl="none")
    assert stack["StackStatus"] == "UPDATE_COMPLETE", stacks.reasons(stack)
    assert names(emulator) == (set(), set())
    assert endpoints(emulator, "road") == []
    assert "ModelUrl" not in outputs(stack)


def test_an_alarm_on_real_data_rolls_an_update_back_in_its_bake(
    emulator: Emulator, stacks: Stacks, urls: dict[str, str]
) -> None:
    wanted = resources("baked")
    wanted["Endpoint"]["Properties"]["DeploymentConfig"] = {
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0},
            "TerminationWaitInSeconds": 3600,
        },
        "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": {"Ref": "Alarm"}}]},
    }
    wanted["Alarm"] = {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {
            "AlarmName": "baked-smoke",
            "Namespace": "UltraCluster",
            "MetricName": "SmokeFailures",
            "Dimensions": [{"Name": "EndpointName", "Value": "baked"}],
            "Statistic": "Sum",
            "Period": 60,
            "EvaluationPeriods": 1,
            "Threshold": 1,
            "ComparisonOperator": "GreaterThanOrEqualToThreshold",
            "TreatMissingData": "notBreaching",
        },
    }
    rest = {"Parameters": PARAMETERS, "Conditions": CONDITIONS, "Outputs": OUTPUTS}
    stack = stacks.create(wanted, **rest)
    stack = stacks.set_parameters(stack, ModelUrl=urls["one"])
    assert stack["StackStatus"] == "UPDATE_COMPLETE", stacks.reasons(stack)
    before = names(emulator)
    stacks.start_update(stack, ModelUrl=urls["two"])
    while ask(emulator, "baked") != "two":
        time.sleep(0.1)
    cloudwatch = emulator.client("cloudwatch")
    for name, value in (("another", 1), ("baked", 0), ("baked", 1)):
        datum = {
            "MetricName": "SmokeFailures",
            "Dimensions": [{"Name": "EndpointName", "Value": name}],
            "Value": value,
        }
        assert ask(emulator, "baked") == "two"
        cloudwatch.put_metric_data(Namespace="UltraCluster", MetricData=[datum])
    stack = stacks.settled(stack["StackId"])
    assert stack["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert "in ALARM: baked-smoke" in stacks.reasons(stack)
    assert ask(emulator, "baked") == "one"
    assert names(emulator) == before
    assert outputs(stack)["ModelUrl"] == urls["one"]


def test_the_old_model_lives_until_the_new_one_serves(
    emulator: Emulator, stacks: Stacks, urls: dict[str, str]
) -> None:
    stack = create(stacks, "order")
    stack = stacks.set_parameters(stack, ModelUrl=urls["one"])
    stack = stacks.set_parameters(stack, ModelUrl=urls["two"])
    events = stacks.api.describe_stack_events(StackName=stack["StackId"])["StackEvents"]
    assert any(
        "creation of a new physical resource" in event.get("ResourceStatusReason", "")
        for event in events
        if event["LogicalResourceId"] == "Model"
    )
    models = {
        event["PhysicalResourceId"]
        for event in events
        if event["LogicalResourceId"] == "Model" and event.get("PhysicalResourceId")
    }
    assert len(models) == 2


def test_an_update_under_way_is_a_mutex_and_a_model_s_error_is_told(
    emulator: Emulator, stacks: Stacks, urls: dict[str, str]
) -> None:
    stack = create(stacks, "mutex")
    stacks.start_update(stack, ModelUrl=urls["one"])
    with pytest.raises(ClientError, match="is in UPDATE_IN_PROGRESS state and can not be updated"):
        stacks.start_update(stack, ModelUrl=urls["two"])
    with pytest.raises(ClientError, match="cannot be deleted while in status UPDATE_IN_PROGRESS"):
        stacks.delete(stack)
    assert stacks.settled(stack["StackId"])["StackStatus"] == "UPDATE_COMPLETE"
    assert ask(emulator, "mutex") == "one"

    runtime = emulator.client("sagemaker-runtime")
    with pytest.raises(runtime.exceptions.ModelError) as caught:
        runtime.invoke_endpoint(EndpointName="mutex", Body=b"crash", ContentType="application/json")
    answer = caught.value.response
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 424
    assert answer["OriginalStatusCode"] >= 400
    assert "AssertionError" in answer["OriginalMessage"]
    with pytest.raises(ClientError, match="ValidationError"):
        ask(emulator, "nobody")


def test_an_endpoint_that_does_not_come_up_fails_the_stack_with_the_reason(
    emulator: Emulator, stacks: Stacks, urls: dict[str, str]
) -> None:
    stack = create(stacks, "fails")
    stack = stacks.set_parameters(stack, ModelUrl=urls["broken"])
    assert stack["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert "Endpoint fails failed" in stacks.reasons(stack)
    assert names(emulator) == (set(), set())
    assert endpoints(emulator, "fails") == []


def test_an_endpoint_that_changes_cannot_be_deleted(
    emulator: Emulator, stacks: Stacks, urls: dict[str, str]
) -> None:
    sagemaker = emulator.client("sagemaker")
    stack = create(stacks, "changing")
    stack = stacks.set_parameters(stack, ModelUrl=urls["one"])
    sagemaker.update_endpoint(EndpointName="changing", EndpointConfigName=outputs(stack)["Config"])
    stack = stacks.delete(stack)
    assert stack["StackStatus"] == "DELETE_FAILED"
    assert "in-progress endpoint" in stacks.reasons(stack)
    sagemaker.get_waiter("endpoint_in_service").wait(
        EndpointName="changing", WaiterConfig={"Delay": 1, "MaxAttempts": 120}
    )
    assert stacks.delete(stack)["StackStatus"] == "DELETE_COMPLETE"


def test_a_model_named_in_the_template_cannot_be_replaced_under_its_name(
    emulator: Emulator, stacks: Stacks, urls: dict[str, str]
) -> None:
    wanted = resources("named")
    wanted["Model"]["Properties"]["ModelName"] = "fixed"
    rest = {"Parameters": PARAMETERS, "Conditions": CONDITIONS, "Outputs": OUTPUTS}
    stack = stacks.create(wanted, **rest)
    stack = stacks.set_parameters(stack, ModelUrl=urls["one"])
    stack = stacks.set_parameters(stack, ModelUrl=urls["two"])
    assert stack["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert "custom-named resource requires replacing" in stacks.reasons(stack)
    assert ask(emulator, "named") == "one"


def test_a_failure_after_the_endpoint_takes_the_endpoint_back(
    emulator: Emulator, stacks: Stacks, urls: dict[str, str]
) -> None:
    wanted = resources("later")
    wanted["Policy"] = {
        "Type": "AWS::ApplicationAutoScaling::ScalingPolicy",
        "Condition": "HasModel",
        "DependsOn": "Endpoint",
        "Properties": {
            "PolicyName": "later",
            "PolicyType": "TargetTrackingScaling",
            "ScalingTargetId": {"Ref": "Target"},
            "TargetTrackingScalingPolicyConfiguration": {
                "TargetValue": {"Fn::If": ["IsTwo", "not a number", "100"]},
                "PredefinedMetricSpecification": {
                    "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
                },
            },
        },
    }
    wanted["Target"] = {
        "Type": "AWS::ApplicationAutoScaling::ScalableTarget",
        "Condition": "HasModel",
        "DependsOn": "Endpoint",
        "Properties": {
            "MinCapacity": "1",
            "MaxCapacity": "2",
            "ResourceId": "endpoint/later/variant/main",
            "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
            "ServiceNamespace": "sagemaker",
            "RoleARN": {"Fn::GetAtt": ["Role", "Arn"]},
        },
    }
    conditions = {**CONDITIONS, "IsTwo": {"Fn::Equals": [{"Ref": "ModelUrl"}, urls["two"]]}}
    stack = stacks.create(wanted, Parameters=PARAMETERS, Conditions=conditions, Outputs=OUTPUTS)
    stack = stacks.set_parameters(stack, ModelUrl=urls["one"])
    assert stack["StackStatus"] == "UPDATE_COMPLETE", stacks.reasons(stack)
    before = names(emulator)
    stack = stacks.set_parameters(stack, ModelUrl=urls["two"])
    assert stack["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert "TargetValue: expected type: double" in stacks.reasons(stack)
    assert names(emulator) == before
    assert ask(emulator, "later") == "one"
