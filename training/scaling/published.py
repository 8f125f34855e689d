"""What others have measured and published, from `published.toml`, which names the sources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from training.core.settings import read_toml

TABLE = Path(__file__).with_name("published.toml")
FULL_PRECISION = "FP32"


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A type of node: workers on it, bit/s of all its links together, price with its origin."""

    workers: int
    gigabit_per_second: float
    price_usd_per_hour: float
    price_date: str
    price_source: str

    @property
    def bytes_per_second(self) -> float:
        """Of all links in one direction."""
        return self.gigabit_per_second * 1e9 / 8


@dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """A row of somebody's table; `rate` is in sequences a second over all nodes."""

    release: str
    phase: int
    nodes: int
    scaling: str
    optimizer: str
    precision: str
    batch: int
    micro: int
    rate: float

    @property
    def step_seconds(self) -> float:
        """Of one step, from the rate."""
        return self.batch / self.rate

    def accumulate(self, workers: int) -> int:
        """Micro-batches a step of one worker, with so many workers a node."""
        return self.batch // (self.nodes * workers * self.micro)


@dataclass(frozen=True, kw_only=True)
class Published:
    """The whole table. `date` is when the sources were read."""

    date: str
    model: str
    parameters: int
    instances: Mapping[str, Instance]
    sources: Mapping[str, str]
    fit_release: str
    runs: Sequence[PublishedRun]

    def baseline(self, run: PublishedRun) -> PublishedRun | None:
        """The one-node run to compare with: same release, phase and precision, the nearest batch.

        The batch is that of the run where scaling is strong, and a node's share of it where it is
        weak. None where no such run was published.
        """
        alone = [
            one
            for one in self.runs
            if one.nodes == 1
            and (one.release, one.phase) == (run.release, run.phase)
            and (one.precision == FULL_PRECISION) == (run.precision == FULL_PRECISION)
        ]
        asked = run.batch if run.scaling == "strong" else run.batch // run.nodes
        return min(alone, key=lambda one: abs(one.batch - asked), default=None)

    def efficiency(self, run: PublishedRun) -> float | None:
        """Rate against that many times the rate of one node; None for one node and without it."""
        base = self.baseline(run)
        return None if base is None or run.nodes == 1 else run.rate / (run.nodes * base.rate)


@cache
def read_published() -> Published:
    """The table that this package carries."""
    content = read_toml(TABLE)
    columns = content["runs"]["columns"]
    return Published(
        date=content["date"],
        model=content["model"]["name"],
        parameters=content["model"]["parameters"],
        instances={name: Instance(**row) for name, row in content["instances"].items()},
        sources=content["sources"],
        fit_release=content["fit"]["release"],
        runs=[
            PublishedRun(**dict(zip(columns, row, strict=True))) for row in content["runs"]["rows"]
        ],
    )
