"""What runs with different numbers of workers say about scaling, beside the model and others."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from training.command import InputError
from training.scaling.published import Published, PublishedRun
from training.scaling.recipes import read_recipes
from training.scaling.ring import GRADIENT_BYTES, StepModel, ring_bytes
from training.scaling.runs import ScalingRun

COLUMNS = (
    *("scaling", "workers", "nodes", "batch", "accumulate"),
    *(f"measured_{name}" for name in ("sequences_per_second", "speed_up", "efficiency")),
    *(f"measured_{name}" for name in ("hours", "usd", "hours_per_million", "usd_per_million")),
    *(f"modelled_{name}" for name in ("sequences_per_second", "efficiency")),
    *(f"published_{name}" for name in ("sequences_per_second", "efficiency", "usd_per_million")),
    "source",
)
MILLION = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Point:
    """A run against the one with the fewest workers; `modelled` is sequences a second, if known."""

    run: ScalingRun
    base: ScalingRun
    modelled: float | None

    @property
    def times(self) -> float:
        """As many workers as the baseline has."""
        return self.run.workers / self.base.workers

    @property
    def speed_up(self) -> float:
        """As many sequences a second as the baseline."""
        return self.run.rate / self.base.rate

    @property
    def efficiency(self) -> float:
        """Speed-up as a share of the workers that were added."""
        return self.speed_up / self.times

    @property
    def modelled_efficiency(self) -> float | None:
        """The same of the model."""
        return self.modelled and self.modelled / self.base.rate / self.times

    @property
    def hours_per_million(self) -> float:
        """Of training, for a million sequences at this rate."""
        return MILLION / self.run.rate / 3600

    @property
    def usd_per_million(self) -> float | None:
        """Of all nodes, for a million sequences at this rate."""
        price = self.run.price
        return None if price is None else self.hours_per_million * self.run.nodes * price


@dataclass(frozen=True, kw_only=True)
class Report:
    """The points of each kind of scaling, and in words why some or all of them have no model."""

    groups: Mapping[str, Sequence[Point]]
    model: str


def make_report(
    groups: Sequence[Sequence[ScalingRun]], *, published: Published, link: float | None
) -> Report:
    """Compare every run with the first of its group.

    Args:
        groups: runs of strong and of weak scaling, each by number of workers.
        published: knows the links of some instances.
        link: bytes a second of a node's links, where it was given.

    Raises:
        InputError: the baseline is faster than its links allow, so they are not what was given.
    """
    runs = [run for group in groups for run in group]
    instance = published.instances.get(runs[0].instance or "")
    said = "as given"
    if link is None and instance is not None:
        link, said = instance.bytes_per_second, f"at the line rate of {runs[0].instance}"
    if all(run.nodes == 1 for run in runs):
        link, text = None, "Nothing is modelled: all is one node, and the model is of links between"
    elif link is None:
        text = (
            "Nothing is modelled: the runs name no instance whose links are known; give --link-gbps"
        )
    else:
        text = (
            "Modelled: seconds of a step = sequences of a worker x c + 2(n-1)/n x "
            f"{runs[0].parameters:,} parameters x {GRADIENT_BYTES} bytes / {link * 8 / 1e9:g} "
            f"Gbit/s, over n nodes; the links {said}, c from the baseline of each kind of scaling"
        )
    return Report(
        groups={
            group[-1].scaling: [_point(run, group[0], link) for run in group] for group in groups
        },
        model=text,
    )


def _point(run: ScalingRun, base: ScalingRun, link: float | None) -> Point:
    modelled = None
    if link is not None:
        payload = float(base.parameters * GRADIENT_BYTES)
        compute = base.step_seconds - ring_bytes(base.nodes, payload=payload) / link
        if compute <= 0:
            raise InputError(
                f"{base.path}: over links of {link * 8 / 1e9:g} Gbit/s the gradients of "
                f"{base.parameters:,} parameters alone take longer than a step of "
                f"{base.step_seconds:.3g} s; give the --link-gbps that its nodes have"
            )
        model = StepModel(
            unit_seconds=compute / base.share,
            step_seconds=0.0,
            payload=payload,
            bytes_per_second=link,
        )
        modelled = run.batch / model.seconds(nodes=run.nodes, units=run.share)
    return Point(run=run, base=base, modelled=modelled)


def usd_per_million(run: PublishedRun, published: Published) -> float:
    """Of all nodes, for a million sequences at a published rate and today's price of Trn1."""
    price = published.instances["trn1.32xlarge"].price_usd_per_hour
    return MILLION / run.rate / 3600 * run.nodes * price


