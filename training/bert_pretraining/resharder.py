"""Writes shards anew in another number of files, for tools that give each worker its own file.

Training here needs no such thing: it finds samples by their number, whatever file they lie in.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from training.bert_pretraining.shards import (
    KEYS,
    Shard,
    find_shards,
    inspect,
    read_shard,
    write_shard,
)
from training.bert_pretraining.vocabulary import FILE, read_vocabulary, save_tokenizer
from training.command import InputError
from training.files import staged_folder

KINDS = ("training", "test")


def reshard(folder: Path, output: Path, *, count: int, say: Callable[[str], None]) -> None:
    """Write the samples of a folder, in their order, to `count` files of a kind.

    Raises:
        InputError: there is nothing to write, or too little for as many files.
    """
    if count < 1:
        raise InputError(f"--shards is {count}, needs to be 1 or more")
    kinds = {kind: [inspect(path) for path in find_shards(folder, kind)] for kind in KINDS}
    if not kinds["training"]:
        raise InputError(f"{folder} has no shard *_training_*.hdf5")
    every = [shard for shards in kinds.values() for shard in shards]
    widths = {(one.sequence, one.predictions) for one in every}
    if len(widths) > 1:
        raise InputError(f"the shards of {folder} have several widths: {sorted(widths)}")
    if len({one.vocabulary for one in every}) > 1:
        raise InputError(f"the shards of {folder} were made with several vocabularies")
    if (samples := sum(shard.samples for shard in kinds["training"])) < count:
        raise InputError(f"{samples} training samples cannot fill {count} shards")
    with staged_folder(output, holds="shards") as staging:
        for kind, shards in kinds.items():
            if shards:
                files = min(count, sum(shard.samples for shard in shards))
                _spread(shards, staging, kind, files)
                say(f"{kind}: {len(shards)} shards became {files}")
        if (folder / FILE).is_file():
            save_tokenizer(read_vocabulary(folder / FILE), staging, longest=every[0].sequence)


def _spread(shards: list[Shard], output: Path, kind: str, count: int) -> None:
    """Write the samples of some shards to `count` files of as many samples, give or take one."""
    total = sum(shard.samples for shard in shards)
    edges = [total * number // count for number in range(count + 1)]
    rest: dict[str, Any] = {}
    written = 0
    for shard in shards:
        arrays = read_shard(shard.path)
        if rest:
            arrays = {key: np.concatenate([rest[key], arrays[key]]) for key in KEYS}
        begin, held = 0, len(arrays["input_ids"])
        while written < count and begin + edges[written + 1] - edges[written] <= held:
            end = begin + edges[written + 1] - edges[written]
            write_shard(
                output / f"text_{kind}_{written:05d}.hdf5",
                {key: values[begin:end] for key, values in arrays.items()},
                vocabulary=shard.vocabulary,
            )
            begin = end
            written += 1
        rest = {key: values[begin:] for key, values in arrays.items()}
