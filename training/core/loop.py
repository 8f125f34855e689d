"""The training loop: one global batch a step, one collective, one optimizer step.

Loss and gradient are sums over the global batch, divided by its whole weight (labels, or tokens)
once the workers have added theirs up. So they do not depend on how the batch is cut, which a mean
of the parts' means does.
"""

import math
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from training.command import InputError
from training.core.backend import Backend
from training.core.checkpoint import Checkpoints
from training.core.data import EMPTY, Batch, Micro, prefetch, share
from training.core.metrics import Metrics, Record
from training.core.settings import Speed, Train
from training.core.stop import Stop


class Task(Protocol):
    """What is trained."""

    model: Any

    def collate(self, rows: Sequence[int], width: int) -> dict[str, torch.Tensor]:
        """Rows as tensors on the host, padded to `width`; an EMPTY row weighs nothing."""

    def loss(
        self, forward: Callable[..., Any], batch: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Sum of the weighted losses of a micro-batch, and sum of the weights; both scalars."""

    def flops(self, width: int) -> float:
        """Arithmetic of one example's forward and backward pass."""


class Batches(Protocol):
    """Which examples every step trains on: a function of the step, whoever asks."""

    def epoch(self, step: int) -> int:
        """The epoch that a step belongs to; both from 0."""

    def rows(self, step: int) -> Sequence[int]:
        """The examples of a step, as many as the global batch has; some may be EMPTY."""

    def width(self, rows: Sequence[int]) -> int:
        """How wide a batch of these rows is padded."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What the loop is given."""

    task: Task
    order: Batches
    batch: Batch
    train: Train
    steps: int
    backend: Backend
    optimizer: torch.optim.Optimizer
    forward: Callable[..., Any]
    checkpoints: Checkpoints
    every: int
    identity: Mapping[str, Any]
    stop: Stop
    metrics: Metrics
    report: Callable[[Record], None]


@dataclass(frozen=True, kw_only=True)
class Position:
    """How far a run is, with all that earlier processes did for it. Seconds are of training."""

    step: int = 0
    samples: int = 0
    seconds: float = 0.0
    starts: int = 1


def make_optimizer(
    model: Any, *, train: Train, speed: Speed, backend: Backend
) -> torch.optim.Optimizer:
    """AdamW on the groups of `parameter_groups`."""
    groups = parameter_groups(model, weight_decay=train.weight_decay)
    fused = speed.optimizer == "fused-adamw" and backend.fused_optimizer
    return torch.optim.AdamW(groups, lr=train.learning_rate, fused=fused)


def parameter_groups(model: Any, *, weight_decay: float) -> list[dict[str, Any]]:
    """Matrices, which decay, and biases and normalisation weights (one dimension), which do not."""
    matrices = [tensor for tensor in model.parameters() if tensor.ndim > 1]
    vectors = [tensor for tensor in model.parameters() if tensor.ndim <= 1]
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]


def schedule(step: int, *, steps: int, warm_up: float) -> float:
    """The share of the learning rate at a step (from 0): up for a share of them, down to 0."""
    rising = max(1, round(warm_up * steps))
    if step < rising:
        return (step + 1) / rising
    return (steps - step) / (steps - rising + 1)


def run(given: Run, position: Position) -> tuple[Position, bool]:
    """Train from a position to the end, or until someone asks to stop.

    Whichever it is, the state is in a checkpoint when this returns.

    Returns:
        The position reached, and whether it was a stop.

    Raises:
        InputError: the loss is not a number any more.
    """
    loop = _Loop(given, position)
    stopping = bool(given.backend.sum([float(given.stop.asked)])[0])
    if not stopping and position.step < given.steps:
        stopping = loop.go()
    loop.save(wait=True)
    given.backend.barrier()
    return loop.position(), stopping


