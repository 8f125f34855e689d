"""Evaluates EventBridge patterns, as far as the delivery's rules use them."""

from __future__ import annotations

import re
from typing import Any


def matches(pattern: dict[str, Any], event: dict[str, Any]) -> bool:
    """Whether an event matches: every key of the pattern, any value of its list."""
    for key, wanted in pattern.items():
        if key not in event:
            return False
        if isinstance(wanted, dict):
            if not (isinstance(event[key], dict) and matches(wanted, event[key])):
                return False
        elif not any(_matches_value(item, event[key]) for item in wanted):
            return False
    return True


def _matches_value(wanted: Any, value: Any) -> bool:
    if not isinstance(wanted, dict):
        return bool(wanted == value)
    ((kind, operand),) = wanted.items()
    assert kind == "wildcard", f"{kind} is not used"
    expression = ".*".join(re.escape(part) for part in operand.split("*"))
    return isinstance(value, str) and re.fullmatch(expression, value, re.DOTALL) is not None
