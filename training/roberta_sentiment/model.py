"""The classifier: an encoder with a new head, its tokenizer, and how both are saved."""

from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from training.command import InputError, first_line
from training.roberta_sentiment.dataset import LABELS
from training.roberta_sentiment.settings import ModelSource


def load(source: ModelSource) -> tuple[Any, Any]:
    """The model (float32) with a fresh head for LABELS, and its tokenizer.

    The tokenizer is told the longest input that the model takes, so that what is saved knows it.

    Raises:
        InputError: the folder is not a model, or the hub cannot give it.
    """
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    names = dict(enumerate(LABELS))
    try:
        config = AutoConfig.from_pretrained(
            source.location,
            local_files_only=source.local,
            num_labels=len(LABELS),
            id2label=names,
            label2id={label: index for index, label in names.items()},
        )
        tokenizer = AutoTokenizer.from_pretrained(source.location, local_files_only=source.local)
        model = AutoModelForSequenceClassification.from_pretrained(
            source.location, config=config, local_files_only=source.local, dtype="float32"
        )
    except Exception as error:  # many libraries read these files, and each has its own errors
        origin = "folder" if source.local else "hub model"
        raise InputError(f"cannot load the {origin} {source.name}: {first_line(error)}") from error
    tokenizer.model_max_length = min(tokenizer.model_max_length, longest_input(config))
    return model, tokenizer


def longest_input(config: Any) -> int:
    """The most tokens the model has positions for."""
    # RoBERTa and its relatives count positions from the padding id + 1.
    offset = config.pad_token_id + 1 if "roberta" in config.model_type else 0
    return int(config.max_position_embeddings) - offset


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write float32 safetensors, the configuration with label names, and the tokenizer."""
    model.to("cpu").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
