"""Packaging a trained model: what is in, what the manifest says, what is refused."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from training.command import InputError
from training.files import sha256_of
from training.packaging import smoke
from training.packaging.inspection import problems
from training.packaging.load_check import Answer
from training.packaging.package import package

pytestmark = pytest.mark.training


def manifest_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return content


# Serves without torch, so that a check of it takes no time.
LIGHT = """
import json

def model_fn(folder):
    return folder

def input_fn(body, content_type):
    return json.loads(body)["inputs"]

def predict_fn(texts, loaded):
    return [{"label": "neutral", "score": 0.9} for _ in texts]

def output_fn(prediction, accept):
    return json.dumps(prediction), "application/json"
"""


@pytest.mark.case("M06")
@pytest.mark.case("M07")
def test_the_archive_holds_what_serving_needs_and_nothing_else(packed: Path) -> None:
    with tarfile.open(packed / "model.tar.gz") as tar:
        names = {member.name for member in tar if member.isfile()}
    assert {"config.json", "model.safetensors", "code/inference.py", "tokenizer.json"} <= names
    assert not {"results.json", "code/requirements.txt"} & names
    assert problems(packed / "model.tar.gz") == []


def test_the_manifest_announces_this_archive_and_these_results(packed: Path, trained: Path) -> None:
    manifest = manifest_of(packed)
    results = json.loads((trained / "results.json").read_text(encoding="utf-8"))
    digest = sha256_of(packed / "model.tar.gz")
    assert manifest["archive"] == {
        "key": f"models/sentiment/{digest}/model.tar.gz",
        "sha256": digest,
        "bytes": (packed / "model.tar.gz").stat().st_size,
    }
    assert manifest["metrics"] == {
        name: results["metrics"][name] for name in ("evaluation_set", "accuracy", "macro_f1")
    }
    assert manifest["labels"] == ["negative", "neutral", "positive"]
    assert manifest["requires"] == {"torch": "2.6", "python": "3.11"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", manifest["trained_with"]["torch"])
    assert {entry["text"] for entry in manifest["smoke"]} <= set(smoke.TEXTS)
    assert manifest["smoke"]
    assert {entry["label"] for entry in manifest["smoke"]} <= set(manifest["labels"])


def test_packing_again_gives_the_same_archive(packed: Path, request_for: Any) -> None:
    manifest = package(request_for())
    assert manifest["archive"] == manifest_of(packed)["archive"]
    assert manifest["smoke"] == manifest_of(packed)["smoke"]


def test_a_job_of_slurm_is_named(request_for: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    assert package(request_for())["source"]["job"] == "4711"


@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        ((0.35, 0.9, 0.6, 0.59, 0.4, 0.99), (1, 2, 5)),
        ((0.35, 0.41, 0.4, 0.36, 0.4, 0.34), (1,)),
    ],
)
def test_smoke_texts_are_those_the_model_is_sure_of_or_the_surest(
    scores: tuple[float, ...], kept: tuple[int, ...]
) -> None:
    answers = [Answer("neutral", score) for score in scores]
    assert [entry["text"] for entry in smoke.smoke_list(answers)] == [
        smoke.TEXTS[index] for index in kept
    ]


@pytest.mark.case("M05")
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def model_fn(folder):\n    raise OSError('no such\\ntensor')", "OSError: no such tensor"),
        ("import training", "ModuleNotFoundError: import of training halted"),
        ("import torch_xla", "ModuleNotFoundError: import of torch_xla halted"),
        (
            "import urllib.request\nurllib.request.urlopen('http://192.0.2.1/')",
            "the served code opens a network connection, and the endpoint has none",
        ),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ("import os\nos._exit(3)", "the packed model ends its process (3)"),
        ("del model_fn, input_fn", "code/inference.py defines no model_fn and no input_fn"),
        ("transform_fn = predict_fn\ndel model_fn", "code/inference.py defines no model_fn"),
        (
            "def predict_fn(texts, loaded):\n    return [{'label': 'good'}] * len(texts)",
            "an answer has no score from 0 to 1",
        ),
        (
            "def predict_fn(texts, loaded):\n    return [{'score': 0.5}] * len(texts)",
            "an answer has no label",
        ),
        (
            "def output_fn(prediction, accept):\n    return '[]'",
            "does not answer one object a text",
        ),
        (
            "def predict_fn(texts, loaded):\n    raise KeyError('head')",
            "it answers 500 to good texts: 'head'",
        ),
        (
            "def predict_fn(texts, loaded):\n"
            "    return [{'label': 'LABEL_0', 'score': 0.9}] * len(texts)",
            "the model answers LABEL_0, and its results name the labels negative, neutral",
        ),
    ],
)
def test_code_that_does_not_serve_is_refused_in_its_own_words(
    request_for: Any, tmp_path: Path, code: str, message: str
) -> None:
    script = tmp_path / "own.py"
    script.write_text(f"{LIGHT}\n{code}\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        package(request_for(inference=script, load_check=True))
    assert message in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["own.py"]


TRANSFORM = """
import json

