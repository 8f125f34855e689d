"""Reads all shards of a folder and tells everything that is wrong with them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from training.bert_pretraining.shards import Shard, find_shards, inspect, read_shard
from training.bert_pretraining.vocabulary import CLS, Vocabulary
from training.command import InputError

KINDS = ("training", "test")


def check_shards(folder: Path, vocabulary: Vocabulary, say: Callable[[str], None]) -> None:
    """Check every shard and show what there is.

    Raises:
        InputError: there is no training shard, or something is wrong; names every problem.
    """
    problems: list[str] = []
    sound: list[Shard] = []
    for kind in KINDS:
        paths = find_shards(folder, kind)
        if not paths and kind == "training":
            raise InputError(f"{folder} has no shard *_training_*.hdf5")
        samples = predictions = tokens = 0
        for path in paths:
            try:
                shard, arrays = inspect(path), read_shard(path)
            except InputError as error:
                problems.append(str(error))
                continue
            sound.append(shard)
            problems += [f"{path}: {one}" for one in _wrong(shard, arrays, vocabulary)]
            samples += shard.samples
            tokens += int(np.count_nonzero(arrays["input_mask"]))
            predictions += int(np.count_nonzero(arrays["masked_lm_positions"]))
        say(
            f"{kind}: {len(paths)} shards, {samples} samples, {tokens} tokens, "
            f"{predictions} predictions"
        )
    widths = sorted({(shard.sequence, shard.predictions) for shard in sound})
    if len(widths) > 1:
        problems.append(f"the shards have several widths: {', '.join(map(str, widths))}")
    if problems:
        raise InputError(f"{len(problems)} problems:\n  " + "\n  ".join(problems))
    say(f"{widths[0][0]} tokens and at most {widths[0][1]} predictions a sample; all sound")


def _wrong(shard: Shard, arrays: dict[str, Any], vocabulary: Vocabulary) -> list[str]:
    """What is wrong with the values of a shard."""
    ids, mask = arrays["input_ids"], arrays["input_mask"]
    positions, labels = arrays["masked_lm_positions"], arrays["masked_lm_ids"]
    order, segments = arrays["next_sentence_labels"], arrays["segment_ids"]
    there = np.logical_and.accumulate(positions > 0, axis=1)
    lengths = mask.astype(np.int64).sum(1)
    size = len(vocabulary)
    padding = np.arange(shard.sequence) >= lengths[:, None]
    steps = np.where(there[:, 1:], np.diff(positions.astype(np.int64), axis=1), 1)
    findings: Sequence[tuple[str, Any]] = (
        ("with an id that the vocabulary has not", ((ids < 0) | (ids >= size)).any(1)),
        (
            "with an id to predict that the vocabulary has not",
            (there & ((labels < 0) | (labels >= size))).any(1),
        ),
        ("that do not begin with the vocabulary's [CLS]", ids[:, 0] != vocabulary.id_of(CLS)),
        ("whose mask is not ones and then zeros", (mask != ~padding).any(1)),
        ("whose sentences are not numbered 0 and 1", ((segments < 0) | (segments > 1)).any(1)),
        (
            "with a position outside of their tokens",
            ((positions < 0) | (there & (positions >= lengths[:, None]))).any(1),
        ),
        ("whose positions do not rise", (steps <= 0).any(1)),
        ("with nothing to predict", ~there.any(1)),
        ("whose next_sentence_labels is neither 0 nor 1", (order < 0) | (order > 1)),
    )
    problems = [
        f"{int(found.sum())} of {shard.samples} samples {what}, the first is {int(found.argmax())}"
        for what, found in findings
        if found.any()
    ]
    if shard.vocabulary not in ("", vocabulary.sha256):
        problems.append("it was made with another vocabulary than the one given")
    return problems
