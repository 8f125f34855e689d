"""The road itself: every step that a platform team and an ML engineer take, in order."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from operations import leftovers
from operations.emulator import Emulator
from operations.rehearsal.account import Account, Prediction
from operations.rehearsal.models import PRETRAINED, Package, Workbench
from operations.rehearsal.progress import Progress, Step, StepFailed
from ultracluster.catalog import load_catalog
from ultracluster.platform import platform_facts
from ultracluster.settings import Settings

TEXTS = (
    "Covid cases are increasing fast!",
    "I love the new update, great work!",
    "The meeting is on Tuesday.",
)
STEPS = 16

# The served script of a model whose files do not fit its code.
BROKEN_INFERENCE = """
def model_fn(model_dir):
    raise RuntimeError("the weights do not fit the code (broken on purpose)")


def input_fn(body, content_type):
    return body


def predict_fn(texts, model):
    return []


def output_fn(prediction, accept):
    return "[]"
"""


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """What came of one published model."""

    name: str
    digest: str
    verdict: str
    reason: str


@dataclass(kw_only=True)
class Report:
    """What the summary shows."""

    results: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    rollouts: list[Rollout] = field(default_factory=list)
    predictions: dict[str, list[Prediction]] = field(default_factory=dict)
    remains: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How the two models are trained: arguments of `training.roberta_sentiment`.

    With `pretrain`, arguments of `training.bert_pretraining pretrain`, the first one comes from a
    BERT that is pre-trained on plain text before; else both come from MiniLM.
    """

    first: tuple[str, ...]
    second: tuple[str, ...]
    package: tuple[str, ...] = ()
    pretrain: tuple[str, ...] | None = None


FULL = Recipe(
    first=("--max-steps", "25", "--learning-rate", "3e-4"),
    second=("--epochs", "1"),
)
# A small BERT that has read 18 MB of text passes the gate, and MiniLM is better.
FROM_TEXT = Recipe(
    pretrain=("--max-steps", "500"),
    first=("--epochs", "4", "--learning-rate", "3e-4"),
    second=FULL.second,
)


def travel(
    emulator: Emulator, settings: Settings, *, recipe: Recipe, folder: Path, progress: Progress
) -> Report:
    """Go the whole road once; models and logs go to `folder`.

    Raises:
        StepFailed: a step did not do what it should, or something is left at the end.
    """
    report = Report()
    account = Account(
        emulator, environment=settings.environment, prefix=settings.prefix, logs=folder
    )
    bench = Workbench(folder, env=emulator.environment())

    with progress.step("cdk bootstrap") as step:
        account.cdk(step, "bootstrap", f"aws://{settings.aws.account}/{settings.aws.region}")
    with progress.step("cdk deploy --all") as step:
        account.cdk(step, "deploy", "--all", "--require-approval", "never")
        step.note = "six stacks, no model yet"
    bucket = account.outputs("storage")["ModelBucket"]
    serving = account.outputs("endpoint")
    endpoint = serving["EndpointName"]
    platform = _write_platform(settings, bucket, folder)

    def roll_out(package: Package, title: str, expected: str) -> None:
        with progress.step(title) as step:
            bench.publish(step, package, platform)
            verdict = account.wait_for_verdict(step, bucket=bucket, digest=package.digest)
            outcome = Rollout(
                name=package.folder.name.removesuffix("-package"),
                digest=package.digest,
                verdict=str(verdict["outcome"]),
                reason=str(verdict["reason"]),
            )
            report.rollouts.append(outcome)
            if outcome.verdict != expected:
                raise StepFailed(
                    f"{outcome.name}: expected {expected!r}, got {outcome.verdict!r}: "
                    f"{outcome.reason}"
                )
            step.note = outcome.verdict

    def predict(title: str, name: str) -> None:
        with progress.step(title) as step:
            report.predictions[name] = account.predict(endpoint, TEXTS)
            labels = (item.label for item in report.predictions[name])
            step.note = f"{len(TEXTS)} texts: {', '.join(labels)}"

    encoders = {"first": PRETRAINED, "second": PRETRAINED}
    if recipe.pretrain is not None:
        with progress.step("pre-train a BERT from plain text") as step:
            read = bench.pretrain(step, *recipe.pretrain)
            encoders["first"] = str(folder / "bert")
            step.note = (
                f"{read['metrics']['mlm_loss']:.2f} nats a masked token, "
                f"{read['baselines']['unigram_mlm_loss']:.2f} by frequency alone"
            )
    for name, arguments in (("first", recipe.first), ("second", recipe.second)):
        with progress.step(f"train the {name} model") as step:
            report.results[name] = bench.train(step, name, *arguments, encoder=encoders[name])
            step.note = f"macro-F1 {_macro_f1(report.results[name]):.3f}"
        with progress.step(f"package the {name} model") as step:
            package = bench.package(step, name, name, *recipe.package)
        roll_out(package, f"publish and roll out the {name} model", "serving")
        predict(f"predict with the {name} model", name)

    served = account.served_model()
    roll_out(bench.cut_off(package, "torn"), "publish a torn archive", "refused")
    with progress.step("package a broken model") as step:
        broken = _package_broken(step, bench, folder)
        step.note = "refused by the packager's load check, as it should be; packed without it"
    roll_out(broken, "publish the broken model", "rolled-back")
    with progress.step("the former model still serves") as step:
        if account.served_model() != served:
            raise StepFailed(f"the Endpoint stack names {account.served_model()}, not {served}")
        again = account.predict(endpoint, TEXTS)
        if again != report.predictions["second"]:
            raise StepFailed(f"the endpoint answers otherwise than before: {again}")
        step.note = "same answers as before"

    with progress.step("cdk destroy --all") as step:
        account.cdk(step, "destroy", "--all", "--force")
    with progress.step("look for left-overs") as step:
        found = leftovers.find(emulator.client, prefix=settings.prefix)
        report.remains = [str(item) for item in found if not item.expected]
        step.note = f"{len(report.remains)} left" if report.remains else "none"
        if report.remains:
            raise StepFailed("left after destroy: " + "; ".join(report.remains))
    return report


