"""The delivery's template: what starts it, what it may do, and where its failures go."""

from __future__ import annotations

import ast
import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_cdk.assertions import Match

from shared.host import Host
from tests.unit.delivery_stack import (
    BUCKET,
    FUNCTIONS,
    LAMBDAS,
    resources,
    template,
    text,
)
from tests.unit.eventbridge import matches
from tests.unit.lambdas.models import HOST
from ultracluster.catalog import load_catalog
from ultracluster.serving_process import most_workers
from ultracluster.settings import Endpoint

DIGEST = "0f" * 32
KEY = f"models/sentiment/{DIGEST}/manifest.json"


def s3_event(
    *,
    key: str = KEY,
    bucket: str = BUCKET,
    reason: str = "PutObject",
    detail_type: str = "Object Created",
    source: str = "aws.s3",
) -> dict[str, Any]:
    """An event in the form that Amazon S3 documents for EventBridge."""
    return {
        "version": "0",
        "id": "17793124-05d4-b198-2fde-7ededc63b103",
        "detail-type": detail_type,
        "source": source,
        "account": "111122223333",
        "time": "2026-11-30T16:00:00Z",
        "region": "us-west-2",
        "resources": [f"arn:aws:s3:::{bucket}"],
        "detail": {
            "version": "0",
            "bucket": {"name": bucket},
            "object": {
                "key": key,
                "size": 5,
                "etag": "b1946ac92492d2347c6235b4d2611184",
                "version-id": "IYV3p45BT0ac8hjHg1houSdS1a.Mro8e",
                "sequencer": "617f08299329d189",
            },
            "request-id": "N4N7GDK58NMKJ12R",
            "requester": "123456789012",
            "source-ip-address": "1.2.3.4",
            "reason": reason,
        },
    }


def pattern_of(source: str) -> dict[str, Any]:
    (pattern,) = [
        rule["EventPattern"]
        for rule in resources("AWS::Events::Rule").values()
        if rule["EventPattern"]["source"] == [source]
    ]
    return dict(pattern)


@pytest.mark.case("S04")
@pytest.mark.parametrize("reason", ["PutObject", "CompleteMultipartUpload", "CopyObject"])
def test_every_way_to_put_a_manifest_starts_a_delivery(reason: str) -> None:
    assert matches(pattern_of("aws.s3"), s3_event(reason=reason))


@pytest.mark.case("S04")
@pytest.mark.parametrize(
    "other",
    [
        {"key": f"other/sentiment/{DIGEST}/manifest.json"},
        {"key": f"x/models/sentiment/{DIGEST}/manifest.json"},
        {"key": f"models/sentiment/{DIGEST}/model.tar.gz"},
        {"key": f"{KEY}.tmp"},
        {"key": f"{KEY}.part"},
        {"key": f"models/another/{DIGEST}/manifest.json"},
        {"key": f"models/sentiment-2/{DIGEST}/manifest.json"},
        {"key": "models/sentiment/manifest.json"},
        {"key": f"verdicts/{DIGEST}.json"},
        {"bucket": "another-bucket"},
        {"detail_type": "Object Deleted"},
        {"detail_type": "Object Tags Added"},
        {"source": "aws.cloudtrail"},
    ],
)
def test_nothing_else_starts_a_delivery(other: dict[str, str]) -> None:
    assert not matches(pattern_of("aws.s3"), s3_event(**other))


@pytest.mark.case("L08")
def test_an_event_that_cannot_be_delivered_is_kept() -> None:
    (queue,) = resources("AWS::SQS::Queue")
    for rule_id, rule in resources("AWS::Events::Rule").items():
        (target,) = rule["Targets"]
        kept = text(target.get("DeadLetterConfig", target)["Arn"])
        assert kept == f"<{queue}>"
        allowed = [
            statement["Condition"]["ArnEquals"]["aws:SourceArn"]
            for policy in resources("AWS::SQS::QueuePolicy").values()
            for statement in policy["PolicyDocument"]["Statement"]
            if statement["Principal"] == {"Service": "events.amazonaws.com"}
            and "sqs:SendMessage" in statement["Action"]
        ]
        assert f"<{rule_id}>" in [text(arn) for arn in allowed]


@pytest.mark.case("L08")
def test_every_broken_execution_reaches_the_queue_and_the_queue_a_person() -> None:
    (machine,) = resources("AWS::StepFunctions::StateMachine")
    pattern = pattern_of("aws.states")
    assert text(pattern["detail"]["stateMachineArn"][0]) == f"<{machine}>"
    pattern["detail"] = {**pattern["detail"], "stateMachineArn": ["arn"]}
    for status, kept in {
        "FAILED": True,
        "TIMED_OUT": True,
        "ABORTED": True,
        "SUCCEEDED": False,
        "RUNNING": False,
    }.items():
        event = {
            "source": "aws.states",
            "detail-type": "Step Functions Execution Status Change",
            "detail": {"stateMachineArn": "arn", "status": status},
        }
        assert matches(pattern, event) == kept
    (topic,) = resources("AWS::SNS::Topic")
    (alarm,) = resources("AWS::CloudWatch::Alarm").values()
    assert alarm["MetricName"] == "ApproximateNumberOfMessagesVisible"
    assert (alarm["Threshold"], alarm["EvaluationPeriods"]) == (1, 1)
    assert [text(action) for action in alarm["AlarmActions"]] == [f"<{topic}>"]


