"""The model, its loss, its arithmetic and its optimizers, against those of others."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertForPreTraining

from training.bert_pretraining.evaluation import MOST, baselines, evaluate
from training.bert_pretraining.model import MaskedHeads, make_model, make_optimizer
from training.bert_pretraining.samples import Samples
from training.bert_pretraining.settings import RECIPES, PreTrain, Shape, read_settings
from training.bert_pretraining.shards import find_shards, inspect
from training.bert_pretraining.task import IGNORED, PretrainingTask, collate
from training.bert_pretraining.vocabulary import read_vocabulary
from training.core.backend import open_backend
from training.core.data import EMPTY
from training.core.lamb import Lamb
from training.core.settings import Speed

pytestmark = pytest.mark.training

SHAPE = Shape(layers=2, hidden=32, heads=4, intermediate=64, positions=64, dropout=0.0)


@pytest.fixture
def samples(shards: Path) -> Samples:
    return Samples([inspect(path) for path in find_shards(shards, "training")], tokens=800)


@pytest.fixture
def model(shards: Path) -> Any:
    torch.manual_seed(0)
    return make_model(SHAPE, read_vocabulary(shards / "vocab.txt"))


def whole_labels(batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The labels as BertForPreTraining takes them: one for every token."""
    labels = torch.full_like(batch["ids"], IGNORED)
    for row, (positions, wanted) in enumerate(
        zip(batch["positions"], batch["labels"], strict=True)
    ):
        there = wanted != IGNORED
        labels[row, positions[there]] = wanted[there]
    return labels


def test_loss_and_logits_are_those_of_bert_for_pretraining(model: Any, samples: Samples) -> None:
    counts = (collate(samples, range(400))["labels"] != IGNORED).sum(1)
    rows = torch.nonzero(counts == counts.max()).flatten()[:24].tolist()
    batch = collate(samples, rows)
    expected = model(
        input_ids=batch["ids"],
        attention_mask=batch["mask"],
        token_type_ids=batch["segments"],
        labels=whole_labels(batch),
        next_sentence_label=batch["order"],
    )
    heads = MaskedHeads(model)
    logits, order = heads(batch["ids"], batch["mask"], batch["segments"], batch["positions"])
    places = batch["positions"].unsqueeze(-1).expand_as(logits)
    torch.testing.assert_close(logits, expected.prediction_logits.gather(1, places))
    torch.testing.assert_close(order, expected.seq_relationship_logits)
    loss, weight = PretrainingTask(model, samples).loss(heads, batch)
    assert weight.item() == 24 * counts.max()
    torch.testing.assert_close(loss / weight, expected.loss)


def test_the_loss_does_not_depend_on_how_a_batch_is_cut(model: Any, samples: Samples) -> None:
    task, heads = PretrainingTask(model, samples), MaskedHeads(model)
    rows = list(range(30, 60))
    sums = []
    for parts in (1, 3, 30):
        found = [task.loss(heads, task.collate(rows[at::parts], 64)) for at in range(parts)]
        sums.append(
            [sum(float(value.detach()) for value in column) for column in zip(*found, strict=True)]
        )
    assert sums[1] == pytest.approx(sums[0], rel=1e-5)
    assert sums[2] == pytest.approx(sums[0], rel=1e-5)


def test_an_empty_row_weighs_nothing(model: Any, samples: Samples) -> None:
    task, heads = PretrainingTask(model, samples), MaskedHeads(model)
    alone = task.loss(heads, task.collate([7], 64))
    filled = task.loss(heads, task.collate([7, EMPTY, EMPTY], 64))
    torch.testing.assert_close(filled, alone)


@pytest.mark.case("T02")
def test_every_batch_has_one_shape(samples: Samples) -> None:
    shapes = {
        tuple((name, tuple(tensor.shape)) for name, tensor in collate(samples, rows).items())
        for rows in (range(8), range(100, 108), [EMPTY] * 8, [0, EMPTY, 3, 3, 3, 9, 8, 7])
    }
    assert len(shapes) == 1


def test_flops_are_those_of_the_reference_and_of_the_heads(samples: Samples) -> None:
    """The reference counts 12 LHS(6H + S) a sequence, and no heads."""
    shape = Shape(layers=3, hidden=32, heads=4, intermediate=128, positions=64)

    class Counted:
        config = make_model(shape, read_vocabulary_of(samples)).config

    found = PretrainingTask(Counted(), samples).flops(64)
    layers = 12 * 3 * 32 * 64 * (6 * 32 + 64)
    heads = 6 * (10 * 32 * (32 + 800) + 32 * (32 + 2))
    assert found == layers + heads


def read_vocabulary_of(samples: Samples) -> Any:
    return read_vocabulary(samples._shards[0].path.parent / "vocab.txt")


