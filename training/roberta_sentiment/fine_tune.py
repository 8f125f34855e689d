"""One run from settings to a folder with a model and its results."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from training.command import InputError
from training.core.backend import Backend, open_backend
from training.core.checkpoint import Checkpoints
from training.core.data import Order, check_filled, cut_batch, stage
from training.core.loop import Position, Run, make_optimizer
from training.core.loop import run as run_loop
from training.core.metrics import Metrics
from training.core.results import read_platform, run_facts
from training.core.stop import STOPPED, Stop
from training.core.store import open_store
from training.files import check_free, locked
from training.roberta_sentiment import model as classifier
from training.roberta_sentiment import results, scoring
from training.roberta_sentiment.dataset import Dataset, read_dataset, read_hub_dataset
from training.roberta_sentiment.export import export
from training.roberta_sentiment.progress import Progress
from training.roberta_sentiment.settings import ModelSource, Settings
from training.roberta_sentiment.tables import HUB, LABELS
from training.roberta_sentiment.task import SentimentTask, class_weights, encode


def fine_tune(settings: Settings, source: ModelSource, stop: Stop) -> int:
    """Fine-tune, score, and write the model and `results.json` into the output folder.

    State is kept in `<output>.run` until the model is written, so that the same call goes on.

    Returns:
        The exit code: 0, or STOPPED. One of several workers ends its process instead.

    Raises:
        InputError: the settings, the data or the model cannot be used, or another run writes there.
    """
    run = FineTuning(settings, source, stop)
    with run.alone():
        if run.train():
            return run.stopped()
        given = run.label()
        if run.backend.sum([float(stop.asked)])[0]:
            return run.stopped()
        if run.backend.first:
            run.write(given)
        return run.backend.leave(0)


class FineTuning:
    """The parts of a run, made in the order in which they can be refused."""

    def __init__(self, settings: Settings, source: ModelSource, stop: Stop) -> None:
        self._started = time.perf_counter()
        self._settings, self._source, self._stop = settings, source, stop
        self._site = read_platform(Path(settings.platform) if settings.platform else None)
        self._output = Path(settings.output).resolve()
        self._work = self._output.with_name(f"{self._output.name}.run")
        check_free(self._output, holds="model")
        self._store = open_store(settings.checkpoint.folder or self._work / "checkpoints")
        self.backend = open_backend(settings.speed.device, settings.speed.precision)
        self._batch = cut_batch(settings.train, workers=self.backend.workers.world)
        self._dataset = _read_data(settings, self.backend)
        check_filled(
            self._batch,
            settings.train,
            texts=len(self._dataset.train),
            workers=self.backend.workers.world,
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
        self.backend.place(self._model)
        self._width = _width(settings, self.backend)
        self._order = Order(
            [len(example.ids) for example in self._splits[0]],
            batch=self._batch.size,
            seed=settings.train.seed,
            width=self._width,
        )
        epochs = self._order.steps_per_epoch * settings.train.epochs
        self._steps = settings.train.max_steps or epochs

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other runs away from the folder of this one; the first worker does it for all."""
        if not self.backend.first:
            yield
            return
        _make(self._work)
        refusal = f"another run is writing to {self._output}; wait for it, or give another --output"
        with locked(self._work / "lock", refusal=refusal):
            check_free(self._output, holds="model")  # a run may have ended since it was looked at
            yield

    def train(self) -> bool:
        """Train from the newest checkpoint, or from the start; whether a stop ended it."""
        settings, backend = self._settings, self.backend
        optimizer = make_optimizer(
            self._model, train=settings.train, speed=settings.speed, backend=backend
        )
        self._checkpoints = Checkpoints(
            self._store,
            keep=settings.checkpoint.keep,
            model=self._model,
            optimizer=optimizer,
        )
        identity = self._identity()
        found = self._checkpoints.resume(
            backend, identity, needs=("step", "samples", "seconds", "starts")
        )
        start = Position()
        if found is not None:
            start = Position(
                step=found["step"],
                samples=found["samples"],
                seconds=found["seconds"],
                starts=found["starts"] + 1,
            )
        if backend.first:
            self._stop.watch(self._work / "stop")
        self._progress = Progress(shown=backend.first, start=start.step, steps=self._steps)
        self._introduce(resumed=found is not None, start=start)
        self._metrics = Metrics(self._work if backend.first else None, after=start.step)
        model = self._model
        self._before = time.perf_counter() - self._started
        self._position, stopped = run_loop(
            Run(
                task=self._task(),
                order=self._order,
                batch=self._batch,
                train=settings.train,
                steps=self._steps,
                backend=backend,
                optimizer=optimizer,
                forward=torch.compile(model, dynamic=False) if settings.speed.compile else model,
                checkpoints=self._checkpoints,
                every=settings.checkpoint.every,
                identity=identity,
                stop=self._stop,
                metrics=self._metrics,
                report=self._progress.step,
            ),
            start,
        )
        self._trained = time.perf_counter()
        return stopped

    def label(self) -> list[list[int]]:
        """The trained model's labels of the validation and the test split."""
        self._progress.say("scoring in fp32, as the model is served")
        return [
            scoring.predict(
                self._model,
                split,
                pad=self._tokenizer.pad_token_id,
                backend=self.backend,
                width=self._width,
            )
            for split in self._splits[1:]
        ]

    def stopped(self) -> int:
        """End early: the state is in a checkpoint."""
        self._metrics.close()
        if self.backend.first:
            self._stop.granted()
        self._progress.say(
            f"stopped after step {self._position.step} of {self._steps}; the same command goes on"
        )
        return self.backend.leave(STOPPED)

    def write(self, given: list[list[int]]) -> None:
        """Write the model and its results, and show them."""
        dataset = self._dataset
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
            self._metrics.add_scores(kind, scores[kind].rounded(), step=self._position.step)
        self._metrics.close()

        def report(weights_sha256: str) -> dict[str, object]:
            return results.build(
                settings=self._settings,
                base_model=self._source.name,
                dataset=dataset,
                scores=scores,
                confusion=scoring.confusion(test, given[1]),
                majority_label=majority_label,
                parameters=sum(tensor.numel() for tensor in self._model.parameters()),
                weights_sha256=weights_sha256,
                facts=run_facts(
                    backend=self.backend,
                    batch=self._batch,
                    train=self._settings.train,
                    position=self._position,
                    records=self._metrics.records,
                    stalls=self._checkpoints.stalls,
                    other_seconds=self._before + time.perf_counter() - self._trained,
                    site=self._site,
                    packages=results.PACKAGES,
                ),
            )

        pictured = export(
            self._model,
            self._tokenizer,
            work=self._work,
            output=self._output,
            examples=dataset.test,
            given=given[1],
            report=report,
        )
        rows = {
            f"majority ({majority_label})": scores["majority"],
            "VADER lexicon": scores["vader"],
            "this model": scores["test"],
        }
        say = self._progress.say
        say(f"\ntest split, {len(test)} texts\n{results.table(rows)}")
        say(f"\ntrained {self._position.samples} samples in {self._position.seconds:.1f} s")
        if not pictured:
            say("no confusion.png, since matplotlib is not installed")
        say(f"model and results.json are in {self._settings.output}")

    def _task(self) -> SentimentTask:
        labels = [example.label for example in self._dataset.train]
        balanced = class_weights(labels, classes=len(LABELS))
        weights = balanced if self._settings.balance else (1.0,) * len(LABELS)
        return SentimentTask(
            self._model,
            self._splits[0],
            weights=torch.tensor(weights).to(self.backend.device),
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
            "train.batch_size over all workers": self._batch.size,
            "train.learning_rate": self._batch.learning_rate,
            "train.warm_up": settings.train.warm_up,
            "train.weight_decay": settings.train.weight_decay,
            "train.clip": settings.train.clip,
            "train.seed": settings.train.seed,
            "text.max_length": settings.text.max_length,
            "text.names_and_links": settings.text.names_and_links,
            "balance": settings.balance,
        }

    def _introduce(self, *, resumed: bool, start: Position) -> None:
        """Say what will be trained, on what, and from where."""
        dataset, backend, say = self._dataset, self.backend, self._progress.say
        parameters = sum(tensor.numel() for tensor in self._model.parameters())
        say(f"model {self._source.name}: {parameters / 1e6:.1f} M parameters")
        say(
            f"texts {dataset.name}: {len(dataset.train)} to train on, "
            f"{len(dataset.validation)} for validation, {len(dataset.test)} for the test"
        )
        workers = backend.workers.world
        say(
            f"device {backend.device.type}, "
            + (f"{workers} workers of " if workers > 1 else "")
            + f"{torch.get_num_threads()} threads; precision {backend.precision}: {backend.reason}"
        )
        for step in self._checkpoints.damaged:
            say(f"the checkpoint of step {step} is damaged and was passed over")
        if resumed:
            say(f"going on after step {start.step} of {self._steps}")


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


def _make(folder: Path) -> None:
    """Make the folder of the run, which is beside the output."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror or error}") from error
