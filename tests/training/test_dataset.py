"""Reading, labelling and splitting tweets."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.command import InputError
from training.roberta_sentiment.dataset import label_of, read_dataset, split_of
from training.roberta_sentiment.tables import LABELS

pytestmark = pytest.mark.training


@pytest.mark.parametrize(
    ("rating", "label"),
    [
        (-4, "negative"),
        (-0.5, "negative"),
        (-0.49, "neutral"),
        (0, "neutral"),
        (0.49, "neutral"),
        (0.5, "positive"),
        (4, "positive"),
    ],
)
def test_labels_follow_the_mean_rating(rating: float, label: str) -> None:
    assert LABELS[label_of(rating)] == label


def test_the_split_of_a_text_is_fixed() -> None:
    # Literal values: a change of the split would make every earlier result incomparable.
    texts = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]
    assert {text: split_of(text) for text in texts if split_of(text) != "train"} == {
        "a": "test",
        "c": "validation",
        "h": "test",
        "i": "test",
    }


def test_splits_are_disjoint_whole_and_independent_of_order(tweets: Path, tmp_path: Path) -> None:
    dataset = read_dataset(tweets)
    splits = [dataset.train, dataset.validation, dataset.test]
    texts = [{example.text for example in split} for split in splits]
    assert sum(len(split) for split in splits) == len(set.union(*texts)) == 240
    lines = tweets.read_text(encoding="utf-8").splitlines()
    turned = tmp_path / "turned.txt"
    turned.write_text("\n".join(reversed(lines)), encoding="utf-8")
    again = read_dataset(turned)
    assert set(again.test) == set(dataset.test)
    assert set(again.validation) == set(dataset.validation)


def test_html_entities_are_decoded_and_bad_bytes_do_not_stop_the_reading(
    tweets: Path, tmp_path: Path
) -> None:
    assert all("&amp;" not in example.text for example in read_dataset(tweets).train)
    path = tmp_path / "bytes.txt"
    path.write_bytes(tweets.read_bytes() + b"900\t2.0\tcaf\xe9 is good\n")
    dataset = read_dataset(path)
    texts = {example.text for example in dataset.train + dataset.validation + dataset.test}
    assert "caf\ufffd is good" in texts


def test_another_file_is_named_by_its_content_not_as_vaders(tweets: Path) -> None:
    dataset = read_dataset(tweets)
    assert dataset.name == f"tweets-{dataset.sha256[:12]}"


@pytest.mark.parametrize(
    "line",
    [
        "no tabs here",
        "1\tmuch\ttext",
        "1\t4.1\ttext",
        "1\t-4.1\ttext",
        "1\t2.0\t ",
        "x\t1.0\ttext",
        "1\tnan\ta",
    ],
)
def test_a_garbled_line_is_told_with_its_number(tweets: Path, tmp_path: Path, line: str) -> None:
    path = tmp_path / "garbled.txt"
    path.write_bytes(tweets.read_bytes() + line.encode() + b"\n")
    with pytest.raises(InputError, match=r"1 of \d+ lines are not .* the first is line 241"):
        read_dataset(path)


def test_a_split_without_one_of_the_labels_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "few.txt"
    path.write_text("1\t2.0\tgood\n", encoding="utf-8")
    with pytest.raises(InputError, match="split has no negative and no neutral"):
        read_dataset(path)
