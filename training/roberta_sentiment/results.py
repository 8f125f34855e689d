"""What a run reports: `results.json`, and the table that a person reads."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from training.roberta_sentiment.dataset import Dataset, Example
from training.roberta_sentiment.scoring import Scores
from training.roberta_sentiment.settings import Settings
from training.roberta_sentiment.tables import LABELS

PACKAGES = ("transformers", "tokenizers", "safetensors", "numpy", "vaderSentiment")


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
    dataset: Dataset,
    scores: Mapping[str, Scores],
    confusion: Sequence[Sequence[int]],
    majority_label: str,
    parameters: int,
    weights_sha256: str,
    facts: Mapping[str, object],
) -> dict[str, object]:
    """The content of `results.json`; its schema is `training/results.schema.json`.

    `scores` has the keys `test`, `validation`, `majority` and `vader`; `weights_sha256` is that of
    `model.safetensors` and ties the figures to one set of weights; `facts` are those of
    `training.core.results.run_facts`.
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
        "confusion": [list(row) for row in confusion],
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
        "settings": settings.public(),
        **facts,
    }


def _counts(examples: Sequence[Example]) -> dict[str, int]:
    """Texts of a split, in all and by label."""
    labels = Counter(example.label for example in examples)
    return {"texts": len(examples)} | {name: labels[index] for index, name in enumerate(LABELS)}
