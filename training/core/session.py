"""What the run of any task does around the loop: its folders, its lock, going on, its end."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from training.command import InputError
from training.core.backend import open_backend
from training.core.checkpoint import Checkpoints
from training.core.data import cut_batch
from training.core.loop import Batches, Position, Run, Task
from training.core.loop import run as run_loop
from training.core.metrics import Metrics
from training.core.progress import Progress
from training.core.results import SCHEMA, read_platform, run_facts
from training.core.settings import Checkpoint, Speed, Train
from training.core.stop import STOPPED, Stop
from training.core.store import LOCK, open_store
from training.files import check_free, check_schema, locked, sync_files, write_json

MEASURED = ("steps.csv", "tensorboard")
CHECKPOINTS, STOP = "checkpoints", "stop"


class Session:
    """One run from its settings to the folder that it leaves.

    State is kept in `<output>.run` until the model is written, so that the same call goes on.

    Attributes:
        backend: what computes.
        batch: how the global batch is cut over the workers.
        work: the run's folder.

    Raises:
        InputError: the output is in use, the batch cannot be cut, or the device is not there.
    """

    def __init__(
        self,
        *,
        output: str,
        platform: str | None,
        train: Train,
        speed: Speed,
        checkpoint: Checkpoint,
        stop: Stop,
    ) -> None:
        self._started = time.perf_counter()
        self._train, self._speed, self._checkpoint, self._stop = train, speed, checkpoint, stop
        self._site = read_platform(Path(platform) if platform else None)
        self._named = output
        self._output = Path(output).resolve()
        check_free(self._output, holds="model")
        self.work = self._output.with_name(f"{self._output.name}.run")
        self._store = open_store(checkpoint.folder or self.work / CHECKPOINTS)
        self.backend = open_backend(speed.device, speed.precision)
        self.batch = cut_batch(train, workers=self.backend.workers.world)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other runs away from the folder of this one; the first worker does it for all."""
        if not self.backend.first:
            yield
            return
        try:
            self.work.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot write to {self.work}: {error.strerror or error}") from error
        if (self.work / "results.json").exists():
            raise InputError(
                f"{self.work}, where this run would keep its state, is the output of another; give "
                "another --output"
            )
        refusal = f"another run is writing to {self._output}; wait for it, or give another --output"
        with locked(self.work / LOCK, refusal=refusal), self._store.alone():
            check_free(self._output, holds="model")  # a run may have ended since it was looked at
            yield

    def train(
        self,
        *,
        task: Task,
        order: Batches,
        steps: int,
        optimizer: torch.optim.Optimizer,
        forward: Callable[..., Any],
        identity: Mapping[str, Any],
        about: Sequence[str],
    ) -> bool:
        """Train from the newest checkpoint, or from the start; whether a stop ended it.

        Args:
            task: what is trained; its model is on the device.
            order: of the examples.
            steps: of the whole run.
            optimizer: of the model.
            forward: what the task's loss calls; compiled first where that was asked for.
            identity: what a checkpoint must agree with, since it decides what the run computes.
            about: lines that say what is trained, and on what.
        """
        backend = self.backend
        self._checkpoints = Checkpoints(
            self._store, keep=self._checkpoint.keep, model=task.model, optimizer=optimizer
        )
        found = self._checkpoints.resume(
            backend, identity, needs=("step", "samples", "seconds", "starts")
        )
        start, every = Position(), self._checkpoint.every
        if found is not None:
            start = Position(
                step=found["step"],
                samples=found["samples"],
                seconds=found["seconds"],
                starts=found["starts"] + 1,
            )
        if backend.first:
            self._stop.watch(self.work / STOP)
        self._steps = steps
        self._progress = Progress(shown=backend.first, start=start.step, steps=steps)
        self._introduce(about)
        if found is not None:
            self.say(f"going on after step {start.step} of {steps}")
        elif (self.work / MEASURED[0]).exists():
            self.say(f"no checkpoint was written (one every {every} steps): from the start again")
        self._metrics = Metrics(self.work if backend.first else None, after=start.step)
        self._before = time.perf_counter() - self._started
        compiled = torch.compile(forward, dynamic=False) if self._speed.compile else forward
        self._position, stopped = run_loop(
            Run(
                task=task,
                order=order,
                batch=self.batch,
                train=self._train,
                steps=steps,
                backend=backend,
                optimizer=optimizer,
                forward=compiled,
                checkpoints=self._checkpoints,
                every=every,
                identity=identity,
                stop=self._stop,
                metrics=self._metrics,
                report=self._progress.step,
            ),
            start,
        )
        self._trained = time.perf_counter()
        return stopped

    def asked_to_stop(self) -> bool:
        """Whether someone has asked any worker to stop; all workers call it, and agree."""
        return self.backend.sum([float(self._stop.asked)])[0] > 0

    def say(self, line: str) -> None:
        """Show a line, once for all workers."""
        self._progress.say(line)

    def stopped(self) -> int:
        """End early, with the state in a checkpoint; the exit code."""
        self._metrics.close()
        if self.backend.first:
            self._stop.granted()
        self.say(
            f"stopped after step {self._position.step} of {self._steps}; the same command goes on"
        )
        return self.backend.leave(STOPPED)

    def note(self, kind: str, scores: dict[str, float]) -> None:
        """Note what an evaluation of the trained model found."""
        self._metrics.add_scores(kind, scores, step=self._position.step)

    def facts(self, packages: Sequence[str]) -> dict[str, object]:
        """The parts of `results.json` that every task has."""
        return run_facts(
            backend=self.backend,
            batch=self.batch,
            train=self._train,
            position=self._position,
            records=self._metrics.records,
            stalls=self._checkpoints.stalls,
            other_seconds=self._before + time.perf_counter() - self._trained,
            site=self._site,
            packages=packages,
        )

    def write(self, fill: Callable[[Path], dict[str, object]]) -> None:
        """Write the output folder under the run's folder, rename it, remove the run's.

        Args:
            fill: puts the model into the folder that it is given; the content of results.json.
        """
        self._metrics.close()
        folder = self.work / "model"
        shutil.rmtree(folder, ignore_errors=True)  # of an export that was killed
        folder.mkdir()
        content = fill(folder)
        check_schema(content, schema=SCHEMA, name="results.json")
        write_json(folder / "results.json", content)
        for name in MEASURED:
            if (self.work / name).is_dir():
                shutil.copytree(self.work / name, folder / name)
            elif (self.work / name).is_file():
                shutil.copyfile(self.work / name, folder / name)
        sync_files(folder)
        folder.replace(self._output)
        self._clear()
        self.say(
            f"\ntrained {self._position.samples} samples in {self._position.seconds:.1f} s; "
            f"model and results.json are in {self._named}"
        )

    def _clear(self) -> None:
        """Remove the run's folder, but for what others have put into it."""
        for name in (*MEASURED, CHECKPOINTS, STOP, LOCK):
            shutil.rmtree(self.work / name, ignore_errors=True)
            with suppress(OSError):  # NFS may not remove the lock, which is open
                (self.work / name).unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            self.work.rmdir()

    def _introduce(self, about: Sequence[str]) -> None:
        """Say what will be trained, and on what."""
        backend = self.backend
        workers = backend.workers.world
        for line in about:
            self.say(line)
        self.say(
            f"device {backend.device.type}, "
            + (f"{workers} workers of " if workers > 1 else "")
            + f"{torch.get_num_threads()} threads; precision {backend.precision}: {backend.reason}"
        )
        for step in self._checkpoints.damaged:
            self.say(f"the checkpoint of step {step} is damaged and was passed over")
