"""A run as a user sees it: progress, results, the saved model; that it learns, stops and goes on."""

from __future__ import annotations

import csv
import functools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertModel,
)

from tests.training import ranks
from training.command import InputError
from training.core.loop import schedule
from training.core.results import SCHEMA
from training.files import check_schema
from training.packaging import inference
from training.roberta_sentiment import ask, scoring
from training.roberta_sentiment import model as classifier
from training.roberta_sentiment.cli import main
from training.roberta_sentiment.dataset import read_dataset
from training.roberta_sentiment.tables import LABELS
from training.roberta_sentiment.task import Encoded, SentimentTask, class_weights
from training.roberta_sentiment.text import plain

pytestmark = pytest.mark.training

ROOT = Path(__file__).parents[2]


def losses(folder: Path) -> list[float]:
    """The losses of all steps, from the file that a run leaves."""
    with (folder / "steps.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(1, len(rows) + 1))
    return [float(row["loss"]) for row in rows]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")  # type: ignore[no-any-return]


def same(one: Path, other: Path) -> bool:
    first, second = weights(one), weights(other)
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture
def tuned(encoder: Path, tweets: Path, tmp_path: Path, run_arguments: Any) -> Any:
    """Runs the command with some more arguments; the folder that it leaves."""

    def tune(name: str, *more: str) -> Path:
        assert main(run_arguments(encoder, tweets, tmp_path / name, *more)) == 0
        return tmp_path / name

    return tune


def test_the_loss_falls(trained: Path) -> None:
    values = losses(trained)
    assert sum(values[:3]) / 3 == pytest.approx(math.log(3), abs=0.2)
    assert sum(values[-5:]) / 5 < 0.5 * sum(values[:3]) / 3


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tuned: Any) -> None:
    runs = [
        tuned(f"{number}", "--max-steps", "6", "--seed", seed)
        for number, seed in enumerate(("3", "3", "4"))
    ]
    assert losses(runs[0]) == losses(runs[1]) != losses(runs[2])
    assert same(runs[0], runs[1])
    assert not same(runs[0], runs[2])


def test_both_optimizers_do_the_same(tuned: Any) -> None:
    fused, plain_one = (
        losses(tuned(name, "--max-steps", "6", "--optimizer", name))
        for name in ("fused-adamw", "adamw")
    )
    assert fused == pytest.approx(plain_one, rel=1e-3)


def test_bf16_learns_like_fp32(tuned: Any) -> None:
    half = losses(tuned("half", "--max-steps", "6", "--precision", "bf16"))
    full = losses(tuned("full", "--max-steps", "6"))
    assert half != full
    assert half == pytest.approx(full, abs=0.1)


