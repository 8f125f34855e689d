"""The delivery's template: what starts it, what it may do, and where its failures go."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_cdk.assertions import Match

from tests.unit.delivery_stack import (
    BUCKET,
    ENDPOINT_STACK,
    LAMBDAS,
    ROLE,
    definition,
    resources,
    statements,
    template,
    text,
)
from tests.unit.eventbridge import matches

DIGEST = "0f" * 32
KEY = f"models/sentiment/{DIGEST}/manifest.json"
FUNCTIONS = ("validate", "roll_out", "settle", "record")


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
    assert len(functions) == len(FUNCTIONS)
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
    assert len(groups) == len(FUNCTIONS) + 1
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
    assert [name for name in names if name] == ["/aws/vendedlogs/states/ultracluster-test-delivery"]


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


def test_each_function_reads_and_writes_its_own_prefix_only() -> None:
    bucket = f"arn:aws:s3:::{BUCKET}"
    reads = {
        "validate": {bucket, f"{bucket}/models/sentiment/*", f"{bucket}/verdicts/*"},
        "settle": {bucket, f"{bucket}/models/sentiment/*"},
        "record": {bucket, f"{bucket}/verdicts/*"},
    }
    for function in FUNCTIONS:
        rights = allowed(function)
        assert rights.get("s3:GetObject*", (set(),))[0] == reads.get(function, set())
        writes = {f"{bucket}/verdicts/*"} if function == "record" else set()
        assert rights.get("s3:PutObject", (set(),))[0] == writes
        assert not any(action.startswith("s3:Delete") for action in rights)


def test_nothing_but_tracing_is_allowed_everywhere() -> None:
    for function in FUNCTIONS:
        wide = {action for action, (places, _) in allowed(function).items() if "*" in places}
        assert wide == {"xray:PutTraceSegments", "xray:PutTelemetryRecords"}
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
    wanted = {name.upper() for name in module.Settings.__dataclass_fields__}
    (given,) = [
        set(item["Environment"]["Variables"])
        for item in resources("AWS::Lambda::Function").values()
        if item["Handler"].startswith(f"{function}.")
    ]
    assert given == wanted


def edges(name: str) -> Iterator[tuple[str, str]]:
    """Where a state leads, each with the condition of that way."""
    state = definition()["States"][name]
    for rule in state.get("Choices", []):
        yield rule["Next"], rule["Condition"]
    for catch in state.get("Catch", []):
        yield catch["Next"], "error"
    for key in ("Next", "Default"):
        if key in state:
            yield state[key], ""


def reachable(start: str, *, without: frozenset[tuple[str, str]] = frozenset()) -> set[str]:
    found, todo = {start}, [start]
    while todo:
        here = todo.pop()
        for there, _ in edges(here):
            if (here, there) not in without and there not in found:
                found.add(there)
                todo.append(there)
    return found


def test_every_state_is_reached_and_every_way_ends() -> None:
    states = definition()["States"]
    assert reachable(definition()["StartAt"]) == set(states)
    ends = {
        name
        for name, state in states.items()
        if state["Type"] in ("Succeed", "Fail") or state.get("End")
    }
    for name in states:
        assert reachable(name) & ends, name
        assert list(edges(name)) or name in ends, name


def test_every_task_catches_every_error_and_every_choice_has_a_default() -> None:
    for name, state in definition()["States"].items():
        if state["Type"] == "Task":
            assert [catch["ErrorEquals"] for catch in state["Catch"]] == [["States.ALL"]], name
            assert all(retry["MaxAttempts"] <= 6 for retry in state["Retry"]), name
        if state["Type"] == "Choice":
            assert "Default" in state, name


@pytest.mark.case("M10")
def test_every_loop_waits_and_has_a_bound() -> None:
    """A way into a wait needs a count below a bound, the wait raises that count, and without
    these ways the machine has no loop at all."""
    states = definition()["States"]
    bounded: set[tuple[str, str]] = set()
    counts: dict[str, str] = {}
    for name, state in states.items():
        if state["Type"] == "Wait":
            ((count, value),) = state["Assign"].items()
            assert value == f"{{% ${count} + 1 %}}"
            counts[name] = count
            assert state["Seconds"] == 30
    assert len(set(counts.values())) == len(counts)
    for name in states:
        for there, condition in edges(name):
            if there in counts and f"${counts[there]} < 240 " in condition:
                bounded.add((name, there))
    # The ways into the waits that carry no bound are taken once: right after an update began.
    for name in states:
        assert name not in reachable_from_next(name, frozenset(bounded)), name
    begin = states[definition()["StartAt"]]["Assign"]
    assert all(begin[count] == 0 for count in counts.values())
    assigned = [
        key
        for name, state in states.items()
        for holder in (state, *state.get("Choices", []), *state.get("Catch", []))
        for key in holder.get("Assign", {})
        if name != definition()["StartAt"]
    ]
    assert all(assigned.count(count) == 1 for count in counts.values())


def reachable_from_next(name: str, without: frozenset[tuple[str, str]]) -> set[str]:
    return {
        state
        for there, _ in edges(name)
        if (name, there) not in without
        for state in reachable(there, without=without)
    }


def test_the_machine_as_a_whole_ends_too() -> None:
    assert definition()["TimeoutSeconds"] == 10 * 60 * 60
    assert definition()["QueryLanguage"] == "JSONata"


@pytest.mark.parametrize(("poll_seconds", "looks"), [(1, 500), (30, 240), (300, 24)])
def test_waits_are_bounded_in_time_and_in_history(poll_seconds: int, looks: int) -> None:
    found = template(poll_seconds).find_resources("AWS::StepFunctions::StateMachine")
    assert f"$looks < {looks} " in str(found)
    # Four waits of ten events a look, within the 25,000 that an execution's history holds.
    assert looks * 10 * 4 < 25_000
