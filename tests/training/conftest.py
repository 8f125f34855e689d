"""A tiny encoder, tweets that it can learn, and what a run and a package of them look like."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import RobertaConfig, RobertaModel, RobertaTokenizerFast

from training.bert_pretraining import cli as pretraining
from training.bert_pretraining.docstrings import write_docstrings
from training.packaging.package import INFERENCE, Request, package
from training.roberta_sentiment.cli import main

WORDS = {
    -2.0: ["awful", "bad", "broken", "sad", "terrible", "worst"],
    0.1: ["at", "nine", "paper", "table", "today", "train"],
    2.0: ["best", "glad", "good", "great", "happy", "lovely"],
}


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A RoBERTa of two small layers, random, in the transformers layout."""
    folder = tmp_path_factory.mktemp("encoder")
    bpe = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    texts = [" ".join(words) for words in WORDS.values()] * 3
    bpe.train_from_iterator(texts, vocab_size=400, min_frequency=1, special_tokens=special)
    bpe.save_model(str(folder))
    files = (str(folder / "vocab.json"), str(folder / "merges.txt"))
    RobertaTokenizerFast(*files, model_max_length=10**30).save_pretrained(folder)
    torch.manual_seed(0)
    RobertaModel(
        RobertaConfig(
            vocab_size=400,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=128,
            initializer_range=0.1,  # without pre-training, larger weights learn sooner
            max_position_embeddings=66,
            type_vocab_size=1,
        )
    ).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tweets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """240 rated texts of known words."""
    generator = random.Random(0)
    rows = []
    for number in range(240):
        rating = (-2.0, 0.1, 2.0)[number % 3]
        words = generator.choices(WORDS[rating], k=generator.randint(2, 8))
        rows.append(f"{number}\t{rating}\t{' '.join(words)} &amp; {number}\r\n")
    path = tmp_path_factory.mktemp("tweets") / "tweets.txt"
    path.write_bytes("".join(rows).encode())
    return path


@pytest.fixture(scope="session")
def trained(encoder: Path, tweets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a short run leaves."""
    output = tmp_path_factory.mktemp("runs") / "trained"
    assert main(arguments(encoder, tweets, output)) == 0
    return output


def arguments(model: object, data: object, output: object, *more: str) -> list[str]:
    return [
        *("--model", str(model), "--data", str(data), "--output", str(output)),
        *("--max-steps", "40", "--learning-rate", "0.01", "--precision", "fp32", *more),
    ]


@pytest.fixture
def run_arguments() -> Any:
    """The arguments of a short run: (model, data, output, *more)."""
    return arguments


@pytest.fixture
def request_for(trained: Path, tmp_path: Path) -> Any:
    """A request to package the trained model, with changes."""

    def build(**changes: Any) -> Request:
        given: dict[str, Any] = {
            "model": trained,
            "results": trained / "results.json",
            "output": tmp_path / "package",
            "model_name": "sentiment",
            "inference": INFERENCE,
            "platform": None,
            "cache": tmp_path / "wheels",
            "load_check": False,
        }
        return Request(**(given | changes))

    return build


@pytest.fixture(scope="session")
def packed(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of the trained model, loaded once in a clean process."""
    output = tmp_path_factory.mktemp("packages") / "packed"
    package(
        Request(
            model=trained,
            results=trained / "results.json",
            output=output,
            model_name="sentiment",
            inference=INFERENCE,
            platform=None,
            cache=output,
            load_check=True,
        )
    )
    return output


@pytest.fixture
def package_copy(packed: Path, tmp_path: Path) -> Path:
    """A package of one's own, to spoil."""
    return shutil.copytree(packed, tmp_path / "copy")


@pytest.fixture(scope="session")
def prose(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real text: the documentation inside three packages, a file a module."""
    folder = tmp_path_factory.mktemp("prose")
    write_docstrings(["attr", "fsspec", "jinja2"], folder)
    return folder


@pytest.fixture(scope="session")
def shards(prose: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shards of short samples, built of that text."""
    folder = tmp_path_factory.mktemp("built") / "shards"
    assert pretraining.main(build_arguments(prose, folder)) == 0
    return folder


def build_arguments(text: object, output: object, *more: str) -> list[str]:
    return [
        *("build", "--text", str(text), "--output", str(output), "--vocabulary-size", "800"),
        *("--sequence", "64", "--predictions", "10", "--copies", "2", "--shards", "3"),
        *("--processes", "1", *more),
    ]


def pretrain_arguments(data: object, output: object, *more: str) -> list[str]:
    sizes = {"layers": 1, "hidden": 32, "heads": 2, "intermediate": 64, "positions": 64}
    settings = [f"model.{name}={value}" for name, value in sizes.items()]
    return [
        *("pretrain", "--data", str(data), "--output", str(output), "--precision", "fp32"),
        *("--max-steps", "8", "--batch-size", "16"),
        *(part for one in settings for part in ("--set", one)),
        *more,
    ]