def model_fn(folder):
    return folder

def transform_fn(loaded, body, content_type, accept):
    texts = json.loads(body)["inputs"]
    return json.dumps([{"label": "neutral", "score": 0.9} for _ in texts])
"""


@pytest.mark.parametrize("code", [LIGHT, TRANSFORM], ids=["four functions", "transform_fn"])
def test_code_of_ones_own_that_serves_is_packed(
    request_for: Any, tmp_path: Path, code: str
) -> None:
    script = tmp_path / "own.py"
    script.write_text(code, encoding="utf-8")
    manifest = package(request_for(inference=script, load_check=True))
    assert {entry["label"] for entry in manifest["smoke"]} == {"neutral"}


def test_the_load_check_can_be_skipped_to_rehearse_a_failure(
    request_for: Any, tmp_path: Path, packed: Path
) -> None:
    script = tmp_path / "own.py"
    script.write_text(f"{LIGHT}\ndef model_fn(folder):\n    raise OSError\n", encoding="utf-8")
    manifest = package(request_for(inference=script))
    good = manifest_of(packed)
    assert manifest["archive"]["sha256"] != good["archive"]["sha256"]
    assert manifest["smoke"] == good["smoke"]


def spoil_results(folder: Path, **changes: Any) -> None:
    path = folder / "results.json"
    results = json.loads(path.read_text(encoding="utf-8"))
    for part, value in changes.items():
        results[part] |= value
    path.write_text(json.dumps(results), encoding="utf-8")


@pytest.mark.parametrize(
    ("spoil", "changes", "message"),
    [
        (
            lambda folder: (folder / "config.json").unlink(),
            {},
            "the model folder has no config.json",
        ),
        (
            lambda folder: (folder / "tokenizer_config.json").unlink(),
            {},
            "the model folder has no tokenizer_config.json",
        ),
        (
            lambda folder: spoil_results(folder, model={"weights_sha256": "0" * 64}),
            {},
            "is about other weights than",
        ),
        (
            lambda folder: spoil_results(folder, model={"labels": ["bad", "good"]}),
            {},
            "names the labels ['negative', 'neutral', 'positive'], the results have others",
        ),
        (
            lambda folder: spoil_results(folder, metrics={"accuracy": 7}),
            {},
            "does not follow results.schema.json: $.metrics.accuracy",
        ),
        (
            lambda folder: (folder / "results.json").write_text("{", encoding="utf-8"),
            {},
            "cannot read",
        ),
        (lambda folder: None, {"model_name": "Not OK"}, "the model name 'Not OK' does not match"),
        (lambda folder: None, {"inference": Path("no.py")}, "no inference script at no.py"),
        (lambda folder: None, {"model": Path("no-model")}, "no model folder no-model"),
    ],
)
def test_what_cannot_be_packed_is_refused_before_anything_is_written(
    request_for: Any,
    trained: Path,
    tmp_path: Path,
    spoil: Any,
    changes: dict[str, Any],
    message: str,
) -> None:
    model = shutil.copytree(trained, tmp_path / "model")
    spoil(model)
    request = request_for(**({"model": model, "results": model / "results.json"} | changes))
    with pytest.raises(InputError) as caught:
        package(request)
    assert message in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_several_problems_are_told_at_once(request_for: Any) -> None:
    with pytest.raises(InputError) as caught:
        package(request_for(model_name="", inference=Path("no.py"), model=Path("none")))
    assert str(caught.value).count("; ") == 2


def test_a_folder_with_a_package_is_not_overwritten(request_for: Any, package_copy: Path) -> None:
    request = request_for(output=package_copy)
    with pytest.raises(
        InputError, match="holds something already; give a new folder for the package"
    ):
        package(request)
