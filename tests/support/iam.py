"""What a policy allows, as far as the product's own policies use the language."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Statement = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Need:
    """One right that a call needs: an action on a resource, and what IAM knows of the request."""

    action: str
    resource: str
    context: Mapping[str, str] = field(default_factory=dict)


def allows(statements: list[Statement], need: Need) -> bool:
    """Whether one of the statements allows it.

    Raises:
        ValueError: a statement says something that is not evaluated here.
    """
    return any(_matches(statement, need) for statement in statements)


def actions_of(statements: list[Statement]) -> set[str]:
    """Every action that the statements name."""
    return {action for statement in statements for action in _listed(statement["Action"])}


def without(statements: list[Statement], action: str) -> list[Statement]:
    """The statements with one action less."""
    return [
        {**statement, "Action": [name for name in _listed(statement["Action"]) if name != action]}
        for statement in statements
    ]


def _matches(statement: Statement, need: Need) -> bool:
    beyond = set(statement) - {"Action", "Resource", "Condition", "Effect", "Sid"}
    if beyond or statement["Effect"] != "Allow":
        raise ValueError(f"cannot evaluate {sorted(beyond) or statement['Effect']}")
    return (
        any(_like(need.action.lower(), one.lower()) for one in _listed(statement["Action"]))
        and any(_like(need.resource, one) for one in _listed(statement["Resource"]))
        and all(_fulfilled(statement.get("Condition", {}), need.context))
    )


def _fulfilled(condition: Mapping[str, Any], context: Mapping[str, str]) -> Iterator[bool]:
    for operator, wanted in condition.items():
        if operator != "StringEquals":
            raise ValueError(f"cannot evaluate the condition {operator}")
        for key, values in wanted.items():
            yield context.get(key) in _listed(values)


def _like(text: str, pattern: str) -> bool:
    """IAM's wildcards: `*` is any text, slashes and colons too, `?` one character."""
    parts = (".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
