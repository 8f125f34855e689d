"""What each function of the delivery may do, held against what its code calls."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roll_out.update import Settings as RollOutSettings
from settle.bake import METRIC
from tests.environments import Synthesized
from tests.unit.delivery_stack import (
    BUCKET,
    ENDPOINT_STACK,
    FUNCTIONS,
    LAMBDAS,
    ROLE,
    resources,
    statements,
    text,
)


def allowed(function: str) -> dict[str, tuple[set[str], Any]]:
    """Resources and condition of each action that a function may do."""
    found: dict[str, tuple[set[str], Any]] = {}
    for statement in statements(function):
        assert statement["Effect"] == "Allow"
        actions, on = statement["Action"], statement["Resource"]
        for action in [actions] if isinstance(actions, str) else actions:
            places = {text(item) for item in (on if isinstance(on, list) else [on])}
            known = found.setdefault(action, (set(), statement.get("Condition")))
            assert known[1] == statement.get("Condition")
            known[0].update(places)
    return found


STACK_ARN = f"arn:aws:cloudformation:us-west-2:000000000000:stack/{ENDPOINT_STACK}/*"
ENDPOINT_ARN = "arn:aws:sagemaker:us-west-2:000000000000:endpoint/ultracluster-test"


@pytest.mark.case("S10")
def test_only_the_roll_out_updates_and_only_with_the_service_role() -> None:
    rights = allowed("roll_out")
    assert rights["cloudformation:UpdateStack"] == (
        {STACK_ARN},
        {"StringEquals": {"cloudformation:RoleArn": ROLE}},
    )
    assert rights["iam:PassRole"] == (
        {ROLE},
        {"StringEquals": {"iam:PassedToService": "cloudformation.amazonaws.com"}},
    )
    for other in ("validate", "settle", "record"):
        assert not {"cloudformation:UpdateStack", "iam:PassRole"} & set(allowed(other))


@pytest.mark.case("S11")
def test_only_settle_asks_the_endpoint_under_its_lower_case_arn() -> None:
    for action in ("sagemaker:InvokeEndpoint", "sagemaker:DescribeEndpoint"):
        assert allowed("settle")[action] == ({ENDPOINT_ARN}, None)
        assert not any(action in allowed(other) for other in ("validate", "roll_out", "record"))


def test_the_texts_outcome_goes_to_its_own_metric_only() -> None:
    namespace = {"StringEquals": {"cloudwatch:namespace": METRIC["Namespace"]}}
    assert allowed("settle")["cloudwatch:PutMetricData"] == ({"*"}, namespace)


def test_sagemaker_rolls_back_by_the_alarm_on_that_metric(
    synthesized: Callable[[str], Synthesized],
) -> None:
    """Metric and alarm are named in the functions and in the Endpoint stack: once each."""
    ((_, _, resource),) = synthesized("dev").resources("AWS::SageMaker::Endpoint")
    endpoint = resource["Properties"]
    ((alarm, logical_id),) = [
        (resource["Properties"], name)
        for stack, name, resource in synthesized("dev").resources("AWS::CloudWatch::Alarm")
        if resource["Properties"].get("MetricName") == METRIC["MetricName"]
    ]
    name = endpoint["EndpointName"]
    assert alarm["Namespace"] == METRIC["Namespace"]
    assert alarm["Dimensions"] == [{"Name": "EndpointName", "Value": name}]
    assert (alarm["Statistic"], alarm["Threshold"], alarm["Period"]) == ("Sum", 1, 60)
    settings = RollOutSettings(endpoint_stack="x", service_role_arn="x", endpoint_name=name)
    assert alarm["AlarmName"] == settings.smoke_alarm
    guards = endpoint["DeploymentConfig"]["AutoRollbackConfiguration"]["Alarms"]
    assert {"AlarmName": {"Ref": logical_id}} in guards
    (seen,) = allowed("roll_out")["cloudwatch:DescribeAlarms"][0]
    assert seen.endswith(":alarm:ultracluster-test-smoke")


def test_each_function_reads_and_writes_its_own_prefix_only() -> None:
    bucket = f"arn:aws:s3:::{BUCKET}"
    reads = {
        "validate": {bucket, f"{bucket}/models/sentiment/*", f"{bucket}/verdicts/*"},
        "settle": {bucket, f"{bucket}/models/sentiment/*"},
        "record": {bucket, f"{bucket}/verdicts/*"},
    }
    for function in FUNCTIONS:
        rights = allowed(function)
        # CDK's grant to read a bucket; where the bucket lies is part of it.
        assert (bucket in rights.get("s3:GetBucket*", (set(),))[0]) is (function in reads)
        assert rights.get("s3:GetObject*", (set(),))[0] == reads.get(function, set())
        writes = {f"{bucket}/verdicts/*"} if function == "record" else set()
        assert rights.get("s3:PutObject", (set(),))[0] == writes
        assert not any(action.startswith("s3:Delete") for action in rights)


def test_nothing_but_tracing_is_allowed_everywhere() -> None:
    for function in FUNCTIONS:
        wide = {action for action, (places, _) in allowed(function).items() if "*" in places}
        metrics = {"cloudwatch:PutMetricData"} if function == "settle" else set()
        assert wide == {"xray:PutTraceSegments", "xray:PutTelemetryRecords"} | metrics
    for role in resources("AWS::IAM::Role").values():
        assert "ManagedPolicyArns" not in role


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_functions_rights_cover_what_it_calls(function: str) -> None:
    """Each client call in its code needs its action; a right without a call is one too many."""
    special = {"get_object": "s3:GetObject*", "head_object": "s3:GetObject*"}
    names = {
        "describe_stacks": "cloudformation:DescribeStacks",
        "describe_stack_events": "cloudformation:DescribeStackEvents",
        "update_stack": "cloudformation:UpdateStack",
        "describe_endpoint": "sagemaker:DescribeEndpoint",
        "invoke_endpoint": "sagemaker:InvokeEndpoint",
        "put_object": "s3:PutObject",
        "publish": "sns:Publish",
        "put_metric_data": "cloudwatch:PutMetricData",
        "describe_alarms": "cloudwatch:DescribeAlarms",
        **special,
    }
    called = {names[name] for name in _calls(function) if name in names}
    granted = set(allowed(function)) & set(names.values())
    assert called == granted


def _calls(function: str) -> set[str]:
    """Names of the methods called in a function's modules and in the helpers that they use."""
    done: set[str] = set()
    found: set[str] = set()
    todo = [(path, None) for path in (LAMBDAS / function).glob("*.py")]
    queue: list[tuple[Path, str | None]] = list(todo)
    while queue:
        path, only = queue.pop()
        if (mark := f"{path}:{only}") in done:
            continue
        done.add(mark)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        nodes: list[ast.AST] = [
            node
            for node in tree.body
            if only is None or (isinstance(node, ast.FunctionDef) and node.name == only)
        ]
        imported = _shared_names(tree)
        for node in (inner for outer in nodes for inner in ast.walk(outer)):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
                owner = node.value
                if isinstance(owner, ast.Name) and imported.get(owner.id) == "shared":
                    queue.append((LAMBDAS / "shared" / f"{owner.id}.py", node.attr))
            if isinstance(node, ast.Name) and imported.get(node.id, "").startswith("shared."):
                module = imported[node.id].removeprefix("shared.")
                queue.append((LAMBDAS / "shared" / f"{module}.py", node.id))
            if isinstance(node, ast.Name) and only is not None:
                queue.append((path, node.id))
    return found


def _shared_names(tree: ast.Module) -> dict[str, str]:
    return {
        alias.asname or alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("shared")
        for alias in node.names
    }
