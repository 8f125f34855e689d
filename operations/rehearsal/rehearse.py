"""Start the emulated account, go the road, end everything that was started."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from operations.emulator import Emulator, EmulatorError
from operations.rehearsal.models import TRAINING_PYTHON
from operations.rehearsal.progress import Progress, StepFailed
from operations.rehearsal.road import FULL, STEPS, Recipe, summarize, travel
from ultracluster.settings import SettingsError, load_settings

ROOT = Path(__file__).resolve().parents[2]
RUNS = ROOT / ".rehearsal"
KEPT_RUNS = 3
NEEDED_BYTES = 2_000_000_000


class RehearsalError(Exception):
    """The rehearsal cannot start; the message says what to do."""


def rehearse(*, recipe: Recipe = FULL, runs: Path = RUNS, exit_with_parent: bool = False) -> int:
    """Play the whole road; returns the exit status.

    Args:
        recipe: how the two models are trained.
        runs: folder that holds one folder a run.
        exit_with_parent: stop when the process that started us is gone, as `make` may be.
    """
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _interrupt)
    if exit_with_parent:
        _watch_parent()
    try:
        settings = load_settings("rehearsal", ROOT / "config")
        with _only_run(runs) as folder:
            print(f"logs: {folder}")
            progress = Progress(STEPS + 1 + (recipe.pretrain is not None))
            with _emulator(progress, folder, settings.aws.region) as emulator:
                report = travel(emulator, settings, recipe=recipe, folder=folder, progress=progress)
            summarize(report, show=print)
            print(f"\nrehearsed in {progress.seconds:.0f} s; logs: {folder}")
    except KeyboardInterrupt:
        print("\nstopped; everything that was started has been ended")
        return 130
    except (SettingsError, RehearsalError, EmulatorError, StepFailed) as error:
        print(f"\nrehearsal failed: {error}")
        return 1
    except (BotoCoreError, ClientError) as error:
        print(f"\nrehearsal failed: the emulated account did not answer: {error}")
        return 1
    except OSError as error:
        if error.errno in (errno.EPIPE, errno.EIO):
            _forget_output()  # the reader or the terminal has gone: as good as Ctrl-C
            return 130
        print(f"\nrehearsal failed: {error.strerror}: {error.filename or ''}")
        return 1
    return 0


@contextmanager
def _emulator(progress: Progress, folder: Path, region: str) -> Iterator[Emulator]:
    emulator = Emulator(
        run_directory=folder / "emulator", model_server_python=TRAINING_PYTHON, region=region
    )
    with progress.step("start the emulated account") as step:
        emulator.__enter__()
        step.note = emulator.url
    try:
        yield emulator
    except (StepFailed, BotoCoreError, ClientError):
        _ = emulator.url  # raises where the account has died, which explains the failure
        raise
    finally:
        emulator.close()


@contextmanager
def _only_run(runs: Path) -> Iterator[Path]:
    """A new run folder, while no other rehearsal runs in this checkout."""
    runs.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(runs).free
    if free < NEEDED_BYTES:
        raise RehearsalError(
            f"{free // 1_000_000} MB are free at {runs}: {NEEDED_BYTES // 1_000_000} MB are needed"
        )
    with (runs / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise RehearsalError(
                f"another rehearsal runs in this checkout (process {lock.read().strip()}): "
                "wait for it or stop it"
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        for old in sorted(runs.glob("run-*"))[: -(KEPT_RUNS - 1) or None]:
            shutil.rmtree(old, ignore_errors=True)
        folder = runs / time.strftime("run-%Y%m%d-%H%M%S")
        folder.mkdir()
        yield folder


def _forget_output() -> None:
    """Let nothing that is still buffered raise again when the interpreter ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _watch_parent() -> None:
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
