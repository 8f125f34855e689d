"""How well a model predicts, and what two ways that know no context would score."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from training.bert_pretraining.samples import Samples
from training.bert_pretraining.task import collate, scores
from training.command import InputError
from training.core.backend import Backend
from training.core.data import EMPTY

MOST = 1024  # samples that are enough to score by
COUNTED = 65_536  # samples that are enough to know how often each token is masked


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Means over some samples: nats a masked token, and shares that are right."""

    mlm_loss: float
    mlm_accuracy: float
    nsp_accuracy: float

    def rounded(self) -> dict[str, float]:
        """For results."""
        return {name: round(value, 6) for name, value in vars(self).items()}


@dataclass(frozen=True, kw_only=True)
class Baselines:
    """Nats a masked token of guessing without context.

    Attributes:
        unigram: by how often each token is masked in the training samples; the entropy of the
            tokens, where they are distributed alike.
        uniform: with all tokens alike.
    """

    unigram: float
    uniform: float


def evaluate(
    forward: Callable[..., Any], samples: Samples, *, backend: Backend, micro: int
) -> Evaluation:
    """Score MOST samples at most, the workers sharing the work; all batches have one shape."""
    rows = list(_spread(samples, MOST))
    workers = backend.workers
    stride = micro * workers.world
    totals = [0.0] * 5
    for start in range(0, len(rows), stride):
        mine = rows[start + workers.rank * micro :][:micro]
        batch = backend.move(collate(samples, mine + [EMPTY] * (micro - len(mine))))
        with torch.no_grad(), backend.autocast():
            found = scores(forward, batch)
        backend.sync()
        totals = [total + value for total, value in zip(totals, found.tolist(), strict=True)]
    predictions, loss, right, seen, ordered = backend.sum(totals)
    return Evaluation(
        mlm_loss=loss / predictions, mlm_accuracy=right / predictions, nsp_accuracy=ordered / seen
    )


def baselines(training: Samples, tested: Samples, *, tokens: int) -> Baselines:
    """What guessing without context costs on the samples that a model is scored by.

    Args:
        training: samples to count masked tokens in.
        tested: samples to guess.
        tokens: in the vocabulary.
    """
    counts = np.bincount(_masked(training, COUNTED), minlength=tokens) + 1
    guess = np.log(counts / counts.sum())
    asked = _masked(tested, MOST)
    return Baselines(unigram=float(-guess[asked].mean()), uniform=math.log(tokens))


def _spread(samples: Samples, most: int) -> range:
    """Samples from all over, since shards follow the order of the text."""
    return range(0, len(samples), -(-len(samples) // most))


def _masked(samples: Samples, most: int) -> Any:
    """The ids that are to be predicted in some samples from all over.

    Raises:
        InputError: there are none.
    """
    found = samples.take(_spread(samples, most))
    there = np.logical_and.accumulate(found["masked_lm_positions"] > 0, axis=1)
    if not there.any():
        raise InputError("the samples have nothing to predict; check tells what is wrong with them")
    return found["masked_lm_ids"][there]
