"""Lines for the person who watches a run."""

import time

from training.core.metrics import Record

LINES = 10


class Progress:
    """Shows lines of the first worker; the others say nothing.

    Args:
        shown: whether this is the first worker.
        start: the step that this process starts from.
        steps: of the whole run.
    """

    def __init__(self, *, shown: bool, start: int, steps: int) -> None:
        self._shown = shown
        self._start = start
        self._steps = steps
        self._clock = time.perf_counter()
        self._samples = 0

    def say(self, line: str) -> None:
        """Show a line at once."""
        if self._shown:
            print(line, flush=True)

    def step(self, record: Record) -> None:
        """One line at the first step of this process, the last, and about ten times between."""
        self._samples += record.samples
        every = max(1, self._steps // LINES)
        if record.step % every and record.step not in (self._start + 1, self._steps):
            return
        elapsed = time.perf_counter() - self._clock
        left = elapsed / (record.step - self._start) * (self._steps - record.step)
        minutes, seconds = divmod(round(left), 60)
        self.say(
            f"step {record.step}/{self._steps}  loss {record.loss:.4f}  "
            f"learning rate {record.learning_rate:.1e}  {self._samples / elapsed:.0f} samples/s  "
            f"{minutes}:{seconds:02d} left"
        )
