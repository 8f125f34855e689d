"""What a run reports: `results.json`, and the table that a person reads."""

import os
import platform
import resource
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch

from training.backend import Backend
from training.roberta_sentiment.dataset import LABELS, Dataset, Example
from training.roberta_sentiment.scoring import Scores
from training.roberta_sentiment.settings import Settings

SCHEMA = Path(__file__).parents[1] / "results.schema.json"
PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "vaderSentiment")


def table(rows: Mapping[str, Scores]) -> str:
    """A small table, one row a way of labelling."""
    width = max(len(name) for name in rows)
    lines = [f"{'':{width}}  accuracy  macro-F1  macro recall"]
    lines += [
        f"{name:{width}}  {row.accuracy:8.3f}  {row.macro_f1:8.3f}  {row.macro_recall:12.3f}"
        for name, row in rows.items()
    ]
    return "\n".join(lines)


def build(
    *,
    settings: Settings,
    base_model: str,
    backend: Backend,
    dataset: Dataset,
    scores: Mapping[str, Scores],
    majority_label: str,
    steps: int,
    samples: int,
    train_seconds: float,
    total_seconds: float,
    parameters: int,
    weights_sha256: str,
) -> dict[str, object]:
    """The content of `results.json`; its schema is `training/results.schema.json`.

    `scores` has the keys `test`, `validation`, `majority` and `vader`; `weights_sha256` is that of
    `model.safetensors` and ties the figures to one set of weights.
    """
    return {
        "schema_version": 1,
        "task": "roberta_sentiment",
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "model": {
            "base_model": base_model,
            "parameters": parameters,
            "labels": list(LABELS),
            "weights_sha256": weights_sha256,
        },
        "metrics": {"evaluation_set": f"{dataset.name}/test", **scores["test"].rounded()},
        "validation": scores["validation"].rounded(),
        "baselines": {
            "majority": {"label": majority_label, **scores["majority"].rounded()},
            "vader_lexicon": scores["vader"].rounded(),
        },
        "dataset": {
            "name": dataset.name,
            "sha256": dataset.sha256,
            "train": _counts(dataset.train),
            "validation": _counts(dataset.validation),
            "test": _counts(dataset.test),
        },
        "time": {
            "steps": steps,
            "samples": samples,
            "train_seconds": round(train_seconds, 2),
            "total_seconds": round(total_seconds, 2),
            "samples_per_second": round(samples / train_seconds, 2),
        },
        "settings": {
            # Folders of the machine say nothing about the run.
            key: value
            for key, value in asdict(settings).items()
            if key not in ("model", "data", "output")
        },
        "versions": {
            "python": platform.python_version(),
            **{name.lower(): version(name) for name in PACKAGES},
        },
        "hardware": _hardware(backend),
    }


def _counts(examples: Sequence[Example]) -> dict[str, int]:
    """Texts of a split, in all and by label."""
    labels = Counter(example.label for example in examples)
    return {"texts": len(examples)} | {name: labels[index] for index, name in enumerate(LABELS)}


def _hardware(backend: Backend) -> dict[str, object]:
    """What the run ran on. Memory is the most that this process held."""
    device = backend.device
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        name = str(torch.cpu.get_capabilities().get("cpu_name") or platform.machine())
    unit = 1 if platform.system() == "Darwin" else 1024
    return {
        "device": device.type,
        "name": name,
        "machine": platform.machine(),
        "logical_cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "precision": backend.precision,
        "precision_reason": backend.reason,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
    }
