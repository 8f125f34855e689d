"""A run as a user sees it: progress, results, the saved model; and that it learns, repeatably."""

from __future__ import annotations

import functools
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from training.backend import choose_backend
from training.command import InputError
from training.files import check_schema
from training.roberta_sentiment import model as classifier
from training.roberta_sentiment.batches import Encoded, encode
from training.roberta_sentiment.cli import main
from training.roberta_sentiment.dataset import read_dataset
from training.roberta_sentiment.tables import LABELS
from training.roberta_sentiment.loop import Plan, Progress, class_weights, schedule, train
from training.roberta_sentiment.results import SCHEMA
from training.roberta_sentiment.settings import find_model

pytestmark = pytest.mark.training


def run_loop(encoder: Path, tweets: Path, **changes: Any) -> tuple[list[Progress], torch.Tensor]:
    """Progress of a short loop on the tiny encoder, and its final weights as one vector."""
    given: dict[str, Any] = {
        "seed": 0,
        "learning_rate": 0.01,
        "compile": False,
        "optimizer": "fused-adamw",
    }
    given |= {"steps": 30, "batch_size": 16} | changes
    torch.manual_seed(given["seed"])
    model, tokenizer = classifier.load(find_model(str(encoder)))
    examples = encode(read_dataset(tweets).train, tokenizer=tokenizer, max_length=32)
    labels = [example.label for example in examples]
    plan = Plan(class_weights=class_weights(labels, classes=3), **given)
    lines: list[Progress] = []
    pad = tokenizer.pad_token_id
    train(model, examples, plan=plan, backend=choose_backend("fp32"), pad=pad, report=lines.append)
    return lines, torch.cat([tensor.detach().flatten() for tensor in model.parameters()])


def test_the_loss_falls(encoder: Path, tweets: Path) -> None:
    lines, _ = run_loop(encoder, tweets)
    first = sum(line.loss for line in lines[:5]) / 5
    last = sum(line.loss for line in lines[-5:]) / 5
    assert first == pytest.approx(math.log(3), abs=0.2)
    assert last < 0.5 * first


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(
    encoder: Path, tweets: Path
) -> None:
    runs = [run_loop(encoder, tweets, steps=6, seed=seed) for seed in (3, 3, 4)]
    losses = [[line.loss for line in lines] for lines, _ in runs]
    assert losses[0] == losses[1] != losses[2]
    assert torch.equal(runs[0][1], runs[1][1])
    assert not torch.equal(runs[0][1], runs[2][1])


def test_both_optimizers_do_the_same(encoder: Path, tweets: Path) -> None:
    fused, plain = (
        [line.loss for line in run_loop(encoder, tweets, steps=6, optimizer=name)[0]]
        for name in ("fused-adamw", "adamw")
    )
    assert fused == pytest.approx(plain, rel=1e-3)


