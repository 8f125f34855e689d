"""Time and cost of a pre-training to come, as a range, from what was published and the model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from training.command import InputError
from training.scaling.published import (
    FULL_PRECISION,
    Instance,
    Published,
    PublishedRun,
    read_published,
)
from training.scaling.recipes import Phase, read_recipes
from training.scaling.ring import GRADIENT_BYTES, StepModel, ring_bytes


@dataclass(frozen=True, kw_only=True)
class Range:
    """From the best to the worst of what the model says."""

    low: float
    high: float

    def __add__(self, other: "Range") -> "Range":
        """Best with best, worst with worst."""
        return Range(low=self.low + other.low, high=self.high + other.high)

    def __mul__(self, factor: float) -> "Range":
        """In another unit."""
        return Range(low=self.low * factor, high=self.high * factor)


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What the fitted runs say of one step: fixed seconds, and bytes a second of a node's links."""

    step_seconds: float
    bytes_per_second: float


@dataclass(frozen=True, kw_only=True)
class Part:
    """One phase on some nodes: how its batch is cut, sequences a second and hours."""

    phase: int
    batch: int
    accumulate: int
    steps: int
    learning_rate: float
    rate: Range
    hours: Range


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A whole pre-training on some nodes; `usd` is for the nodes alone."""

    nodes: int
    parts: Sequence[Part]
    hours: Range
    usd: Range


def fit(published: Published, *, workers: int) -> Fit:
    """Solve the model for four runs of one release: two batches on one node, two on several.

    Two batches on equal nodes differ in accumulation alone, so their steps tell the seconds of a
    micro-batch from those of a step. What a step takes longer on several nodes is the links'; the
    run that this weighs on most, of the smaller batch, has its gradient in float32 (AMP) like ours.
    """
    runs = [one for one in half(published, 1) if one.release == published.fit_release]
    alone = _fixed_seconds([one for one in runs if one.nodes == 1], workers)
    together = [one for one in runs if one.nodes > 1]
    link = _fixed_seconds(together, workers) - alone
    sent = ring_bytes(together[0].nodes, payload=payload(published))
    return Fit(step_seconds=alone, bytes_per_second=sent / link)


def half(published: Published, phase: int) -> list[PublishedRun]:
    """The published runs of a phase that computed in bf16."""
    return [one for one in published.runs if one.phase == phase and one.precision != FULL_PRECISION]


def payload(published: Published) -> float:
    """Bytes of the gradient."""
    return float(published.parameters * GRADIENT_BYTES)


def micro_seconds(published: Published, phase: int, *, workers: int, found: Fit) -> Range:
    """Of one micro-batch on every worker: the fastest and the slowest of the published runs."""
    fixed = StepModel(
        unit_seconds=0.0,
        step_seconds=found.step_seconds,
        payload=payload(published),
        bytes_per_second=found.bytes_per_second,
    )
    seconds = [
        (run.step_seconds - fixed.seconds(nodes=run.nodes, units=0)) / run.accumulate(workers)
        for run in half(published, phase)
    ]
    return Range(low=min(seconds), high=max(seconds))


def estimate(
    counts: Sequence[int], *, instance: Instance, recipe: str, scaling: str, price: float
) -> list[Estimate]:
    """One estimate for each number of nodes, by the recipes of BERT-large.

    Args:
        counts: numbers of nodes.
        instance: their type.
        recipe: their optimizer.
        scaling: strong keeps the batch of the recipe, weak that of each node.
        price: USD an hour and node.

    Raises:
        InputError: names every number of nodes that cannot be, and the nearest that can.
    """
    published = read_published()
    phases = read_recipes()[recipe]
    problems = [
        problem
        for nodes in counts
        if (problem := _problem(nodes, phases, workers=instance.workers, scaling=scaling))
    ]
    if problems:
        raise InputError("; ".join(problems))
    found = fit(published, workers=instance.workers)
    results = []
    for nodes in counts:
        parts = [
            _part(phase, nodes=nodes, scaling=scaling, instance=instance, found=found)
            for phase in phases
        ]
        hours = sum((part.hours for part in parts), Range(low=0.0, high=0.0))
        results.append(Estimate(nodes=nodes, parts=parts, hours=hours, usd=hours * (nodes * price)))
    return results


def _part(phase: Phase, *, nodes: int, scaling: str, instance: Instance, found: Fit) -> Part:
    published = read_published()
    micro = micro_seconds(published, phase.phase, workers=instance.workers, found=found)
    weak = scaling == "weak"
    batch = phase.batch * (nodes if weak else 1)
    accumulate = batch // (nodes * instance.workers * phase.micro)
    fast, slow = (
        StepModel(
            unit_seconds=seconds,
            step_seconds=found.step_seconds,
            payload=payload(published),
            bytes_per_second=rate,
        ).seconds(nodes=nodes, units=accumulate)
        for seconds, rate in (
            (micro.low, instance.bytes_per_second),
            (micro.high, found.bytes_per_second),
        )
    )
    rate = Range(low=batch / slow, high=batch / fast)
    return Part(
        phase=phase.phase,
        batch=batch,
        accumulate=accumulate,
        steps=-(-phase.sequences // batch),
        learning_rate=phase.learning_rate * (math.sqrt(nodes) if weak else 1.0),
        rate=rate,
        hours=Range(low=phase.sequences / rate.high, high=phase.sequences / rate.low) * (1 / 3600),
    )


def _fixed_seconds(runs: Sequence[PublishedRun], workers: int) -> float:
    """Of a step without any micro-batch: the line through two runs, at zero micro-batches."""
    first, second = runs
    a, b = first.accumulate(workers), second.accumulate(workers)
    slope = (second.step_seconds - first.step_seconds) / (b - a)
    return first.step_seconds - a * slope


def _problem(nodes: int, phases: Sequence[Phase], *, workers: int, scaling: str) -> str | None:
    """Why a pre-training on so many nodes cannot be; None where it can."""
    if nodes < 1:
        return f"{nodes} nodes cannot train; give 1 or more"
    if scaling == "weak":
        most = min(phase.steps for phase in phases)
        if nodes <= most:
            return None
        return (
            f"weak scaling over {nodes:,} nodes leaves no step to train: a batch would hold more "
            f"sequences than the recipe sees in all; {most:,} nodes are the most"
        )
    # Micro-batches that a step holds for each node, were there one.
    shares = [phase.batch // (workers * phase.micro) for phase in phases]
    common = math.gcd(*shares)
    if common % nodes == 0:
        return None
    counts = [count for count in range(1, common + 1) if common % count == 0]
    near = [
        *[count for count in counts if count < nodes][-1:],
        *[count for count in counts if count > nodes][:1],
    ]
    return (
        f"{nodes:,} nodes of {workers} workers cannot share batches of "
        f"{' and '.join(f'{phase.batch:,}' for phase in phases)} evenly in micro-batches of "
        f"{' and '.join(str(phase.micro) for phase in phases)}; nearest numbers of nodes: "
        f"{' and '.join(map(str, near))}, or --scaling weak"
    )
