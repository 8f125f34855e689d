"""One run from settings to a folder with a pre-trained model and its results."""

import math
from pathlib import Path
from typing import Any

import torch

from training.bert_pretraining import results
from training.bert_pretraining.evaluation import baselines, evaluate
from training.bert_pretraining.model import (
    MaskedHeads,
    load_model,
    make_model,
    make_optimizer,
    save_model,
)
from training.bert_pretraining.order import Stream
from training.bert_pretraining.samples import Samples, fingerprint, open_samples
from training.bert_pretraining.settings import Settings
from training.bert_pretraining.shards import find_shards
from training.bert_pretraining.task import PretrainingTask
from training.bert_pretraining.vocabulary import FILE, read_vocabulary
from training.command import InputError
from training.core.session import Session
from training.core.stop import Stop
from training.files import sha256_of


def pretrain(settings: Settings, stop: Stop) -> int:
    """Pre-train, score, and write the model and `results.json` into the output folder.

    Returns:
        The exit code: 0, or STOPPED. One of several workers ends its process instead.

    Raises:
        InputError: the settings, shards or model cannot be used, or another run writes there.
    """
    run = Pretraining(settings, stop)
    session = run.session
    with session.alone():
        if run.train():
            return session.stopped()
        run.score()
        if session.asked_to_stop():
            return session.stopped()
        if session.backend.first:
            run.write()
        return session.backend.leave(0)