def test_a_compiled_model_learns_the_same(
    encoder: Path, tweets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Captures the graph of the model, as every backend of torch.compile does; what the default one
    # makes of a graph takes it a minute of C++ compilation.
    capture = functools.partial(torch.compile, backend="eager")
    monkeypatch.setattr(torch, "compile", capture)
    compiled, plain = (
        [line.loss for line in run_loop(encoder, tweets, steps=3, compile=flag)[0]]
        for flag in (True, False)
    )
    # Dropout may draw other numbers once compiled, so the losses are near, and need not be equal.
    assert compiled == pytest.approx(plain, abs=0.2)


def test_a_loss_that_is_not_a_number_ends_the_run_with_advice(encoder: Path, tweets: Path) -> None:
    with pytest.raises(InputError, match=r"loss is nan at step \d+; try a lower --learning-rate"):
        run_loop(encoder, tweets, learning_rate=1e30)


def test_the_loss_is_the_weighted_mean_over_the_whole_batch() -> None:
    logits = torch.tensor([[2.0, 0.5, -1.0]])

    class Fixed(torch.nn.Module):
        """Answers the same whatever it is asked."""

        def __init__(self) -> None:
            super().__init__()
            self.logits = torch.nn.Parameter(logits.clone())

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
            return SimpleNamespace(logits=self.logits.expand(len(input_ids), 3))

    labels = [0, 0, 0, 0, 1, 2]
    weights = (0.5, 3.0, 2.0)
    plan = Plan(
        steps=1,
        batch_size=6,
        learning_rate=0.1,
        seed=0,
        class_weights=weights,
        compile=False,
        optimizer="adamw",
    )
    seen: list[Progress] = []
    examples = [Encoded((1,), label) for label in labels]
    backend = choose_backend("fp32")
    train(Fixed(), examples, plan=plan, backend=backend, pad=0, report=seen.append)
    expected = torch.nn.functional.cross_entropy(
        logits.expand(6, 3), torch.tensor(labels), weight=torch.tensor(weights)
    )
    assert seen[0].loss == pytest.approx(expected.item(), rel=1e-6)


def test_the_learning_rate_rises_then_falls_to_almost_nothing() -> None:
    shares = [schedule(step, steps=100) for step in range(100)]
    assert shares[0] == pytest.approx(0.1)
    assert shares.index(max(shares)) in (9, 10)
    assert max(shares) == 1
    assert shares[10:] == sorted(shares[10:], reverse=True)
    assert 0 < shares[-1] < 0.02
    assert schedule(0, steps=1) == 1


def test_class_weights_give_each_label_the_same_share() -> None:
    weights = class_weights([0, 1, 1, 2, 2, 2], classes=3)
    assert weights == pytest.approx((2, 1, 2 / 3))


def test_the_results_hold_what_the_schema_asks_and_the_truth(trained: Path, tweets: Path) -> None:
    results = json.loads((trained / "results.json").read_text(encoding="utf-8"))
    check_schema(results, schema=SCHEMA, name="results.json")
    assert results["metrics"]["macro_f1"] > 0.9 > 0.5 > results["baselines"]["majority"]["macro_f1"]
    dataset = read_dataset(tweets)
    # 40 steps are five epochs of seven batches, the last of each smaller, and five batches.
    assert results["time"]["steps"] == 40
    assert results["time"]["samples"] == 5 * len(dataset.train) + 5 * 32
    counted = results["dataset"]["test"]
    assert counted["texts"] == len(dataset.test) == sum(counted[label] for label in LABELS)
    assert results["hardware"]["precision_reason"] == "asked for"
    assert str(trained.parent) not in json.dumps(results)


def test_a_result_that_breaks_the_schema_is_told_with_every_problem(trained: Path) -> None:
    results = json.loads((trained / "results.json").read_text(encoding="utf-8"))
    results["metrics"]["accuracy"] = 1.5
    results["speed"] = "good"
    with pytest.raises(InputError) as caught:
        check_schema(results, schema=SCHEMA, name="results.json")
    assert "accuracy" in str(caught.value)
    assert "speed" in str(caught.value)


@pytest.mark.case("M05")
def test_the_saved_model_is_plain_tensors_that_know_their_labels(trained: Path) -> None:
    assert {path.suffix for path in trained.iterdir()} <= {".json", ".safetensors", ".txt"}
    with safe_open(trained / "model.safetensors", framework="pt") as file:
        kinds = {file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118
    assert kinds == {torch.float32}
    model = AutoModelForSequenceClassification.from_pretrained(trained, local_files_only=True)
    assert model.config.id2label == {0: "negative", 1: "neutral", 2: "positive"}
    tokenizer = AutoTokenizer.from_pretrained(trained, local_files_only=True)
    # 66 positions, of which RoBERTa never uses the first two.
    assert tokenizer.model_max_length == 64
    ids = tokenizer(["happy " * 500], truncation=True, return_tensors="pt")
    assert model(**ids).logits.shape == (1, 3)


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
    steps = re.findall(
        r"^step (\d+)/20  loss [\d.]+  learning rate [\d.e-]+  \d+ samples/s  \d+:\d\d left$",
        shown,
        re.MULTILINE,
    )
    assert [int(step) for step in steps] == [1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]
    for row in ("majority (", "VADER lexicon", "this model"):
        assert re.search(rf"^{re.escape(row)}.*(\s+\d\.\d{{3}}){{3}}$", shown, re.MULTILINE)
