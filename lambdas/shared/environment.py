"""Settings of a function, from its environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


class EnvironmentProblem(Exception):
    """Environment variables that are missing or unusable, all of them."""


def from_environment(settings: type[T], environment: Mapping[str, str] = os.environ) -> T:
    """Fill a dataclass from variables named like its fields, in upper case.

    Fields are `str` or `float`.

    Raises:
        EnvironmentProblem: names every variable at fault.
    """
    values: dict[str, Any] = {}
    problems = []
    for name, kind in get_type_hints(settings).items():
        variable = name.upper()
        text = environment.get(variable, "").strip()
        if not text:
            problems.append(f"{variable} is not set")
        elif kind is float:
            try:
                values[name] = float(text)
            except ValueError:
                problems.append(f"{variable} is {text!r}, a number is needed")
        else:
            values[name] = text
    if problems:
        raise EnvironmentProblem(
            f"environment of the function: {'; '.join(problems)}; deploy the delivery stack again"
        )
    return settings(**values)