def _package_broken(step: Step, bench: Workbench, folder: Path) -> Package:
    script = folder / "broken_inference.py"
    script.write_text(BROKEN_INFERENCE, encoding="utf-8")
    # What it would need on Graviton is of no account: it loads nowhere.
    arguments = ("--inference", str(script), "--serving-platform", "none")
    try:
        bench.package(step, "broken-checked", "second", *arguments)
    except StepFailed as refusal:
        if "broken on purpose" not in str(refusal):
            raise
    else:
        raise StepFailed("the packager accepted a model that does not load")
    return bench.package(step, "broken", "second", *arguments, "--skip-load-check")


def _write_platform(settings: Settings, bucket: str, folder: Path) -> Path:
    path = folder / "platform.json"
    facts = platform_facts(settings, catalog=load_catalog(), model_bucket=bucket, node_type=None)
    path.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return path


def _macro_f1(results: Mapping[str, Any]) -> float:
    return float(results["metrics"]["macro_f1"])


def summarize(report: Report, *, show: Callable[[str], None]) -> None:
    """Show what the road gave: metrics against baselines, roll-outs, predictions, left-overs."""
    show("\nMetrics on the held-out tweets        accuracy  macro-F1")
    rows = dict(next(iter(report.results.values()))["baselines"]) if report.results else {}
    rows |= {f"{name} model": results["metrics"] for name, results in report.results.items()}
    for name, metrics in rows.items():
        show(
            f"  {name.replace('_', ' '):<34} {metrics['accuracy']:9.3f} {metrics['macro_f1']:9.3f}"
        )
    show("\nRoll-outs")
    for rollout in report.rollouts:
        reason = "" if rollout.verdict == "serving" else f"  {rollout.reason}"
        show(f"  {rollout.name:<8} {rollout.digest[:12]}  {rollout.verdict}{reason}")
    show("\nPredictions of the endpoint")
    for name, predictions in report.predictions.items():
        for item in predictions:
            show(f"  {name:<8} {item.text:<38} {item.label:<9} {item.score:.3f}")
    show(f"\nLeft-overs: {len(report.remains) or 'none'}")
