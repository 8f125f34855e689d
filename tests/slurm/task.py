"""A training module as Slurm starts any: a small model on the product's own core.

    python -m tests.slurm.task --output DIR [--steps N] [--pause S] [--every N] [--hang-at STEP]
                               [--graphs N] [--data FILE]

It writes what it computes with, its environment and its limits among them, into the output.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import time
from pathlib import Path

from tests.training.tiny import Tiny
from training.core.backend import open_backend, stop_hard
from training.core.checkpoint import Checkpoints
from training.core.data import Order, cut_batch
from training.core.loop import Position, Run, make_optimizer, run
from training.core.metrics import Metrics, Record
from training.core.settings import Speed, Train
from training.core.stop import STOPPED, Stop
from training.core.store import FolderStore
from training.files import write_json


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--hang-at", type=int, default=-1)
    parser.add_argument("--graphs", type=int, default=0)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    work = options.output.with_name(f"{options.output.name}.run")
    with Stop() as stop:
        backend = open_backend("cpu", "fp32")
        if backend.first:
            work.mkdir(exist_ok=True)
            stop.watch(work / "stop")
        for graph in range(options.graphs):
            _compile(graph)
        train = Train(max_steps=options.steps, batch_size=24, micro_batch_size=2)
        task = Tiny()
        batch = cut_batch(train, workers=backend.workers.world)
        order = Order([len(text) for text in task.texts], batch=batch.size, seed=0, width=24)
        optimizer = make_optimizer(task.model, train=train, speed=Speed(), backend=backend)
        store = FolderStore(work / "checkpoints")
        checkpoints = Checkpoints(store, keep=2, model=task.model, optimizer=optimizer)
        found = checkpoints.resume(backend, {})
        start = Position()
        if found is not None:
            print(f"going on after step {found['step']}", flush=True)
            start = Position(
                step=found["step"],
                samples=found["samples"],
                seconds=found["seconds"],
                starts=found["starts"] + 1,
            )
        metrics = Metrics(work if backend.first else None, after=start.step)

        def report(record: Record) -> None:
            time.sleep(options.pause)
            once = work / "has-hung"
            last = backend.workers.rank == backend.workers.world - 1
            if record.step == options.hang_at and last and not once.exists():
                once.touch()
                time.sleep(3600)

        _, stopped = run(
            Run(
                task=task,
                order=order,
                batch=batch,
                train=train,
                steps=options.steps,
                backend=backend,
                optimizer=optimizer,
                forward=task.model,
                checkpoints=checkpoints,
                every=options.every,
                identity={},
                stop=stop,
                metrics=metrics,
                report=report,
            ),
            start,
        )
        metrics.close()
        if stopped and backend.first:
            stop.granted()
    if stopped:
        backend.leave(STOPPED)
        stop_hard(STOPPED)
    options.output.mkdir(exist_ok=True)
    write_json(options.output / f"rank-{backend.workers.rank}.json", _facts(options.data))
    backend.barrier()
    if backend.first:
        shutil.move(work / "steps.csv", options.output / "steps.csv")
    backend.leave(0)


def _compile(graph: int) -> None:
    """What Neuron's compiler does to its cache, in its words."""
    cache = Path(os.environ["NEURON_COMPILE_CACHE_URL"])
    name = f"MODULE_{graph}+abc"
    folder = cache / "neuronxcc-2.0" / name
    log = Path(os.environ["COMPILER_LOG"])
    while not (folder / "model.done").exists():
        try:
            folder.mkdir(parents=True)
        except FileExistsError:  # another rank of this node compiles it
            time.sleep(0.1)
            continue
        with log.open("a") as file:
            file.write(f"{name} {os.environ['SLURMD_NODENAME']}\n")
        (folder / "model.neff").write_bytes(os.urandom(1 << 16))
        (folder / "model.done").touch()
        return
    print(f"INFO ||NEURON_CC_WRAPPER||: Using a cached neff at {folder}/model.neff", flush=True)


def _facts(data: Path | None) -> dict[str, object]:
    return {
        "environment": dict(os.environ),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "host": os.uname().nodename,
        "data": data and [str(data), data.read_text()],
    }


if __name__ == "__main__":
    main()