def as_csv(report: Report, published: Published) -> str:
    """Every figure, unrounded, a line a run; where a figure comes from is in its column's name."""
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    table.writeheader()
    for scaling, points in report.groups.items():
        for point in points:
            run = point.run
            table.writerow(
                {
                    "scaling": scaling,
                    "workers": run.workers,
                    "nodes": run.nodes,
                    "batch": run.batch,
                    "accumulate": run.accumulate,
                    "measured_sequences_per_second": run.rate,
                    "measured_speed_up": point.speed_up,
                    "measured_efficiency": point.efficiency,
                    "measured_hours": run.seconds / 3600,
                    "measured_usd": run.usd,
                    "measured_hours_per_million": point.hours_per_million,
                    "measured_usd_per_million": point.usd_per_million,
                    "modelled_sequences_per_second": point.modelled,
                    "modelled_efficiency": point.modelled_efficiency,
                    "source": run.path,
                }
            )
    workers = published.instances["trn1.32xlarge"].workers
    for one in published.runs:
        table.writerow(
            {
                "scaling": one.scaling,
                "workers": one.nodes * workers,
                "nodes": one.nodes,
                "batch": one.batch,
                "accumulate": one.accumulate(workers),
                "published_sequences_per_second": one.rate,
                "published_efficiency": published.efficiency(one),
                "published_usd_per_million": usd_per_million(one, published),
                "source": f"{published.model} phase {one.phase}, {one.optimizer}, {one.precision}, "
                f"Neuron {one.release}: {published.sources[one.release]}",
            }
        )
    return text.getvalue()


def as_markdown(report: Report, published: Published, *, pictures: Sequence[str]) -> str:
    """The report that a person reads."""
    lines = ["# How training scales", ""]
    for scaling, points in report.groups.items():
        lines += [*_measured(scaling, points), ""]
    lines += [report.model + ".", ""]
    lines += [line for name in pictures for line in (f"![{name}]({name})", "")]
    return "\n".join([*lines, *_published(published), ""])


def _measured(scaling: str, points: Sequence[Point]) -> list[str]:
    base = points[0].base
    kept = (
        f"a batch of {base.batch:,} over all workers"
        if scaling == "strong"
        else f"a batch of {base.share:,g} for each worker"
    )
    return [
        f"## {scaling.capitalize()} scaling: {kept}",
        "",
        "| workers | nodes | accumulate | measured sequences/s | measured speed-up | measured "
        "efficiency | measured time | measured USD | measured USD a million sequences | modelled "
        "sequences/s | modelled efficiency |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(
            _row(
                point.run.workers,
                point.run.nodes,
                point.run.accumulate,
                _number(point.run.rate),
                f"{point.speed_up:.2f}",
                f"{point.efficiency:.1%}",
                _duration(point.run.seconds),
                _number(point.run.usd),
                _number(point.usd_per_million),
                _number(point.modelled),
                "" if point.modelled is None else f"{point.modelled_efficiency:.1%}",
            )
            for point in points
        ),
        "",
        f"Baseline: {base.path}, the fewest workers. Time and USD are of the runs as they were, "
        "of all their steps and starts.",
    ]


def _published(published: Published) -> list[str]:
    price = published.instances["trn1.32xlarge"]
    sequences = {phase.phase: phase.sequences for phase in read_recipes()["lamb"]}
    return [
        f"## Published by AWS: {published.model} on trn1.32xlarge",
        "",
        f"Measured by AWS, not by these runs; read {published.date}. Worked out here are "
        "efficiency, against one node of the same release, whatever its optimizer; USD, at "
        f"{price.price_usd_per_hour:.2f} an hour and node ({price.price_date}); hours, for the "
        f"{sequences[1] / 1e6:.1f} M and {sequences[2] / 1e6:.1f} M sequences of the recipe.",
        "",
        "| Neuron | phase | nodes | scaling | optimizer | precision | batch | "
        "published sequences/s | efficiency | USD a million sequences | hours of the phase |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(
            _row(
                run.release,
                run.phase,
                run.nodes,
                "" if run.nodes == 1 else run.scaling,
                run.optimizer,
                run.precision,
                f"{run.batch:,}",
                _number(run.rate),
                "" if (share := published.efficiency(run)) is None else f"{share:.1%}",
                _number(usd_per_million(run, published)),
                _number(sequences[run.phase] / run.rate / 3600),
            )
            for run in published.runs
        ),
        "",
        *(f"- Neuron {release}: {source}" for release, source in published.sources.items()),
    ]


def _row(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _duration(seconds: float) -> str:
    """In the unit that reads best."""
    if seconds < 120:
        return f"{seconds:#.3g} s"
    return f"{seconds / 60:#.3g} min" if seconds < 7200 else f"{seconds / 3600:#.3g} h"


def _number(value: float | None) -> str:
    """Three digits or more; empty for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"
