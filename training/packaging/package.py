"""Makes a package: `model.tar.gz` and the `manifest.json` that announces it."""

import json
import os
import re
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from shared import layout
from training.command import InputError
from training.files import check_schema, read_json, sha256_of, staged_folder, write_json
from training.packaging import load_check, smoke, vendor
from training.packaging.archive import write_archive
from training.packaging.inspection import problems

ROOT = Path(__file__).parents[2]
RESULTS_SCHEMA = ROOT / "training" / "results.schema.json"
MANIFEST_SCHEMA = ROOT / "lambdas" / "shared" / "manifest.schema.json"
INFERENCE = Path(__file__).with_name("inference.py")
ARCHIVE = "model.tar.gz"
MANIFEST = "manifest.json"
TOKENIZER_FILES = (
    "added_tokens.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to pack. `platform` None leaves the serving packages out, for images that have them."""

    model: Path
    results: Path
    output: Path
    model_name: str
    inference: Path
    platform: vendor.Platform | None
    cache: Path
    load_check: bool


def key_of(model_name: str, sha256: str) -> str:
    """The key of an archive in the model bucket."""
    return f"models/{model_name}/{sha256}/{ARCHIVE}"


def package(request: Request) -> dict[str, Any]:
    """Write both files into a new folder and return the manifest.

    Raises:
        InputError: something to pack is missing or does not fit, or the result does not serve.
    """
    results: dict[str, Any] = read_json(request.results, schema=RESULTS_SCHEMA)
    if results["task"] != "roberta_sentiment":
        raise InputError(
            f"{request.results} is about {results['task']}, whose model gives no labels; fine-tune "
            "it first"
        )
    _check_inputs(request, results)
    with (
        staged_folder(request.output, holds="package") as folder,
        tempfile.TemporaryDirectory() as scratch,
    ):
        members = {name: request.model / name for name in _model_files(request.model)}
        members[layout.ENTRY_POINT] = request.inference
        transformers = distribution("transformers")
        if request.platform is not None:
            unpacked = Path(scratch)
            vendor.unpack(vendor.fetch(request.platform, cache=request.cache), into=unpacked)
            members |= {
                f"{layout.VENDOR}/{request.platform}/{path.relative_to(unpacked).as_posix()}": path
                for path in unpacked.rglob("*")
                if path.is_file()
            }
            (metadata,) = unpacked.glob("transformers-*.dist-info")
            transformers = Distribution.at(metadata)
        archive = folder / ARCHIVE
        write_archive(archive, members)
        if found := problems(archive):
            raise InputError(f"the finished archive is wrong: {'; '.join(found)}")
        if request.load_check:
            answers = load_check.ask(archive, smoke.TEXTS)
        else:
            answers = smoke.ask_weights(request.model)
        labels = results["model"]["labels"]
        if strange := {answer.label for answer in answers} - set(labels):
            raise InputError(
                f"the model answers {', '.join(sorted(strange))}, and its results name the labels "
                f"{', '.join(labels)}"
            )
        manifest = _manifest(request, results, archive, smoke.smoke_list(answers), transformers)
        check_schema(manifest, schema=MANIFEST_SCHEMA, name=MANIFEST)
        write_json(folder / MANIFEST, manifest)
    return manifest


def _check_inputs(request: Request, results: dict[str, Any]) -> None:
    """Refuse what cannot be packed, all problems in one line, before anything is written."""
    found = []
    schema = json.loads(MANIFEST_SCHEMA.read_text(encoding="utf-8"))
    pattern = schema["properties"]["model_name"]["pattern"]
    if not re.search(pattern, request.model_name):
        found.append(f"the model name {request.model_name!r} does not match {pattern}")
    if not request.inference.is_file():
        found.append(f"no inference script at {request.inference}")
    weights = request.model / layout.WEIGHTS
    if not request.model.is_dir():
        found.append(f"no model folder {request.model}")
    else:
        needed = (layout.CONFIGURATION, layout.WEIGHTS, "tokenizer_config.json")
        found += [
            f"the model folder has no {name}"
            for name in needed
            if not (request.model / name).is_file()
        ]
    if weights.is_file() and sha256_of(weights) != results["model"]["weights_sha256"]:
        found.append(
            f"{request.results} is about other weights than {weights}; give the results of this run"
        )
    configuration = request.model / layout.CONFIGURATION
    if configuration.is_file() and (named := _labels(configuration)) != results["model"]["labels"]:
        found.append(f"{configuration} names the labels {named}, the results have others")
    if found:
        raise InputError("; ".join(found))


def _labels(configuration: Path) -> list[str] | None:
    """The labels of a model's configuration, in the order of their indices."""
    try:
        names = json.loads(configuration.read_text(encoding="utf-8"))["id2label"]
        return [names[index] for index in sorted(names, key=int)]
    except (ValueError, LookupError, TypeError):
        return None


def _model_files(folder: Path) -> list[str]:
    """The files that serving needs; results, checkpoints and the like stay behind."""
    names = (layout.CONFIGURATION, layout.WEIGHTS, *TOKENIZER_FILES)
    return [name for name in names if (folder / name).is_file()]


def _manifest(
    request: Request,
    results: dict[str, Any],
    archive: Path,
    smoke_texts: list[dict[str, str]],
    transformers: Distribution,
) -> dict[str, Any]:
    digest = sha256_of(archive)
    requires = vendor.least_versions(transformers)
    if request.platform is not None:
        requires["python"] = vendor.PYTHON[request.platform]
    metrics, versions = results["metrics"], results["versions"]
    job = os.environ.get("SLURM_JOB_ID")
    return {
        "schema_version": 1,
        "model_name": request.model_name,
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "archive": {
            "key": key_of(request.model_name, digest),
            "sha256": digest,
            "bytes": archive.stat().st_size,
        },
        "requires": requires,
        "trained_with": {
            "torch": versions["torch"].partition("+")[0],
            "transformers": versions["transformers"],
            "python": versions["python"],
        },
        "labels": results["model"]["labels"],
        "metrics": {name: metrics[name] for name in ("evaluation_set", "accuracy", "macro_f1")},
        "smoke": smoke_texts,
        "source": {"base_model": results["model"]["base_model"]} | ({"job": job} if job else {}),
    }
