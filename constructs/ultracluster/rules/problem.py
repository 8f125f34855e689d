"""What a rule finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

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
