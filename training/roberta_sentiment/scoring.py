"""How good labels are: metrics, the model's own labels, and two baselines to beat."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

from training.core.backend import Backend
from training.core.data import EMPTY, LENGTH_STEP
from training.roberta_sentiment.dataset import Example
from training.roberta_sentiment.tables import LABELS
from training.roberta_sentiment.task import Encoded, collate

EVALUATION_BATCH = 64
# The thresholds that VADER's authors publish for its compound score.
VADER_THRESHOLD = 0.05


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Shares from 0 to 1. Macro: the plain mean over the labels, so that rare ones count as much.

    A label that is never given has precision 0; one that is not in the truth has recall 0.
    """

    accuracy: float
    macro_f1: float
    macro_recall: float

    def rounded(self) -> dict[str, float]:
        """For people and files: four decimals."""
        return {name: round(value, 4) for name, value in asdict(self).items()}


def score(truth: Sequence[int], given: Sequence[int]) -> Scores:
    """Compare labels, indices into LABELS, with the true ones."""
    hits = Counter(one for one, other in zip(truth, given, strict=True) if one == other)
    in_truth, in_given = Counter(truth), Counter(given)
    labels = range(len(LABELS))
    recalls = [hits[label] / max(1, in_truth[label]) for label in labels]
    # F1 = 2 hits / (times in truth + times given)
    f1s = [2 * hits[label] / max(1, in_truth[label] + in_given[label]) for label in labels]
    return Scores(
        accuracy=hits.total() / len(truth),
        macro_f1=sum(f1s) / len(f1s),
        macro_recall=sum(recalls) / len(recalls),
    )


def predict(
    model: Any, examples: Sequence[Encoded], *, pad: int, backend: Backend, width: int | None
) -> list[int]:
    """The model's labels, computed in float32 as the served model does; all workers share the work.

    Args:
        model: on the device.
        examples: to label.
        pad: the padding token's id.
        backend: whose workers take every n-th batch each.
        width: of all batches, or None for the shortest that fits each.
    """
    model.eval()
    by_length = sorted(range(len(examples)), key=lambda index: len(examples[index].ids))
    labels = [0.0] * len(examples)
    starts = range(0, len(by_length), EVALUATION_BATCH)
    with torch.no_grad():
        for start in starts[backend.workers.rank :: backend.workers.world]:
            rows = by_length[start : start + EVALUATION_BATCH]
            longest = len(examples[rows[-1]].ids)
            filled = rows + [EMPTY] * (EVALUATION_BATCH - len(rows))
            across = width or -(-longest // LENGTH_STEP) * LENGTH_STEP
            batch = backend.move(collate(examples, filled, width=across, pad=pad))
            best = model(input_ids=batch["ids"], attention_mask=batch["mask"]).logits.argmax(-1)
            backend.sync()
            for row, label in zip(rows, best.tolist(), strict=False):
                labels[row] = float(label)
    return [int(label) for label in backend.sum(labels)]


def confusion(truth: Sequence[int], given: Sequence[int]) -> list[list[int]]:
    """How often each true label (row) was given each label (column)."""
    pairs = Counter(zip(truth, given, strict=True))
    labels = range(len(LABELS))
    return [[pairs[one, other] for other in labels] for one in labels]


def majority(train: Sequence[Example], test: Sequence[Example]) -> tuple[str, Scores]:
    """The most frequent label of the training split, given to every text."""
    label = Counter(example.label for example in train).most_common(1)[0][0]
    return LABELS[label], score([example.label for example in test], [label] * len(test))


def vader(test: Sequence[Example]) -> Scores:
    """VADER's lexicon and rules. Its authors tuned them on this very corpus: a hard baseline."""
    analyzer = SentimentIntensityAnalyzer()
    compounds = [analyzer.polarity_scores(example.text)["compound"] for example in test]
    given = [
        2 if compound >= VADER_THRESHOLD else 0 if compound <= -VADER_THRESHOLD else 1
        for compound in compounds
    ]
    return score([example.label for example in test], given)
