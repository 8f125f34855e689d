"""How a run stands, in a file that is whole at any moment: `<output>.slurm/status.json`."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from training.command import InputError
from training.files import write_bytes, write_json

FILE = "status.json"
JOBS = "jobs"
# ParallelCluster gives a replaced instance the name of the one that it replaces.
EXCLUDED_FOR = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Status:
    """How a run stands.

    Attributes:
        state: preparing, running, waiting (for its next start), done, stopped, failed.
        reason: why it is in this state, in words.
        job: of Slurm; `restart` counts its starts from 0.
        failures: starts in a row that ended badly and no step further than before.
        step: the newest one. `furthest` is that of any start.
        nodes: of the newest start, in Slurm's short form; `ranks`, on all of them.
        node_hours: that nodes were held, all starts together; `usd`, what they cost by list price.
        excluded: nodes that are left out, and until when.
        not_before: when the next start may train, after failures.
        compile_cache: programs that the newest start found (hits), compiled (misses), and shared.
        starts: one entry for each.
    """

    state: str = "preparing"
    reason: str = ""
    job: int = 0
    restart: int = 0
    failures: int = 0
    step: int = 0
    furthest: int = 0
    nodes: str = ""
    ranks: int = 0
    node_hours: float = 0.0
    usd: float | None = None
    excluded: dict[str, str] = field(default_factory=dict)
    not_before: str | None = None
    compile_cache: dict[str, int] = field(default_factory=dict)
    updated: str = ""
    starts: list[dict[str, Any]] = field(default_factory=list)

    def excluded_with(self, nodes: Iterable[str]) -> dict[str, str]:
        """The nodes that are left out still, and more from now on."""
        current = {node: until for node, until in self.excluded.items() if until > stamp()}
        return current | dict.fromkeys(nodes, stamp(EXCLUDED_FOR))


def stamp(later: timedelta = timedelta()) -> str:
    """Now, or later, in ISO 8601."""
    return (datetime.now(UTC) + later).isoformat(timespec="seconds")


def read_status(folder: Path) -> Status | None:
    """The status of a run; None before its first start.

    Raises:
        InputError: the file is damaged, or another version has written it.
    """
    path = folder / FILE
    try:
        return Status(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise InputError(
            f"cannot read {path}: {error}; remove it: what was trained is elsewhere"
        ) from error


def write_status(folder: Path, status: Status) -> None:
    """Write the status, whole or not at all."""
    write_json(folder / FILE, asdict(replace(status, updated=stamp())))


def read_jobs(folder: Path) -> dict[str, int]:
    """The newest jobs of a run, by what they do; empty where none was submitted.

    Raises:
        InputError: the file is damaged.
    """
    path = folder / JOBS
    try:
        rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
        return {name: int(number) for name, number in rows}
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise InputError(
            f"cannot read {path}: {error}; look for jobs of this run with squeue, then remove it"
        ) from error


def write_jobs(folder: Path, jobs: Mapping[str, int]) -> None:
    """Note the jobs of a run, of which a kill leaves none unknown; none has no file."""
    if not jobs:
        (folder / JOBS).unlink(missing_ok=True)
        return
    text = "".join(f"{name} {number}\n" for name, number in jobs.items())
    write_bytes(folder / JOBS, text.encode())


def newest_step(work: Path) -> int:
    """The newest step that a run has written down; 0 before the first."""
    try:
        with (work / "steps.csv").open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 4096))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return 0
    for line in reversed(lines):
        step = line.partition(",")[0]
        if step.isdecimal() and line.count(","):
            return int(step)
    return 0
