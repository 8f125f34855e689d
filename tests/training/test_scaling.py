"""The scaling report of finished runs: its figures, its files, and what it refuses."""

from __future__ import annotations

import copy
import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from training.scaling.cli import main
from training.scaling.ring import ring_bytes

pytestmark = pytest.mark.training

PNG = b"\x89PNG\r\n\x1a\n"
LINK = 10e9 / 8  # --link-gbps 10, in bytes a second
Write = Callable[..., Path]
MODEL = {"base_model": "m", "labels": ["a", "b"], "weights_sha256": "0" * 64}


@pytest.fixture
def write(trained: Path, tmp_path: Path) -> Write:
    """Writes the results of a real run, as if it had had other workers and another speed."""
    content = json.loads((trained / "results.json").read_text(encoding="utf-8"))

    def write_run(
        name: str, *, workers: int, rate: float | None, batch: int = 64, **changes: Any
    ) -> Path:
        run = copy.deepcopy(content)
        scaling = changes.pop("scaling", "strong")
        run["settings"]["train"] |= {"scaling": scaling, "batch_size": batch}
        run["parallel"] |= {
            "workers": workers,
            "nodes": changes.pop("nodes", workers),
            "scaling": scaling,
            "batch_size": batch,
        }
        run["speed"]["sequences_per_second"] = rate
        run["time"]["total_seconds"] = 3600.0
        for path, value in changes.items():
            part, _, key = path.partition("__")
            if key:
                run[part][key] = value
            else:
                run[part] = value
        (tmp_path / name).write_text(json.dumps(run), encoding="utf-8")
        return tmp_path / name

    return write_run


