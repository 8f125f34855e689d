"""What a run measures while it goes on: a line a step in CSV, the same as TensorBoard scalars."""

import csv
import io
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from training.files import write_bytes

# Steps that compile, fill caches and wake threads; left out of every rate and percentile.
WARM_UP_STEPS = 5


@dataclass(frozen=True, kw_only=True)
class Record:
    """One step. `step` counts from 1; `seconds` and `waited` (for data) are wall time."""

    step: int
    epoch: int
    loss: float
    gradient_norm: float
    learning_rate: float
    samples: int
    seconds: float
    waited: float
    flops: float


COLUMNS = [one.name for one in fields(Record)]


class Metrics:
    """Writes the records of the first worker to a folder and sums up those of this process.

    Args:
        folder: gets `steps.csv` and `tensorboard/`; None to write nothing.
        after: the step that a resumed run starts from; lines of later ones are dropped, since
            they will be written again.
    """

    def __init__(self, folder: Path | None, *, after: int) -> None:
        self.records: list[Record] = []
        self._csv: io.TextIOWrapper | None = None
        self._board: Any = None
        if folder is not None:
            path = folder / "steps.csv"
            _cut(path, after=after)
            # Line by line: whoever watches the run sees each step at once.
            self._csv = path.open("a", buffering=1, encoding="utf-8", newline="")
            self._board = _board(folder / "tensorboard", after=after)

    def add(self, record: Record) -> None:
        """Note one step."""
        self.records.append(record)
        if self._csv is not None:
            csv.writer(self._csv).writerow(asdict(record).values())
        if self._board is not None:
            rate = record.samples / record.seconds
            for name, value in (
                ("train/loss", record.loss),
                ("train/gradient_norm", record.gradient_norm),
                ("train/learning_rate", record.learning_rate),
                ("speed/sequences_per_second", rate),
                ("speed/waited_for_data_seconds", record.waited),
            ):
                self._board.add_scalar(name, value, record.step)

    def add_scores(self, kind: str, scores: dict[str, float], *, step: int) -> None:
        """Note what an evaluation found."""
        if self._board is not None:
            for name, value in scores.items():
                self._board.add_scalar(f"{kind}/{name}", value, step)

    def flush(self) -> None:
        """Make the lines readable for others."""
        if self._csv is not None:
            self._csv.flush()

    def close(self) -> None:
        """End both files."""
        if self._csv is not None:
            self._csv.close()
        if self._board is not None:
            self._board.close()


def speed(records: Sequence[Record]) -> dict[str, float | int | None]:
    """Rates and percentiles of the steps after the warm-up, over all workers.

    A run that is no longer than its warm-up has none: the values are null.
    """
    steady = records[WARM_UP_STEPS:]
    result: dict[str, float | int | None] = {
        "warm_up_steps": min(WARM_UP_STEPS, len(records)),
        "measured_steps": len(steady),
    }
    names = ("p50", "p90", "p99")
    if not steady:
        empty = (*(f"step_seconds_{name}" for name in names), "waited_share")
        return result | dict.fromkeys(("sequences_per_second", *empty))
    seconds = [record.seconds for record in steady]
    cuts = statistics.quantiles(seconds, n=100, method="inclusive") if len(steady) > 1 else None
    total = sum(seconds)
    result["sequences_per_second"] = sum(record.samples for record in steady) / total
    for name in names:
        value = cuts[int(name[1:]) - 1] if cuts else seconds[0]
        result[f"step_seconds_{name}"] = value
    result["waited_share"] = min(1.0, sum(record.waited for record in steady) / total)
    return result


def flops_per_second(records: Sequence[Record]) -> float | None:
    """Arithmetic of the steps after the warm-up, over all workers; None without such steps."""
    steady = records[WARM_UP_STEPS:]
    if not steady:
        return None
    return sum(record.flops for record in steady) / sum(record.seconds for record in steady)


def _cut(path: Path, *, after: int) -> None:
    """Leave the header and the lines up to a step; a line that a kill has cut off goes too."""
    kept = [COLUMNS]
    if path.is_file() and after:
        with path.open(encoding="utf-8", newline="") as file:
            kept += [
                row
                for row in csv.reader(file)
                if len(row) == len(COLUMNS) and row[0].isdecimal() and int(row[0]) <= after
            ]
    text = io.StringIO()
    csv.writer(text).writerows(kept)
    write_bytes(path, text.getvalue().encode())


def _board(folder: Path, *, after: int) -> Any:
    """TensorBoard's writer; None where tensorboardX is not installed."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=after + 1)
