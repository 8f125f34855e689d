"""The loops that are compared: ours with each switch, and Hugging Face Trainer."""

import copy
import itertools
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from training.core.backend import Backend
from training.core.checkpoint import Checkpoints
from training.core.data import Order, cut_batch
from training.core.loop import Position, Run, make_optimizer, run
from training.core.metrics import Metrics, Record
from training.core.settings import Speed, Train
from training.core.stop import Stop
from training.core.store import Facts, Tensors
from training.roberta_sentiment.task import Encoded, SentimentTask, collate


@dataclass(frozen=True, kw_only=True)
class Material:
    """What every loop gets: the same model, texts, batch and width."""

    model: Any
    texts: Sequence[Encoded]
    pad: int
    batch: int
    width: int
    labels: int


class Forget:
    """A store of checkpoints that keeps nothing, so that only training is measured."""

    def steps(self) -> list[int]:
        """None."""
        return []

    def write(self, step: int, tensors: Tensors, facts: Facts) -> None:
        """Nowhere."""

    def read(self, step: int) -> tuple[dict[str, torch.Tensor], Facts] | None:
        """Nothing."""
        return None

    def remove(self, step: int) -> None:
        """Nothing to remove."""

    def alone(self) -> AbstractContextManager[None]:
        """Nothing that others could write to."""
        return nullcontext()


class OurLoop:
    """The product's loop with some switches, run a few steps at a time."""

    def __init__(self, material: Material, *, backend: Backend, speed: Speed, steps: int) -> None:
        self._material = material
        self._backend = backend
        self._steps = steps
        self._position = Position()
        self._model = backend.place(copy.deepcopy(material.model))
        self._train = Train(batch_size=material.batch, max_steps=steps)
        self.optimizer = make_optimizer(
            self._model, train=self._train, speed=speed, backend=backend
        )
        self._forward = torch.compile(self._model, dynamic=False) if speed.compile else self._model
        self._order = Order(
            [len(text.ids) for text in material.texts],
            batch=material.batch,
            seed=0,
            width=material.width,
        )

    @property
    def model(self) -> Any:
        """The model in training."""
        return self._model

    def go(self, steps: int) -> list[float]:
        """Seconds of each of the next steps, but the first, which waits for the first batch."""
        material = self._material
        metrics = Metrics(None, after=self._position.step)
        # The loop ends at `steps`: a few further each time.
        given = Run(
            task=SentimentTask(
                self._model,
                material.texts,
                weights=torch.ones(material.labels).to(self._backend.device),
                pad=material.pad,
            ),
            order=self._order,
            batch=cut_batch(self._train, workers=1),
            train=self._train,
            steps=self._position.step + steps + 1,
            backend=self._backend,
            optimizer=self.optimizer,
            forward=self._forward,
            checkpoints=Checkpoints(Forget(), keep=1, model=self._model, optimizer=self.optimizer),
            every=1 << 30,
            identity={},
            stop=Stop(),
            metrics=metrics,
            report=_quiet,
        )
        self._position, _ = run(given, self._position)
        return [record.seconds for record in metrics.records[1:]]


class TrainerLoop:
    """Hugging Face Trainer on the same texts, a few steps at a time."""

    def __init__(self, material: Material, *, backend: Backend) -> None:
        self._material = material
        self._backend = backend
        self._model = copy.deepcopy(material.model)

    def go(self, steps: int) -> list[float]:
        """Seconds of each of the next steps, but the first."""
        material = self._material
        clock = _Clock()
        with tempfile.TemporaryDirectory() as scratch:
            arguments = TrainingArguments(
                output_dir=scratch,
                max_steps=steps + 1,
                per_device_train_batch_size=material.batch,
                learning_rate=1e-4,
                weight_decay=0.01,
                max_grad_norm=1.0,
                optim="adamw_torch_fused",
                bf16=self._backend.precision == "bf16",
                use_cpu=self._backend.device.type == "cpu",
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                disable_tqdm=True,
                remove_unused_columns=False,
            )
            trainer = Trainer(
                model=self._model,
                args=arguments,
                train_dataset=list(range(len(material.texts))),
                data_collator=self._collate,
                callbacks=[clock],
            )
            trainer.remove_callback(PrinterCallback)
            trainer.train()
        return [after - before for before, after in itertools.pairwise(clock.times)]

    def _collate(self, rows: list[int]) -> dict[str, torch.Tensor]:
        material = self._material
        batch = collate(material.texts, rows, width=material.width, pad=material.pad)
        return {
            "input_ids": batch["ids"],
            "attention_mask": batch["mask"],
            "labels": batch["labels"],
        }


class _Clock(TrainerCallback):  # type: ignore[misc]
    """Notes when each step of the Trainer ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Wait for the device, as our loop does, and note the time."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.times.append(time.perf_counter())


def _quiet(record: Record) -> None:
    """Show nothing."""
