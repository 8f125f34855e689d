"""Texts that a model is asked whenever it starts to serve, with the labels it must answer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.command import InputError, first_line
from training.packaging.load_check import Answer

TEXTS = (
    "Covid cases are increasing fast!",
    "I love this so much, thank you!",
    "What a beautiful morning :)",
    "This is the worst service I have ever had.",
    "My flight was cancelled again and nobody helps.",
    "The meeting starts at nine.",
)
# Another processor rounds otherwise, bf16 above all: a near tie would roll a good model back.
# At 0.6 the next label has 0.4 at most.
SURE = 0.6


def smoke_list(answers: Sequence[Answer]) -> list[dict[str, str]]:
    """The smoke part of a manifest, from the answers to TEXTS.

    Those that the model is sure of, or the surest one where there is none.
    """
    least = min(SURE, max(answer.score for answer in answers))
    return [
        {"text": text, "label": answer.label}
        for text, answer in zip(TEXTS, answers, strict=True)
        if answer.score >= least
    ]


def ask_weights(folder: Path) -> list[Answer]:
    """What the weights in a model folder answer to TEXTS, without the code that will be served.

    Raises:
        InputError: transformers cannot load the folder.
    """
    from transformers import pipeline
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        classify: Any = pipeline("text-classification", model=str(folder), truncation=True)
        rows = classify(list(TEXTS))
    except Exception as error:  # many libraries read these files, and each has its own errors
        raise InputError(f"cannot load the model in {folder}: {first_line(error)}") from error
    return [Answer(row["label"], row["score"]) for row in rows]
