"""What a rule finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ultracluster.catalog import Catalog
from ultracluster.settings import Settings


class Level(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """Stops the synth: AWS would refuse it, or it would cost data or money."""
    WARNING = "warning"
    """Printed once at synth: legal, and rarely meant."""
    NOTE = "note"
    """Worth knowing; told by `ultracluster lint` alone."""


@dataclass(frozen=True)
class Problem:
    """A value of the settings: where it stands, what was got, what to do."""

    path: str
    message: str
    level: Level = Level.ERROR

    def __str__(self) -> str:
        """`path: message`, as a person reads it."""
        return f"{self.path}: {self.message}"


Problems = Iterator[Problem]
Rule = Callable[[Settings, Catalog], Problems]


def warning(path: str, message: str) -> Problem:
    """A finding that does not stop the synth."""
    return Problem(path, message, Level.WARNING)


def leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Every value in nested tables and lists that is neither, with its path."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(f"{path}.{key}".removeprefix("."), item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from leaves(f"{path}[{index}]", item)
    else:
        yield path, value
