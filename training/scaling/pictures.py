"""The report as pictures: measured as dots on a line, modelled dotted, published as diamonds."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.scaling.published import FULL_PRECISION, Published, PublishedRun
from training.scaling.report import MILLION, Point, Report

# The marker of strong scaling is the larger one: where both agree, both can be seen.
LOOKS = {
    "strong": {"color": "tab:blue", "marker": "o", "markersize": 10},
    "weak": {"color": "tab:orange", "marker": "s", "markersize": 6},
}
STYLES: dict[str, dict[str, Any]] = {
    "measured": {"linewidth": 2},
    "modelled": {"linewidth": 2, "linestyle": ":", "marker": ""},
    "published": {"linestyle": "none", "marker": "D", "markersize": 9, "markerfacecolor": "none"},
    "ideal": {"linestyle": "--", "linewidth": 1.5, "color": "0.5", "label": "ideal", "zorder": 0},
}
ORDER = tuple(STYLES)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """What one plot shows: x and y of a point, ideal y by baseline and x, y of published runs.

    `published` takes a run and its efficiency.
    """

    title: str
    x_label: str
    y_label: str
    x: Callable[[Point], float]
    measured: Callable[[Point], float | None]
    modelled: Callable[[Point], float | None]
    ideal: Callable[[Point, float], float | None]
    published: Callable[[PublishedRun, float], float] | None = None
    log: bool = False


SCALING = (
    Panel(
        title="Speed-up",
        x_label="workers, as a multiple of the fewest",
        y_label="sequences a second, as a multiple",
        x=lambda point: point.times,
        measured=lambda point: point.speed_up,
        modelled=lambda point: point.modelled and point.modelled / point.base.rate,
        ideal=lambda _, x: x,
        published=lambda run, efficiency: run.nodes * efficiency,
        log=True,
    ),
    Panel(
        title="Efficiency",
        x_label="workers, as a multiple of the fewest",
        y_label="speed-up over workers, %",
        x=lambda point: point.times,
        measured=lambda point: point.efficiency * 100,
        modelled=lambda point: point.modelled_efficiency and point.modelled_efficiency * 100,
        ideal=lambda _, x: 100.0,
        published=lambda _, efficiency: efficiency * 100,
    ),
)
COST = (
    Panel(
        title="Time to train",
        x_label="workers",
        y_label="hours for a million sequences",
        x=lambda point: point.run.workers,
        measured=lambda point: point.hours_per_million,
        modelled=lambda point: point.modelled and MILLION / point.modelled / 3600,
        ideal=lambda base, x: base.hours_per_million * base.run.workers / x,
        log=True,
    ),
    Panel(
        title="Cost to train",
        x_label="workers",
        y_label="USD for a million sequences",
        x=lambda point: point.run.workers,
        measured=lambda point: point.usd_per_million,
        modelled=lambda point: (
            point.modelled
            and point.usd_per_million
            and point.usd_per_million * point.run.rate / point.modelled
        ),
        ideal=lambda base, _: base.usd_per_million,
    ),
)


def draw(folder: Path, report: Report, published: Published) -> list[str]:
    """Write `scaling.png` and `cost.png`; their names, none where matplotlib is missing."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return []
    pictures = {"scaling.png": SCALING, "cost.png": COST}
    for name, panels in pictures.items():
        drawn = [panel for panel in panels if _known(panel, report)]
        figure: Any = Figure(figsize=(5 * len(drawn), 5.2), layout="constrained")
        FigureCanvasAgg(figure)
        entries: dict[str, Any] = {}
        for axes, panel in zip(
            figure.subplots(1, len(drawn), squeeze=False)[0], drawn, strict=True
        ):
            _draw_panel(axes, panel, report, published)
            lines, labels = axes.get_legend_handles_labels()
            entries |= dict(zip(labels, lines, strict=True))
        labels = sorted(entries, key=lambda label: ORDER.index(re.split(r"\W", label)[0]))
        figure.legend(
            [entries[label] for label in labels], labels, loc="outside lower center", ncols=2
        )
        figure.savefig(folder / name, dpi=120)
    return list(pictures)


def shown(published: Published) -> list[tuple[PublishedRun, float]]:
    """The newest published bf16 run of each kind of scaling, with its efficiency."""
    found: dict[str, tuple[PublishedRun, float]] = {}
    for run in published.runs:  # the newest release comes first
        efficiency = published.efficiency(run)
        if efficiency is not None and run.precision != FULL_PRECISION:
            found.setdefault(run.scaling, (run, efficiency))
    return list(found.values())


def _known(panel: Panel, report: Report) -> bool:
    """Whether the runs have measured it; without a price there is no cost."""
    points = [point for group in report.groups.values() for point in group]
    return all(panel.measured(point) is not None for point in points)


def _draw_panel(axes: Any, panel: Panel, report: Report, published: Published) -> None:
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    ticks = {panel.x(point) for group in report.groups.values() for point in group}
    others = [
        (run, panel.published(run, efficiency))
        for run, efficiency in shown(published)
        if panel.published
    ]
    ticks |= {run.nodes for run, _ in others}
    for scaling, points in report.groups.items():
        for kind, value in (("measured", panel.measured), ("modelled", panel.modelled)):
            pairs = [(panel.x(point), y) for point in points if (y := value(point)) is not None]
            style = LOOKS[scaling] | STYLES[kind] | {"label": f"{kind}, {scaling} scaling"}
            if pairs:
                axes.plot(*zip(*pairs, strict=True), **style)
        columns = sorted(ticks if others else {panel.x(point) for point in points})
        axes.plot(columns, [panel.ideal(points[0], x) for x in columns], **STYLES["ideal"])
    for run, y in others:
        label = f"published by AWS, {run.scaling} scaling, {run.nodes} nodes, Neuron {run.release}"
        style = LOOKS[run.scaling] | STYLES["published"] | {"label": label}
        axes.plot([run.nodes], [y], **style)
    _scale(axes, panel, sorted(ticks))


def _scale(axes: Any, panel: Panel, columns: Sequence[float]) -> None:
    """Axes with plain numbers, and ticks where there are points."""
    from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(columns))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    if panel.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
    axes.grid(visible=True, color="0.92")
