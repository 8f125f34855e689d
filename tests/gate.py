"""The whole gate: lint, types and tests, two lanes side by side, with one summary at the end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
APP = ".venv/bin/python"
EMULATOR = ".venv-emulator/bin/python"
TRAINING = ".venv-training/bin/python"

# The lanes take about as long as each other on two cores.
LANES: tuple[tuple[tuple[str, list[str]], ...], ...] = (
    (
        ("lint", [APP, "-m", "ruff", "check", "."]),
        ("format", [APP, "-m", "ruff", "format", "--check", "."]),
        ("types", [APP, "-m", "mypy"]),
        (
            "types of the emulator",
            [
                *(APP, "-m", "mypy", "--config-file", "operations/emulator/server/mypy.ini"),
                *("--python-executable", EMULATOR, "-p", "operations.emulator.server"),
            ],
        ),
        (
            "types of the training code",
            [
                *(APP, "-m", "mypy", "--config-file", "training/mypy.ini"),
                *(
                    "--python-executable",
                    TRAINING,
                    "training",
                    "benchmarks/packing.py",
                    "benchmarks/serving.py",
                    "benchmarks/slurm.py",
                    "benchmarks/training.py",
                    "benchmarks/pretraining.py",
                    "tests/training",
                ),
                *("tests/slurm", "tests/transformers", "tests/xla"),
            ],
        ),
        ("unit tests", [APP, "-m", "pytest", "-q", "tests/unit"]),
        ("training tests", [TRAINING, "-m", "pytest", "-q", "tests/training"]),
        ("tests on Slurm", [TRAINING, "-m", "pytest", "-q", "tests/slurm"]),
    ),
    (("emulator tests", [APP, "-m", "pytest", "-q", "tests/emulator"]),),
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one step ended."""

    title: str
    status: int
    seconds: float
    tests: str


def main() -> int:
    """Run every step; the exit status is 0 when all of them passed."""
    # A shell ignores it for what it starts in the background, and so would what the tests stop.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    start = time.monotonic()
    printing = threading.Lock()

    def run_lane(lane: tuple[tuple[str, list[str]], ...]) -> list[Outcome]:
        return [_run(title, command, printing) for title, command in lane]

    with ThreadPoolExecutor(len(LANES)) as pool:
        outcomes = [outcome for lane in pool.map(run_lane, LANES) for outcome in lane]

    print(f"\ngate: {time.monotonic() - start:.0f} s")
    for outcome in outcomes:
        verdict = "ok" if outcome.status == 0 else "FAILED"
        print(f"  {outcome.title:<26} {verdict:<7} {outcome.seconds:6.1f} s  {outcome.tests}")
    failed = [outcome.title for outcome in outcomes if outcome.status != 0]
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


def _run(title: str, command: list[str], printing: threading.Lock) -> Outcome:
    start = time.monotonic()
    result = subprocess.run(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # One thread each: the lanes share the cores.
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    seconds = time.monotonic() - start
    tests = re.findall(r"^=*\s*((?:\d+ [a-z]+,? ?)+) in [\d.:]+", result.stdout, re.MULTILINE)
    with printing:
        print(f"--- {title}: {' '.join(command)}")
        print(result.stdout.rstrip(), flush=True)
    return Outcome(
        title=title, status=result.returncode, seconds=seconds, tests=tests[-1] if tests else ""
    )


if __name__ == "__main__":
    sys.exit(main())
