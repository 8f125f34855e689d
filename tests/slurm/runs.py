"""Runs of a small task on a cluster, submitted as a person submits them."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.slurm.cluster import ROOT, SlurmCluster

TASK = "tests.slurm.task"


@dataclass(frozen=True)
class Run:
    """What was submitted."""

    cluster: SlurmCluster
    output: Path
    jobs: Mapping[str, int]

    @property
    def folder(self) -> Path:
        return self.output.with_name(f"{self.output.name}.slurm")

    @property
    def work(self) -> Path:
        return self.output.with_name(f"{self.output.name}.run")

    def status(self) -> dict[str, Any]:
        """The status file; empty before the first start of this job."""
        path = self.folder / "status.json"
        content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return content if content.get("job") == self.jobs["train"] else {}

    def ended(self) -> dict[str, Any]:
        """Wait for the end of the run; its status then."""
        return self.in_state("done", "failed", "stopped")

    def in_state(self, *states: str) -> dict[str, Any]:
        def reached() -> dict[str, Any] | None:
            status = self.status()
            return status if status.get("state") in states else None

        found: dict[str, Any] = self.cluster.wait(reached, f"{states}\n{self.log()}")
        return found

    def at_step(self, step: int) -> None:
        """Wait until a step is done and there is a checkpoint."""

        def reached() -> bool:
            steps = self.work / "steps.csv"
            lines = steps.read_text().splitlines() if steps.exists() else []
            done = list(self.work.glob("checkpoints/step-*/done.json"))
            return bool(done) and len(lines) > step

        self.cluster.wait(reached, f"step {step}")

    def log(self) -> str:
        """What the batch scripts have said."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("logs/*-*.txt")))

    def words(self, rank: int, restart: int = 0) -> str:
        """What a rank has said."""
        job = self.jobs["train"]
        return (self.folder / "logs" / f"{job}.{restart}" / f"rank-{rank}.txt").read_text()

    def curve(self) -> list[float]:
        """The loss of each step."""
        with (self.output / "steps.csv").open(newline="") as file:
            return [float(row["loss"]) for row in csv.DictReader(file)]

    def facts(self, rank: int) -> dict[str, Any]:
        """What the task tells of a rank."""
        content: dict[str, Any] = json.loads((self.output / f"rank-{rank}.json").read_text())
        return content


def ask(
    cluster: SlurmCluster,
    output: Path,
    *arguments: str,
    through: tuple[str, ...] = (),
    variables: Mapping[str, str] | None = None,
) -> tuple[int, str, str]:
    """`submit` with these arguments: exit code, what it prints, what it complains of."""
    shared = output.parent
    given = dict(variables or {})
    paths = ":".join([str(ROOT), *([given.pop("PYTHONPATH")] if "PYTHONPATH" in given else [])])
    result = cluster.call(
        *through,
        *(sys.executable, "-m", "training.slurm", "submit", "--output", str(output)),
        *("--cache", str(shared / "cache"), "--scratch", str(cluster.run / "scratch")),
        *arguments,
        check=False,
        PYTHONPATH=paths,
        COMPILER_LOG=str(shared / "compiled.txt"),
        OMP_NUM_THREADS="1",
        **given,
    )
    return result.returncode, result.stdout, result.stderr


def submit(
    cluster: SlurmCluster,
    output: Path,
    *arguments: str,
    through: tuple[str, ...] = (),
    variables: Mapping[str, str] | None = None,
) -> Run:
    """Submit a run that is accepted."""
    code, told, complaint = ask(cluster, output, *arguments, through=through, variables=variables)
    assert code == 0, complaint
    jobs = dict(line.split(" job ") for line in told.splitlines() if " job " in line)
    return Run(cluster, output, {name.strip(): int(job) for name, job in jobs.items()})
