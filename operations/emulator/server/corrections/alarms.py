"""CloudWatch alarms: dimensions count, metric math works, each period is evaluated by itself."""

from __future__ import annotations

import ast
import operator
import time
from collections.abc import Callable, Mapping
from typing import Any

from ministack.services import cloudwatch
from ministack.services.cloudformation import provisioners

from operations.emulator.server.calls import typed

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}
_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_CROSSED = "Threshold Crossed"
_CONDITIONS: Mapping[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.GtE: operator.ge,
    ast.Gt: operator.gt,
    ast.LtE: operator.le,
    ast.Lt: operator.lt,
}
_METRIC = ("MetricName", "Namespace", "Dimensions", "Period", "Statistic", "ExtendedStatistic")


def apply() -> None:
    """Apply the corrections."""
    record = provisioners._cw_metric_alarm_record

    def recorded(name: str, properties: dict[str, Any]) -> dict[str, Any]:
        queries = properties.get("Metrics")
        if not queries:
            alarm: dict[str, Any] = record(name, properties)
            return alarm
        queries = typed("cloudwatch", "PutMetricAlarm", {"Metrics": queries})["Metrics"]
        for query in queries:
            if "Expression" in query:
                _check(query["Expression"])
        plain = {key: value for key, value in properties.items() if key != "Metrics"}
        alarm = record(name, {**plain, "MetricName": "-", "Namespace": "-"})
        alarm = {key: value for key, value in alarm.items() if key not in _METRIC}
        return {**alarm, "Metrics": queries}

    describe = cloudwatch._describe_alarms

    def described(*arguments: Any) -> Any:
        """MiniStack evaluates at new data only, and so an alarm would ring for ever."""
        for alarm in list(cloudwatch._alarms.values()):
            if alarm.get("StateReason", "").startswith(_CROSSED):
                evaluate(alarm)
        return describe(*arguments)

    provisioners._cw_metric_alarm_record = recorded
    cloudwatch._evaluate_alarm = evaluate
    cloudwatch._describe_alarms = described


def evaluate(alarm: dict[str, Any]) -> None:
    """Set the alarm's state from the last periods, and tell whoever is to be told.

    MiniStack takes all data of the metric's name whatever the dimensions, as one period.
    """
    compare = _COMPARISONS.get(alarm["ComparisonOperator"])
    if compare is None:  # of anomaly detection
        return
    period = _period(alarm)
    now = time.time()
    end = now - now % period + period
    wanted = int(alarm["EvaluationPeriods"])
    values = [_value(alarm, end - (i + 1) * period, end - i * period) for i in range(wanted)]
    missing = alarm.get("TreatMissingData") or "missing"
    present = [value for value in values if value is not None]
    if not present and missing not in ("breaching", "notBreaching"):
        return
    breaching = sum(
        missing == "breaching" if value is None else compare(value, alarm["Threshold"])
        for value in values
    )
    needed = int(alarm.get("DatapointsToAlarm") or wanted)
    _move(alarm, "ALARM" if breaching >= needed else "OK", present)


def _move(alarm: dict[str, Any], state: str, values: list[float]) -> None:
    old = alarm["StateValue"]
    if old == state:
        return
    reason = f"{_CROSSED}: {values} against {alarm['ComparisonOperator']} {alarm['Threshold']}"
    alarm.update(StateValue=state, StateReason=reason, StateUpdatedTimestamp=int(time.time()))
    cloudwatch._record_history(alarm["AlarmName"], old, state, reason)
    cloudwatch._dispatch_alarm_actions(alarm, old, state, reason)
    cloudwatch._evaluate_parent_alarms(alarm)


def _period(alarm: Mapping[str, Any]) -> int:
    periods = [
        query["MetricStat"]["Period"] for query in alarm.get("Metrics", ()) if "MetricStat" in query
    ]
    return int(max(periods) if periods else alarm.get("Period") or 60)


