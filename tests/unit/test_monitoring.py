"""Alarms that say what to do, a dashboard of metrics that somebody publishes, logs that end."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.environments import ENVIRONMENTS, Synthesized
from tests.unit.test_deletion_order import Get
from ultracluster.boot import neuron_metrics
from ultracluster.cluster_metrics import NODE_ERRORS


def alarms(environment: Synthesized) -> dict[str, dict[str, Any]]:
    """The alarms of the Monitoring stack by the start of their logical ids."""
    return {
        logical_id.removeprefix("Alarms")[:-8]: resource["Properties"]
        for stack, logical_id, resource in environment.resources("AWS::CloudWatch::Alarm")
        if stack == "monitoring"
    }


def dashboard(environment: Synthesized) -> dict[str, Any]:
    ((_, _, resource),) = environment.resources("AWS::CloudWatch::Dashboard")
    parts = resource["Properties"]["DashboardBody"]["Fn::Join"][1]
    text = "".join(part if isinstance(part, str) else "reference" for part in parts)
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@pytest.mark.parametrize("name", ["dev", "prod", "examples/serving"])
def test_every_alarm_goes_to_the_topic_and_says_what_to_do(name: str, synthesized: Get) -> None:
    environment = synthesized(name)
    found = alarms(environment)
    assert set(found) == {
        "IdleAccelerators",
        "FileSystemFull",
        "FailedDeliveries",
        "TimedOutDeliveries",
        "AbortedDeliveries",
        "EndpointErrors",
        "EndpointLatency",
    }
    topics = [logical_id for stack, logical_id, _ in environment.resources("AWS::SNS::Topic")]
    assert len(topics) == 1  # the delivery's, whose key lets CloudWatch in
    for alarm in found.values():
        (action,) = alarm["AlarmActions"]
        assert topics[0] in action["Fn::GetStackOutput"]["OutputName"]
        meaning, *what_to_do, place = alarm["AlarmDescription"].split(". ")
        assert len(meaning) > 40 and what_to_do
        assert place == f"Goes to the topic of the stack {environment.prefix}-delivery."
        assert len(alarm["AlarmDescription"]) < 1024
        assert alarm["TreatMissingData"] == "notBreaching"


@pytest.mark.case("K03")
def test_nodes_that_stay_idle_ring_after_slurm_should_have_ended_them(synthesized: Get) -> None:
    alarm = alarms(synthesized("dev"))["IdleAccelerators"]
    assert (alarm["Namespace"], alarm["MetricName"]) == (
        "ParallelCluster",
        "MaxDynamicNodeIdleTime",
    )
    assert alarm["Dimensions"] == [{"Name": "ClusterName", "Value": "ultracluster-dev"}]
    assert alarm["Threshold"] == (10 + 20) * 60
    assert "after 10" in alarm["AlarmDescription"]


def test_a_full_file_system_and_few_good_answers_ring(synthesized: Get) -> None:
    found = alarms(synthesized("prod"))
    assert found["FileSystemFull"]["Threshold"] == 9600 * 1024**3 // 10
    assert found["FileSystemFull"]["ComparisonOperator"] == "LessThanThreshold"
    errors = found["EndpointErrors"]
    (share,) = [m["Expression"] for m in errors["Metrics"] if "Expression" in m]
    assert share == "IF(requests >= 100, 100 * errors / requests, 0)"
    assert (errors["EvaluationPeriods"], errors["Threshold"]) == (3, 5)


def test_parallelcluster_publishes_what_the_cluster_is_judged_by() -> None:
    spec = importlib.util.find_spec("pcluster")
    assert spec is not None and spec.origin is not None
    source = Path(spec.origin).with_name("templates") / "cw_dashboard_builder.py"
    published = set(re.findall(r'metric_name="(\w+)"', source.read_text(encoding="utf-8")))
    assert {"MaxDynamicNodeIdleTime", *NODE_ERRORS} <= published


def test_the_dashboard_shows_every_part_and_each_metric_of_the_nodes(synthesized: Get) -> None:
    body = dashboard(synthesized("dev"))
    text = json.dumps(body)
    headings = re.findall(r"## (\w+(?: \w+)?)", text)
    assert headings == ["Training", "File system", "Delivery", "Endpoint"]
    report = {
        "neuron_runtime_data": [
            {
                "pid": 1,
                "report": {
                    "neuroncore_counters": {
                        "neuroncores_in_use": {"0": {"neuroncore_utilization": 1.0}}
                    },
                    "memory_used": {"neuron_runtime_used_bytes": {"neuron_device": 1}},
                    "execution_stats": {"error_summary": {"hardware": 1}},
                },
            }
        ],
        "system_data": {
            "neuron_hw_counters": {
                "neuron_devices": [{"mem_ecc_uncorrected": 1, "sram_ecc_uncorrected": 0}]
            }
        },
    }
    measured = list(neuron_metrics.measures(report))
    values = {(metric, job): [value] for metric, job, value in measured}
    data = neuron_metrics.metric_data(values, cluster="ultracluster-dev", node="n")
    assert len({metric for metric, _, _ in measured}) == 4
    for one in data[::2]:  # by job; the other half is by job and node
        dimensions = ",".join(dimension["Name"] for dimension in one["Dimensions"])
        wanted = (
            f'SEARCH(\'{{UltraCluster/Neuron,{dimensions}}} MetricName="{one["MetricName"]}" '
            'Cluster="ultracluster-dev"'
        )
        assert json.dumps(wanted)[1:-1] in text
    (status,) = [w for w in body["widgets"] if w["type"] == "alarm"]
    assert len(status["properties"]["alarms"]) == 7


def test_an_address_is_subscribed_and_a_budget_has_two_thresholds(synthesized: Get) -> None:
    environment = synthesized("prod")
    ((stack, _, subscription),) = environment.resources("AWS::SNS::Subscription")
    assert stack == "monitoring"
    assert subscription["Properties"]["Endpoint"] == "ml-platform@example.com"
    ((_, _, budget),) = environment.resources("AWS::Budgets::Budget")
    assert budget["Properties"]["Budget"]["BudgetLimit"] == {"Amount": 60000, "Unit": "USD"}
    filters = budget["Properties"]["Budget"]["CostFilters"]
    assert filters == {"TagKeyValue": ["user:ultracluster:environment$ultracluster-prod"]}
    kinds = {
        (n["Notification"]["NotificationType"], n["Notification"]["Threshold"])
        for n in budget["Properties"]["NotificationsWithSubscribers"]
    }
    assert kinds == {("ACTUAL", 80), ("FORECASTED", 100)}


def test_without_an_address_nobody_is_subscribed_and_no_budget_made(synthesized: Get) -> None:
    kinds = ("AWS::Budgets::Budget", "AWS::SNS::Subscription")
    assert list(synthesized("dev").resources(*kinds)) == []


@pytest.mark.case("K04")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_function_logs_into_a_group_of_ours_that_ends(name: str, synthesized: Get) -> None:
    environment = synthesized(name)
    functions = list(environment.resources("AWS::Lambda::Function"))
    assert len(functions) > 5
    for stack, logical_id, function in functions:
        group = function["Properties"]["LoggingConfig"]["LogGroup"]["Ref"]
        resource = environment.templates[stack]["Resources"][group]
        assert resource["Type"] == "AWS::Logs::LogGroup", (stack, logical_id)
        assert resource["Properties"]["RetentionInDays"] > 0


@pytest.mark.parametrize("name", ["dev", "prod"])
def test_deliveries_can_be_followed_by_x_ray(name: str, synthesized: Get) -> None:
    for stack, logical_id, resource in synthesized(name).resources(
        "AWS::Lambda::Function", "AWS::StepFunctions::StateMachine"
    ):
        if stack != "delivery" or "Drain" in logical_id:
            continue
        body = resource["Properties"]
        traced = body.get("TracingConfig", {}).get("Mode") == "Active" or body.get(
            "TracingConfiguration", {}
        ).get("Enabled")
        assert traced, logical_id