def test_scores_and_baselines_are_those_of_a_plain_count(model: Any, samples: Samples) -> None:
    backend = open_backend("cpu", "fp32")
    few = Samples([samples._shards[0]], tokens=800)
    assert len(few) < MOST
    found = evaluate(MaskedHeads(model).eval(), few, backend=backend, micro=50)
    batch = collate(few, range(len(few)))
    with torch.no_grad():
        logits, order = MaskedHeads(model)(
            batch["ids"], batch["mask"], batch["segments"], batch["positions"]
        )
    there = batch["labels"] != IGNORED
    loss = torch.nn.functional.cross_entropy(logits[there], batch["labels"][there])
    right = (logits.argmax(-1) == batch["labels"])[there].float().mean()
    assert found.mlm_loss == pytest.approx(float(loss), rel=1e-4)
    assert found.mlm_accuracy == pytest.approx(float(right), abs=1e-6)
    ordered = (order.argmax(-1) == batch["order"]).float().mean()
    assert found.nsp_accuracy == pytest.approx(float(ordered), abs=1e-6)
    guess = baselines(few, few, tokens=800)
    counts = np.bincount(batch["labels"][there].numpy(), minlength=800)
    shares = counts[counts > 0] / counts.sum()
    assert guess.unigram == pytest.approx(float(-(shares * np.log(shares)).sum()), rel=0.01)
    assert guess.uniform == math.log(800)


def test_lamb_is_what_its_paper_says() -> None:
    torch.manual_seed(0)
    matrix = torch.nn.Parameter(torch.randn(5, 3))
    vector = torch.nn.Parameter(torch.randn(4))
    groups = [
        {"params": [matrix], "weight_decay": 0.1},
        {"params": [vector], "weight_decay": 0.0},
    ]
    optimizer = Lamb(groups, lr=0.05)
    expected = {one: (one.detach().clone(), 0.0, 0.0) for one in (matrix, vector)}
    for step in range(1, 6):
        for one, decay in ((matrix, 0.1), (vector, 0.0)):
            one.grad = torch.randn_like(one)
            weight, mean, square = expected[one]
            mean = 0.9 * mean + 0.1 * one.grad
            square = 0.999 * square + 0.001 * one.grad**2
            update = (mean / (1 - 0.9**step)) / (
                (square / (1 - 0.999**step)) ** 0.5 + 1e-6
            ) + decay * weight
            ratio = min(1.0, float(weight.norm() / update.norm())) if decay else 1.0
            expected[one] = (weight - 0.05 * ratio * update, mean, square)
        optimizer.step()
    for one in (matrix, vector):
        torch.testing.assert_close(one.detach(), expected[one][0], rtol=1e-5, atol=1e-6)
        assert {value.dtype for value in optimizer.state[one].values()} == {torch.float32}


def test_lamb_leaves_zero_weights_and_zero_gradients_alive() -> None:
    weight = torch.nn.Parameter(torch.zeros(3, 3))
    optimizer = Lamb([{"params": [weight], "weight_decay": 0.01}], lr=0.1)
    weight.grad = torch.ones(3, 3)
    optimizer.step()
    assert torch.isfinite(weight).all()
    assert (weight < 0).all()
    still = torch.nn.Parameter(torch.ones(2, 2))
    optimizer = Lamb([{"params": [still], "weight_decay": 0.0}], lr=0.1)
    still.grad = torch.zeros(2, 2)
    optimizer.step()
    assert torch.equal(still, torch.ones(2, 2))


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_biases_and_norms_do_not_decay(model: Any, name: Any) -> None:
    optimizer = make_optimizer(
        model,
        train=PreTrain(optimizer=name),
        speed=Speed(),
        backend=open_backend("cpu", "fp32"),
    )
    decay = {
        id(tensor): group["weight_decay"]
        for group in optimizer.param_groups
        for tensor in group["params"]
    }
    for path, tensor in model.named_parameters():
        spared = path.endswith("bias") or "LayerNorm" in path
        assert decay[id(tensor)] == (0.0 if spared else 0.01), path


# Of the reference's four scripts: sequence, predictions, rate, warm-up, steps, batch, samples seen.
REFERENCE = {
    "phase1-adamw": (128, 20, 4e-4, 2000, 28_125, 16_384, 460.8e6),
    "phase1-lamb": (128, 20, 6e-3, 2000, 7032, 65_536, 460.8e6),
    "phase2-adamw": (512, 80, 2.8e-4, 781, 1563, 32_768, 51.2e6),
    "phase2-lamb": (512, 80, 4e-3, 781, 1563, 32_768, 51.2e6),
}


@pytest.mark.parametrize("name", REFERENCE)
def test_a_recipe_is_the_references(name: str) -> None:
    sequence, predictions, rate, warm_up, steps, batch, seen = REFERENCE[name]
    settings = read_settings({"data": "d", "output": "o"}, f"bert-large-{name}")
    assert (settings.build.sequence, settings.build.predictions) == (sequence, predictions)
    train = settings.train
    assert (train.learning_rate, train.max_steps, train.batch_size) == (rate, steps, batch)
    assert round(train.warm_up * steps) == warm_up
    assert steps * batch == pytest.approx(seen, rel=1e-3)
    assert train.optimizer in name


def test_there_is_a_test_for_every_recipe() -> None:
    assert {path.stem for path in RECIPES.glob("*.toml")} == {
        f"bert-large-{one}" for one in REFERENCE
    }
    for path in RECIPES.glob("*.toml"):
        assert tomllib.loads(path.read_text(encoding="utf-8"))["model"]["layers"] == 24


def test_bert_large_has_the_references_weights() -> None:
    settings = read_settings({"data": "d", "output": "o"}, "bert-large-phase1-lamb")

    class Known:
        def __len__(self) -> int:
            return 30_522

        def id_of(self, token: str) -> int:
            return 0

    with torch.device("meta"):
        found = make_model(settings.model, Known())  # type: ignore[arg-type]
    assert isinstance(found, BertForPreTraining)
    assert sum(tensor.numel() for tensor in found.parameters()) == 336_226_108
