"""The loops that are compared: the product's, and one with the structure of the Trn1 reference."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

from benchmarks.loops import Forget
from training.bert_pretraining.model import MaskedHeads, make_optimizer
from training.bert_pretraining.order import Stream
from training.bert_pretraining.samples import Samples
from training.bert_pretraining.settings import PreTrain
from training.bert_pretraining.shards import KEYS
from training.bert_pretraining.task import IGNORED, PretrainingTask
from training.core.backend import Backend
from training.core.checkpoint import Checkpoints
from training.core.data import cut_batch
from training.core.loop import Position, Run
from training.core.loop import run as run_loop
from training.core.metrics import Metrics
from training.core.settings import Speed
from training.core.stop import Stop

TRAIN = PreTrain(batch_size=32, micro_batch_size=8)


class Theirs(Dataset[list[torch.Tensor]]):  # type: ignore[misc]
    """A shard as the reference reads it: whole, and made into tensors a sample at a time."""

    def __init__(self, path: Path) -> None:
        with h5py.File(path, "r") as file:
            self._arrays = [np.asarray(file[key][:]) for key in KEYS]

    def __len__(self) -> int:
        """How many samples."""
        return len(self._arrays[0])

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        """Ids, segments, mask, a label for every token, order."""
        ids, mask, segments, positions, wanted, order = (
            torch.from_numpy(np.asarray(array[index].astype(np.int64))) for array in self._arrays
        )
        labels = torch.full(ids.shape, IGNORED)
        padded = torch.nonzero(positions == 0)
        count = int(padded[0]) if len(padded) else len(positions)
        labels[positions[:count]] = wanted[:count]
        return [ids, segments, mask, labels, order]


class Ours:
    """The product's loop, some steps at a time."""

    def __init__(self, model: Any, samples: Samples, backend: Backend, speed: Speed) -> None:
        self.model, self._samples, self._backend = model, samples, backend
        self.optimizer = make_optimizer(model, train=TRAIN, speed=speed, backend=backend)
        self._position = Position()

    def go(self, steps: int) -> None:
        """Take some steps, from where the last ones ended."""
        batch = cut_batch(TRAIN, workers=1)
        width = self._samples.sequence
        given = Run(
            task=PretrainingTask(self.model, self._samples),
            order=Stream(len(self._samples), batch=batch.size, seed=0, width=width),
            batch=batch,
            train=TRAIN,
            steps=self._position.step + steps,
            backend=self._backend,
            optimizer=self.optimizer,
            forward=MaskedHeads(self.model),
            checkpoints=Checkpoints(Forget(), keep=1, model=self.model, optimizer=self.optimizer),
            every=1 << 30,
            identity={},
            stop=Stop(),
            metrics=Metrics(None, after=self._position.step),
            report=lambda record: None,
        )
        self._position, _ = run_loop(given, self._position)


class Reference:
    """A loop with the reference's structure."""

    def __init__(self, model: Any, data: Theirs, backend: Backend) -> None:
        self.model = model
        micro = TRAIN.micro_batch_size
        self._loader = DataLoader(data, micro, sampler=RandomSampler(data), drop_last=True)
        speed = Speed(optimizer="adamw")
        self.optimizer = make_optimizer(model, train=TRAIN, speed=speed, backend=backend)

    def go(self, steps: int) -> None:
        """Take some steps, from the start of another epoch."""
        batches = iter(self._loader)
        self.model.train()
        parts = TRAIN.batch_size // (TRAIN.micro_batch_size or 1)
        for _ in range(steps):
            running = 0.0
            for _ in range(parts):
                ids, segments, mask, labels, order = next(batches)
                loss = self.model(
                    input_ids=ids,
                    attention_mask=mask,
                    token_type_ids=segments,
                    labels=labels,
                    next_sentence_label=order,
                ).loss
                (loss / parts).backward()
                running += loss.item()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), TRAIN.clip)
            self.optimizer.step()
            self.optimizer.zero_grad()
