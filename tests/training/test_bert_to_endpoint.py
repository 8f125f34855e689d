"""From raw text to a published sentiment model, by one command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from training import bert_to_endpoint
from training.packaging import cli as packaging
from training.roberta_sentiment.model import ask

pytestmark = pytest.mark.training

PRETRAIN = """
[build]
shards = 2
copies = 1
sequence = 64
predictions = 10
vocabulary_size = 900
[model]
layers = 2
hidden = 64
intermediate = 128
positions = 64
[train]
max_steps = 20
batch_size = 16
[speed]
precision = "fp32"
"""
FINE_TUNE = """
[train]
max_steps = 40
learning_rate = 5e-3
[speed]
precision = "fp32"
"""


def test_one_command_goes_from_text_to_a_published_model_that_answers(
    prose: Path,
    tweets: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "pretrain.toml").write_text(PRETRAIN, encoding="utf-8")
    (tmp_path / "tune.toml").write_text(FINE_TUNE, encoding="utf-8")
    output = tmp_path / "chain"
    # fmt: off
    command = [
        "--text", str(prose), "--data", str(tweets), "--output", str(output),
        "--pretrain-settings", str(tmp_path / "pretrain.toml"),
        "--fine-tune-settings", str(tmp_path / "tune.toml"), "--serving-platform", "none",
    ]
    # fmt: on
    (output / "sentiment.run").mkdir(parents=True)
    (output / "sentiment.run" / "stop").touch()
    assert bert_to_endpoint.main(command) == 75
    assert bert_to_endpoint.main(command) == 0
    shown = capsys.readouterr().out
    assert f"pre-train: {output / 'bert'} is there" in shown
    other_options_are_refused(command, output, capsys)
    manifest = json.loads((output / "package" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["source"]["base_model"] == "bert"
    assert [label for label, _ in ask(output / "sentiment", ["good great happy", "bad sad worst"])]

    published: list[list[str]] = []
    original = packaging.main

    def main(given: Any) -> int:
        published.append(given)
        return 0 if given[0] == "publish" else original(given)

    monkeypatch.setattr(packaging, "main", main)
    assert bert_to_endpoint.main([*command, "--platform", "platform.json"]) == 0
    package = str(output / "package")
    assert published == [["publish", "--package", package, "--platform", "platform.json"]]
    fine_tuning_starts_from_the_encoder(output)


def other_options_are_refused(
    command: list[str], output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is there was made with what was asked for then, and all that follows from it."""
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*")}
    assert bert_to_endpoint.main([*command, "--model-name", "mood"]) == 2
    error = capsys.readouterr().err
    assert f"error: {output / 'package'} was made with " in error
    assert '"--model-name": "mood"' in error
    tune = output.with_name("tune.toml")
    tune.write_text(FINE_TUNE.replace("40", "41"), encoding="utf-8")
    assert bert_to_endpoint.main(command) == 2
    tune.write_text(FINE_TUNE, encoding="utf-8")
    error = capsys.readouterr().err
    assert f"{output / 'sentiment'} was made with " in error
    assert f"{output / 'package'} was made with " in error
    assert f"{output / 'bert'} was made with " not in error
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*")} == before


def fine_tuning_starts_from_the_encoder(output: Path) -> None:
    """What transformers makes of the pre-trained folder is its encoder and pooler, every weight."""
    model = AutoModelForSequenceClassification.from_pretrained(output / "bert", num_labels=3)
    was = load_file(output / "bert" / "model.safetensors")
    found = {name: tensor for name, tensor in model.state_dict().items() if name in was}
    assert len(found) > 30
    assert {name for name in was if name.startswith("bert.")} == set(found)
    assert all(torch.equal(tensor, was[name]) for name, tensor in found.items())


def test_a_link_that_fails_ends_the_chain(
    prose: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--text", str(prose / "none"), "--data", "x", "--output", str(tmp_path / "chain")]
    assert bert_to_endpoint.main(command) == 2
    assert f"error: no text at {prose / 'none'}" in capsys.readouterr().err


def test_the_chain_is_for_one_worker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    command = ["--text", "x", "--data", "x", "--output", str(tmp_path / "chain")]
    assert bert_to_endpoint.main(command) == 2
    assert "this command is for one worker" in capsys.readouterr().err
