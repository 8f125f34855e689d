"""A task small enough to train for a few steps in a blink, with dropout and uneven lengths."""

from __future__ import annotations

import hashlib
import os
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from training.core.backend import open_backend
from training.core.checkpoint import Checkpoints
from training.core.data import EMPTY, Order, cut_batch
from training.core.loop import Position, Run, make_optimizer, run
from training.core.metrics import Metrics, Record
from training.core.settings import Speed, Train
from training.core.stop import Stop
from training.core.store import FolderStore

WORDS = 50
EXAMPLES = 43


class Net(torch.nn.Module):
    """Bag of words with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, 16)
        self.drop = torch.nn.Dropout(0.3)
        self.head = torch.nn.Linear(16, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        mask = (ids > 0).float().unsqueeze(-1)
        pooled = (self.embed(ids) * mask).sum(1) / mask.sum(1).clamp(min=1)
        return self.head(self.drop(pooled))


class Tiny:
    """Labels that depend on the words; each label has another weight."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = Net()
        generator = random.Random(0)
        self.texts = [
            [generator.randrange(1, WORDS) for _ in range(generator.randrange(1, 20))]
            for _ in range(EXAMPLES)
        ]
        self.labels = [sum(text) % 3 for text in self.texts]
        self.weights = torch.tensor([0.5, 1.0, 2.0])
        self.seen: list[list[int]] = []
        self.shapes: set[tuple[int, ...]] = set()
        self.on_collate: Callable[[], None] = lambda: None

    def collate(self, rows: Sequence[int], width: int) -> dict[str, torch.Tensor]:
        self.on_collate()
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        labels = torch.full((len(rows),), -100)
        for place, row in enumerate(rows):
            if row != EMPTY:
                ids[place, : len(self.texts[row])] = torch.tensor(self.texts[row])
                labels[place] = self.labels[row]
        self.seen.append(list(rows))
        self.shapes.add(tuple(ids.shape))
        return {"ids": ids, "labels": labels}

    def loss(
        self, forward: Callable[..., Any], batch: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        labels = batch["labels"]
        loss = cross_entropy(
            forward(batch["ids"]), labels, weight=self.weights, reduction="sum", ignore_index=-100
        )
        return loss, (self.weights[labels.clamp(min=0)] * (labels != -100)).sum()

    def flops(self, width: int) -> float:
        return 6.0 * width


class Signalling(FolderStore):
    """Sends this process a signal in the middle of writing."""

    def write(self, step: int, tensors: Any, facts: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        super().write(step, tensors, facts)


def train_tiny(folder: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Train and tell what came of it.

    Options: `steps` (12), `micro`, `width`, `dropout`, `stop` as (phase, rank, step).
    """
    backend = open_backend("cpu", "fp32")
    train = Train(
        max_steps=options.get("steps", 12),
        batch_size=8,
        micro_batch_size=options.get("micro"),
        learning_rate=0.05,
    )
    task = Tiny()
    task.model.drop.p = options.get("dropout", task.model.drop.p)
    batch = cut_batch(train, workers=backend.workers.world)
    lengths = [len(text) for text in task.texts]
    order = Order(lengths, batch=batch.size, seed=0, width=options.get("width"))
    optimizer = make_optimizer(task.model, train=train, speed=Speed(), backend=backend)
    phase, rank, at = options.get("stop", ("", -1, 0))
    mine = rank == backend.workers.rank
    store = Signalling(folder) if mine and phase == "checkpoint" else FolderStore(folder)
    checkpoints = Checkpoints(store, keep=2, model=task.model, optimizer=optimizer)
    identity = {"seed": train.seed}
    found = checkpoints.resume(backend, identity)
    position = Position()
    if found is not None:
        position = Position(
            step=found["step"], samples=found["samples"], seconds=found["seconds"], starts=2
        )
    losses: dict[int, float] = {}

    def terminate() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    def report(record: Record) -> None:
        losses[record.step] = record.loss
        if mine and phase == "step" and record.step == at:
            terminate()

    if mine and phase == "data":
        task.on_collate = lambda: terminate() if len(task.seen) == at else None
    with Stop() as stop:
        if mine and phase == "start":
            terminate()
        if phase == "file" and backend.first:
            stop.watch(folder / "stop")
        reached, stopped = run(
            Run(
                task=task,
                order=order,
                batch=batch,
                train=train,
                steps=options.get("steps", 12),
                backend=backend,
                optimizer=optimizer,
                forward=task.model,
                checkpoints=checkpoints,
                every=5,
                identity=identity,
                stop=stop,
                metrics=Metrics(None, after=position.step),
                report=report,
            ),
            position,
        )
    weights = torch.cat([one.detach().flatten() for one in task.model.parameters()])
    backend.barrier()
    return {
        "losses": losses,
        "weights": hashlib.sha256(weights.numpy().tobytes()).hexdigest(),
        "stopped": stopped,
        "step": reached.step,
        "from": position.step,
        "seen": task.seen,
        "shapes": task.shapes,
        "rate": optimizer.param_groups[0]["lr"],
    }
