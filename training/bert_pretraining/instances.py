"""Sentences become samples: pairs of segments, masked tokens.

The rules are those of Devlin et al., BERT (2019), and of its `create_pretraining_data.py`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.bert_pretraining.settings import Build
from training.bert_pretraining.vocabulary import CLS, MASK, PAD, SEP, Vocabulary

SPECIAL_TOKENS = 3  # [CLS] A [SEP] B [SEP]
SHORTEST = 2  # tokens of a pair
REPLACED, KEPT = 0.8, 0.1  # shares of the masked tokens; the rest become a random token

Tokens = list[int]
Document = Sequence[Tokens]


@dataclass(frozen=True)
class Pair:
    """Two segments; whether the second is a random one."""

    first: Tokens
    second: Tokens
    random: bool


def pairs(documents: Sequence[Document], build: Build, chance: Any) -> Iterator[Pair]:
    """The pairs of all documents, each sentence used once, half of the second segments random.

    Args:
        documents: of one shard, each a row of sentences as token ids.
        build: lengths and shares.
        chance: a numpy Generator.
    """
    for number in range(len(documents)):
        yield from _pairs_of(number, documents, build, chance)


def _pairs_of(
    number: int, documents: Sequence[Document], build: Build, chance: Any
) -> Iterator[Pair]:
    room = build.sequence - SPECIAL_TOKENS
    document = documents[number]
    at = 0
    while at < len(document):
        wanted = room
        if chance.random() < build.short:
            wanted = int(chance.integers(SHORTEST, room + 1))
        end, length = at, 0
        while end < len(document) and length < wanted:
            length += len(document[end])
            end += 1
        cut = at + (int(chance.integers(1, end - at)) if end - at > 1 else 1)
        first = _joined(document[at:cut])
        alone = end - at == 1
        if len(documents) > 1 and (alone or chance.random() < 0.5):
            second = _random_segment(number, documents, wanted - len(first), chance)
            end, random = cut, True  # what was not used comes next
        elif alone and len(first) > 1:
            first, second = first[: len(first) // 2], first[len(first) // 2 :]
            random = False
        else:
            second, random = _joined(document[cut:end]), False
        at = end
        if first and second:
            yield Pair(*_shortened(first, second, room, chance), random)


def _random_segment(number: int, documents: Sequence[Document], wanted: int, chance: Any) -> Tokens:
    """Sentences of another document, from a random one on."""
    other = int(chance.integers(len(documents) - 1))
    document = documents[other + (other >= number)]
    segment: Tokens = []
    for sentence in document[int(chance.integers(len(document))) :]:
        segment += sentence
        if len(segment) >= wanted:
            break
    return segment


def _shortened(first: Tokens, second: Tokens, room: int, chance: Any) -> tuple[Tokens, Tokens]:
    """Both segments with what is too much taken off the longer one, at either end by chance."""
    excess = len(first) + len(second) - room
    if excess <= 0:
        return first, second
    # As if one token after the other were taken off the one that is the longer then.
    keep = min(len(first), max(room - len(second), room - room // 2))
    return _cut(first, keep, chance), _cut(second, room - keep, chance)


def _cut(tokens: Tokens, keep: int, chance: Any) -> Tokens:
    """A run of `keep` tokens."""
    start = int(chance.binomial(len(tokens) - keep, 0.5)) if len(tokens) > keep else 0
    return tokens[start : start + keep]


def _joined(sentences: Document) -> Tokens:
    return [token for sentence in sentences for token in sentence]


def arrays(
    given: Sequence[Pair], build: Build, vocabulary: Vocabulary, chance: Any
) -> dict[str, Any]:
    """Samples of pairs in the layout of a shard, masked."""
    count = len(given)
    ids: Any = np.full((count, build.sequence), vocabulary.id_of(PAD), dtype=np.int32)
    mask = np.zeros_like(ids, dtype=np.int8)
    segments = np.zeros_like(mask)
    start, end = vocabulary.id_of(CLS), vocabulary.id_of(SEP)
    for row, pair in enumerate(given):
        tokens = [start, *pair.first, end, *pair.second, end]
        ids[row, : len(tokens)] = tokens
        mask[row, : len(tokens)] = 1
        segments[row, len(pair.first) + 2 : len(tokens)] = 1
    positions, labels = _masked(ids, mask, build, vocabulary, chance)
    return {
        "input_ids": ids,
        "input_mask": mask,
        "segment_ids": segments,
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "next_sentence_labels": np.array([pair.random for pair in given], dtype=np.int8),
    }


def _masked(
    ids: Any, mask: Any, build: Build, vocabulary: Vocabulary, chance: Any
) -> tuple[Any, Any]:
    """Choose tokens to predict and hide them in `ids`; their positions and what they were."""
    count, width = ids.shape
    lengths = mask.sum(1, dtype=np.int64)
    wanted = np.clip(np.rint(lengths * build.masked), 1, build.predictions)
    keys = chance.random(ids.shape, dtype=np.float32)
    keys[(mask == 0) | (ids == vocabulary.id_of(CLS)) | (ids == vocabulary.id_of(SEP))] = 2.0
    most = min(build.predictions, width)
    positions = np.argsort(keys, axis=1, kind="stable")[:, :most]
    chosen = (np.arange(most) < wanted[:, None]) & (np.take_along_axis(keys, positions, 1) < 2.0)
    positions = np.sort(np.where(chosen, positions, width), axis=1)
    there = positions < width
    positions = np.where(there, positions, 0).astype(np.int32)
    labels = np.where(there, np.take_along_axis(ids, positions, 1), 0).astype(np.int32)
    lot = chance.random(positions.shape, dtype=np.float32)
    others = chance.integers(0, len(vocabulary), positions.shape, dtype=np.int32)
    hidden = np.where(
        lot < REPLACED, vocabulary.id_of(MASK), np.where(lot < REPLACED + KEPT, labels, others)
    )
    rows = np.broadcast_to(np.arange(count)[:, None], positions.shape)
    ids[rows[there], positions[there]] = hidden[there]
    room = ((0, 0), (0, build.predictions - most))
    return np.pad(positions, room), np.pad(labels, room)