def report(output: Path, *runs: Path | str) -> list[dict[str, str]]:
    """The lines of the CSV."""
    assert main(["report", *map(str, runs), "--output", str(output)]) == 0
    with (output / "scaling.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that bad input ends with."""
    assert main(["report", *map(str, arguments)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    return error


def cost(nodes: int) -> dict[str, Any]:
    price = {"instance_type": "trn1.32xlarge", "price_usd_per_hour": 21.5}
    return {**price, "nodes": nodes, "price_date": "2026-11-01", "usd": 21.5 * nodes}


def test_strong_scaling_is_measured_against_the_fewest_workers(
    write: Write, tmp_path: Path
) -> None:
    runs = [
        write("four.json", workers=4, rate=320.0, cost=cost(4)),
        write("one.json", workers=1, rate=100.0, cost=cost(1)),
        write("two.json", workers=2, rate=190.0, cost=cost(2)),
    ]
    rows = [row for row in report(tmp_path / "out", *runs) if row["measured_efficiency"]]
    assert [row["workers"] for row in rows] == ["1", "2", "4"]
    figures = [
        {
            name: float(row[f"measured_{name}"])
            for name in ("speed_up", "efficiency", "hours", "usd")
        }
        for row in rows
    ]
    assert figures == [
        {"speed_up": 1.0, "efficiency": 1.0, "hours": 1.0, "usd": 21.5},
        {"speed_up": 1.9, "efficiency": 0.95, "hours": 1.0, "usd": 43.0},
        {"speed_up": 3.2, "efficiency": 0.8, "hours": 1.0, "usd": 86.0},
    ]
    # A million sequences at 320/s on four nodes of 21.50 USD an hour.
    assert float(rows[2]["measured_usd_per_million"]) == pytest.approx(1e6 / 320 / 3600 * 86)
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "## Strong scaling: a batch of 64 over all workers" in text
    assert "| 4 | 4 |" in text
    assert "| 320 | 3.20 | 80.0% | 60.0 min | 86.0 |" in text
    assert f"Baseline: {runs[1]}, the fewest workers" in text
    for name in ("scaling.png", "cost.png"):
        assert f"![{name}]({name})" in text
        assert (tmp_path / "out" / name).read_bytes().startswith(PNG)


def test_one_baseline_begins_strong_and_weak_scaling(write: Write, tmp_path: Path) -> None:
    rows = report(
        tmp_path / "out",
        write("one.json", workers=2, nodes=1, rate=100.0),
        write("strong.json", workers=4, nodes=1, rate=150.0),
        write("weak.json", workers=4, nodes=1, rate=190.0, batch=128, scaling="weak"),
    )
    measured = [
        (row["scaling"], row["workers"], row["measured_efficiency"])
        for row in rows
        if row["measured_efficiency"]
    ]
    assert measured == [
        ("strong", "2", "1.0"),
        ("strong", "4", "0.75"),
        ("weak", "2", "1.0"),
        ("weak", "4", "0.95"),
    ]


def test_runs_that_follow_the_model_are_as_modelled(write: Write, tmp_path: Path) -> None:
    """Steps made of 10 ms a sequence and the ring's time over links of 10 Gbit/s."""
    parameters = 100_000_000

    def seconds(workers: int) -> float:
        return 64 / workers * 0.01 + ring_bytes(workers, payload=4.0 * parameters) / LINK

    runs = [
        write(
            f"{workers}.json",
            workers=workers,
            rate=64 / seconds(workers),
            model={**MODEL, "parameters": parameters},
        )
        for workers in (2, 4, 8)
    ]
    rows = report(tmp_path / "out", *runs, "--link-gbps", "10")
    pairs = [
        (float(row["modelled_sequences_per_second"]), float(row["measured_sequences_per_second"]))
        for row in rows
        if row["measured_efficiency"]
    ]
    assert len(pairs) == 3
    assert all(modelled == pytest.approx(measured) for modelled, measured in pairs)
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "100,000,000 parameters x 4 bytes / 10 Gbit/s, over n nodes; the links as given" in text


def test_the_links_of_trn1_are_known(write: Write, tmp_path: Path) -> None:
    runs = [
        write(f"{nodes}.json", workers=nodes, rate=100.0 * nodes, cost=cost(nodes))
        for nodes in (1, 2)
    ]
    rows = report(tmp_path / "out", *runs)
    assert all(row["modelled_efficiency"] for row in rows if row["measured_efficiency"])
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "800 Gbit/s, over n nodes; the links at the line rate of trn1.32xlarge" in text


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [((1, 1), "all is one node"), ((1, 2), "the runs name no instance whose links are known")],
)
def test_nothing_is_modelled_without_links(
    write: Write, tmp_path: Path, nodes: tuple[int, int], reason: str
) -> None:
    runs = [
        write(f"{workers}.json", workers=workers, nodes=count, rate=100.0 * workers)
        for workers, count in zip((1, 2), nodes, strict=True)
    ]
    rows = report(tmp_path / "out", *runs)
    assert not any(row["modelled_sequences_per_second"] for row in rows)
    assert reason in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")


def test_measured_modelled_and_published_are_kept_apart(write: Write, tmp_path: Path) -> None:
    runs = [write(f"{count}.json", workers=count, rate=100.0 * count) for count in (1, 2)]
    rows = report(tmp_path / "out", *runs, "--link-gbps", "10")
    for row in rows:
        kinds = {name.partition("_")[0] for name, value in row.items() if value and "_" in name}
        assert kinds in ({"measured", "modelled"}, {"published"})
        assert ("aws-neuron-sdk" in row["source"]) == (kinds == {"published"})
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    mine, published = text.split("## Published by AWS")
    assert "measured sequences/s" in mine
    assert "modelled sequences/s" in mine
    assert "published" not in mine
    assert "| 2.28 | 1 | 16 | weak | LAMB | BF16+SR | 1,048,576 | 57,408 | 93.8% |" in published


def test_a_report_without_matplotlib_has_no_pictures(
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    runs = [write(f"{count}.json", workers=count, rate=100.0 * count) for count in (1, 2)]
    report(tmp_path / "out", *runs)
    assert "no pictures: matplotlib is not installed" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "report.md",
        "scaling.csv",
    ]


def test_files_that_are_no_results_are_all_named(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = write("good.json", workers=1, rate=100.0)
    (tmp_path / "text.json").write_text("<html>not found</html>", encoding="utf-8")
    (tmp_path / "deep.json").write_text("[" * 100_000, encoding="utf-8")
    (tmp_path / "other.json").write_text('{"schema_version": 1}', encoding="utf-8")
    zero = write("zero.json", workers=0, nodes=1, rate=100.0)
    short = write("short.json", workers=2, rate=None)
    endless = write("endless.json", workers=2, rate=float("nan"))
    names = ("text.json", "deep.json", "other.json", "missing.json")
    bad = [tmp_path / name for name in names]
    error = refusal(capsys, good, *bad, zero, short, endless, "--output", tmp_path / "out")
    for name in ("text.json", "deep.json", "missing.json"):
        assert f"cannot read {tmp_path / name}" in error
    assert "other.json does not follow results.schema.json: " in error
    assert "zero.json does not follow results.schema.json: $.parallel.workers: 0 is less" in error
    assert "short.json has no speed: since its last start no step after the warm-up" in error
    assert "endless.json has figures that no run has, such as a speed of nan" in error
    assert not (tmp_path / "out").exists()


def test_runs_that_cannot_be_compared_are_all_named_with_what_differs(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hardware = {
        "device": "cuda",
        "name": "H100",
        "machine": "x86_64",
        "logical_cores": 2,
        "threads": 1,
        "precision": "bf16",
        "precision_reason": "asked for",
        "peak_memory_bytes": 1,
    }
    runs = [
        write("base.json", workers=1, rate=100.0),
        write("precision.json", workers=2, rate=190.0, hardware=hardware),
        write("batch.json", workers=4, rate=350.0, batch=128),
        write("model.json", workers=8, rate=700.0, model={**MODEL, "parameters": 7}),
        write("weak.json", workers=2, rate=190.0, batch=128, scaling="weak"),
        write("weaker.json", workers=4, rate=190.0, batch=128, scaling="weak"),
    ]
    error = refusal(capsys, *runs, "--output", tmp_path / "out")
    base = tmp_path / "base.json"
    assert f"precision.json cannot be compared with {base}: hardware.device is 'cuda'" in error
    assert "hardware.precision is 'bf16', not 'fp32'" in error
    assert (
        f"batch.json cannot be compared with {base} under strong scaling: a batch of 128" in error
    )
    assert f"model.json cannot be compared with {base}: model.base_model is 'm', not " in error
    assert "model.parameters is 7, not " in error
    assert f"weaker.json cannot be compared with {base} under weak scaling: a batch of 32" in error


def test_one_run_and_equal_runs_are_refused(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = write("one.json", workers=1, rate=100.0)
    two = write("two.json", workers=2, rate=190.0)
    again = write("again.json", workers=2, rate=180.0)
    output = ("--output", tmp_path / "out")
    assert "one.json is the only run of strong scaling; give two" in refusal(capsys, one, *output)
    assert f"{one} is given twice" in refusal(capsys, one, one, *output)
    error = refusal(capsys, one, two, again, *output)
    assert f"{again} and {two} both have 2 workers; leave one of them out" in error


def test_a_link_slower_than_the_baseline_can_have_is_refused(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [write(f"{count}.json", workers=count, rate=1e6) for count in (2, 4)]
    error = refusal(capsys, *runs, "--link-gbps", "1e-6", "--output", tmp_path / "out")
    assert "alone take longer than a step" in error
    with pytest.raises(SystemExit):
        main(["report", *map(str, runs), "--link-gbps", "-1", "--output", str(tmp_path / "out")])
    assert "'-1' is not a number from 0.000001 to 1,000,000" in capsys.readouterr().err


def test_a_used_output_is_refused(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [write(f"{count}.json", workers=count, rate=100.0) for count in (1, 2)]
    assert "holds something already; give a new folder for the report" in refusal(
        capsys, *runs, "--output", tmp_path
    )
