"""Labelled texts, split for training, validation and test.

A file is a table (`tables.py`), or rated tweets in the format of VADER's ground truth: one tweet a
line, `number <tab> mean rating <tab> text`, ratings from -4 (most negative) to 4.
"""

import hashlib
import html
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from training.command import InputError
from training.files import sha256_of
from training.roberta_sentiment.tables import HUB, LABELS, SUFFIXES, Row, read_hub, read_table
from training.roberta_sentiment.tweets import TWEETS_SHA256

NEUTRAL_BELOW = 0.5


@dataclass(frozen=True)
class Example:
    """A text and its label, an index into LABELS."""

    text: str
    label: int


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Three disjoint splits. `name` says what was split, for results that are compared later."""

    name: str
    sha256: str
    train: tuple[Example, ...]
    validation: tuple[Example, ...]
    test: tuple[Example, ...]


def label_of(rating: float) -> int:
    """The label of a mean rating: neutral while its absolute value is under 0.5."""
    if abs(rating) < NEUTRAL_BELOW:
        return 1
    return 2 if rating > 0 else 0


def split_of(text: str) -> str:
    """The split of a text, by its hash: 80 % train, 10 % validation, 10 % test.

    The same text is in the same split in every file, on every machine, in any order.
    """
    bucket = int(hashlib.sha256(text.encode()).hexdigest(), 16) % 10
    return "train" if bucket < 8 else "validation" if bucket == 8 else "test"


def read_dataset(path: Path) -> Dataset:
    """Read, label and split a file. Rows that name no split are split by their text.

    Raises:
        InputError: the file is missing or garbled, or a split lacks a label.
    """
    rows = read_table(path) if path.suffix in SUFFIXES else _read_tweets(path)
    digest = sha256_of(path)
    name = "vader-tweets" if digest == TWEETS_SHA256 else f"{path.stem}-{digest[:12]}"
    return _split(rows, name=name, sha256=digest, origin=str(path))


def read_hub_dataset(reference: str) -> Dataset:
    """Read `hub:owner/name` or `hub:owner/name:configuration`, with the splits of its author.

    Raises:
        InputError: the data set cannot be loaded, or a split lacks a label.
    """
    name = reference.removeprefix(HUB)
    rows = read_hub(name)
    digest = hashlib.sha256(repr(rows).encode()).hexdigest()
    return _split(rows, name=f"{name}-{digest[:12]}", sha256=digest, origin=reference)


def _split(rows: list[Row], *, name: str, sha256: str, origin: str) -> Dataset:
    splits: dict[str, list[Example]] = {"train": [], "validation": [], "test": []}
    for text, label, split in rows:
        splits[split or split_of(text)].append(Example(text, label))
    for split, examples in splits.items():
        present = Counter(example.label for example in examples)
        if missing := [label for index, label in enumerate(LABELS) if not present[index]]:
            raise InputError(f"{origin}: the {split} split has no {' and no '.join(missing)} text")
    return Dataset(
        name=name,
        sha256=sha256,
        train=tuple(splits["train"]),
        validation=tuple(splits["validation"]),
        test=tuple(splits["test"]),
    )


def _read_tweets(path: Path) -> list[Row]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise InputError(
            f"cannot read the tweets at {path}: {error.strerror}; "
            "python -m training.roberta_sentiment.tweets --output FILE gets them"
        ) from error
    rows: list[Row] = []
    garbled = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            example = _parse(line)
            if example is None:
                garbled.append(number)
            else:
                rows.append((example.text, example.label, None))
    if garbled:
        raise InputError(
            f"{path} is not a file of rated tweets: {len(garbled)} of {len(lines)} lines are not "
            f"'number <tab> rating <tab> text', the first is line {garbled[0]}; a table of labels "
            f"ends in {', '.join(SUFFIXES)}"
        )
    return rows


def _parse(line: str) -> Example | None:
    """One line of the file, or None where it is garbled."""
    fields = line.rstrip("\r").split("\t")
    if len(fields) != 3 or not fields[0].isdecimal():
        return None
    try:
        rating = float(fields[1])
    except ValueError:
        return None
    text = html.unescape(fields[2]).strip()
    return Example(text, label_of(rating)) if text and -4 <= rating <= 4 else None
