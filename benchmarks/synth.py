"""What a synth costs: against an empty app of the same library, by queues and by nodes.

Run it on a quiet machine: `.venv/bin/python -m benchmarks.synth`. Each row is the best of several
processes of its own; ratios are against the empty app of the same run, with as many stacks.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STACKS = 6
BUDGET_MS = 50.0
EMPTY = "empty app"

QUEUE = '[[cluster.queues]]\nname = "{name}"\ninstance_type = "{type}"\nmax_count = {nodes}\n'
BASE = (
    'retention = "destroy"\n[aws]\nregion = "us-west-2"\n[network]\n'
    'accelerator_az_id = "usw2-az4"\nprivate_mask = 18\n'
    '[cluster.head_node]\ninstance_type = "m5.24xlarge"\n'
)


def settings(*, queues: int, nodes: int) -> str:
    """A settings file with equal queues."""
    return BASE + "".join(
        QUEUE.format(name=f"q{number}", type="trn1.32xlarge", nodes=nodes)
        for number in range(queues)
    )


def cases() -> Iterator[tuple[str, str]]:
    """Title and settings of each measured app; the empty one has no settings."""
    yield EMPTY, ""
    for queues in (1, 10, 50):
        yield f"{queues} queue(s), 16 nodes each", settings(queues=queues, nodes=16)
    yield "1 queue, 1,875 nodes", settings(queues=1, nodes=1875)


def measure(text: str, *, validate: bool, repeats: int) -> tuple[float, float]:
    """Best wall and CPU seconds of a process that synthesizes, node included."""
    best_wall, best_cpu = float("inf"), float("inf")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.toml"
        path.write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "benchmarks.synth", "--one", str(path) if text else EMPTY]
        environment = {**os.environ, "CDK_VALIDATION": str(validate).lower()}
        for _ in range(repeats):
            before, start = os.times(), time.perf_counter()
            subprocess.run(
                [*command, "--output", str(Path(folder) / "out")],
                cwd=ROOT,
                env=environment,
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            wall, after = time.perf_counter() - start, os.times()
            cpu = sum(after[2:4]) - sum(before[2:4])
            best_wall, best_cpu = min(best_wall, wall), min(best_cpu, cpu)
    return best_wall, best_cpu


def synthesize(path: str, output: str) -> None:
    """One synth in this process."""
    if path == EMPTY:
        import aws_cdk as cdk

        context = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
        app = cdk.App(context=context, outdir=output, analytics_reporting=False)
        for number in range(STACKS):
            # CloudFormation's own rules refuse a stack without any resource.
            stack = cdk.Stack(app, f"empty-{number}")
            cdk.CfnResource(stack, "Handle", type="AWS::CloudFormation::WaitConditionHandle")
    else:
        from app import build_app

        context = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
        app = build_app(path, context=context, outdir=output)
    app.synth()


def rules_ms(environment: str, directory: Path) -> float:
    """Best milliseconds to read and judge an environment, once everything is imported."""
    from ultracluster.environment import load_environment

    return 1000 * best(lambda: load_environment(environment, directory), repeats=10)


def best(work: Callable[[], object], *, repeats: int) -> float:
    """Shortest of several runs, in seconds; the first, which imports and caches, is left out."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def report(repeats: int) -> None:
    """Print one table a validation mode, and the time of settings and rules."""
    for validate in (False, True):
        mode = "on" if validate else "off"
        print(f"\nCDK's validation {mode}{'':<16}     wall      CPU   wall/empty   CPU/empty")
        rows = [
            (title, measure(text, validate=validate, repeats=repeats)) for title, text in cases()
        ]
        empty_wall, empty_cpu = rows[0][1]
        for title, (wall, cpu) in rows:
            print(
                f"{title:<36} {wall:6.2f} s {cpu:6.2f} s {wall / empty_wall:10.2f} "
                f"{cpu / empty_cpu:11.2f}"
            )
    print("\nsettings and rules (warm)")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "fifty.toml").write_text(settings(queues=50, nodes=16), encoding="utf-8")
        for title, name, directory in (
            ("examples/many-nodes", "examples/many-nodes", ROOT / "config"),
            ("50 queues", "fifty", Path(folder)),
        ):
            took = rules_ms(name, directory)
            print(f"{title:<36} {took:6.1f} ms of {BUDGET_MS:.0f} ms")


def main() -> None:
    """Measure everything, or synthesize one app in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="processes a row; default 3")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--output", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        synthesize(chosen.one, chosen.output)
    else:
        report(chosen.repeats)


if __name__ == "__main__":
    main()
