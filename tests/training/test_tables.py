"""Labelled texts from CSV, TSV, JSON lines and the hub."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from training.command import InputError
from training.roberta_sentiment.dataset import (
    Dataset,
    Example,
    read_dataset,
    read_hub_dataset,
    split_of,
)

pytestmark = pytest.mark.training

ROWS = [
    (f'a "quoted", {label} text {number}\nof two lines', label, split)
    for split in ("train", "validation", "test")
    for label in ("negative", "neutral", "positive")
    for number in (1, 2)
]


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def write(path: Path, rows: list[tuple[Any, Any, Any]]) -> Path:
    if path.suffix == ".jsonl":
        lines = [
            json.dumps(dict(zip(("text", "label", "split"), row, strict=True))) for row in rows
        ]
    else:
        mark = "\t" if path.suffix == ".tsv" else ","
        lines = [mark.join(("text", "label", "split"))]
        lines += [mark.join((quoted(text), str(label), split)) for text, label, split in rows]
    path.write_text(
        "\n".join(lines) + "\n", encoding="utf-8-sig" if path.suffix == ".csv" else None
    )
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_every_kind_of_table_gives_the_same_data(tmp_path: Path, suffix: str) -> None:
    dataset = read_dataset(write(tmp_path / f"mood{suffix}", ROWS))
    assert dataset.name == f"mood-{dataset.sha256[:12]}"
    for split in ("train", "validation", "test"):
        assert getattr(dataset, split) == tuple(
            Example(text, ("negative", "neutral", "positive").index(label))
            for text, label, of in ROWS
            if of == split
        )


def test_numbers_and_other_names_of_splits_are_understood(tmp_path: Path) -> None:
    numbers = {"negative": 0, "neutral": 1, "positive": 2}
    other = {"train": "Train", "validation": "dev", "test": "test"}
    rows = [(text, numbers[label], other[split]) for text, label, split in ROWS]
    one = read_dataset(write(tmp_path / "numbers.csv", rows))
    names = read_dataset(write(tmp_path / "names.csv", ROWS))
    assert (one.train, one.validation) == (names.train, names.validation)


def test_rows_without_a_split_are_split_by_their_text(tmp_path: Path) -> None:
    path = tmp_path / "texts.csv"
    lines = [f"text {number},{number % 3}" for number in range(90)]
    path.write_text("text,label\n" + "\n".join(lines), encoding="utf-8")
    dataset: Dataset = read_dataset(path)
    assert len(dataset.train + dataset.validation + dataset.test) == 90
    for split in ("train", "validation", "test"):
        assert {split_of(example.text) for example in getattr(dataset, split)} == {split}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,mood\nx,1\n", "has no column label"),
        ("a.csv", "", "has no column label and no column text"),
        (
            "a.csv",
            "text,label\ngood,positive\nbad,awful\n",
            "1 of 2 rows .* line 3: label 'awful' is",
        ),
        ("a.tsv", "text\tlabel\n \tpositive\n", "1 of 1 rows .* line 2: no text"),
        ("a.csv", "text,label,split\nx,1,rest\n", "line 2: split 'rest' is none of train"),
        ("a.jsonl", '{"text": "x", "label": 1}\nnot json\n', "1 of 2 rows .* line 2: no text"),
        ("a.jsonl", '{"text": "x", "label": 1.0}\n', "label 1.0 is none of negative, neutral"),
        ("a.csv", "text,label\nx,1\n", "split has no negative and no positive text"),
        ("a.csv", 'text,label\n"x" y,1\n', "is no csv file"),
    ],
)
def test_a_table_that_cannot_be_used_is_told(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_dataset(tmp_path / name)


def test_a_missing_table_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read the texts at .*: No such file"):
        read_dataset(tmp_path / "none.csv")


class Split(list[dict[str, Any]]):
    """A split as the library datasets gives it: rows, and what the numbers of the label mean."""

    features: ClassVar = {"label": SimpleNamespace(names=["neutral", "positive", "negative"])}


def hub(monkeypatch: pytest.MonkeyPatch, load: Any) -> None:
    module = ModuleType("datasets")
    module.load_dataset = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)


def test_a_hub_data_set_keeps_its_splits_and_the_meaning_of_its_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    order = ["neutral", "positive", "negative"]

    def load(*names: str | None) -> dict[str, Split]:
        asked.append(names)
        return {
            split: Split(
                {"text": text, "label": order.index(label)}
                for text, label, of in ROWS
                if of == split
            )
            for split in ("train", "validation", "test")
        }

    hub(monkeypatch, load)
    dataset = read_hub_dataset("hub:owner/mood:plain")
    assert asked == [("owner/mood", "plain")]
    assert dataset.name == f"owner/mood:plain-{dataset.sha256[:12]}"
    assert dataset.train[0] == Example(ROWS[0][0], 0)
    assert [example.label for example in dataset.test] == [0, 0, 1, 1, 2, 2]


def test_what_the_hub_cannot_give_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"needs the package datasets; python -m pip install data"):
        read_hub_dataset("hub:owner/mood")

    def fail(*_: object) -> None:
        raise ConnectionError("no route\nto host")

    hub(monkeypatch, fail)
    with pytest.raises(InputError, match=r"cannot load the data set owner/mood: no route$"):
        read_hub_dataset("hub:owner/mood")
    hub(monkeypatch, lambda *_: {"train": [{"sentence": "x", "label": 1}]})
    with pytest.raises(InputError, match="owner/mood, train, row 0: no text"):
        read_hub_dataset("hub:owner/mood")
