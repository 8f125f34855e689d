"""Where the emulated account used to do otherwise than AWS, and what the application rests on."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from botocore.exceptions import ClientError

from operations.emulator import Emulator
from tests.emulator.conftest import Stacks, outputs

pytestmark = pytest.mark.emulator
Found = TypeVar("Found")

ROLE: dict[str, Any] = {
    "Type": "AWS::IAM::Role",
    "Properties": {
        "AssumeRolePolicyDocument": {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Principal": {"Service": ["lambda.amazonaws.com", "states.amazonaws.com"]},
                    "Action": "sts:AssumeRole",
                }
            ],
        }
    },
}
PROGRAM = """
import boto3, os

class Refused(Exception):
    pass

def handler(event, context):
    if event.get("refuse"):
        raise Refused("told to")
    account = boto3.client("sts").get_caller_identity()["Account"]
    return {"region": os.environ["AWS_REGION"], "account": account}
"""


def function(**properties: Any) -> dict[str, Any]:
    return {
        "Type": "AWS::Lambda::Function",
        "Properties": {
            "Role": {"Fn::GetAtt": ["Role", "Arn"]},
            "Runtime": "python3.13",
            "Architectures": ["arm64"],
            "Handler": "index.handler",
            "Code": {"ZipFile": PROGRAM},
            "Timeout": "30",
            **properties,
        },
    }


def until(look: Callable[[], Found | None]) -> Found:
    """Wait for something; the limit only keeps a failing test from hanging."""
    limit = time.monotonic() + 90
    while (found := look()) is None:
        assert time.monotonic() < limit, "it never came"
        time.sleep(0.1)
    return found


def made(stacks: Stacks, resources: dict[str, Any], **rest: Any) -> dict[str, Any]:
    stack = stacks.create(resources, **rest)
    assert stack["StackStatus"] == "CREATE_COMPLETE", stacks.reasons(stack)
    return stack


def message(emulator: Emulator, queue: str) -> dict[str, Any]:
    """The next message of a queue."""
    sqs = emulator.client("sqs")

    def look() -> dict[str, Any] | None:
        answer = sqs.receive_message(QueueUrl=queue, MessageAttributeNames=["All"])
        found: list[dict[str, Any]] = answer.get("Messages", [])
        return found[0] if found else None

    found = until(look)
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=found["ReceiptHandle"])
    return found


def sha256(body: bytes) -> str:
    return base64.b64encode(hashlib.sha256(body).digest()).decode()


@pytest.fixture
def bucket(emulator: Emulator) -> Iterator[str]:
    s3 = emulator.client("s3")
    s3.create_bucket(
        Bucket="plain", CreateBucketConfiguration={"LocationConstraint": emulator.region}
    )
    yield "plain"
    for item in s3.list_objects_v2(Bucket="plain").get("Contents", []):
        s3.delete_object(Bucket="plain", Key=item["Key"])
    s3.delete_bucket(Bucket="plain")


def test_an_object_is_put_once_and_tells_its_digest(emulator: Emulator, bucket: str) -> None:
    s3 = emulator.client("s3")
    body = b"weights"
    put = {"Bucket": bucket, "Key": "model", "Body": body, "IfNoneMatch": "*"}
    answer = s3.put_object(**put, ChecksumSHA256=sha256(body))
    assert answer["ChecksumSHA256"] == sha256(body)
    head = s3.head_object(Bucket=bucket, Key="model", ChecksumMode="ENABLED")
    assert (head["ChecksumSHA256"], head["ContentLength"]) == (sha256(body), len(body))
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.put_object(**put, ChecksumSHA256=sha256(body))
    with pytest.raises(ClientError, match="BadDigest"):
        s3.put_object(Bucket=bucket, Key="other", Body=body, ChecksumSHA256=sha256(b"else"))


def test_a_bucket_has_its_tags_and_is_not_deleted_with_objects_in_it(
    emulator: Emulator, stacks: Stacks
) -> None:
    s3 = emulator.client("s3")
    tags = [{"Key": "aws-cdk:auto-delete-objects", "Value": "true"}]
    resources = {"Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"Tags": tags}}}
    stack = made(stacks, resources)
    name = stacks.resource(stack, "Bucket")
    assert tags[0] in s3.get_bucket_tagging(Bucket=name)["TagSet"]
    other = [{"Key": "team", "Value": "a"}]
    stacks.update(stack, {"Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"Tags": other}}})
    assert s3.get_bucket_tagging(Bucket=name)["TagSet"] == other

    s3.put_object(Bucket=name, Key="kept", Body=b"x")
    stack = stacks.delete(stack)
    assert stack["StackStatus"] == "DELETE_FAILED"
    assert "BucketNotEmpty" in stacks.reasons(stack)
    assert s3.get_object(Bucket=name, Key="kept")["Body"].read() == b"x"
    s3.delete_object(Bucket=name, Key="kept")
    assert stacks.delete(stack)["StackStatus"] == "DELETE_COMPLETE"


def test_a_function_runs_in_the_account_s_region_and_keeps_all_its_properties(
    emulator: Emulator, stacks: Stacks
) -> None:
    calls = emulator.client("lambda")
    resources = {
        "Role": ROLE,
        "Dead": {"Type": "AWS::SQS::Queue"},
        "Function": function(
            DeadLetterConfig={"TargetArn": {"Fn::GetAtt": ["Dead", "Arn"]}},
            ReservedConcurrentExecutions="1",
        ),
    }
    stack = made(stacks, resources, Outputs={"Dead": {"Value": {"Fn::GetAtt": ["Dead", "Arn"]}}})
    name = stacks.resource(stack, "Function")
    configuration = calls.get_function_configuration(FunctionName=name)
    assert configuration["DeadLetterConfig"]["TargetArn"] == outputs(stack)["Dead"]
    assert configuration["Architectures"] == ["arm64"]
    reserved = calls.get_function_concurrency(FunctionName=name)
    assert reserved["ReservedConcurrentExecutions"] == 1
    answer = json.loads(calls.invoke(FunctionName=name, Payload=b"{}")["Payload"].read())
    assert answer == {"region": "us-west-2", "account": "000000000000"}

    calls.invoke(FunctionName=name, InvocationType="Event", Payload=b'{"refuse": true}')
    dead = message(emulator, stacks.resource(stack, "Dead"))
    assert "told to" in dead["Body"]

    stacks.update(stack, {**resources, "Function": function()})
    configuration = calls.get_function_configuration(FunctionName=name)
    assert not configuration.get("DeadLetterConfig", {}).get("TargetArn")
    assert "ReservedConcurrentExecutions" not in calls.get_function_concurrency(FunctionName=name)


def test_an_error_has_the_exception_s_name(emulator: Emulator, stacks: Stacks) -> None:
    stack = made(stacks, {"Role": ROLE, "Function": function()})
    answer = emulator.client("lambda").invoke(
        FunctionName=stacks.resource(stack, "Function"), Payload=b'{"refuse": true}'
    )
    assert answer["FunctionError"] == "Unhandled"
    error = json.loads(answer["Payload"].read())
    assert (error["errorType"], error["errorMessage"]) == ("Refused", "told to")


MACHINE: dict[str, Any] = {
    "StartAt": "Wait",
    "States": {
        "Wait": {"Type": "Wait", "Seconds": 1, "Next": "Call"},
        "Call": {
            "Type": "Task",
            "Resource": "arn:aws:states:::lambda:invoke",
            "Parameters": {
                "FunctionName": "${Function}",
                "Payload": {"refuse.$": "$.detail.refuse"},
            },
            "ResultSelector": {"account.$": "$.Payload.account"},
            "ResultPath": "$.answer",
            "Retry": [{"ErrorEquals": ["Refused"], "IntervalSeconds": 1, "MaxAttempts": 1}],
            "Catch": [{"ErrorEquals": ["Refused"], "ResultPath": "$.error", "Next": "Tell"}],
            "Next": "Judge",
        },
        "Judge": {
            "Type": "Choice",
            "Choices": [
                {"Variable": "$.answer.account", "StringEquals": "000000000000", "Next": "Tell"}
            ],
            "Default": "Wrong",
        },
        "Tell": {
            "Type": "Task",
            "Resource": "arn:aws:states:::sns:publish",
            "Parameters": {"TopicArn": "${Topic}", "Message.$": "States.JsonToString($)"},
            "End": True,
        },
        "Wrong": {"Type": "Fail", "Error": "Wrong", "Cause": "another account"},
    },
}


def road() -> dict[str, Any]:
    """A bucket whose manifests start a state machine that calls a function and tells a topic."""
    return {
        "Role": ROLE,
        "Function": function(),
        "Topic": {"Type": "AWS::SNS::Topic"},
        "Inbox": {"Type": "AWS::SQS::Queue"},
        "Dead": {"Type": "AWS::SQS::Queue"},
        "Subscription": {
            "Type": "AWS::SNS::Subscription",
            "Properties": {
                "TopicArn": {"Ref": "Topic"},
                "Protocol": "sqs",
                "Endpoint": {"Fn::GetAtt": ["Inbox", "Arn"]},
                "RawMessageDelivery": "true",
            },
        },
        "Machine": {
            "Type": "AWS::StepFunctions::StateMachine",
            "Properties": {
                "RoleArn": {"Fn::GetAtt": ["Role", "Arn"]},
                "DefinitionString": {"Fn::Sub": json.dumps(MACHINE)},
            },
        },
        "Bucket": {
            "Type": "AWS::S3::Bucket",
            "Properties": {
                "NotificationConfiguration": {
                    "EventBridgeConfiguration": {"EventBridgeEnabled": True}
                }
            },
        },
        "Rule": {
            "Type": "AWS::Events::Rule",
            "Properties": {
                "EventPattern": {
                    "source": ["aws.s3"],
                    "detail-type": ["Object Created"],
                    "detail": {
                        "bucket": {"name": [{"Ref": "Bucket"}]},
                        "object": {"key": [{"wildcard": "models/sentiment/*/manifest.json"}]},
                    },
                },
                "Targets": [
                    {
                        "Id": "machine",
                        "Arn": {"Ref": "Machine"},
                        "RoleArn": {"Fn::GetAtt": ["Role", "Arn"]},
                        "DeadLetterConfig": {"Arn": {"Fn::GetAtt": ["Dead", "Arn"]}},
                        "InputTransformer": {
                            "InputPathsMap": {"key": "$.detail.object.key"},
                            "InputTemplate": '{"detail": {"refuse": false, "key": <key>}}',
                        },
                    }
                ],
            },
        },
    }


def empty(emulator: Emulator, name: str) -> None:
    s3 = emulator.client("s3")
    for item in s3.list_objects_v2(Bucket=name).get("Contents", []):
        s3.delete_object(Bucket=name, Key=item["Key"])


def test_an_object_starts_the_state_machine_that_its_key_is_meant_for(
    emulator: Emulator, stacks: Stacks
) -> None:
    s3, states = emulator.client("s3"), emulator.client("stepfunctions")
    stack = made(stacks, road())
    name, machine = stacks.resource(stack, "Bucket"), stacks.resource(stack, "Machine")
    for key in ("models/other/1/manifest.json", "models/sentiment/1/model.tar.gz"):
        s3.put_object(Bucket=name, Key=key, Body=b"{}")
    s3.put_object(Bucket=name, Key="models/sentiment/1/manifest.json", Body=b"{}")
    told = json.loads(message(emulator, stacks.resource(stack, "Inbox"))["Body"])
    assert told["detail"]["key"] == "models/sentiment/1/manifest.json"
    assert told["answer"] == {"account": "000000000000"}
    assert len(states.list_executions(stateMachineArn=machine)["executions"]) == 1

    # An error that is retried by its name, then caught by it.
    refused = states.start_execution(
        stateMachineArn=machine, input=json.dumps({"detail": {"refuse": True}})
    )["executionArn"]
    told = json.loads(message(emulator, stacks.resource(stack, "Inbox"))["Body"])
    assert told["error"]["Error"] == "Refused"
    assert states.describe_execution(executionArn=refused)["status"] == "SUCCEEDED"
    history = states.get_execution_history(executionArn=refused)["events"]
    assert [event["type"] for event in history].count("TaskFailed") == 2

    # A target that is gone: the event is kept in the dead-letter queue.
    states.delete_state_machine(stateMachineArn=machine)
    s3.put_object(Bucket=name, Key="models/sentiment/2/manifest.json", Body=b"{}")
    dead = message(emulator, stacks.resource(stack, "Dead"))
    assert json.loads(dead["Body"])["detail"]["object"]["key"] == "models/sentiment/2/manifest.json"
    assert dead["MessageAttributes"]["TARGET_ARN"]["StringValue"] == machine
    empty(emulator, name)


def test_a_broken_execution_makes_an_event(emulator: Emulator, stacks: Stacks) -> None:
    failing = {"StartAt": "No", "States": {"No": {"Type": "Fail", "Error": "No", "Cause": "no"}}}
    resources = {
        "Role": ROLE,
        "Queue": {"Type": "AWS::SQS::Queue"},
        "Machine": {
            "Type": "AWS::StepFunctions::StateMachine",
            "Properties": {
                "RoleArn": {"Fn::GetAtt": ["Role", "Arn"]},
                "DefinitionString": json.dumps(failing),
            },
        },
        "Rule": {
            "Type": "AWS::Events::Rule",
            "Properties": {
                "EventPattern": {
                    "source": ["aws.states"],
                    "detail-type": ["Step Functions Execution Status Change"],
                    "detail": {"stateMachineArn": [{"Ref": "Machine"}], "status": ["FAILED"]},
                },
                "Targets": [{"Id": "queue", "Arn": {"Fn::GetAtt": ["Queue", "Arn"]}}],
            },
        },
    }
    stack = made(stacks, resources)
    machine = stacks.resource(stack, "Machine")
    emulator.client("stepfunctions").start_execution(stateMachineArn=machine, input="{}")
    event = json.loads(message(emulator, stacks.resource(stack, "Queue"))["Body"])
    assert event["detail"]["status"] == "FAILED"


def alarm(**properties: Any) -> dict[str, Any]:
    return {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {
            "ComparisonOperator": "GreaterThanThreshold",
            "EvaluationPeriods": "1",
            "Threshold": "0.5",
            **properties,
        },
    }


def state(emulator: Emulator, name: str) -> str:
    [found] = emulator.client("cloudwatch").describe_alarms(AlarmNames=[name])["MetricAlarms"]
    value: str = found["StateValue"]
    return value


def put(emulator: Emulator, metric: str, value: float, endpoint: str) -> None:
    emulator.client("cloudwatch").put_metric_data(
        Namespace="Tests",
        MetricData=[
            {
                "MetricName": metric,
                "Dimensions": [{"Name": "Endpoint", "Value": endpoint}],
                "Value": value,
            }
        ],
    )


def test_an_alarm_looks_at_its_own_dimensions(emulator: Emulator, stacks: Stacks) -> None:
    properties = {
        "Namespace": "Tests",
        "MetricName": "Errors",
        "Dimensions": [{"Name": "Endpoint", "Value": "mine"}],
        "Period": "3600",
        "Statistic": "Sum",
        "TreatMissingData": "notBreaching",
    }
    inbox = {
        "Topic": {"Type": "AWS::SNS::Topic"},
        "Inbox": {"Type": "AWS::SQS::Queue"},
        "Subscription": {
            "Type": "AWS::SNS::Subscription",
            "Properties": {
                "TopicArn": {"Ref": "Topic"},
                "Protocol": "sqs",
                "Endpoint": {"Fn::GetAtt": ["Inbox", "Arn"]},
            },
        },
    }
    stack = made(stacks, {**inbox, "Alarm": alarm(**properties, AlarmActions=[{"Ref": "Topic"}])})
    name = stacks.resource(stack, "Alarm")
    put(emulator, "Errors", 5, "another")
    assert state(emulator, name) == "OK"
    put(emulator, "Errors", 5, "mine")
    assert state(emulator, name) == "ALARM"
    notice = json.loads(message(emulator, stacks.resource(stack, "Inbox"))["Body"])
    assert json.loads(notice["Message"])["AlarmName"] == name


def test_an_alarm_ends_with_the_data_that_raised_it(emulator: Emulator, stacks: Stacks) -> None:
    properties = {
        "Namespace": "Tests",
        "MetricName": "Failures",
        "Dimensions": [{"Name": "Endpoint", "Value": "mine"}],
        "Period": "10",
        "Statistic": "Sum",
        "TreatMissingData": "notBreaching",
    }
    name = stacks.resource(made(stacks, {"Alarm": alarm(**properties)}), "Alarm")
    while state(emulator, name) != "ALARM":
        put(emulator, "Failures", 1, "mine")
    while state(emulator, name) != "OK":
        time.sleep(0.5)


def query(identifier: str, metric: str) -> dict[str, Any]:
    return {
        "Id": identifier,
        "ReturnData": "false",
        "MetricStat": {
            "Stat": "Sum",
            "Period": "3600",
            "Metric": {
                "Namespace": "Tests",
                "MetricName": metric,
                "Dimensions": [{"Name": "Endpoint", "Value": "math"}],
            },
        },
    }


def test_an_alarm_on_metric_math(emulator: Emulator, stacks: Stacks) -> None:
    metrics = [
        {"Id": "rate", "Expression": "failed / (failed + served)", "ReturnData": "true"},
        query("failed", "Failed"),
        query("served", "Served"),
    ]
    stack = made(stacks, {"Alarm": alarm(Metrics=metrics, TreatMissingData="notBreaching")})
    name = stacks.resource(stack, "Alarm")
    [found] = emulator.client("cloudwatch").describe_alarms(AlarmNames=[name])["MetricAlarms"]
    assert [one["Id"] for one in found["Metrics"]] == ["rate", "failed", "served"]
    assert found["Metrics"][1]["MetricStat"]["Period"] == 3600
    put(emulator, "Served", 6, "math")
    put(emulator, "Failed", 4, "math")
    assert state(emulator, name) == "OK"
    put(emulator, "Failed", 4, "math")
    assert state(emulator, name) == "ALARM"


def test_an_alarm_on_a_share_of_enough_requests(emulator: Emulator, stacks: Stacks) -> None:
    metrics = [
        {"Id": "share", "Expression": "IF(served >= 10, 100 * failed / served, 0)"},
        query("failed", "FailedOf"),
        query("served", "ServedOf"),
    ]
    settings = {"Threshold": "40", "TreatMissingData": "notBreaching"}
    stack = made(stacks, {"Alarm": alarm(Metrics=metrics, **settings)})
    name = stacks.resource(stack, "Alarm")
    put(emulator, "FailedOf", 8, "math")
    put(emulator, "ServedOf", 8, "math")
    assert state(emulator, name) == "OK"
    put(emulator, "ServedOf", 2, "math")
    assert state(emulator, name) == "ALARM"


@pytest.mark.parametrize(
    "expression",
    ["ANOMALY_DETECTION_BAND(failed)", "IF(failed, 1)", "1 < failed < 2", "IF(failed == 1, 1, 0)"],
)
def test_an_expression_that_cannot_be_evaluated_is_refused(stacks: Stacks, expression: str) -> None:
    metrics = [
        {"Id": "rate", "Expression": expression},
        query("failed", "Failed"),
    ]
    stack = stacks.create({"Alarm": alarm(Metrics=metrics)})
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    assert "the emulator evaluates + - * /, one comparison and IF" in stacks.reasons(stack)


def nested(url: str) -> dict[str, Any]:
    return {"Inner": {"Type": "AWS::CloudFormation::Stack", "Properties": {"TemplateURL": url}}}


def parameter(**more: Any) -> dict[str, Any]:
    return {
        "Type": "AWS::SSM::Parameter",
        "Properties": {"Type": "String", "Value": "x", "Name": "/nested/one", **more},
    }


def test_a_nested_stack_by_either_form_of_template_url(
    emulator: Emulator, stacks: Stacks, bucket: str
) -> None:
    template = {"Resources": {"Parameter": parameter()}, "Outputs": {"Out": {"Value": "deep"}}}
    emulator.client("s3").put_object(Bucket=bucket, Key="in/t.json", Body=json.dumps(template))
    for url in (
        f"https://{bucket}.s3.us-west-2.amazonaws.com/in/t.json",
        f"https://{bucket}.s3.amazonaws.com/in/t.json",
        f"https://s3.us-west-2.amazonaws.com/{bucket}/in/t.json",
    ):
        value = {"Value": {"Fn::GetAtt": ["Inner", "Outputs.Out"]}}
        stack = made(stacks, nested(url), Outputs={"Out": value})
        assert outputs(stack)["Out"] == "deep"
        assert stacks.delete(stack)["StackStatus"] == "DELETE_COMPLETE"


def test_a_nested_stack_that_fails_leaves_nothing(
    emulator: Emulator, stacks: Stacks, bucket: str
) -> None:
    template = {"Resources": {"First": parameter(), "Second": {
        "Type": "AWS::SSM::Parameter", "DependsOn": "First",
        "Properties": {"Type": "SecureString", "Value": "x"}}}}  # fmt: skip
    emulator.client("s3").put_object(Bucket=bucket, Key="t.json", Body=json.dumps(template))
    stack = stacks.create(nested(f"https://{bucket}.s3.amazonaws.com/t.json"))
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    ssm = emulator.client("ssm")
    assert (
        ssm.describe_parameters(ParameterFilters=[{"Key": "Name", "Values": ["/nested/one"]}])[
            "Parameters"
        ]
        == []
    )


def test_a_nested_stack_that_cannot_be_deleted_keeps_its_parent(
    emulator: Emulator, stacks: Stacks, bucket: str
) -> None:
    s3 = emulator.client("s3")
    template = {
        "Resources": {"Bucket": {"Type": "AWS::S3::Bucket"}},
        "Outputs": {"Name": {"Value": {"Ref": "Bucket"}}},
    }
    s3.put_object(Bucket=bucket, Key="t.json", Body=json.dumps(template))
    stack = made(
        stacks,
        nested(f"https://{bucket}.s3.amazonaws.com/t.json"),
        Outputs={"Name": {"Value": {"Fn::GetAtt": ["Inner", "Outputs.Name"]}}},
    )
    inner = outputs(stack)["Name"]
    s3.put_object(Bucket=inner, Key="kept", Body=b"x")
    stack = stacks.delete(stack)
    assert stack["StackStatus"] == "DELETE_FAILED"
    assert "was not successfully deleted" in stacks.reasons(stack)
    s3.delete_object(Bucket=inner, Key="kept")
    assert stacks.delete(stack)["StackStatus"] == "DELETE_COMPLETE"


def test_weak_references_between_stacks(emulator: Emulator, stacks: Stacks) -> None:
    first = made(
        stacks, {"One": parameter(Name="/weak/one")}, Outputs={"Name": {"Value": {"Ref": "One"}}}
    )
    reference = {"Fn::GetStackOutput": {"StackName": first["StackName"], "OutputName": "Name"}}
    second = made(
        stacks,
        {"Two": parameter(Name="/weak/two", Value=reference)},
        Outputs={"Value": {"Value": {"Fn::GetAtt": ["Two", "Value"]}}},
    )
    assert outputs(second)["Value"] == "/weak/one"


def test_strong_references_hold_the_producer(emulator: Emulator, stacks: Stacks) -> None:
    first = made(
        stacks,
        {"One": parameter(Name="/strong/one")},
        Outputs={"Name": {"Value": {"Ref": "One"}, "Export": {"Name": "strong-one"}}},
    )
    made(stacks, {"Two": parameter(Name="/strong/two", Value={"Fn::ImportValue": "strong-one"})})
    with pytest.raises(ClientError, match="Export strong-one "):
        stacks.delete(first)


def test_the_clean_up_phase_of_an_update_is_visible(emulator: Emulator, stacks: Stacks) -> None:
    stack = made(stacks, {"One": parameter(Name="/clean/one"), "Two": parameter(Name="/clean/two")})
    stacks.update(stack, {"One": parameter(Name="/clean/renamed")})
    events = stacks.api.describe_stack_events(StackName=stack["StackId"])["StackEvents"]
    told = [(event["LogicalResourceId"], event["ResourceStatus"]) for event in reversed(events)]
    cleaning = told.index((stack["StackName"], "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"))
    assert told.index(("One", "UPDATE_COMPLETE")) < cleaning
    for name in ("One", "Two"):
        assert cleaning < told.index((name, "DELETE_COMPLETE"))
    assert told[-1] == (stack["StackName"], "UPDATE_COMPLETE")
    names = {"/clean/one", "/clean/two", "/clean/renamed"}
    left = emulator.client("ssm").get_parameters(Names=sorted(names))["Parameters"]
    assert [one["Name"] for one in left] == ["/clean/renamed"]


def test_a_repeated_update_is_refused_as_aws_does(stacks: Stacks) -> None:
    resources = {"One": parameter(Name="/again/one")}
    stack = made(stacks, resources)
    with pytest.raises(ClientError, match="No updates are to be performed"):
        stacks.update(stack, resources)


def test_log_groups_and_dashboards(emulator: Emulator, stacks: Stacks) -> None:
    resources = {
        "Group": {"Type": "AWS::Logs::LogGroup", "Properties": {"RetentionInDays": 7}},
        "Board": {
            "Type": "AWS::CloudWatch::Dashboard",
            "Properties": {"DashboardName": "board", "DashboardBody": '{"widgets": []}'},
        },
    }
    stack = made(stacks, resources)
    group = stacks.resource(stack, "Group")
    [found] = emulator.client("logs").describe_log_groups(logGroupNamePrefix=group)["logGroups"]
    assert found["retentionInDays"] == 7
    body = emulator.client("cloudwatch").get_dashboard(DashboardName="board")["DashboardBody"]
    assert json.loads(body) == {"widgets": []}
    stacks.delete(stack)
    boards = emulator.client("cloudwatch").list_dashboards()["DashboardEntries"]
    assert "board" not in [board["DashboardName"] for board in boards]
