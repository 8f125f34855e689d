"""The estimate of a pre-training: its range, what it rests on, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from training.scaling.cli import main
from training.scaling.estimate import Range, estimate, fit, half, payload
from training.scaling.estimate_text import as_range
from training.scaling.published import Published, PublishedRun, read_published
from training.scaling.recipes import read_recipes
from training.scaling.ring import StepModel

pytestmark = pytest.mark.training

PUBLISHED = read_published()
TRN1 = PUBLISHED.instances["trn1.32xlarge"]


def published_run(**changes: object) -> PublishedRun:
    given: dict[str, object] = {
        **{"release": PUBLISHED.fit_release, "phase": 1, "nodes": 1, "scaling": "strong"},
        **{"optimizer": "AdamW", "precision": "BF16+SR", "batch": 16_384, "micro": 16, "rate": 1.0},
    }
    return PublishedRun(**(given | changes))  # type: ignore[arg-type]


def test_the_fit_finds_the_figures_that_made_the_runs() -> None:
    bandwidth, fixed = 20e9, 0.3

    def run(nodes: int, accumulate: int, unit: float, scaling: str) -> PublishedRun:
        batch = nodes * TRN1.workers * 16 * accumulate
        model = StepModel(
            unit_seconds=unit,
            step_seconds=fixed,
            payload=payload(PUBLISHED),
            bytes_per_second=bandwidth,
        )
        rate = batch / model.seconds(nodes=nodes, units=accumulate)
        return published_run(nodes=nodes, batch=batch, rate=rate, scaling=scaling)

    made: Published = replace(
        PUBLISHED,
        runs=[
            run(16, 128, 0.15, "weak"),
            run(16, 2, 0.15, "strong"),
            run(1, 32, 0.14, "strong"),
            run(1, 128, 0.14, "strong"),
        ],
    )
    found = fit(made, workers=TRN1.workers)
    assert found.step_seconds == pytest.approx(fixed)
    assert found.bytes_per_second == pytest.approx(bandwidth)


@pytest.mark.parametrize(
    "run",
    [one for phase in (1, 2) for one in half(PUBLISHED, phase)],
    ids=lambda one: f"{one.release}-phase{one.phase}-{one.nodes}-{one.scaling}-{one.optimizer}",
)
def test_every_published_run_lies_in_the_range_of_its_like(run: PublishedRun) -> None:
    likes = [
        part.rate
        for recipe in read_recipes()
        for scaling in ("strong", "weak")
        for one in estimate([run.nodes], instance=TRN1, recipe=recipe, scaling=scaling, price=1.0)
        for part in one.parts
        if (part.phase, part.batch) == (run.phase, run.batch)
    ]
    assert likes
    assert all(rate.low <= run.rate * 1.000001 <= rate.high * 1.000002 for rate in likes)


def test_more_nodes_are_faster_and_cost_more_under_strong_scaling() -> None:
    counts = [1, 2, 4, 8, 16, 32, 64, 128]
    found = estimate(counts, instance=TRN1, recipe="lamb", scaling="strong", price=21.5)
    for end in ("low", "high"):
        hours = [getattr(one.hours, end) for one in found]
        usd = [getattr(one.usd, end) for one in found]
        assert hours == sorted(hours, reverse=True)
        assert usd == sorted(usd)
        assert usd[4] == pytest.approx(hours[4] * 16 * 21.5)
    assert [part.accumulate for part in found[-1].parts] == [1, 4]
    assert [part.batch for part in found[-1].parts] == [65_536, 32_768]


def test_weak_scaling_sees_as_many_sequences_in_fewer_steps_at_a_higher_rate() -> None:
    (one,) = estimate([16], instance=TRN1, recipe="lamb", scaling="weak", price=1.0)
    first = one.parts[0]
    assert first.batch == 1_048_576
    assert first.steps == math.ceil(7_032 / 16)
    assert first.learning_rate == pytest.approx(4 * 6e-3)
    assert first.accumulate == 128


def test_ranges_have_two_digits_and_never_shrink() -> None:
    assert as_range(Range(low=4.378, high=5.234)) == "4.3-5.3"
    assert as_range(Range(low=5.3, high=5.3)) == "5.3-5.3"
    assert as_range(Range(low=41_191, high=52_708)) == "41,000-53,000"
    assert as_range(Range(low=0.921, high=0.99)) == "0.92-0.99"


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["estimate", *arguments]) == 0
    return capsys.readouterr().out


def test_the_answer_says_what_it_rests_on(capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(capsys, "--nodes", "16", "1", "16")
    assert "modelled, not measured" in text.splitlines()[0]
    rows = [line.split() for line in text.splitlines() if " all " in line]
    assert [row[0] for row in rows] == ["1", "16"]
    assert all("-" in figure for row in rows for figure in row[2:])
    for kind in ("published", "data sheet", "modelled", "assumed", "price", "left out"):
        assert f"\n  {kind} " in text
    assert "21.50 USD an hour and node, on demand, 2026-11-01, AWS's price list" in text
    assert "nothing here was measured on Trn1" in text
    assert "no such run was published" not in text
    assert "square root" not in text


def test_the_page_shows_what_the_command_answers(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
    assert "-m training.scaling estimate --nodes 1 16\n" in page
    table = answer(capsys, "--nodes", "1", "16").split("\n\n")[1]
    assert f"```\n{table}\n```" in page


def test_the_answer_says_what_it_assumes(capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(capsys, "--nodes", "64", "--scaling", "weak", "--price", "10")
    assert "more than 16 nodes behave like 16: no such run was published" in text
    assert "square root of the nodes, in phase 1 on 64 0.048; nobody has shown" in text
    assert "10.00 USD an hour and node, as given" in text
    assert "found in no price list" in answer(
        capsys, "--nodes", "1", "--instance", "trn1n.32xlarge"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nodes", "0"], "0 nodes cannot train; give 1 or more"),
        (["--nodes", "-2"], "-2 nodes cannot train; give 1 or more"),
        (
            ["--nodes", "3", "24", "0"],
            "0 nodes cannot train; give 1 or more; 3 nodes of 32 workers cannot share batches of "
            "65,536 and 32,768 evenly in micro-batches of 16 and 2; nearest numbers of nodes: 2 "
            "and 4, or --scaling weak; 24 nodes of 32 workers cannot share",
        ),
        (["--nodes", "129"], "nearest numbers of nodes: 128, or --scaling weak"),
        (["--nodes", "64", "--recipe", "adamw"], "nearest numbers of nodes: 32, or"),
        (["--nodes", "2000", "--scaling", "weak"], "1,563 nodes are the most"),
        (["--nodes", "many"], "invalid int value: 'many'"),
        (["--nodes", "1", "--price", "0"], "'0' is not a number from 0.000001 to 1,000,000"),
        (["--nodes", "1", "--price", "1e-320"], "'1e-320' is not a number from"),
        (["--nodes", "1", "--price", "cheap"], "'cheap' is not a number from"),
        (["--nodes", "1", "--price", "inf"], "'inf' is not a number from 0.000001 to 1,000,000"),
        (["--nodes", "1", "--instance", "p5.48xlarge"], "invalid choice: 'p5.48xlarge'"),
        ([], "the following arguments are required: --nodes"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["estimate", *arguments])
    except SystemExit as end:
        code = int(end.code or 0)
    error = capsys.readouterr().err
    assert code == 2
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message in error


def test_published_batches_are_whole_micro_batches_of_known_sources() -> None:
    for run in PUBLISHED.runs:
        assert run.batch == run.accumulate(TRN1.workers) * run.nodes * TRN1.workers * run.micro
        assert run.release in PUBLISHED.sources