def test_a_compiled_model_learns_the_same(tuned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Captures the graph of the model, as every backend of torch.compile does; what the default one
    # makes of a graph takes it a minute of C++ compilation.
    capture = functools.partial(torch.compile, backend="eager")
    monkeypatch.setattr(torch, "compile", capture)
    compiled = losses(tuned("compiled", "--max-steps", "3", "--compile"))
    # A compiled model gets texts of one width, and dropout draws other numbers for another width.
    eager = losses(tuned("eager", "--max-steps", "3", "--set", "text.padding=fixed"))
    assert compiled == pytest.approx(eager, abs=0.2)


def test_a_loss_that_is_not_a_number_ends_the_run_with_advice(
    encoder: Path,
    tweets: Path,
    tmp_path: Path,
    run_arguments: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = SentimentTask.loss

    def spoilt(*given: Any) -> Any:
        loss, weight = original(*given)
        return loss * math.nan, weight

    monkeypatch.setattr(SentimentTask, "loss", spoilt)
    assert main(run_arguments(encoder, tweets, tmp_path / "out")) == 2
    error = capsys.readouterr().err
    assert error == "error: the loss is nan at step 1; try a lower --learning-rate than 0.01\n"


def test_the_loss_is_the_weighted_mean_over_all_parts_of_a_batch() -> None:
    logits = torch.tensor([[2.0, 0.5, -1.0]])
    labels, share = [0, 0, 0, 0, 1, 2], (0.5, 3.0, 2.0)

    class Fixed(torch.nn.Module):
        """Answers the same whatever it is asked."""

        def get_input_embeddings(self) -> Any:
            return torch.nn.Embedding(1, 1)

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
            return SimpleNamespace(logits=logits.expand(len(input_ids), 3))

    examples = [Encoded((1,), label) for label in labels]
    task = SentimentTask(Fixed(), examples, weights=torch.tensor(share), pad=0)
    parts = [task.loss(task.model, task.collate(rows, 8)) for rows in ([0, 1], [2, 3, 4, 5, -1])]
    mean = sum(loss for loss, _ in parts) / sum(weight for _, weight in parts)
    expected = torch.nn.functional.cross_entropy(
        logits.expand(6, 3), torch.tensor(labels), weight=torch.tensor(share)
    )
    assert float(mean) == pytest.approx(expected.item(), rel=1e-6)


def test_the_learning_rate_rises_then_falls_to_almost_nothing() -> None:
    shares = [schedule(step, steps=100, warm_up=0.1) for step in range(100)]
    assert shares[0] == pytest.approx(0.1)
    assert shares.index(max(shares)) in (9, 10)
    assert max(shares) == 1
    assert shares[10:] == sorted(shares[10:], reverse=True)
    assert 0 < shares[-1] < 0.02
    assert schedule(0, steps=1, warm_up=0.1) == 1
    assert schedule(0, steps=9, warm_up=0) == 1


def test_class_weights_give_each_label_the_same_share() -> None:
    given = class_weights([0, 1, 1, 2, 2, 2], classes=3)
    assert given == pytest.approx((2, 1, 2 / 3))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@jane and @bob_2: see https://t.co/x http://a.b", "@user and @user see http http"),
        ("mail me@home @ nine", "mail me@home @ nine"),
        ("no names", "no names"),
        ("two  spaces\n@x", "two  spaces\n@x"),
    ],
)
def test_names_and_links_become_plain_in_training_as_in_serving(text: str, expected: str) -> None:
    assert plain(text) == inference.plain(text) == expected


def test_the_served_model_sees_what_the_trained_one_saw(trained: Path, tuned: Any) -> None:
    def score(folder: Path, text: str) -> float:
        return float(inference.predict([text], inference.model_fn(str(folder)))[0]["score"])

    assert score(trained, "good @jane http://x") == score(trained, "good @user http")
    kept = tuned("kept", "--max-steps", "5", "--set", "text.names_and_links=keep")
    assert score(kept, "good @jane http://x") != score(kept, "good @user http")


