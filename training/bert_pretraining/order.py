"""The order of samples: a permutation that is computed where it is asked for, never kept.

Hundreds of millions of samples need no list in memory, any step is found at once, and each of
60,000 workers computes its own samples alone.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

ROUNDS = 6
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def permute(numbers: Any, count: int, *, key: str) -> Any:
    """Where a random permutation of `count` numbers sends some of them; int64 arrays.

    A Feistel network over a square of at least `count` places; what falls outside is sent on until
    it falls inside (Black and Rogaway, Ciphers with Arbitrary Finite Domains, 2002).
    """
    side = math.isqrt(count - 1) + 1
    digest = hashlib.blake2b(key.encode(), digest_size=8 * ROUNDS).digest()
    keys = np.frombuffer(digest, dtype="<u8")
    result = np.asarray(numbers, dtype=np.uint64)
    outside = np.ones(result.shape, dtype=bool)
    while outside.any():
        left, right = np.divmod(result[outside], np.uint64(side))
        for one in keys:
            left, right = right, (left + _scrambled(right, one)) % np.uint64(side)
        result[outside] = left * np.uint64(side) + right
        outside = result >= count
    return result.astype(np.int64)


def _scrambled(values: Any, key: Any) -> Any:
    """The mixing of splitmix64."""
    mixed = values * _GOLDEN + key
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX[0]
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX[1]
    return mixed ^ (mixed >> np.uint64(31))


class Stream:
    """Samples without end: each once an epoch, in another order each epoch, no batch incomplete.

    A batch may end one epoch and begin the next. Which samples a step has depends on seed and step
    alone.

    Args:
        samples: how many there are.
        batch: samples a step, over all workers.
        seed: of the order.
        width: tokens a sample.
    """

    def __init__(self, samples: int, *, batch: int, seed: int, width: int) -> None:
        self._samples = samples
        self._batch = batch
        self._seed = seed
        self._width = width

    def epoch(self, step: int) -> int:
        """The epoch in which a step begins; both from 0."""
        return step * self._batch // self._samples

    def rows(self, step: int) -> Sequence[int]:
        """The samples of a step."""
        return _Rows(self, range(step * self._batch, (step + 1) * self._batch))

    def width(self, rows: Sequence[int]) -> int:
        """Always the same."""
        return self._width

    def at(self, places: range) -> list[int]:
        """The samples at some places of the stream."""
        result: list[int] = []
        while places:
            epoch, first = divmod(places.start, self._samples)
            numbers = np.arange(first, min(first + len(places), self._samples))
            key = f"{self._seed}/{epoch}"
            result += permute(numbers, self._samples, key=key).tolist()
            places = places[len(numbers) :]
        return result


class _Rows(Sequence[int]):
    """Samples of a step, computed when they are taken out."""

    def __init__(self, stream: Stream, places: range) -> None:
        self._stream = stream
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[int]:
        return iter(self[:])

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> list[int]: ...

    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            return self._stream.at(self._places[index])
        place = self._places[index]
        return self._stream.at(range(place, place + 1))[0]

    def count(self, value: int) -> int:
        """How many are a value; none is EMPTY, which needs no computing."""
        return 0 if value < 0 else list(self).count(value)
