"""Fine-tuning with the transformers of the Neuron releases, beside the one that is current here.

`make test-transformers` puts 4.48 before the environment's own on the path.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers

ROOT = Path(__file__).parents[2]
OLD = ROOT / ".venv-transformers-4"


def fine_tune(encoder: Path, tweets: Path, output: Path, *, path: str) -> dict[str, object]:
    """Fine-tune in a new process with a module search path of its own; its results."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "training.roberta_sentiment"),
            *("--model", str(encoder), "--data", str(tweets), "--output", str(output)),
            *("--max-steps", "8", "--learning-rate", "0.01", "--precision", "fp32"),
            *("--set", "checkpoint.every=4"),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    content: dict[str, object] = json.loads((output / "results.json").read_text(encoding="utf-8"))
    return content


def losses(output: Path) -> list[float]:
    with (output / "steps.csv").open(encoding="utf-8", newline="") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


@pytest.fixture(scope="session")
def old(encoder: Path, tweets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("runs") / "old"
    results = fine_tune(encoder, tweets, output, path=os.pathsep.join([str(OLD), str(ROOT)]))
    assert results["versions"]["transformers"] == "4.48.0"  # type: ignore[index]
    return output


@pytest.fixture(scope="session")
def new(encoder: Path, tweets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("runs") / "new"
    results = fine_tune(encoder, tweets, output, path=str(ROOT))
    assert results["versions"]["transformers"].startswith("5.")  # type: ignore[index]
    return output


def test_this_process_has_the_old_one() -> None:
    assert transformers.__version__ == "4.48.0"
    assert Path(transformers.__file__).is_relative_to(OLD)


def test_both_train_with_the_same_losses(old: Path, new: Path) -> None:
    assert len(losses(old)) == 8
    assert losses(old) == pytest.approx(losses(new), rel=1e-5)


def test_a_model_of_the_new_one_is_served_by_the_old_one(old: Path, new: Path) -> None:
    from training.roberta_sentiment.model import ask

    texts = ["good great happy", "bad sad worst", "paper table train"]
    from_old, from_new = ask(old, texts), ask(new, texts)
    assert [label for label, _ in from_old] == [label for label, _ in from_new]
    torch.testing.assert_close(
        torch.tensor([score for _, score in from_old]),
        torch.tensor([score for _, score in from_new]),
        rtol=1e-4,
        atol=1e-4,
    )
