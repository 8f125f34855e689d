"""Token ids of texts, and the order in which they are trained on."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from training.roberta_sentiment.dataset import Example

BATCHES_PER_BUCKET = 20


@dataclass(frozen=True)
class Encoded:
    """The token ids of one text, special tokens included, and its label."""

    ids: tuple[int, ...]
    label: int


def encode(examples: Sequence[Example], *, tokenizer: Any, max_length: int) -> list[Encoded]:
    """Tokenize; a text over `max_length` tokens is cut."""
    texts = [example.text for example in examples]
    rows = tokenizer(texts, truncation=True, max_length=max_length)["input_ids"]
    return [Encoded(tuple(ids), example.label) for ids, example in zip(rows, examples, strict=True)]


def epoch(
    examples: Sequence[Encoded], *, batch_size: int, seed: int, number: int
) -> list[list[Encoded]]:
    """The batches of one epoch, every example once, in an order that `seed` and `number` fix.

    Texts of like length share a batch, drawn from buckets of shuffled texts: that saves padding,
    at the price of many tensor shapes. A processor or GPU takes any shape; a compiler that builds
    one program a shape, as Neuron's does, would need a fixed length instead.
    """
    generator = random.Random(f"{seed}/{number}")  # noqa: S311 - an order, not a secret
    order = list(examples)
    generator.shuffle(order)
    batches = []
    bucket_size = batch_size * BATCHES_PER_BUCKET
    for start in range(0, len(order), bucket_size):
        bucket = sorted(order[start : start + bucket_size], key=lambda example: len(example.ids))
        batches += [bucket[at : at + batch_size] for at in range(0, len(bucket), batch_size)]
    generator.shuffle(batches)
    return batches


def endless(examples: Sequence[Encoded], *, batch_size: int, seed: int) -> Iterator[list[Encoded]]:
    """Epoch after epoch."""
    number = 0
    while True:
        yield from epoch(examples, batch_size=batch_size, seed=seed, number=number)
        number += 1


def collate(
    batch: Sequence[Encoded], *, pad: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids and attention mask, each [batch, longest], and labels [batch], all int64."""
    longest = max(len(example.ids) for example in batch)
    ids = torch.full((len(batch), longest), pad, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, example in enumerate(batch):
        ids[row, : len(example.ids)] = torch.tensor(example.ids)
        mask[row, : len(example.ids)] = 1
    labels = torch.tensor([example.label for example in batch])
    return ids.to(device), mask.to(device), labels.to(device)
