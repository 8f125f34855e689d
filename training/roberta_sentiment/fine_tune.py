"""One run from settings to a folder with a model and its results."""

from pathlib import Path
from typing import Any

import torch

from training.command import InputError
from training.core.backend import Backend
from training.core.data import Order, check_filled, stage
from training.core.loop import make_optimizer
from training.core.session import Session
from training.core.stop import Stop
from training.files import sha256_of
from training.roberta_sentiment import confusion, results, scoring
from training.roberta_sentiment import model as classifier
from training.roberta_sentiment.dataset import Dataset, read_dataset, read_hub_dataset
from training.roberta_sentiment.settings import ModelSource, Settings
from training.roberta_sentiment.tables import HUB, LABELS
from training.roberta_sentiment.task import SentimentTask, class_weights, encode

TRIED = 64


def fine_tune(settings: Settings, source: ModelSource, stop: Stop) -> int:
    """Fine-tune, score, and write the model and `results.json` into the output folder.

    Returns:
        The exit code: 0, or STOPPED. One of several workers ends its process instead.

    Raises:
        InputError: the settings, the data or the model cannot be used, or another run writes there.
    """
    run = FineTuning(settings, source, stop)
    session = run.session
    with session.alone():
        if run.train():
            return session.stopped()
        given = run.label()
        if session.asked_to_stop():
            return session.stopped()
        if session.backend.first:
            run.write(given)
        return session.backend.leave(0)


