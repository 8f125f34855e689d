"""Shards of training samples: HDF5 in the layout of NVIDIA's BERT data, which the reference uses.

Each key is an array of N samples, S tokens wide or P predictions wide:

    input_ids, input_mask, segment_ids      [N, S]  token ids; 1 where there is a token; sentence
    masked_lm_positions, masked_lm_ids      [N, P]  places and ids to predict; position 0 ends them
    next_sentence_labels                    [N]     1 where the second sentence is a random one

Shards that are written here are neither compressed nor chunked, so that a sample is read by its
place in the file. `unpack` makes such a copy of others.
"""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from training.command import InputError, first_line
from training.files import write_bytes

KEYS: dict[str, Any] = {
    "input_ids": np.int32,
    "input_mask": np.int8,
    "segment_ids": np.int8,
    "masked_lm_positions": np.int32,
    "masked_lm_ids": np.int32,
    "next_sentence_labels": np.int8,
}
WIDE = ("input_ids", "input_mask", "segment_ids")
PREDICTED = ("masked_lm_positions", "masked_lm_ids")
VOCABULARY = "vocabulary_sha256"  # an attribute of the file; the reference's shards have none

Arrays = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Shard:
    """What the header of a shard says.

    Attributes:
        samples: N.
        sequence: S.
        predictions: P.
        vocabulary: the SHA-256 of vocab.txt; empty where the file does not tell.
        places: the first byte of each key, or None where it is compressed or chunked.
    """

    path: Path
    samples: int
    sequence: int
    predictions: int
    vocabulary: str
    places: Mapping[str, tuple[int, Any, tuple[int, ...]]] | None


def find_shards(folder: Path, kind: str) -> list[Path]:
    """The shards of a folder, `*_training_*.hdf5` or `*_test_*.hdf5`, in the order of names.

    Raises:
        InputError: the folder is not there.
    """
    if not folder.is_dir():
        raise InputError(f"no folder of shards {folder}; build makes one from plain text")
    return sorted(folder.glob(f"*_{kind}_*.hdf5"))


def inspect(path: Path) -> Shard:
    """Read the header of a shard.

    Raises:
        InputError: it is no shard; names every problem.
    """
    with _opened(path) as file:
        problems = _shape_problems(file)
        if problems:
            raise InputError(f"{path}: {'; '.join(problems)}")
        samples, sequence = file["input_ids"].shape
        places = {
            key: (file[key].id.get_offset(), file[key].dtype, file[key].shape) for key in KEYS
        }
        return Shard(
            path=path,
            samples=samples,
            sequence=sequence,
            predictions=file["masked_lm_ids"].shape[1],
            vocabulary=str(file.attrs.get(VOCABULARY, "")),
            places=None if any(place is None for place, _, _ in places.values()) else places,
        )


def read_shard(path: Path) -> dict[str, Any]:
    """All arrays of a shard.

    Raises:
        InputError: it cannot be read.
    """
    with _opened(path) as file:
        return {key: file[key][:] for key in KEYS}


def write_shard(path: Path, arrays: Arrays, *, vocabulary: str) -> None:
    """Write a shard, whole or not at all; the same arrays give the same bytes.

    Raises:
        InputError: the disk does not take it.
    """
    for left in path.parent.glob(f".{path.name}.*"):  # of a kill; one process makes a shard
        left.unlink(missing_ok=True)
    content = io.BytesIO()  # whose end, unlike that of a disk, the library need not know
    with h5py.File(content, "w") as file:
        if vocabulary:
            file.attrs[VOCABULARY] = vocabulary
        for key, kind in KEYS.items():
            file.create_dataset(key, data=np.asarray(arrays[key], dtype=kind))
    try:
        write_bytes(path, content.getbuffer())
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def unpack(path: Path, target: Path) -> None:
    """Write a copy whose samples are read by their place."""
    with _opened(path) as file:
        vocabulary = str(file.attrs.get(VOCABULARY, ""))
    write_shard(target, read_shard(path), vocabulary=vocabulary)


@contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError, LookupError, TypeError, ValueError) as error:
        # The library has many words for bytes that are not what they were.
        raise InputError(
            f"{path} is no whole HDF5 file: {first_line(error)}; make it or copy it again"
        ) from error


def _shape_problems(file: h5py.File) -> list[str]:
    """What is wrong with keys, shapes and types."""
    if missing := [key for key in KEYS if not isinstance(file.get(key), h5py.Dataset)]:
        return [f"it has no {', no '.join(missing)}"]
    problems = [
        f"{key} holds {file[key].dtype}, not whole numbers"
        for key in KEYS
        if file[key].dtype.kind not in "iu"
    ]
    shapes = {key: tuple(file[key].shape) for key in KEYS}
    samples = shapes["input_ids"][:1]
    for keys in (WIDE, PREDICTED):
        first = shapes[keys[0]]
        problems += [
            f"{key} has the shape {shapes[key]}, needs to be "
            f"{first if len(first) == 2 and first[:1] == samples else '[samples, width]'}"
            for key in keys
            if shapes[key] != first or len(first) != 2 or first[:1] != samples
        ]
    if shapes["next_sentence_labels"] != samples:
        problems.append(
            f"next_sentence_labels has the shape {shapes['next_sentence_labels']}, needs to be "
            f"{samples}"
        )
    if samples == (0,):
        problems.append("it has no sample")
    return problems
