"""Pre-training, as a Trn1 node runs it: torch 2.9, torch_xla 2.9 and transformers 4.48."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_xla.debug.metrics as xla_metrics
from safetensors.torch import load_file
from transformers import BertForPreTraining

from tests.training.conftest import pretrain_arguments, prose, shards  # noqa: F401 - fixtures
from training.bert_pretraining.cli import main
from training.core.progress import Progress


def pretrain(shards: Path, output: Path, *more: str) -> list[float]:  # noqa: F811
    """Pre-train without dropout; the loss of each step."""
    settings = ("--set", "model.dropout=0", "--set", "train.micro_batch_size=8")
    assert main(pretrain_arguments(shards, output, *settings, *more)) == 0
    with (output / "steps.csv").open(encoding="utf-8", newline="") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_losses_and_weights_are_those_of_the_processor(
    shards: Path,  # noqa: F811
    tmp_path: Path,
    optimizer: str,
) -> None:
    more = ("--set", f"train.optimizer={optimizer}")
    # torch prepares its backward threads for the devices that it knows at the first backward.
    xla = pretrain(shards, tmp_path / "xla", "--device", "xla", *more)
    cpu = pretrain(shards, tmp_path / "cpu", "--device", "cpu", *more)
    assert len(xla) == 8
    assert xla == pytest.approx(cpu, rel=1e-4)
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("xla", "cpu"))
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-2, atol=1e-3)
    _, facts = BertForPreTraining.from_pretrained(tmp_path / "xla", output_loading_info=True)
    assert not facts["missing_keys"]


@pytest.mark.case("T02")
def test_nothing_is_compiled_after_the_first_steps(
    shards: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts: list[int] = []
    original = Progress.step

    def step(self: Progress, record: Any) -> None:
        counts.append(int((xla_metrics.metric_data("CompileTime") or (0,))[0]))
        original(self, record)

    monkeypatch.setattr(Progress, "step", step)
    pretrain(shards, tmp_path / "out", "--device", "xla", "--set", "train.optimizer=lamb")
    assert counts[-1] == counts[3], counts
