"""Expressions of a state machine in JSONata."""

from __future__ import annotations

from aws_cdk import aws_stepfunctions as sfn

ERROR = "$states.errorOutput.Error & ': ' & $states.errorOutput.Cause"
"""What a caught error says."""


def get(expression: str) -> str:
    """The value of an expression."""
    return f"{{% {expression} %}}"


def when(expression: str) -> sfn.Condition:
    """The condition that an expression is true."""
    return sfn.Condition.jsonata(get(expression))


def equals(field: str, value: str) -> str:
    """Whether a field of a state's input has this value."""
    return f"$states.input.{field} = '{value}'"