class Pretraining:
    """The parts of a run, made in the order in which they can be refused."""

    def __init__(self, settings: Settings, stop: Stop) -> None:
        self._settings = settings
        self._folder = settings.shards
        self._vocabulary = read_vocabulary(
            Path(settings.vocab) if settings.vocab else self._folder / FILE
        )
        self.session = Session(
            output=settings.output,
            platform=settings.platform,
            train=settings.train,
            speed=settings.speed,
            checkpoint=settings.checkpoint,
            stop=stop,
        )
        backend = self.session.backend
        samples = self._open("training")
        if samples is None:
            raise InputError(
                f"{self._folder} has no shard *_training_*.hdf5; build makes them from plain text"
            )
        self._samples = samples
        self._held_out = self._open("test")
        self._tested = self._held_out or self._samples
        torch.manual_seed(settings.train.seed)
        if settings.start_from is None:
            self._model = make_model(settings.model, self._vocabulary)
        else:
            self._model = load_model(Path(settings.start_from))
        self._check_fit()
        backend.place(self._model)
        self._heads = MaskedHeads(self._model)
        batch = self.session.batch.size
        epochs = math.ceil(len(self._samples) / batch) * settings.train.epochs
        self._steps = settings.train.max_steps or epochs

    def train(self) -> bool:
        """Train from the newest checkpoint, or from the start; whether a stop ended it."""
        settings, session, samples = self._settings, self.session, self._samples
        self._baselines = baselines(samples, self._tested, tokens=len(self._vocabulary))
        return session.train(
            task=PretrainingTask(self._model, samples),
            order=Stream(
                len(samples),
                batch=session.batch.size,
                seed=settings.train.seed,
                width=samples.sequence,
            ),
            steps=self._steps,
            optimizer=make_optimizer(
                self._model, train=settings.train, speed=settings.speed, backend=session.backend
            ),
            forward=self._heads,
            identity=self._identity(),
            about=self._about(),
        )

    def score(self) -> None:
        """Score the trained model, on every worker."""
        session = self.session
        self._heads.eval()
        self._evaluation = evaluate(
            self._heads, self._tested, backend=session.backend, micro=session.batch.micro
        )

    def write(self) -> None:
        """Write the model and its results, and show them."""
        session, found = self.session, self._evaluation
        kind = "test" if self._held_out else "training"
        session.note(kind, found.rounded())
        session.say(results.table(found, self._baselines, kind=kind))

        def fill(folder: Path) -> dict[str, object]:
            save_model(self._model, self._vocabulary, folder)
            return results.build(
                settings=self._settings,
                model=self._model,
                vocabulary=self._vocabulary,
                weights_sha256=sha256_of(folder / "model.safetensors"),
                data=self._facts(),
                evaluation_set=f"{self._folder.resolve().name}/{kind}",
                evaluation=found,
                baselines=self._baselines,
                facts=session.facts(results.PACKAGES),
            )

        session.write(fill)

    def _open(self, kind: str) -> Samples | None:
        stage = self._settings.stage
        return open_samples(
            self._folder,
            kind,
            vocabulary=self._vocabulary,
            backend=self.session.backend,
            copies=Path(stage) if stage else self._folder / "unpacked",
            all_copied=stage is not None,
        )

    def _check_fit(self) -> None:
        """Refuse shards that the model cannot take, all problems in one line."""
        config, problems = self._model.config, []
        if self._samples.sequence > config.max_position_embeddings:
            problems.append(
                f"the shards have samples of {self._samples.sequence} tokens, and the model takes "
                f"{config.max_position_embeddings}; a larger model.positions makes one that does"
            )
        if config.vocab_size != len(self._vocabulary):
            problems.append(
                f"the model knows {config.vocab_size} tokens, and the vocabulary has "
                f"{len(self._vocabulary)}; start from a model of the same vocabulary"
            )
        elif (start := self._settings.start_from) and not self._same_vocabulary(Path(start)):
            problems.append(
                f"the model in {start} has another vocabulary than the shards; start from a model "
                "of the same one"
            )
        if problems:
            raise InputError("; ".join(problems))

    def _same_vocabulary(self, start: Path) -> bool:
        """Whether a model's vocabulary, where it lies beside it, is that of the shards."""
        path = start / FILE
        return not path.is_file() or read_vocabulary(path) == self._vocabulary

    def _facts(self) -> dict[str, Any]:
        """What the data are, for results."""
        training, tested = (find_shards(self._folder, kind) for kind in ("training", "test"))
        return {
            "name": self._folder.resolve().name,
            "sha256": fingerprint([*training, *tested]),
            "vocabulary_sha256": self._vocabulary.sha256,
            "shards": len(training),
            "samples": len(self._samples),
            "test_samples": len(self._held_out) if self._held_out else 0,
            "sequence": self._samples.sequence,
            "predictions": self._samples.predictions,
        }

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint must agree with, since it decides what the run computes."""
        settings, train = self._settings, self._settings.train
        start = settings.start_from
        return {
            "start_from": sha256_of(Path(start) / "model.safetensors") if start else None,
            "model": None if start else vars(settings.model),
            "shards": fingerprint(find_shards(self._folder, "training")),
            "vocabulary": self._vocabulary.sha256,
            "steps": self._steps,
            "train.batch_size over all workers": self.session.batch.size,
            "train.learning_rate": self.session.batch.learning_rate,
            "train.optimizer": train.optimizer,
            "train.warm_up": train.warm_up,
            "train.weight_decay": train.weight_decay,
            "train.clip": train.clip,
            "train.seed": train.seed,
        }

    def _about(self) -> list[str]:
        """What will be trained, on what, and what its loss must fall under."""
        config, samples, guess = self._model.config, self._samples, self._baselines
        parameters = sum(tensor.numel() for tensor in self._model.parameters())
        held_out = f"{len(self._held_out)} held out" if self._held_out else "none held out"
        return [
            f"model BERT, {config.num_hidden_layers} layers of {config.hidden_size}: "
            f"{parameters / 1e6:.1f} M parameters"
            + (f", from {self._settings.start_from}" if self._settings.start_from else ""),
            f"samples {self._folder.name}: {len(samples)} of {samples.sequence} tokens with at "
            f"most {samples.predictions} predictions, {held_out}",
            f"guessing without context costs {guess.uniform:.2f} nats a masked token, and "
            f"{guess.unigram:.2f} by how often each is masked; a step's loss has the order's 0.69 "
            f"too: compare it with {guess.unigram + math.log(2):.2f}",
        ]
