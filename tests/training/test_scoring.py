"""Metrics against scikit-learn, and the baselines."""

from __future__ import annotations

import pytest
from sklearn.metrics import accuracy_score, f1_score, recall_score

from training.roberta_sentiment.dataset import Example
from training.roberta_sentiment.scoring import majority, score, vader

pytestmark = pytest.mark.training

TRUTH = [0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 1, 0]


@pytest.mark.parametrize(
    "given",
    [
        [0, 1, 0, 1, 2, 2, 2, 0, 2, 1, 1, 0],
        [2] * 12,
        TRUTH,
        [(label + 1) % 3 for label in TRUTH],
    ],
    ids=["mixed", "one label", "all right", "all wrong"],
)
def test_scores_agree_with_scikit_learn(given: list[int]) -> None:
    scores = score(TRUTH, given)
    options = {"labels": [0, 1, 2], "average": "macro", "zero_division": 0}
    assert scores.accuracy == pytest.approx(accuracy_score(TRUTH, given))
    assert scores.macro_f1 == pytest.approx(f1_score(TRUTH, given, **options))
    assert scores.macro_recall == pytest.approx(recall_score(TRUTH, given, **options))


def test_a_label_that_is_not_in_the_truth_counts_as_zero() -> None:
    assert score([0, 0], [0, 0]).macro_f1 == pytest.approx(1 / 3)


def test_the_majority_is_that_of_the_training_split() -> None:
    train = [Example("a", 1), Example("b", 1), Example("c", 2)]
    test = [Example("d", 2), Example("e", 2), Example("f", 2), Example("g", 1)]
    label, scores = majority(train, test)
    assert (label, scores.accuracy) == ("neutral", 0.25)


def test_vader_knows_plain_words() -> None:
    test = [
        Example("I love this, great!", 2),
        Example("horrible, I hate it", 0),
        Example("the table is at the wall", 1),
        Example("not bad at all", 0),
    ]
    assert vader(test).accuracy == 0.75