class FineTuning:
    """The parts of a run, made in the order in which they can be refused."""

    def __init__(self, settings: Settings, source: ModelSource, stop: Stop) -> None:
        self._settings, self._source = settings, source
        self.session = Session(
            output=settings.output,
            platform=settings.platform,
            train=settings.train,
            speed=settings.speed,
            checkpoint=settings.checkpoint,
            stop=stop,
        )
        backend, batch = self.session.backend, self.session.batch
        self._dataset = _read_data(settings, backend)
        check_filled(
            batch,
            settings.train,
            texts=len(self._dataset.train),
            workers=backend.workers.world,
        )
        torch.manual_seed(settings.train.seed)
        self._model, self._tokenizer = classifier.load(source)
        self._model.config.names_and_links = settings.text.names_and_links
        _check_length(settings, source, self._tokenizer)
        self._splits = [
            encode(
                examples,
                tokenizer=self._tokenizer,
                max_length=settings.text.max_length,
                replace=settings.text.names_and_links == "replace",
            )
            for examples in (self._dataset.train, self._dataset.validation, self._dataset.test)
        ]
        backend.place(self._model)
        self._width = _width(settings, backend)
        self._order = Order(
            [len(example.ids) for example in self._splits[0]],
            batch=batch.size,
            seed=settings.train.seed,
            width=self._width,
        )
        epochs = self._order.steps_per_epoch * settings.train.epochs
        self._steps = settings.train.max_steps or epochs

    def train(self) -> bool:
        """Train from the newest checkpoint, or from the start; whether a stop ended it."""
        settings = self._settings
        return self.session.train(
            task=self._task(),
            order=self._order,
            steps=self._steps,
            optimizer=make_optimizer(
                self._model,
                train=settings.train,
                speed=settings.speed,
                backend=self.session.backend,
            ),
            forward=self._model,
            identity=self._identity(),
            about=self._about(),
        )

    def label(self) -> list[list[int]]:
        """The trained model's labels of the validation and the test split."""
        self.session.say("scoring in fp32, as the model is served")
        return [
            scoring.predict(
                self._model,
                split,
                pad=self._tokenizer.pad_token_id,
                backend=self.session.backend,
                width=self._width,
            )
            for split in self._splits[1:]
        ]

    def write(self, given: list[list[int]]) -> None:
        """Write the model and its results, and show them."""
        dataset, session = self._dataset, self.session
        validation, test = (
            [example.label for example in split] for split in (dataset.validation, dataset.test)
        )
        majority_label, majority = scoring.majority(dataset.train, dataset.test)
        scores = {
            "validation": scoring.score(validation, given[0]),
            "test": scoring.score(test, given[1]),
            "majority": majority,
            "vader": scoring.vader(dataset.test),
        }
        for kind in ("validation", "test"):
            session.note(kind, scores[kind].rounded())
        rows = {
            f"majority ({majority_label})": scores["majority"],
            "VADER lexicon": scores["vader"],
            "this model": scores["test"],
        }

        def fill(folder: Path) -> dict[str, object]:
            classifier.save(self._model, self._tokenizer, folder)
            classifier.try_out(folder, dataset.test[:TRIED], given[1][:TRIED])
            matrix = scoring.confusion(test, given[1])
            session.say(f"\ntest split, {len(test)} texts\n{results.table(rows)}")
            if not confusion.draw(folder / "confusion.png", matrix, LABELS):
                session.say("\nno confusion.png, since matplotlib is not installed")
            return results.build(
                settings=self._settings,
                base_model=self._source.name,
                dataset=dataset,
                scores=scores,
                confusion=matrix,
                majority_label=majority_label,
                parameters=sum(tensor.numel() for tensor in self._model.parameters()),
                weights_sha256=sha256_of(folder / "model.safetensors"),
                facts=session.facts(results.PACKAGES),
            )

        session.write(fill)

    def _task(self) -> SentimentTask:
        labels = [example.label for example in self._dataset.train]
        balanced = class_weights(labels, classes=len(LABELS))
        weights = balanced if self._settings.balance else (1.0,) * len(LABELS)
        return SentimentTask(
            self._model,
            self._splits[0],
            weights=torch.tensor(weights).to(self.session.backend.device),
            pad=self._tokenizer.pad_token_id,
        )

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint must agree with, since it decides what the run computes."""
        settings = self._settings
        return {
            "model": self._source.name,
            "model.files": classifier.fingerprint(self._source),
            "data": self._dataset.sha256,
            "steps": self._steps,
            "train.batch_size over all workers": self.session.batch.size,
            "train.learning_rate": self.session.batch.learning_rate,
            "train.warm_up": settings.train.warm_up,
            "train.weight_decay": settings.train.weight_decay,
            "train.clip": settings.train.clip,
            "train.seed": settings.train.seed,
            "text.max_length": settings.text.max_length,
            "text.names_and_links": settings.text.names_and_links,
            "balance": settings.balance,
        }

    def _about(self) -> list[str]:
        """What will be trained, and on what."""
        dataset = self._dataset
        parameters = sum(tensor.numel() for tensor in self._model.parameters())
        return [
            f"model {self._source.name}: {parameters / 1e6:.1f} M parameters",
            f"texts {dataset.name}: {len(dataset.train)} to train on, "
            f"{len(dataset.validation)} for validation, {len(dataset.test)} for the test",
        ]


def _read_data(settings: Settings, backend: Backend) -> Dataset:
    """The data set, from a copy on the node's own disk where that was asked for."""
    if settings.data.startswith(HUB):
        return read_hub_dataset(settings.data)
    path = Path(settings.data)
    if settings.text.stage is not None:
        copies = backend.workers.local_rank == 0
        path = stage(path, Path(settings.text.stage), copies=copies)
        backend.barrier()
    return read_dataset(path)


def _check_length(settings: Settings, source: ModelSource, tokenizer: Any) -> None:
    """Refuse more tokens than the model has positions for."""
    if settings.text.max_length > tokenizer.model_max_length:
        raise InputError(
            f"text.max_length is {settings.text.max_length}, and {source.name} takes at most "
            f"{tokenizer.model_max_length} tokens"
        )


def _width(settings: Settings, backend: Backend) -> int | None:
    """The one width of all batches, or None where each may have its own."""
    fixed = settings.text.padding == "fixed" or (
        settings.text.padding == "auto" and (backend.fixed_shapes or settings.speed.compile)
    )
    return settings.text.max_length if fixed else None
