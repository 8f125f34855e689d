"""Labelled texts from a table (CSV, TSV, JSON lines) or from a data set of the Hugging Face hub.

Columns: `text`; `label`, one of the three names or its index 0 to 2; and, where the author has
split the data, `split`.
"""

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from training.command import InputError, first_line

LABELS = ("negative", "neutral", "positive")
SPLITS = {
    "train": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}
SUFFIXES = (".csv", ".tsv", ".jsonl")
HUB = "hub:"
HUB_PACKAGE = "datasets==5.2.0"

Row = tuple[str, int, str | None]  # text, label, split


def read_table(path: Path) -> list[Row]:
    """The rows of a file; its suffix says what kind it is.

    Raises:
        InputError: the file cannot be read, or rows are not what they should be.
    """
    rows: list[Row] = []
    bad: list[str] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            entries = _json_lines(file) if path.suffix == ".jsonl" else _delimited(file, path)
            for number, entry in entries:
                row = parse(entry)
                if isinstance(row, str):
                    bad.append(f"line {number}: {row}")
                else:
                    rows.append(row)
    except OSError as error:
        raise InputError(f"cannot read the texts at {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is no {path.suffix[1:]} file: {error}") from error
    if bad:
        raise InputError(
            f"{path}: {len(bad)} of {len(bad) + len(rows)} rows cannot be used; {bad[0]}; needed "
            f"are text, label ({', '.join(LABELS)}, or 0 to 2) and, if you like, split "
            "(train, validation, test)"
        )
    return rows


def read_hub(name: str) -> list[Row]:
    """The rows of a data set on the hub: `owner/name`, or `owner/name:configuration`.

    Raises:
        InputError: the package or the data set is not there, or has other columns or labels.
    """
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise InputError(
            f"{HUB}{name} needs the package datasets; python -m pip install {HUB_PACKAGE}"
        ) from error
    repository, _, configuration = name.partition(":")
    try:
        splits = load_dataset(repository, configuration or None)
    except Exception as error:  # the library has an error of its own for each of many causes
        raise InputError(f"cannot load the data set {name}: {first_line(error)}") from error
    rows: list[Row] = []
    for split, entries in splits.items():
        names = getattr(getattr(entries, "features", {}).get("label"), "names", None)
        for number, entry in enumerate(entries):
            label = entry.get("label")
            if names and isinstance(label, int) and 0 <= label < len(names):
                label = names[label]
            row = parse({**entry, "label": label, "split": split})
            if isinstance(row, str):
                raise InputError(f"the data set {name}, {split}, row {number}: {row}")
            rows.append(row)
    return rows


def parse(entry: Mapping[str, Any]) -> Row | str:
    """A row, or what is wrong with it."""
    text, label, split = entry.get("text"), entry.get("label"), entry.get("split")
    if not isinstance(text, str) or not text.strip():
        return "no text"
    name = str(label).strip().lower()
    if name in LABELS:
        number = LABELS.index(name)
    elif name in ("0", "1", "2"):
        number = int(name)
    else:
        return f"label {label!r} is none of {', '.join(LABELS)}"
    if split is not None and str(split).strip().lower() not in SPLITS:
        return f"split {split!r} is none of train, validation, test"
    return text.strip(), number, SPLITS[str(split).strip().lower()] if split is not None else None


def _delimited(file: Any, path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
    missing = {"text", "label"} - set(reader.fieldnames or ())
    if missing:
        raise InputError(f"{path} has no column {' and no column '.join(sorted(missing))}")
    for entry in reader:
        yield reader.line_num, entry


def _json_lines(file: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(file, start=1):
        if line.strip():
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                entry = None
            yield number, entry if isinstance(entry, dict) else {}
