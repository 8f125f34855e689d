"""Steps of a long run, one line each with its time."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

_WIDTH = 58


class StepFailed(Exception):
    """A step did not do what it should; the message says what was seen and where to look."""


@dataclass
class Step:
    """One step under way; `note` ends up on its line."""

    title: str
    number: int
    total: int
    stream: TextIO
    note: str = ""
    live: bool = field(default=False)

    def status(self, text: str) -> None:
        """Show what the step is at, where the output is a terminal."""
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            self.stream.write("\r\x1b[K" + f"{self._head()}  {text}"[:width])
            self.stream.flush()

    def _head(self) -> str:
        return f"[{self.number:>2}/{self.total}] {self.title}"

    def finish(self, seconds: float, *, outcome: str) -> None:
        """Print the step's one line."""
        clear = "\r\x1b[K" if self.live else ""
        dots = "." * max(_WIDTH - len(self._head()), 3)
        note = f"  {self.note}" if self.note else ""
        print(f"{clear}{self._head()} {dots} {seconds:6.1f} s  {outcome}{note}", file=self.stream)
        self.stream.flush()


class Progress:
    """Counts and times the steps of a run."""

    def __init__(self, total: int, *, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._total = total
        self._number = 0
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        """Time since the first step was announced."""
        return time.monotonic() - self._start

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Time one step; its line says `ok`, or `FAILED` when it raises."""
        self._number += 1
        step = Step(title, self._number, self._total, self._stream, live=self._stream.isatty())
        step.status("...")
        start = time.monotonic()
        try:
            yield step
        except KeyboardInterrupt:
            step.finish(time.monotonic() - start, outcome="stopped")
            raise
        except BaseException:
            step.finish(time.monotonic() - start, outcome="FAILED")
            raise
        step.finish(time.monotonic() - start, outcome="ok")
