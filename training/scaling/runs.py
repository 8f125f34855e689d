"""Finished runs, from their `results.json`, and which of them can be compared."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from training.command import InputError
from training.files import read_json

SCHEMA = Path(__file__).parents[1] / "results.schema.json"
# What scaling runs may differ in: how long they train, and what the batch and its rate have to do
# with the number of workers. All other settings change the speed, or what is trained.
FREE = {
    f"settings.train.{name}"
    for name in (
        *("epochs", "max_steps", "batch_size", "micro_batch_size", "scaling"),
        *("learning_rate", "warm_up", "seed"),
    )
} | {"settings.speed.device", "settings.speed.precision"}  # `hardware` has what was used
LARGEST = 1e18
HARDWARE = ("device", "name", "machine", "threads", "precision")


@dataclass(frozen=True, kw_only=True)
class ScalingRun:
    """One run.

    Attributes:
        path: its `results.json`.
        facts: what must be equal in runs that are compared, by dotted name.
        rate: sequences a second over all workers, warm-up left out.
        batch: sequences a step of all workers.
        seconds: of the whole run, with all its starts.
        usd: what the nodes cost for that time; None where the run knew no price.
        price: USD an hour and node.
    """

    path: Path
    facts: Mapping[str, Any]
    scaling: str
    workers: int
    nodes: int
    batch: int
    accumulate: int
    parameters: int
    instance: str | None
    rate: float
    seconds: float
    usd: float | None
    price: float | None

    @property
    def share(self) -> float:
        """Sequences a step of one worker."""
        return self.batch / self.workers

    @property
    def step_seconds(self) -> float:
        """Of one step, from the rate."""
        return self.batch / self.rate


def read_runs(paths: Sequence[Path]) -> list[list[ScalingRun]]:
    """Runs of strong and of weak scaling, each with growing numbers of workers.

    The run of the fewest workers is both, so it begins either group that its batch fits.

    Raises:
        InputError: names every file that cannot be read and every run that cannot be compared.
    """
    problems: list[str] = []
    runs = []
    for path in dict.fromkeys(paths):
        try:
            runs.append(_read(path))
        except InputError as error:
            problems.append(str(error))
    complete = not problems
    problems += [f"{path} is given twice" for path, count in Counter(paths).items() if count > 1]
    runs.sort(key=lambda run: run.workers)
    problems += _differences(runs)
    groups = _groups(runs)
    for group in groups:
        problems += _group_problems(group)
        if len(group) == 1 and complete:
            problems.append(
                f"{group[0].path} is the only run of {group[0].scaling} scaling; give two or more, "
                "with different numbers of workers"
            )
    if problems:
        raise InputError("; ".join(dict.fromkeys(problems)))
    return groups


def _read(path: Path) -> ScalingRun:
    content: dict[str, Any] = read_json(path, schema=SCHEMA)
    parallel, cost = content["parallel"], content["cost"]
    rate, seconds = content["speed"]["sequences_per_second"], content["time"]["total_seconds"]
    if rate is None:
        raise InputError(
            f"{path} has no speed: since its last start no step after the warm-up was measured; "
            "let it train longer at a stretch"
        )
    money = [cost["usd"], cost["price_usd_per_hour"]] if cost else []
    counts = [value for value in parallel.values() if not isinstance(value, str)]
    numbers = [rate, seconds, content["model"]["parameters"], *counts, *money]
    # JSON also has NaN and numbers without end.
    if not (rate > 0 and seconds > 0 and all(0 <= number < LARGEST for number in numbers)):
        raise InputError(f"{path} has figures that no run has, such as a speed of {rate}")
    return ScalingRun(
        path=path,
        facts=_facts(content),
        scaling=parallel["scaling"],
        workers=int(parallel["workers"]),
        nodes=int(parallel["nodes"]),
        batch=int(parallel["batch_size"]),
        accumulate=int(parallel["accumulate"]),
        parameters=int(content["model"]["parameters"]),
        instance=cost and cost["instance_type"],
        rate=float(rate),
        seconds=float(seconds),
        usd=cost and float(cost["usd"]),
        price=cost and float(cost["price_usd_per_hour"]),
    )


def _facts(content: Mapping[str, Any]) -> dict[str, Any]:
    """What must be equal in all runs, by dotted name."""
    facts = {
        "task": content["task"],
        **_flat("model", _without(content["model"], "weights_sha256")),
        **_flat("dataset", _without(content["dataset"], "name")),  # a digest says which it is
        **_flat("settings", _without(content["settings"], "checkpoint")),
        **_flat("hardware", {name: content["hardware"][name] for name in HARDWARE}),
        **_flat("versions", content["versions"]),
        "cost.instance_type": content["cost"] and content["cost"]["instance_type"],
    }
    return {name: value for name, value in facts.items() if name not in FREE}


def _without(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key != name}


def _flat(name: str, value: Any) -> dict[str, Any]:
    """Plain values by their dotted names."""
    if not isinstance(value, Mapping):
        return {name: value}
    return {
        path: plain
        for key, inner in value.items()
        for path, plain in _flat(f"{name}.{key}", inner).items()
    }


def _differences(runs: Sequence[ScalingRun]) -> list[str]:
    """What keeps runs from being compared with the first of them."""
    problems = []
    for run in runs[1:]:
        first = runs[0]
        different = [
            f"{name} is {_said(run.facts, name)}, not {_said(first.facts, name)}"
            for name in sorted({*first.facts, *run.facts})
            if run.facts.get(name) != first.facts.get(name)
        ]
        if different:
            problems.append(
                f"{run.path} cannot be compared with {first.path}: {', '.join(different)}"
            )
    return problems


def _said(facts: Mapping[str, Any], name: str) -> str:
    return repr(facts[name]) if facts.get(name) is not None else "unknown"


def _groups(runs: Sequence[ScalingRun]) -> list[list[ScalingRun]]:
    """Strong and weak runs; the run of the fewest workers begins both, where its batch fits."""
    groups = []
    for scaling in ("strong", "weak"):
        group = [run for run in runs if run.scaling == scaling]
        if group and group[0].workers > runs[0].workers and _same_batch(runs[0], group[0], scaling):
            group.insert(0, runs[0])
        groups.append(group)
    strong, weak = groups
    if len(strong) == 1 and strong[0] in weak:
        strong.clear()
    if len(weak) == 1 and weak[0] in strong:
        weak.clear()
    return [group for group in groups if group]


def _same_batch(one: ScalingRun, other: ScalingRun, scaling: str) -> bool:
    """Whether a kind of scaling keeps the batch of two runs: of all workers, or of each."""
    if scaling == "strong":
        return one.batch == other.batch
    return one.batch * other.workers == other.batch * one.workers


def _group_problems(group: Sequence[ScalingRun]) -> list[str]:
    """Other batches and equal numbers of workers."""
    first, scaling = group[0], group[-1].scaling
    problems = []
    for before, run in pairwise(group):
        if run.workers == before.workers:
            problems.append(
                f"{run.path} and {before.path} both have {run.workers} "
                f"worker{'s' * (run.workers > 1)}; leave one of them out"
            )
    for run in group[1:]:
        if not _same_batch(run, first, scaling):
            batches = (
                f"a batch of {run.batch}, not {first.batch}"
                if scaling == "strong"
                else f"a batch of {run.share:g} a worker, not {first.share:g}"
            )
            problems.append(
                f"{run.path} cannot be compared with {first.path} under {scaling} scaling: "
                f"{batches}"
            )
    return problems