@pytest.mark.case("T02")
def test_two_epochs_and_the_evaluation_see_one_shape_each(
    tuned: Any, tweets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: dict[bool, set[tuple[int, ...]]] = {True: set(), False: set()}
    load = classifier.load

    def watched(source: Any) -> Any:
        model, tokenizer = load(source)
        model.register_forward_pre_hook(
            lambda module, _, given: shapes[module.training].add(tuple(given["input_ids"].shape)),
            with_kwargs=True,
        )
        return model, tokenizer

    monkeypatch.setattr(classifier, "load", watched)
    steps = 2 * -(-len(read_dataset(tweets).train) // 32)
    more = ("--max-steps", str(steps), "--max-length", "24", "--set", "text.padding=fixed")
    folder = tuned("fixed", *more)
    assert shapes == {True: {(32, 24)}, False: {(scoring.EVALUATION_BATCH, 24)}}
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert results["time"]["samples"] == 2 * len(read_dataset(tweets).train)


@pytest.mark.parametrize("phase", ["training", "scoring"])
def test_a_stopped_run_goes_on_to_the_same_bits(
    encoder: Path,
    tweets: Path,
    tmp_path: Path,
    run_arguments: Any,
    tuned: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    phase: str,
) -> None:
    whole = tuned("whole", "--max-steps", "12")
    arguments = run_arguments(encoder, tweets, tmp_path / "cut", "--max-steps", "12")
    owner, name = {"training": (SentimentTask, "loss"), "scoring": (scoring, "predict")}[phase]
    original, calls = getattr(owner, name), []

    def interrupted(*given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == (5 if phase == "training" else 1):
            os.kill(os.getpid(), signal.SIGTERM)
        return original(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        assert main(arguments) == 75
    assert not (tmp_path / "cut").exists()
    step = {"training": 6, "scoring": 12}[phase]
    kept = [path.name for path in (tmp_path / "cut.run" / "checkpoints").glob("step-*")]
    assert kept == [f"step-{step:08d}"]
    capsys.readouterr()
    assert main(arguments) == 0
    assert f"going on after step {step} of 12" in capsys.readouterr().out
    assert not (tmp_path / "cut.run").exists()
    assert same(whole, tmp_path / "cut")
    assert losses(tmp_path / "cut") == losses(whole)
    results = json.loads((tmp_path / "cut" / "results.json").read_text(encoding="utf-8"))
    assert (results["time"]["starts"], results["time"]["steps"]) == (2, 12)


def test_other_settings_do_not_go_on_from_the_checkpoint(
    encoder: Path,
    tweets: Path,
    tmp_path: Path,
    run_arguments: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = run_arguments(encoder, tweets, tmp_path / "out")
    (tmp_path / "out.run").mkdir()
    (tmp_path / "out.run" / "stop").touch()
    assert main(arguments) == 75
    assert not (tmp_path / "out.run" / "stop").exists()
    assert "stopped after step 0 of 40" in capsys.readouterr().out
    assert main([*arguments, "--seed", "1"]) == 2
    assert "another run: train.seed was 0 and is 1" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["roberta", "bert"])
def test_a_model_without_a_tokenizer_is_refused(
    encoder: Path,
    tweets: Path,
    tmp_path: Path,
    run_arguments: Any,
    capsys: pytest.CaptureFixture[str],
    kind: str,
) -> None:
    model = tmp_path / "bare"
    model.mkdir()
    if kind == "roberta":
        for name in ("config.json", "model.safetensors"):
            shutil.copy(encoder / name, model)
    else:
        sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
        BertModel(BertConfig(vocab_size=40, intermediate_size=8, **sizes)).save_pretrained(model)
    assert main(run_arguments(model, tweets, tmp_path / "out")) == 2
    assert capsys.readouterr().err.startswith("error: the tokenizer of bare knows no words; put ")


def test_a_second_run_on_one_output_is_refused_until_the_first_is_gone(
    encoder: Path,
    tweets: Path,
    tmp_path: Path,
    run_arguments: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = run_arguments(encoder, tweets, tmp_path / "out", "--max-steps", "2")
    (tmp_path / "out.run").mkdir()
    script = """
import sys, time
from pathlib import Path
from training.files import locked
with locked(Path(sys.argv[1]), refusal=""):
    print("held", flush=True)
    time.sleep(600)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "out.run" / "lock")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            assert main(arguments) == 2
        finally:
            holder.kill()
    error = capsys.readouterr().err
    assert error.startswith(f"error: another run is writing to {tmp_path / 'out'}; ")
    assert error.count("\n") == 1
    assert [path.name for path in (tmp_path / "out.run").iterdir()] == ["lock"]
    assert main(arguments) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_another_model_in_the_same_folder_does_not_go_on_from_the_checkpoint(
    encoder: Path,
    tweets: Path,
    tmp_path: Path,
    run_arguments: Any,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    model = shutil.copytree(encoder, tmp_path / "model")
    arguments = run_arguments(model, tweets, tmp_path / "out", "--max-steps", "2")
    (tmp_path / "out.run").mkdir()
    (tmp_path / "out.run" / "stop").touch()
    assert main(arguments) == 75
    content = (model / name).read_bytes()
    if name == "model.safetensors":
        (model / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    else:
        (model / name).write_bytes(content + b"\n")
    assert main(arguments) == 2
    assert "another run: model.files was " in capsys.readouterr().err
    (model / name).write_bytes(content)
    assert main(arguments) == 0


def tune_with_signal(arguments: list[str], rank: int) -> int:
    """Run the command; one worker gets a signal while it scores."""
    original = scoring.predict

    def interrupted(*given: Any, **named: Any) -> Any:
        if os.environ["RANK"] == str(rank):
            os.kill(os.getpid(), signal.SIGTERM)
        return original(*given, **named)

    scoring.predict = interrupted
    return main(arguments)


def test_a_signal_to_one_worker_while_scoring_stops_all(
    encoder: Path, tweets: Path, tmp_path: Path, run_arguments: Any
) -> None:
    arguments = run_arguments(encoder, tweets, tmp_path / "out", "--max-steps", "2")
    workers = ranks.start(2, tune_with_signal, arguments, 1)
    assert [worker.code() for worker in workers] == [75, 75]
    kept = [path.name for path in (tmp_path / "out.run" / "checkpoints").glob("step-*")]
    assert kept == ["step-00000002"]
    workers = ranks.start(2, tune_with_signal, arguments, -1)
    assert [worker.code() for worker in workers] == [0, 0]
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_torchrun_trains_the_same_with_two_workers(
    encoder: Path, tweets: Path, tmp_path: Path, run_arguments: Any, tuned: Any
) -> None:
    # The same micro-batches get the same dropout, whoever computes them.
    more = ("--max-steps", "4", "--set", "train.micro_batch_size=8")
    arguments = run_arguments(encoder, tweets, tmp_path / "two", *more)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*torchrun, "--nproc-per-node", "2", "-m", "training.roberta_sentiment", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("model and results.json are in") == 1
    assert losses(tmp_path / "two") == pytest.approx(losses(tuned("one", *more)), rel=1e-4)
    results = json.loads((tmp_path / "two" / "results.json").read_text(encoding="utf-8"))
    parallel = results["parallel"]
    assert (parallel["workers"], parallel["nodes"], parallel["accumulate"]) == (2, 1, 2)


def test_the_results_hold_what_the_schema_asks_and_the_truth(trained: Path, tweets: Path) -> None:
    results = json.loads((trained / "results.json").read_text(encoding="utf-8"))
    check_schema(results, schema=SCHEMA, name="results.json")
    assert results["metrics"]["macro_f1"] > 0.9 > 0.5 > results["baselines"]["majority"]["macro_f1"]
    dataset = read_dataset(tweets)
    # 40 steps are five epochs of seven batches, the last of each smaller, and five batches.
    assert results["time"]["steps"] == 40
    assert 0 <= 5 * len(dataset.train) + 5 * 32 - results["time"]["samples"] < 32
    counted = results["dataset"]["test"]
    assert counted["texts"] == len(dataset.test) == sum(counted[label] for label in LABELS)
    assert [sum(row) for row in results["confusion"]] == [counted[label] for label in LABELS]
    right = sum(results["confusion"][label][label] for label in range(3))
    assert right / len(dataset.test) == pytest.approx(results["metrics"]["accuracy"], abs=1e-4)
    assert results["hardware"]["precision_reason"] == "asked for"
    assert results["cost"] is None
    assert results["speed"]["measured_steps"] == 35
    assert 0 < results["speed"]["mfu"] < 1
    assert str(trained.parent) not in json.dumps(results)


def test_a_result_that_breaks_the_schema_is_told_with_every_problem(trained: Path) -> None:
    results = json.loads((trained / "results.json").read_text(encoding="utf-8"))
    results["metrics"]["accuracy"] = 1.5
    results["colour"] = "good"
    with pytest.raises(InputError) as caught:
        check_schema(results, schema=SCHEMA, name="results.json")
    assert "accuracy" in str(caught.value)
    assert "colour" in str(caught.value)


def test_the_cost_follows_from_the_price_of_the_platform(tuned: Any, tmp_path: Path) -> None:
    site = tmp_path / "platform.json"
    instance = {"type": "g6.xlarge", "price_usd_per_hour": 3600.0, "price_date": "2026-11-01"}
    site.write_text(json.dumps({"instance": instance}), encoding="utf-8")
    folder = tuned("out", "--max-steps", "2", "--platform", str(site))
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    cost = results["cost"]
    assert (cost["instance_type"], cost["nodes"], cost["price_date"]) == (
        "g6.xlarge",
        1,
        "2026-11-01",
    )
    assert cost["usd"] == pytest.approx(results["time"]["total_seconds"], abs=0.02)


@pytest.mark.case("M05")
def test_the_saved_model_is_plain_tensors_that_know_their_labels(trained: Path) -> None:
    kinds = {".json", ".safetensors", ".txt", ".csv", ".png", ""}
    assert {path.suffix for path in trained.iterdir()} <= kinds
    with safe_open(trained / "model.safetensors", framework="pt") as file:
        found = {file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118
    assert found == {torch.float32}
    model = AutoModelForSequenceClassification.from_pretrained(trained, local_files_only=True)
    assert model.config.id2label == {0: "negative", 1: "neutral", 2: "positive"}
    tokenizer = AutoTokenizer.from_pretrained(trained, local_files_only=True)
    # 66 positions, of which RoBERTa never uses the first two.
    assert tokenizer.model_max_length == 64
    ids = tokenizer(["happy " * 500], truncation=True, return_tensors="pt")
    assert model(**ids).logits.shape == (1, 3)


def test_a_model_that_was_saved_wrongly_is_not_kept(
    encoder: Path,
    tweets: Path,
    tmp_path: Path,
    run_arguments: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save = classifier.save

    def spoilt(model: Any, tokenizer: Any, folder: Path) -> None:
        with torch.no_grad():
            model.classifier.out_proj.weight.neg_()
        save(model, tokenizer, folder)

    monkeypatch.setattr(classifier, "save", spoilt)
    assert main(run_arguments(encoder, tweets, tmp_path / "out")) == 2
    assert "another label than the trained one; do not serve it" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_trained_model_can_be_asked(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask.main(["--model", str(trained), "good lovely happy", "awful sad broken"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["positive", "negative"]
    assert all(0.5 < float(row[1]) <= 1 for row in rows)
    assert ask.main(["--model", str(trained.parent), "good"]) == 2
    assert "no model folder" in capsys.readouterr().err


def test_the_confusion_matrix_is_a_picture(trained: Path) -> None:
    pytest.importorskip("matplotlib", reason="the lock of the environment has it")
    content = (trained / "confusion.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(content) > 10_000


def test_tensorboard_gets_every_step(trained: Path) -> None:
    pytest.importorskip("tensorboardX", reason="the lock of the environment has it")
    from tensorboardX.proto.event_pb2 import Event

    (path,) = (trained / "tensorboard").iterdir()
    content, at = path.read_bytes(), 0
    found: dict[str, dict[int, float]] = {}
    while at < len(content):  # length, its check, the event, its check
        size = int.from_bytes(content[at : at + 8], "little")
        event = Event.FromString(content[at + 12 : at + 12 + size])
        at += 16 + size
        for value in event.summary.value:
            found.setdefault(value.tag, {})[event.step] = value.simple_value
    assert list(found["train/loss"].values()) == pytest.approx(losses(trained), rel=1e-6)
    results = json.loads((trained / "results.json").read_text(encoding="utf-8"))
    assert found["test/macro_f1"] == {40: pytest.approx(results["metrics"]["macro_f1"], abs=1e-6)}


def test_a_run_shows_its_precision_progress_and_a_table(
    encoder: Path,
    tweets: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    run_arguments: Any,
) -> None:
    arguments = run_arguments(encoder, tweets, tmp_path / "out", "--max-steps", "20")
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "precision fp32: asked for" in shown
    assert f"model and results.json are in {tmp_path / 'out'}" in shown
    steps = re.findall(
        r"^step (\d+)/20  loss [\d.]+  learning rate [\d.e-]+  \d+ samples/s  \d+:\d\d left$",
        shown,
        re.MULTILINE,
    )
    assert [int(step) for step in steps] == [1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]
    for row in ("majority (", "VADER lexicon", "this model"):
        assert re.search(rf"^{re.escape(row)}.*(\s+\d\.\d{{3}}){{3}}$", shown, re.MULTILINE)
