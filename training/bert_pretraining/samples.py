"""Samples by their number, whatever shards they lie in."""

import hashlib
import os
import resource
import shutil
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from training.bert_pretraining.shards import KEYS, Shard, find_shards, inspect, unpack
from training.bert_pretraining.vocabulary import Vocabulary
from training.command import InputError
from training.core.backend import Backend
from training.core.data import stage

SPARE_FILES = 256  # of libraries and sockets
BEGINNING = 8192  # bytes of a shard: the header and the ids of its first samples


class Samples:
    """The samples of some shards as one numbered row, read from their files as they are asked for.

    Args:
        shards: neither compressed nor chunked, and of one width.
        tokens: in the vocabulary.
    """

    def __init__(self, shards: Sequence[Shard], *, tokens: int) -> None:
        self._shards = shards
        self._starts = np.array(
            list(accumulate((shard.samples for shard in shards), initial=0)), dtype=np.int64
        )
        self._views: dict[int, dict[str, Any]] = {}
        self.sequence = shards[0].sequence
        self.predictions = shards[0].predictions
        self._below = {
            "input_ids": tokens,
            "segment_ids": 2,
            "masked_lm_positions": self.sequence,
            "masked_lm_ids": tokens,
            "next_sentence_labels": 2,
        }
        _allow_files(len(shards))

    def __len__(self) -> int:
        """How many."""
        return int(self._starts[-1])

    def take(self, rows: Sequence[int]) -> dict[str, Any]:
        """The arrays of some samples, by key, in the order of `rows`.

        Raises:
            InputError: a value is none that a model can take.
        """
        numbers = np.asarray(rows, dtype=np.int64)
        owners: Any = np.searchsorted(self._starts, numbers, side="right") - 1
        inside = numbers - self._starts[owners]
        found: dict[str, Any] = {}
        for owner in np.unique(owners).tolist():
            chosen = np.flatnonzero(owners == owner)
            for key, view in self._view(owner).items():
                values = view[inside[chosen]]
                if key not in found:
                    found[key] = np.empty((len(numbers), *values.shape[1:]), dtype=KEYS[key])
                found[key][chosen] = values
        for key, below in self._below.items():
            bad = ((found[key] < 0) | (found[key] >= below)).reshape(len(numbers), -1).any(1)
            if bad.any():
                raise InputError(
                    f"{self._shards[owners[bad.argmax()]].path} has {key} outside of 0 to "
                    f"{below - 1}; check tells all that is wrong with the shards"
                )
        return found

    def _view(self, number: int) -> dict[str, Any]:
        """The arrays of a shard, as a map of its file."""
        if number not in self._views:
            shard = self._shards[number]
            content = np.memmap(shard.path, mode="r", dtype=np.uint8)
            self._views[number] = {
                key: np.ndarray(shape, dtype=kind, buffer=content, offset=place)
                for key, (place, kind, shape) in (shard.places or {}).items()
            }
        return self._views[number]


def open_samples(
    folder: Path,
    kind: str,
    *,
    vocabulary: Vocabulary,
    backend: Backend,
    copies: Path,
    all_copied: bool,
) -> Samples | None:
    """The samples of a folder's shards of a kind, `training` or `test`; None where it has none.

    Shards that are compressed are unpacked first, the workers sharing the work.

    Args:
        folder: of shards.
        kind: of shards.
        vocabulary: that the shards must have been made with.
        backend: of the workers.
        copies: folder for unpacked and copied shards.
        all_copied: whether `copies` is on each node's own disk, for all shards.

    Raises:
        InputError: a shard is damaged, or of another vocabulary or width than the rest.
    """
    paths = find_shards(folder, kind)
    shards = _inspected(paths, vocabulary=vocabulary, folder=folder)
    workers = backend.workers
    mine, of = (
        (workers.local_rank, workers.per_node) if all_copied else (workers.rank, workers.world)
    )
    local = [
        stage(
            shard.path,
            copies,
            copies=number % of == mine,
            copy=unpack if shard.places is None else shutil.copyfile,
        )
        if all_copied or shard.places is None
        else shard.path
        for number, shard in enumerate(shards)
    ]
    backend.barrier()
    opened = [
        shard if path == shard.path else inspect(path)
        for path, shard in zip(local, shards, strict=True)
    ]
    return Samples(opened, tokens=len(vocabulary)) if opened else None


def fingerprint(paths: Sequence[Path]) -> str:
    """What tells data from other data: names, sizes and beginnings of the shards, 64 hex digits."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(os.fsencode(path.name) + f" {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            digest.update(file.read(BEGINNING))
    return digest.hexdigest()


def _inspected(paths: Sequence[Path], *, vocabulary: Vocabulary, folder: Path) -> list[Shard]:
    """The headers of all shards, or every problem of any."""
    shards, problems = [], []
    for path in paths:
        try:
            shards.append(inspect(path))
        except InputError as error:
            problems.append(str(error))
    problems += [
        f"{shard.path} was made with another vocabulary than the one given"
        for shard in shards
        if shard.vocabulary not in ("", vocabulary.sha256)
    ]
    widths = sorted({(shard.sequence, shard.predictions) for shard in shards})
    if len(widths) > 1:
        found = " and ".join(
            f"{sequence} tokens with {most} predictions" for sequence, most in widths
        )
        problems.append(f"the shards of {folder} have {found}; keep one width in a folder")
    if problems:
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise InputError("; ".join(problems[:5]) + more + "; check tells all of them")
    return shards


def _allow_files(count: int) -> None:
    """Let this process open that many files.

    Raises:
        InputError: the system does not let it.
    """
    needed = count + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{count} shards need {needed} open files, and this machine allows {hard}; raise "
            "ulimit -n, or make fewer shards with reshard"
        ) from error
