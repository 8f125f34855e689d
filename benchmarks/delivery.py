"""What the Lambda functions cost: `make benchmark-delivery`.

Cold: processor time of a new interpreter that imports the handler, against one that imports boto3
alone, in turns. Warm: each call of a roll-out in an account of in-memory services, so that no
network is in the figure.
"""

from __future__ import annotations

import functools
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.lambdas.account import Account
from tests.unit.lambdas.models import good_archive, publish

LAMBDAS = Path(__file__).resolve().parents[1] / "lambdas"
BASELINE = "boto3 alone"
TURNS = 7
ROLL_OUTS = 30


def main() -> int:
    """Measure and print a table in Markdown."""
    logging.disable(logging.INFO)
    fastest = warm()
    seconds = cold()
    print("| function | cold import | times boto3 alone | a call, without network |")
    print("|---|---|---|---|")
    for name, value in seconds.items():
        call = f"{fastest[name] * 1e3:.1f} ms" if name in fastest else ""
        ratio = value / seconds[BASELINE]
        print(f"| {name} | {value * 1e3:.0f} ms | {ratio:.2f} | {call} |")
    return 0


def cold(turns: int = TURNS) -> dict[str, float]:
    """Least seconds of an interpreter that imports boto3, or a function's handler."""
    names = sorted(path.parent.name for path in LAMBDAS.glob("*/handler.py"))
    modules = {BASELINE: "boto3"} | {name: f"{name}.handler" for name in names}
    seconds = dict.fromkeys(modules, float("inf"))
    environment = os.environ | {"PYTHONPATH": str(LAMBDAS)}
    for _ in range(turns):
        for name, module in modules.items():
            start = _children_seconds()
            subprocess.run([sys.executable, "-c", f"import {module}"], env=environment, check=True)
            seconds[name] = min(seconds[name], _children_seconds() - start)
    return seconds


def _children_seconds() -> float:
    spent = os.times()
    return spent.children_user + spent.children_system


def warm(roll_outs: int = ROLL_OUTS) -> dict[str, float]:
    """Fastest call of each function of the delivery over some roll-outs, in seconds."""
    fastest: dict[str, float] = {}

    def timed(name: str, call: Callable[[Any], Any], payload: Any) -> Any:
        start = time.perf_counter()
        try:
            return call(payload)
        finally:
            spent = time.perf_counter() - start
            fastest[name] = min(fastest.get(name, spent), spent)

    with pytest.MonkeyPatch.context() as patch:
        account = Account(patch)
        for name in {path.name for path in LAMBDAS.iterdir()} & set(account.tasks):
            account.tasks[name] = functools.partial(timed, name, account.tasks[name])
        for number in range(roll_outs):
            made = f"2026-11-01T00:{number // 60:02}:{number % 60:02}Z"
            account.run(publish(account.s3, good_archive(str(number)), created=made).event)
    return fastest


if __name__ == "__main__":
    sys.exit(main())
