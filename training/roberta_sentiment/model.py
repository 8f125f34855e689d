"""The classifier: an encoder with a new head, its tokenizer, and how both are saved."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import try_to_load_from_cache
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from training.command import InputError, first_line
from training.files import sha256_of
from training.roberta_sentiment.dataset import Example
from training.roberta_sentiment.settings import ModelSource
from training.roberta_sentiment.tables import LABELS
from training.roberta_sentiment.text import plain

# Words of several scripts: a tokenizer of any language knows some of them.
PROBE = "it is a good day 0 1 2 хороший день 今天 يوم 좋은 날 दिन"

# Configuration, tokenizer and weights in a model folder.
FILES = (
    "config.json",
    *("tokenizer*.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.*", "merges.txt", "*.model"),
    *("*.safetensors", "*.bin"),
)


def load(source: ModelSource) -> tuple[Any, Any]:
    """The model (float32) with a fresh head for LABELS, and its tokenizer.

    The tokenizer is told the longest input that the model takes, so that what is saved knows it.

    Raises:
        InputError: the folder is not a model or has no tokenizer, or the hub cannot give it.
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
            source.location, config=config, local_files_only=source.local
        ).float()  # transformers 5 takes the type of the file, and 4 names the argument otherwise
    except Exception as error:  # many libraries read these files, and each has its own errors
        origin = "folder" if source.local else "hub model"
        raise InputError(f"cannot load the {origin} {source.name}: {first_line(error)}") from error
    # Where its files are missing, transformers makes one that knows special tokens only.
    if set(tokenizer(PROBE, add_special_tokens=False).input_ids) <= set(tokenizer.all_special_ids):
        raise InputError(
            f"the tokenizer of {source.name} knows no words; put the tokenizer's files "
            "(tokenizer.json and tokenizer_config.json) beside config.json"
        )
    tokenizer.model_max_length = min(tokenizer.model_max_length, longest_input(config))
    return model, tokenizer


def fingerprint(source: ModelSource) -> str:
    """What tells a model from another of the same name: its files, or its commit on the hub."""
    if not source.local:
        cached = try_to_load_from_cache(source.location, "config.json")
        return Path(cached).parent.name if isinstance(cached, str) else ""
    folder = Path(source.location)
    files = sorted({path for pattern in FILES for path in folder.glob(pattern)})
    facts = [f"{path.name} {path.stat().st_size} {sha256_of(path)}" for path in files]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def longest_input(config: Any) -> int:
    """The most tokens the model has positions for."""
    # RoBERTa and its relatives count positions from the padding id + 1.
    offset = config.pad_token_id + 1 if "roberta" in config.model_type else 0
    return int(config.max_position_embeddings) - offset


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write float32 safetensors, the configuration with label names, and the tokenizer."""
    weights = {name: tensor.cpu().float() for name, tensor in model.state_dict().items()}
    model.save_pretrained(folder, state_dict=weights)
    tokenizer.save_pretrained(folder)


def try_out(folder: Path, examples: Sequence[Example], expected: Sequence[int]) -> None:
    """Load what was saved, as whoever serves it will, and see that it gives the same labels.

    Args:
        folder: of the saved model.
        examples: to label.
        expected: the labels that the trained model gave.

    Raises:
        InputError: it cannot be loaded, or answers otherwise.
    """
    try:
        answers = ask(folder, [example.text for example in examples])
    except Exception as error:  # many libraries read these files, and each has its own errors
        raise InputError(f"the saved model does not load: {first_line(error)}") from error
    wrong = sum(
        answer != LABELS[label] for (answer, _), label in zip(answers, expected, strict=True)
    )
    # Another shape or device rounds otherwise; a label on the edge may fall to the other side.
    if wrong > len(examples) // 20:
        raise InputError(
            f"the saved model gives {wrong} of {len(examples)} texts another label than the "
            "trained one; do not serve it"
        )


def ask(folder: Path, texts: Sequence[str]) -> list[tuple[str, float]]:
    """Label and probability of each text, by a model folder alone."""
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = (
        AutoModelForSequenceClassification.from_pretrained(folder, local_files_only=True)
        .float()
        .eval()
    )
    if getattr(model.config, "names_and_links", "keep") == "replace":
        texts = [plain(text) for text in texts]
    batch = tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        scores, best = model(**batch).logits.softmax(-1).max(-1)
    return [
        (model.config.id2label[index], score)
        for index, score in zip(best.tolist(), scores.tolist(), strict=True)
    ]
