"""How well the ring model tells the time of real steps: all-reduce over links of a known speed.

Linux and root: `sudo .venv-training/bin/python -m benchmarks.scaling`. One process a node, each in
a network namespace of its own; gloo sums real gradients over links that the kernel slows down, and
a sleep stands for the micro-batches. The model gets the speed that one TCP stream reaches on the
same links, and no other figure of this machine. Prints a table in Markdown.
"""

import functools
import multiprocessing
import os
import platform
import statistics
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import torch

from benchmarks.links import linked_nodes, run_on, steps, stream, why_not
from training.command import InputError, Parser, run
from training.scaling.ring import StepModel

PAYLOAD = 8 << 20  # bytes
MICRO_SECONDS = 0.1
ALONE = 32  # micro-batches of one node under strong scaling
EACH = 8  # those of each node under weak scaling
TOLERANCE = 0.15


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = Parser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--mbps", type=int, default=50, help="Mbit/s of a node's link (50)")
    parser.add_argument("--times", type=int, default=5, help="steps of each kind (5)")
    options = parser.parse_args(arguments)
    # One import of torch serves all workers.
    multiprocessing.get_context("forkserver").set_forkserver_preload(["benchmarks.links"])
    return run(lambda: print(measure(mbps=options.mbps, times=options.times)))


def measure(*, mbps: int, times: int) -> str:
    """The whole table."""
    if mbps < 1 or times < 1:
        raise InputError(f"--mbps {mbps} --times {times}: give 1 or more of each")
    if reason := why_not():
        raise InputError(reason)
    rate = goodput(mbps=mbps, times=times)
    lines = [
        f"{datetime.now(UTC):%Y-%m-%d}: {platform.machine()}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f}; torch {torch.__version__}, gloo; links of {mbps} Mbit/s, on "
        f"which one stream reaches {rate * 8 / 1e6:.1f}; {PAYLOAD / 1e6:.1f} MB of gradients; the "
        f"fastest of {times} steps",
        "",
        "| | nodes | measured | modelled | measured / modelled |",
        "|---|---|---|---|---|",
    ]
    ratios = []
    for title, nodes, accumulate in cases():
        measured = step(nodes=nodes, accumulate=accumulate, mbps=mbps, times=times)
        modelled = StepModel(
            unit_seconds=MICRO_SECONDS, step_seconds=0.0, payload=PAYLOAD, bytes_per_second=rate
        ).seconds(nodes=nodes, units=accumulate)
        ratios.append(measured / modelled)
        lines.append(
            f"| {title} | {nodes} | {measured:.3f} s | {modelled:.3f} s | {ratios[-1]:.2f} |"
        )
    worst = max(ratios, key=lambda ratio: abs(ratio - 1))
    verdict = "within" if abs(worst - 1) <= TOLERANCE else "NOT within"
    return "\n".join([*lines, "", f"All {verdict} {TOLERANCE:.0%}; the worst is {worst:.2f}."])


def cases() -> Iterator[tuple[str, int, int]]:
    """Title, number of nodes, micro-batches of each."""
    for nodes in (2, 4):
        yield "all-reduce alone", nodes, 0
    for nodes in (1, 2, 4):
        yield f"strong scaling, {ALONE} micro-batches of {MICRO_SECONDS} s", nodes, ALONE // nodes
    for nodes in (2, 4):
        yield f"weak scaling, {EACH} micro-batches a node", nodes, EACH


def goodput(*, mbps: int, times: int) -> float:
    """Bytes a second of one TCP stream over such a link."""
    with linked_nodes(2, bits_per_second=mbps * 1_000_000) as nodes:
        seconds: list[float]
        seconds, _ = run_on(nodes, functools.partial(stream, payload=PAYLOAD, times=times))
    # Not the fastest: the first bytes after a pause go unshaped.
    return PAYLOAD / statistics.median(seconds)


def step(*, nodes: int, accumulate: int, mbps: int, times: int) -> float:
    """Seconds of the fastest step: all nodes take part in it, so that of any node will do."""
    print(f"{nodes} nodes, {accumulate} micro-batches", file=sys.stderr, flush=True)
    work = functools.partial(
        steps, accumulate=accumulate, micro_seconds=MICRO_SECONDS, payload=PAYLOAD, times=times
    )
    with linked_nodes(nodes, bits_per_second=mbps * 1_000_000) as linked:
        seconds, _ = run_on(linked, work)[0]
    return float(min(seconds))


if __name__ == "__main__":
    sys.exit(main())