def _value(alarm: Mapping[str, Any], start: float, end: float) -> float | None:
    """What the alarm compares for one period; None without data."""
    if "Metrics" not in alarm:
        statistic = alarm.get("ExtendedStatistic") or alarm.get("Statistic") or "Average"
        return _statistic(alarm, statistic, start, end)
    known: dict[str, float | None] = {}
    for query in alarm["Metrics"]:
        if "MetricStat" in query:
            stat = query["MetricStat"]
            known[query["Id"]] = _statistic(stat["Metric"], stat["Stat"], start, end)
    expressions = {q["Id"]: q["Expression"] for q in alarm["Metrics"] if "Expression" in q}
    returned = [q["Id"] for q in alarm["Metrics"] if q.get("ReturnData", True)]
    return _resolve(returned[0], known, expressions)


def _resolve(
    name: str, known: Mapping[str, float | None], expressions: Mapping[str, str]
) -> float | None:
    if name in known:
        return known[name]
    return _compute(ast.parse(expressions[name], mode="eval").body, known, expressions)


def _compute(
    node: ast.expr, known: Mapping[str, float | None], expressions: Mapping[str, str]
) -> float | None:
    """The value of an expression; None where a part that counts has no data or divides by zero."""
    if isinstance(node, ast.Constant):
        return float(str(node.value))
    if isinstance(node, ast.Name):
        return _resolve(node.id, known, expressions)
    if isinstance(node, ast.Call):
        condition = _compute(node.args[0], known, expressions)
        if condition is None:
            return None
        return _compute(node.args[1 if condition else 2], known, expressions)
    if isinstance(node, ast.Compare):
        left = _compute(node.left, known, expressions)
        right = _compute(node.comparators[0], known, expressions)
        if left is None or right is None:
            return None
        return float(_CONDITIONS[type(node.ops[0])](left, right))
    assert isinstance(node, ast.BinOp)  # noqa: S101
    left = _compute(node.left, known, expressions)
    right = _compute(node.right, known, expressions)
    if left is None or right is None or (isinstance(node.op, ast.Div) and right == 0):
        return None
    return _OPERATORS[type(node.op)](left, right)


def _check(expression: str) -> None:
    """Refuse an expression that holds anything but arithmetic, comparisons and IF.

    Raises:
        ValueError: The emulator cannot evaluate it.
    """
    allowed = (ast.Expression, ast.BinOp, ast.Compare, ast.Call, ast.Constant, ast.Name, ast.Load)
    try:
        tree = ast.parse(expression, mode="eval")
    except SyntaxError as error:
        raise ValueError(f"cannot read the metric expression {expression!r}") from error
    nodes = list(ast.walk(tree))
    if not all(
        isinstance(node, (*allowed, *_OPERATORS, *_CONDITIONS)) and _is_simple(node)
        for node in nodes
    ):
        raise ValueError(
            "the emulator evaluates + - * /, one comparison and IF(condition, a, b) of metrics "
            f"only, got the expression {expression!r}"
        )


def _is_simple(node: ast.AST) -> bool:
    """Whether a call is IF of three, and a comparison one of two."""
    if isinstance(node, ast.Call):
        named = isinstance(node.func, ast.Name) and node.func.id == "IF"
        return named and len(node.args) == 3 and not node.keywords
    return not isinstance(node, ast.Compare) or len(node.ops) == 1


def _statistic(metric: Mapping[str, Any], statistic: str, start: float, end: float) -> float | None:
    dimensions = {item["Name"]: item["Value"] for item in metric.get("Dimensions") or ()}
    key = (metric["Namespace"], metric["MetricName"], cloudwatch._dims_key(dimensions))
    stored = cloudwatch._metrics.get(key) or []
    points = [point for point in stored if start <= point["Timestamp"] < end]
    if not points:
        return None
    value: float | None = cloudwatch._stat_value(cloudwatch._calc_stats(points), statistic, points)
    return value
