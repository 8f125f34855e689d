"""Which examples a step trains on, who takes which of them, and how they get there in time.

The order is a function of (seed, epoch, step) and of the data, so that any number of workers sees
the same batches, and a resumed run those that it would have seen.
"""

import functools
import hashlib
import math
import os
import queue
import random
import shutil
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from training.command import InputError
from training.core.settings import Train

Item = TypeVar("Item")

EMPTY = -1  # a row without an example: it fills up the last batch of an epoch and weighs nothing
BATCHES_PER_BUCKET = 20
LENGTH_STEP = 8
AHEAD = 2


@dataclass(frozen=True, kw_only=True)
class Batch:
    """How a step's global batch is cut: `size` = `micro` * `accumulate` * workers."""

    size: int
    micro: int
    accumulate: int
    learning_rate: float


def cut_batch(train: Train, *, workers: int) -> Batch:
    """Cut the global batch evenly, or refuse.

    Strong scaling keeps the global batch and the learning rate. Weak scaling keeps the batch of
    each worker; the rate then grows with the square root of the number of workers, the rule for
    Adam (Malladi et al., On the SDEs and Scaling Rules for Adaptive Gradient Algorithms, 2022).

    Raises:
        InputError: it cannot be cut evenly; names the nearest numbers that can.
    """
    weak = train.scaling == "weak"
    size = train.batch_size * (workers if weak else 1)
    share, rest = divmod(size, workers)
    micro = train.micro_batch_size or share
    if rest or not share or share % micro:
        unit = workers * (train.micro_batch_size or 1)
        raise InputError(_refusal(size, train.micro_batch_size, workers, unit, weak=weak))
    rate = train.learning_rate * (math.sqrt(workers) if weak else 1.0)
    return Batch(size=size, micro=micro, accumulate=share // micro, learning_rate=rate)


def check_filled(batch: Batch, train: Train, *, texts: int, workers: int) -> None:
    """Refuse a batch that an epoch cannot fill even once: the rest of it would be padding.

    Raises:
        InputError: names the largest batch that works.
    """
    if batch.size <= texts:
        return
    unit = workers * (train.micro_batch_size or 1)
    largest = texts // unit * unit // (workers if train.scaling == "weak" else 1)
    raise InputError(
        f"a batch of {batch.size} is more than the {texts} texts to train on; "
        + (
            f"the largest train.batch_size that works is {largest}"
            if largest
            else "take fewer workers or a smaller train.micro_batch_size"
        )
    )


def _refusal(size: int, micro: int | None, workers: int, unit: int, *, weak: bool) -> str:
    """What to say of a batch that cannot be cut evenly."""
    below, above = size // unit * unit, -(-size // unit) * unit
    per = workers if weak else 1
    sizes = sorted({number // per for number in (below, above) if number})
    # Under weak scaling the number of workers changes nothing about the share of each.
    counts = [
        count for count in range(1, size + 1) if not weak and size % (count * (micro or 1)) == 0
    ]
    near = [
        *[count for count in counts if count < workers][-1:],
        *[count for count in counts if count > workers][:1],
    ]
    parts = f"{workers} worker{'s' * (workers > 1)}"
    parts += f" with micro-batches of {micro}" if micro else ""
    message = (
        f"a batch of {size} cannot be cut evenly over {parts}; nearest train.batch_size that can: "
        f"{' and '.join(map(str, sizes))}"
    )
    return message + (
        f"; nearest numbers of workers: {' and '.join(map(str, near))}" if near else ""
    )


class Order:
    """The rows of every step.

    Args:
        lengths: of the examples. Those of like length share a batch, drawn from buckets of
            shuffled examples, which saves padding.
        batch: rows a step, over all workers.
        seed: of the order; each epoch has its own.
        width: the one width of all batches, or None for the shortest multiple of eight that holds
            the longest example of the batch.
    """

    def __init__(self, lengths: Sequence[int], *, batch: int, seed: int, width: int | None) -> None:
        self._lengths = lengths
        self._batch = batch
        self._seed = seed
        self._width = width
        self.steps_per_epoch = -(-len(lengths) // batch)
        self._epoch = functools.lru_cache(maxsize=2)(self._shuffle)

    def epoch(self, step: int) -> int:
        """The epoch that a step belongs to; both from 0."""
        return step // self.steps_per_epoch

    def rows(self, step: int) -> list[int]:
        """The examples of a step, always `batch` of them, some of which may be EMPTY."""
        epoch, number = divmod(step, self.steps_per_epoch)
        return self._epoch(epoch)[number]

    def width(self, rows: Sequence[int]) -> int:
        """How wide a batch of these rows is padded, the same for all workers."""
        if self._width is not None:
            return self._width
        longest = max(self._lengths[row] for row in rows if row != EMPTY)
        return -(-longest // LENGTH_STEP) * LENGTH_STEP

    def _shuffle(self, epoch: int) -> list[list[int]]:
        """The batches of an epoch: every example once."""
        generator = random.Random(f"{self._seed}/{epoch}")  # noqa: S311 - an order, not a secret
        order = list(range(len(self._lengths)))
        generator.shuffle(order)
        batches = []
        bucket = self._batch * BATCHES_PER_BUCKET
        for start in range(0, len(order), bucket):
            rows = sorted(order[start : start + bucket], key=lambda row: self._lengths[row])
            batches += [rows[at : at + self._batch] for at in range(0, len(rows), self._batch)]
        generator.shuffle(batches)
        return [rows + [EMPTY] * (self._batch - len(rows)) for rows in batches]


@dataclass(frozen=True, kw_only=True)
class Micro:
    """What one worker takes at once. `number` counts the micro-batches of the whole step."""

    number: int
    rows: list[int]


def share(rows: Sequence[int], batch: Batch, *, rank: int, workers: int) -> list[Micro]:
    """The micro-batches of one worker, in order."""
    numbers = [turn * workers + rank for turn in range(batch.accumulate)]
    return [
        Micro(number=number, rows=list(rows[number * batch.micro : (number + 1) * batch.micro]))
        for number in numbers
    ]


def prefetch(
    make: Callable[[int], Item], *, start: int, stop: int
) -> Generator[tuple[int, Item], None, None]:
    """`(number, make(number))` for numbers from `start`, made ahead in a thread.

    Closing the generator ends the thread.
    """
    made: queue.Queue[tuple[int, Item] | BaseException] = queue.Queue(AHEAD)
    closed = threading.Event()

    def put(item: tuple[int, Item] | BaseException) -> bool:
        while not closed.is_set():
            try:
                made.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            for number in range(start, stop):
                if not put((number, make(number))):
                    return
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        for _ in range(start, stop):
            item = made.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        closed.set()
        thread.join()


def stage(
    path: Path,
    folder: Path,
    *,
    copies: bool,
    copy: Callable[[Path, Path], object] = shutil.copyfile,
) -> Path:
    """Where the copy of a file on the node's own disk is; whole once `copies` has returned.

    One worker of a node copies; the others wait for it before they read. A file that has not
    changed is not copied again.

    Args:
        path: on a shared file system.
        folder: on the node's own disk.
        copies: whether this worker is the one that copies.
        copy: makes the copy, as it is or in another form.

    Raises:
        InputError: the file is missing, or the folder cannot take it.
    """
    try:
        facts = path.stat()
        identity = f"{path.resolve()} {facts.st_size} {facts.st_mtime_ns}"
        local = folder / hashlib.sha256(os.fsencode(identity)).hexdigest()[:16] / path.name
        if copies and not local.is_file():
            local.parent.mkdir(parents=True, exist_ok=True)
            beside = local.with_name(f".{path.name}.{os.getpid()}")
            try:
                copy(path, beside)
                beside.replace(local)
            finally:
                beside.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot stage {path} to {folder}: {error.strerror or error}") from error
    return local
