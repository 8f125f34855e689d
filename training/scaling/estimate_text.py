"""An estimate in words: a table of ranges, and what each figure rests on."""

import math
from collections.abc import Callable, Sequence

from training.scaling.estimate import Estimate, Range, fit, half, micro_seconds
from training.scaling.published import Instance, Published
from training.scaling.recipes import Phase, read_recipes

HEADER = ("nodes", "phase", "batch", "accumulate", "steps", "sequences/s", "hours", "USD")
FORMULA = "seconds of a step = accumulate x micro-batch + step + 2(n-1)/n x gradient bytes / links"


def as_text(
    estimates: Sequence[Estimate],
    *,
    published: Published,
    instance: str,
    recipe: str,
    scaling: str,
    price: str,
) -> str:
    """The whole answer; `price` says how much a node costs and who says so."""
    rows = [HEADER]
    for one in estimates:
        rows += [
            (
                f"{one.nodes:,}",
                str(part.phase),
                f"{part.batch:,}",
                f"{part.accumulate:,}",
                f"{part.steps:,}",
                as_range(part.rate),
                as_range(part.hours),
                "",
            )
            for part in one.parts
        ]
        rows.append(
            (f"{one.nodes:,}", "all", "", "", "", "", as_range(one.hours), as_range(one.usd))
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        f"{published.model} by the {recipe} recipes, {scaling} scaling on {instance}: modelled, "
        "not measured",
        "",
        *(
            "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ),
        "",
        "What it rests on:",
    ]
    reasons = _reasons(published, read_recipes()[recipe], published.instances[instance], instance)
    if scaling == "weak":
        last = estimates[-1]
        reasons.append(
            (
                "assumed",
                "as many sequences as in the recipe, in fewer steps of a larger batch, at a rate "
                "that grows with the square root of the nodes, in phase 1 on "
                f"{last.nodes:,} {last.parts[0].learning_rate:.2g}; nobody has shown that it "
                "learns as well",
            )
        )
    most = max(run.nodes for run in published.runs)
    if estimates[-1].nodes > most:
        text = f"more than {most} nodes behave like {most}: no such run was published"
        reasons.append(("assumed", text))
    left_out = "boot, compilation, staging, checkpoints, lost nodes; head node and storage"
    reasons += [("price", price), ("left out", left_out)]
    return "\n".join([*lines, *(f"  {kind:<10}  {text}" for kind, text in reasons)])


def as_range(value: Range) -> str:
    """Two digits each, rounded outward."""
    return f"{_two_digits(value.low, math.floor)}-{_two_digits(value.high, math.ceil)}"


def _two_digits(value: float, to_whole: Callable[[float], int]) -> str:
    exponent = math.floor(math.log10(value)) - 1
    # Rounded before, so that 5.3 is not 53.0000001 tenths.
    return f"{to_whole(round(value / 10**exponent, 6)) * 10**exponent:,.{max(0, -exponent)}f}"


def _reasons(
    published: Published, phases: Sequence[Phase], instance: Instance, name: str
) -> list[tuple[str, str]]:
    """Where the figures come from: who says so, and what."""
    found = fit(published, workers=instance.workers)
    reasons = [
        (
            "published",
            "batches and steps of the recipes, by AWS (training/bert_pretraining/recipes)",
        )
    ]
    for phase in phases:
        runs = half(published, phase.phase)
        seconds = micro_seconds(published, phase.phase, workers=instance.workers, found=found)
        nodes = " and ".join(str(count) for count in sorted({run.nodes for run in runs}))
        # The newest release comes first.
        text = (
            f"phase {phase.phase}, {phase.tokens} tokens: {seconds.low:.3f} to {seconds.high:.3f} "
            f"s a micro-batch, from {len(runs)} runs by AWS on {nodes} nodes, Neuron "
            f"{runs[-1].release} to {runs[0].release}"
        )
        reasons.append(("published", text))
    return [
        *reasons,
        (
            "published",
            f"{found.step_seconds:.2f} s a step besides and, for the slow end, links of "
            f"{found.bytes_per_second / 1e9:.0f} GB/s a node: fitted to four runs by AWS, Neuron "
            f"{published.fit_release}",
        ),
        (
            "data sheet",
            f"for the fast end, links of {instance.bytes_per_second / 1e9:.0f} GB/s a node, the "
            f"line rate of {name}",
        ),
        ("modelled", FORMULA),
        ("assumed", "this trainer is as fast as AWS's: nothing here was measured on Trn1"),
    ]