class _Loop:
    """The state of the loop between two steps."""

    def __init__(self, given: Run, position: Position) -> None:
        self._given = given
        self._start = position
        self._clock = time.perf_counter()
        self._read = self._clock
        self._step = position.step
        self._samples = position.samples
        self._saved = position.step if position.starts > 1 else None
        self._pending: deque[tuple[Record, Callable[[], list[float]]]] = deque()
        self._stopping = False
        self._parameters = [one for one in given.task.model.parameters() if one.requires_grad]

    def position(self) -> Position:
        """Where the loop is now."""
        return Position(
            step=self._step,
            samples=self._samples,
            seconds=self._start.seconds + time.perf_counter() - self._clock,
            starts=self._start.starts,
        )

    def save(self, *, wait: bool) -> None:
        """Checkpoint this step, unless there is one."""
        given = self._given
        if given.backend.first:
            if self._saved != self._step:
                position = self.position()
                facts = {
                    "identity": dict(given.identity),
                    "samples": position.samples,
                    "seconds": position.seconds,
                    "starts": position.starts,
                }
                given.metrics.flush()
                given.checkpoints.save(self._step, facts)
                self._saved = self._step
            if wait:
                given.checkpoints.wait()

    def go(self) -> bool:
        """Run steps; whether a stop ended them."""
        given = self._given
        given.task.model.train()
        steps = prefetch(self._prepare, start=self._step, stop=given.steps)
        try:
            asked_for = time.perf_counter()
            for _, (rows, width, micros) in steps:
                self._one_step(rows, width, micros, waited=time.perf_counter() - asked_for)
                self._settle(given.backend.lag)
                if self._stopping:
                    break
                if self._step % given.every == 0:
                    self.save(wait=False)
                asked_for = time.perf_counter()
        finally:
            steps.close()
        self._settle(0)
        return self._stopping

    def _prepare(
        self, step: int
    ) -> tuple[Sequence[int], int, list[tuple[Micro, dict[str, torch.Tensor]]]]:
        """The tensors of this worker's part of a step; runs in the prefetching thread."""
        given = self._given
        rows = given.order.rows(step)
        width = given.order.width(rows)
        workers = given.backend.workers
        micros = share(rows, given.batch, rank=workers.rank, workers=workers.world)
        return rows, width, [(micro, given.task.collate(micro.rows, width)) for micro in micros]

    def _one_step(
        self,
        rows: Sequence[int],
        width: int,
        micros: Sequence[tuple[Micro, dict[str, torch.Tensor]]],
        *,
        waited: float,
    ) -> None:
        given, backend, step = self._given, self._given.backend, self._step
        flag = torch.tensor([float(given.stop.asked)])
        totals = backend.move({"totals": torch.cat([torch.zeros(2), flag])})["totals"]
        for micro, tensors in micros:
            backend.seed(_seed(given.train.seed, step, micro.number))
            batch = backend.move(tensors)
            with backend.autocast():
                loss, weight = given.task.loss(given.forward, batch)
            loss.backward()
            totals[:2] += torch.stack([loss.detach(), weight])
            backend.sync()
        gradients = [one.grad for one in self._parameters if one.grad is not None]
        backend.reduce([*gradients, totals])
        torch._foreach_div_(gradients, totals[1])
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, given.train.clip)
        share_of_rate = schedule(step, steps=given.steps, warm_up=given.train.warm_up)
        rate = given.batch.learning_rate * share_of_rate
        for group in given.optimizer.param_groups:
            group["lr"] = rate
        given.optimizer.step()
        given.optimizer.zero_grad(set_to_none=True)
        figures = torch.stack([totals[0] / totals[1], norm.detach().float(), totals[2]])
        backend.sync()
        samples = len(rows) - rows.count(EMPTY)
        self._step += 1
        self._samples += samples
        record = Record(
            step=self._step,
            epoch=given.order.epoch(step) + 1,
            loss=math.nan,
            gradient_norm=math.nan,
            learning_rate=rate,
            samples=samples,
            seconds=math.nan,
            waited=waited,
            flops=samples * given.task.flops(width),
        )
        self._pending.append((record, backend.read_later(figures)))

    def _settle(self, lag: int) -> None:
        """Read the figures of all steps but the last `lag`."""
        given = self._given
        while len(self._pending) > lag:
            record, read = self._pending.popleft()
            loss, norm, asked = read()
            now = time.perf_counter()
            values = vars(record) | {"loss": loss, "gradient_norm": norm}
            record = Record(**values | {"seconds": now - self._read})
            self._read = now
            self._stopping = self._stopping or asked > 0
            if not math.isfinite(loss):
                raise InputError(
                    f"the loss is {loss} at step {record.step}; try a lower --learning-rate than "
                    f"{given.train.learning_rate}"
                )
            given.metrics.add(record)
            given.report(record)


def _seed(seed: int, step: int, micro: int) -> int:
    """The seed of a micro-batch: of its own, and the same for any number of workers."""
    return zlib.crc32(f"{seed}/{step}/{micro}".encode())
