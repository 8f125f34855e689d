"""The benchmark measures what it says, on a tiny model; what it finds is no matter of tests."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
import torch

from benchmarks import packing, training
from benchmarks.loops import Material, OurLoop
from benchmarks.state import checkpoints, loading
from training.core.backend import open_backend
from training.core.settings import Speed
from training.packaging import archive
from training.roberta_sentiment.dataset import read_dataset
from training.roberta_sentiment.model import load
from training.roberta_sentiment.settings import find_model
from training.roberta_sentiment.task import encode

pytestmark = pytest.mark.training


@pytest.fixture
def material(encoder: Path, tweets: Path) -> Material:
    model, tokenizer = load(find_model(str(encoder)))
    texts = encode(read_dataset(tweets).train, tokenizer=tokenizer, max_length=16, replace=True)
    return Material(
        model=model, texts=texts, pad=tokenizer.pad_token_id, batch=8, width=16, labels=3
    )


def test_turns_of_a_loop_go_on_where_the_last_one_ended(material: Material) -> None:
    backend = open_backend("cpu", "fp32")
    loop = OurLoop(material, backend=backend, speed=Speed(), steps=8)
    before = [tensor.clone() for tensor in loop.model.parameters()]
    assert len(loop.go(3)) == 3
    assert len(loop.go(3)) == 3
    steps = {float(state["step"]) for state in loop.optimizer.state.values()}
    assert steps == {8.0}
    assert any(
        not torch.equal(old, new) for old, new in zip(before, loop.model.parameters(), strict=True)
    )


def test_state_and_batches_are_timed(material: Material, encoder: Path) -> None:
    backend = open_backend("cpu", "fp32")
    loop = OurLoop(material, backend=backend, speed=Speed(), steps=2)
    loop.go(1)
    found = checkpoints(loop, backend=backend, times=2)
    weights = sum(tensor.numel() for tensor in loop.model.parameters()) * 4
    assert found["bytes"] > 3 * weights  # the weights and Adam's two averages
    assert all(value > 0 for value in found.values())
    _, tokenizer = load(find_model(str(encoder)))
    assert min(loading(material, tokenizer)) > 0


def test_every_packer_packs_the_same_members(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"weights" * 1000)
    before = archive.DEFLATE
    seconds = packing.pack(tmp_path, {"code/x": tmp_path / "x"})
    assert archive.DEFLATE is before
    assert len(seconds) == 3
    for name in seconds:
        with tarfile.open(tmp_path / name) as tar:
            content = tar.extractfile("code/x")
            assert content is not None
            assert content.read() == b"weights" * 1000


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert training.main(["--gpu"]) == 2
    assert "torch sees no CUDA device" in capsys.readouterr().err
