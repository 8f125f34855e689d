"""Sentiment as a task of the training loop: token ids, loss, arithmetic."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from training.core.data import EMPTY
from training.roberta_sentiment.dataset import Example
from training.roberta_sentiment.text import plain

IGNORED = -100


@dataclass(frozen=True)
class Encoded:
    """The token ids of one text, special tokens included, and its label."""

    ids: tuple[int, ...]
    label: int


def encode(
    examples: Sequence[Example], *, tokenizer: Any, max_length: int, replace: bool
) -> list[Encoded]:
    """Tokenize; a text over `max_length` tokens is cut."""
    texts = [plain(example.text) if replace else example.text for example in examples]
    rows = tokenizer(texts, truncation=True, max_length=max_length)["input_ids"]
    return [Encoded(tuple(ids), example.label) for ids, example in zip(rows, examples, strict=True)]


def collate(
    examples: Sequence[Encoded], rows: Sequence[int], *, width: int, pad: int
) -> dict[str, torch.Tensor]:
    """Ids and attention mask, [rows, width], and labels, [rows]; all int64.

    An EMPTY row has one token, so that attention has something to look at, and no label.
    """
    ids, mask, labels = [], [], []
    for row in rows:
        known, label = ((), IGNORED) if row == EMPTY else (examples[row].ids, examples[row].label)
        shown = len(known) or 1
        ids.append([*known, *[pad] * (width - len(known))])
        mask.append([1] * shown + [0] * (width - shown))
        labels.append(label)
    return {"ids": torch.tensor(ids), "mask": torch.tensor(mask), "labels": torch.tensor(labels)}


def class_weights(labels: Sequence[int], *, classes: int) -> tuple[float, ...]:
    """Weights that give every class the same share of the loss, one on average."""
    return tuple(len(labels) / (classes * max(1, labels.count(index))) for index in range(classes))


class SentimentTask:
    """Classify texts; the loss is cross-entropy, weighted by label.

    Args:
        model: on the device.
        examples: to train on.
        weights: of the labels, on the device.
        pad: the padding token's id.
    """

    def __init__(
        self, model: Any, examples: Sequence[Encoded], *, weights: torch.Tensor, pad: int
    ) -> None:
        self.model = model
        self._examples = examples
        self._weights = weights
        self._pad = pad
        embeddings = model.get_input_embeddings().weight.numel()
        self._parameters = sum(tensor.numel() for tensor in model.parameters()) - embeddings

    def collate(self, rows: Sequence[int], width: int) -> dict[str, torch.Tensor]:
        """Rows as tensors on the host."""
        return collate(self._examples, rows, width=width, pad=self._pad)

    def loss(
        self, forward: Callable[..., Any], batch: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums over the micro-batch: of the weighted losses, and of the weights."""
        logits = forward(input_ids=batch["ids"], attention_mask=batch["mask"]).logits.float()
        labels = batch["labels"]
        loss = cross_entropy(
            logits, labels, weight=self._weights, reduction="sum", ignore_index=IGNORED
        )
        weights = self._weights[labels.clamp(min=0)] * (labels != IGNORED)
        return loss, weights.sum()

    def flops(self, width: int) -> float:
        """Forward and backward of one text, padding included, as the device computes it.

        Six a parameter and token, without the embedding's look-ups, and attention's two products.
        """
        config = self.model.config
        attention = 12.0 * config.num_hidden_layers * config.hidden_size * width * width
        return float(6.0 * self._parameters * width + attention)
