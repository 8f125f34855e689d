"""The command, as a Trn1 node runs it: torch 2.9, torch_xla 2.9 and transformers 4.48."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.training.conftest import encoder, tweets  # noqa: F401 - fixtures
from training.roberta_sentiment.cli import main
from training.roberta_sentiment.model import ask


def fine_tune(encoder: Path, tweets: Path, output: Path, device: str) -> list[float]:  # noqa: F811
    """Fine-tune; the loss of each step."""
    # fmt: off
    assert main([
        "--model", str(encoder), "--data", str(tweets), "--output", str(output), "--device", device,
        "--max-steps", "6", "--learning-rate", "0.01", "--precision", "fp32",
        "--max-length", "32", "--set", "text.padding=fixed", "--set", "train.micro_batch_size=16",
    ]) == 0
    # fmt: on
    with (output / "steps.csv").open(encoding="utf-8", newline="") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def runs(
    encoder: Path,  # noqa: F811
    tweets: Path,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A folder with the models `cpu` and `xla`, of an encoder without dropout."""
    config = json.loads((encoder / "config.json").read_text(encoding="utf-8"))
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        config[name] = 0.0
    (encoder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    folder = tmp_path_factory.mktemp("runs")
    # torch prepares its backward threads for the devices that it knows at the first backward.
    curves = {
        device: fine_tune(encoder, tweets, folder / device, device) for device in ("xla", "cpu")
    }
    (folder / "losses.json").write_text(json.dumps(curves), encoding="utf-8")
    return folder


def test_the_losses_are_those_of_the_processor(runs: Path) -> None:
    curves = json.loads((runs / "losses.json").read_text(encoding="utf-8"))
    assert len(curves["xla"]) == 6
    assert curves["xla"] == pytest.approx(curves["cpu"], rel=1e-4)


def test_the_results_say_what_computed(runs: Path) -> None:
    results = json.loads((runs / "xla" / "results.json").read_text(encoding="utf-8"))
    assert results["hardware"]["device"] == "xla"
    assert results["versions"]["torch-xla"] == "2.9.0"
    assert results["versions"]["transformers"] == "4.48.0"


@pytest.mark.case("M05")
def test_the_exported_weights_are_plain_float32_tensors(runs: Path) -> None:
    ours, theirs = (load_file(runs / name / "model.safetensors") for name in ("xla", "cpu"))
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert tensor.device.type == "cpu"
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-2, atol=1e-3)


def test_the_exported_model_answers_on_the_processor(runs: Path) -> None:
    texts = ["good great happy", "bad sad worst"]
    answers = [[label for label, _ in ask(runs / name, texts)] for name in ("xla", "cpu")]
    assert answers[0] == answers[1]
