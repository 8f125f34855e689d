"""What a pre-training run reports: `results.json`, and the table that a person reads."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from training.bert_pretraining.evaluation import Baselines, Evaluation
from training.bert_pretraining.settings import Settings
from training.bert_pretraining.vocabulary import Vocabulary

PACKAGES = ("transformers", "tokenizers", "safetensors", "numpy", "h5py")


def table(found: Evaluation, guess: Baselines, *, kind: str) -> str:
    """A small table, one row a way of predicting."""
    return "\n".join(
        [
            f"\n{kind} samples     nats a masked token  right tokens  right order",
            f"all tokens alike  {guess.uniform:20.3f}",
            f"by frequency      {guess.unigram:20.3f}",
            f"this model        {found.mlm_loss:20.3f}  {found.mlm_accuracy:12.3f}  "
            f"{found.nsp_accuracy:11.3f}",
        ]
    )


def build(
    *,
    settings: Settings,
    model: Any,
    vocabulary: Vocabulary,
    weights_sha256: str,
    data: Mapping[str, Any],
    evaluation_set: str,
    evaluation: Evaluation,
    baselines: Baselines,
    facts: Mapping[str, object],
) -> dict[str, object]:
    """The content of `results.json`; its schema is `training/results.schema.json`.

    `weights_sha256` is that of `model.safetensors` and ties the figures to one set of weights;
    `facts` are those of `training.core.results.run_facts`.
    """
    config = model.config
    return {
        "schema_version": 1,
        "task": "bert_pretraining",
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "model": {
            "base_model": Path(settings.start_from).resolve().name
            if settings.start_from
            else "bert",
            "parameters": sum(tensor.numel() for tensor in model.parameters()),
            "layers": config.num_hidden_layers,
            "hidden": config.hidden_size,
            "heads": config.num_attention_heads,
            "intermediate": config.intermediate_size,
            "positions": config.max_position_embeddings,
            "vocabulary": len(vocabulary),
            "weights_sha256": weights_sha256,
        },
        "metrics": {"evaluation_set": evaluation_set, **evaluation.rounded()},
        "baselines": {
            "unigram_mlm_loss": round(baselines.unigram, 6),
            "uniform_mlm_loss": round(baselines.uniform, 6),
        },
        "dataset": dict(data),
        "settings": settings.public(),
        **facts,
    }
