"""Pre-training as a task of the loop: masked tokens and the order of two sentences."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from training.bert_pretraining.samples import Samples
from training.core.data import EMPTY

IGNORED = -100


def collate(samples: Samples, rows: Sequence[int]) -> dict[str, torch.Tensor]:
    """Samples as int64 tensors on the host; an EMPTY row has nothing to predict.

    `ids`, `mask`, `segments` [rows, sequence]; `positions`, `labels` [rows, predictions], the
    labels IGNORED where there is no prediction; `order` [rows].
    """
    known = np.asarray(rows) != EMPTY
    found = samples.take(np.where(known, rows, 0).tolist())
    positions = found["masked_lm_positions"].astype(np.int64)
    there = np.logical_and.accumulate(positions > 0, axis=1) & known[:, None]
    labels = np.where(there, found["masked_lm_ids"], IGNORED)
    order = np.where(known, found["next_sentence_labels"], IGNORED)
    arrays = {
        "ids": found["input_ids"],
        "mask": found["input_mask"],
        "segments": found["segment_ids"],
        "positions": positions,
        "labels": labels,
        "order": order,
    }
    return {name: torch.from_numpy(array.astype(np.int64)) for name, array in arrays.items()}


class PretrainingTask:
    """Predict masked tokens, and whether the second sentence follows the first.

    A sample's loss of the order counts once for each of its predictions. So both losses have one
    weight, the predictions of the global batch, and neither depends on how that is cut. Where all
    samples have as many predictions, it is the loss of BertForPreTraining.

    Args:
        model: a BertForPreTraining on the device.
        samples: to train on.
    """

    def __init__(self, model: Any, samples: Samples) -> None:
        self.model = model
        self._samples = samples

    def collate(self, rows: Sequence[int], width: int) -> dict[str, torch.Tensor]:
        """Rows as tensors on the host."""
        return collate(self._samples, rows)

    def loss(
        self, forward: Callable[..., Any], batch: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums over the micro-batch: of both losses, and of the predictions."""
        tokens, order = _losses(forward, batch)
        weights = (batch["labels"] != IGNORED).sum(1).float()
        return tokens.sum() + (order * weights).sum(), weights.sum()

    def flops(self, width: int) -> float:
        """Forward and backward of one sample, padding included, as the device computes it.

        Six a weight and token, and attention's two products: for the layers, the 12 LHS(6H + S) of
        the reference where the inner width is 4H. The heads see the predictions and the first token
        alone, and an embedding is a look-up.
        """
        config = self.model.config
        hidden, inner = config.hidden_size, config.intermediate_size
        layer = 4 * hidden * hidden + 2 * hidden * inner
        layers = config.num_hidden_layers * (6 * layer * width + 12 * hidden * width * width)
        predictions = self._samples.predictions * hidden * (hidden + config.vocab_size)
        first = hidden * (hidden + 2)
        return float(layers + 6 * (predictions + first))


def scores(forward: Callable[..., Any], batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Sums over a batch: predictions, their loss, right ones; samples, right orders."""
    logits, follows = _logits(forward, batch)
    labels, order = batch["labels"], batch["order"]
    losses = cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    right = (logits.argmax(-1) == labels).sum()
    ordered = (follows.argmax(-1) == order).sum()
    predictions, samples = (labels != IGNORED).sum(), (order != IGNORED).sum()
    return torch.stack([value.float() for value in (predictions, losses, right, samples, ordered)])


def _logits(
    forward: Callable[..., Any], batch: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both heads' logits in float32."""
    tokens, order = forward(batch["ids"], batch["mask"], batch["segments"], batch["positions"])
    return tokens.float(), order.float()


def _losses(
    forward: Callable[..., Any], batch: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of each prediction, zero where there is none, and of each sample's order."""
    logits, follows = _logits(forward, batch)
    tokens = cross_entropy(
        logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORED, reduction="none"
    )
    return tokens, cross_entropy(follows, batch["order"], ignore_index=IGNORED, reduction="none")
