"""Settings of a function, from its environment variables."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


class EnvironmentProblem(Exception):
    """Environment variables that are missing or unusable, all of them."""


def from_environment(
    settings: type[T], environment: Mapping[str, str] = os.environ, *, prefix: str = ""
) -> T:
    """Fill a dataclass from variables named like its fields, in upper case, after a prefix.

    Fields are `str`, `int`, `float` or `bool` (`true` or `false`).

    Raises:
        EnvironmentProblem: names every variable at fault.
    """
    values: dict[str, Any] = {}
    problems = []
    for name, kind in get_type_hints(settings).items():
        variable = prefix + name.upper()
        text = environment.get(variable, "").strip()
        read, allowed = _KINDS[kind]
        try:
            values[name] = read(text)
        except (ValueError, KeyError):
            problems.append(
                f"{variable} is {text!r}, allowed: {allowed}" if text else f"{variable} is not set"
            )
    if problems:
        raise EnvironmentProblem(
            f"environment of the function: {'; '.join(problems)}; deploy the delivery stack again"
        )
    return settings(**values)


def _text(text: str) -> str:
    if not text:
        raise ValueError("empty")
    return text


_KINDS: dict[type, tuple[Callable[[str], Any], str]] = {
    str: (_text, "a text"),
    int: (int, "a whole number"),
    float: (float, "a number"),
    bool: ({"true": True, "false": False}.__getitem__, "true, false"),
}
