"""The benchmark of the pre-training measures what it says, on few samples."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import pretraining
from benchmarks.pretraining_loops import Ours, Reference, Theirs
from training.bert_pretraining.model import make_model
from training.bert_pretraining.samples import Samples
from training.bert_pretraining.settings import Shape
from training.bert_pretraining.shards import find_shards, inspect
from training.bert_pretraining.task import IGNORED, collate
from training.bert_pretraining.vocabulary import read_vocabulary
from training.core.backend import open_backend
from training.core.settings import Speed

pytestmark = pytest.mark.training


def test_both_loaders_give_the_same_samples(shards: Path) -> None:
    path = find_shards(shards, "training")[0]
    ours = collate(Samples([inspect(path)], tokens=30522), range(20))
    theirs = Theirs(path)
    for row in range(20):
        ids, segments, mask, labels, order = theirs[row]
        for name, tensor in (("ids", ids), ("segments", segments), ("mask", mask)):
            assert torch.equal(ours[name][row], tensor)
        assert ours["order"][row] == order
        wanted = ours["labels"][row]
        assert labels[labels != IGNORED].tolist() == wanted[wanted != IGNORED].tolist()


def test_both_loops_train(shards: Path) -> None:
    path = find_shards(shards, "training")[0]
    samples, backend = Samples([inspect(path)], tokens=30522), open_backend("cpu", "fp32")
    shape = Shape(layers=1, hidden=16, heads=2, intermediate=32, positions=64)
    model = make_model(shape, read_vocabulary(shards / "vocab.txt"))
    before = [tensor.detach().numpy().copy() for tensor in model.parameters()]
    for loop in (
        Ours(copy.deepcopy(model), samples, backend, Speed()),
        Reference(copy.deepcopy(model), Theirs(path), backend),
    ):
        loop.go(2)
        loop.go(1)
        after = [tensor.detach().numpy() for tensor in loop.model.parameters()]
        assert any(not np.array_equal(*pair) for pair in zip(before, after, strict=True))
        steps = {float(state["step"]) for state in loop.optimizer.state.values()}
        assert steps == {3.0}


def test_the_table_is_made_of_figures(shards: Path, tmp_path: Path) -> None:
    (tmp_path / "shards").symlink_to(shards)
    (ours, theirs), unpacking = pretraining.loading(tmp_path, rounds=1)
    assert min(ours, theirs, unpacking) > 0