def test_the_alarm_may_publish_under_the_topics_key() -> None:
    account = {"StringEquals": {"aws:SourceAccount": "000000000000"}}
    for kind, action in (
        ("AWS::SNS::TopicPolicy", "sns:Publish"),
        ("AWS::KMS::Key", ["kms:Decrypt", "kms:GenerateDataKey*"]),
    ):
        (holder,) = resources(kind).values()
        policy = holder.get("PolicyDocument") or holder["KeyPolicy"]
        (statement,) = [
            item
            for item in policy["Statement"]
            if item["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
        ]
        assert (statement["Action"], statement["Condition"]) == (action, account)
    (topic,) = resources("AWS::SNS::Topic").values()
    assert topic["KmsMasterKeyId"]


@pytest.mark.case("L10")
def test_no_function_is_in_a_vpc_and_each_states_its_limits() -> None:
    functions = resources("AWS::Lambda::Function")
    assert len(functions) == len(FUNCTIONS) + 1  # and the drain
    groups = resources("AWS::Logs::LogGroup")
    for function in functions.values():
        assert "VpcConfig" not in function
        assert function["Runtime"] == "python3.12"
        assert function["Architectures"] == ["arm64"]
        assert function["MemorySize"] >= 256
        assert function["Timeout"] >= 60
        assert text(function["LoggingConfig"]["LogGroup"]).strip("<>") in groups


@pytest.mark.case("K04")
def test_every_log_group_forgets() -> None:
    groups = resources("AWS::Logs::LogGroup")
    assert len(groups) == len(FUNCTIONS) + 2  # and the drain's, and the state machine's
    assert all(group["RetentionInDays"] == 90 for group in groups.values())


def test_the_state_machine_logs_and_traces() -> None:
    template().has_resource_properties(
        "AWS::StepFunctions::StateMachine",
        {
            "LoggingConfiguration": Match.object_like(
                {"Level": "ALL", "IncludeExecutionData": True}
            ),
            "TracingConfiguration": {"Enabled": True},
            "StateMachineType": Match.absent(),  # Standard: it waits for hours
        },
    )


@pytest.mark.case("L11")
def test_nothing_has_a_name_that_two_environments_would_share() -> None:
    named = {
        (kind, key)
        for kind, key in (
            ("AWS::Lambda::Function", "FunctionName"),
            ("AWS::SQS::Queue", "QueueName"),
            ("AWS::SNS::Topic", "TopicName"),
            ("AWS::StepFunctions::StateMachine", "StateMachineName"),
            ("AWS::Events::Rule", "Name"),
            ("AWS::IAM::Role", "RoleName"),
        )
        for properties in resources(kind).values()
        if key in properties
    }
    assert named == set()
    names = [group.get("LogGroupName") for group in resources("AWS::Logs::LogGroup").values()]
    (name,) = [text(name) for name in names if name]
    assert name.startswith("/aws/vendedlogs/states/ultracluster-test-delivery-")
    assert "AWS::StackId" in name


@pytest.mark.case("L06")
def test_the_asset_holds_no_binary_and_needs_only_the_standard_library_and_boto3() -> None:
    own = {path.name for path in LAMBDAS.iterdir() if path.is_dir()} - {"__pycache__"}
    files = [path for path in LAMBDAS.rglob("*") if path.is_file()]
    sources = [path for path in files if "__pycache__" not in path.parts]
    assert {path.suffix for path in sources} == {".py", ".json"}
    for path in sources:
        if path.suffix != ".py":
            continue
        for name in _imports(path):
            root = name.split(".")[0]
            known = root in sys.stdlib_module_names or root in {"boto3", "botocore"} or root in own
            assert known, f"{path} imports {name}"


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield node.module or ""


@pytest.mark.case("L06")
@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_handler_is_found_in_the_asset(function: str, tmp_path: Path) -> None:
    """As Lambda does it: the asset's root on the path, nothing else of the repository."""
    handlers = [item["Handler"] for item in resources("AWS::Lambda::Function").values()]
    (handler,) = [name for name in handlers if name.startswith(f"{function}.")]
    module, name = handler.rsplit(".", 1)
    code = f"import {module} as module; assert callable(module.{name})"
    environment = {**os.environ, "PYTHONPATH": str(LAMBDAS), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_function_is_given_the_variables_that_it_reads(function: str) -> None:
    modules = {
        "validate": "judgement",
        "roll_out": "update",
        "settle": "observation",
        "record": "report",
    }
    module = __import__(f"{function}.{modules[function]}", fromlist=["Settings"])
    wanted = {name.upper() for name in module.Settings.__dataclass_fields__} - {"AWS_REGION"}
    if function == "validate":
        wanted |= {f"SERVING_{name.upper()}" for name in Host.__dataclass_fields__}
    (given,) = [
        set(item["Environment"]["Variables"])
        for item in resources("AWS::Lambda::Function").values()
        if item["Handler"].startswith(f"{function}.")
    ]
    assert given == wanted


@pytest.mark.case("M19")
@pytest.mark.parametrize("package_mib", [461, 1000, 3000])
def test_synth_and_delivery_reckon_with_the_same_memory(package_mib: int) -> None:
    instance = load_catalog().serving_instance("ml.c7g.4xlarge")
    assert instance is not None
    most = most_workers(Endpoint(largest_package_mib=package_mib), instance)
    needed = [
        dataclasses.replace(HOST, workers=workers).needed_bytes(package_mib * 1024**2)
        for workers in (most, most + 1)
    ]
    assert needed[0] <= instance.memory_gib * 1024**3 < needed[1]
