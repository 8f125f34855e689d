"""The costs beside the steps: batches, checkpoints, resume."""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import DataCollatorWithPadding

from benchmarks.loops import Material, OurLoop
from training.core.backend import Backend
from training.core.checkpoint import Checkpoints
from training.core.store import FolderStore
from training.roberta_sentiment.task import collate


def timed(action: Callable[[], object], *, times: int) -> float:
    """The median seconds of an action."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return median(seconds)


def loading(material: Material, tokenizer: Any) -> tuple[float, float]:
    """Texts a second that one core makes into batches: by ours, and by Hugging Face's collator."""
    rows = range(len(material.texts))
    batches = [list(rows[at : at + material.batch]) for at in rows[:: material.batch]]
    theirs = DataCollatorWithPadding(tokenizer, padding="max_length", max_length=material.width)

    def ours() -> None:
        for batch in batches:
            collate(material.texts, batch, width=material.width, pad=material.pad)

    def other() -> None:
        for batch in batches:
            theirs(
                [
                    {"input_ids": list(text.ids), "label": text.label}
                    for text in (material.texts[row] for row in batch)
                ]
            )

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return tuple(len(rows) / timed(action, times=5) for action in (ours, other))  # type: ignore[return-value]
    finally:
        torch.set_num_threads(threads)


def checkpoints(loop: OurLoop, *, backend: Backend, times: int) -> dict[str, float]:
    """Seconds of one checkpoint of the model and its optimizer, and bytes.

    `stall` is what training waits for ours, `whole` until it is on the disk; `save` is a blocking
    torch.save, `safe` with the fsync that puts it on the disk; `resume` and `load` are the ways
    back, ours with its check of the digest.
    """
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:
        folder, file = Path(scratch) / "ours", Path(scratch) / "theirs.pt"
        ours = Checkpoints(FolderStore(folder), keep=1, model=loop.model, optimizer=loop.optimizer)
        stalls, wholes, saves, safes = [], [], [], []
        for step in range(times + 1):
            start = time.perf_counter()
            ours.save(step, {"identity": {}})
            stalls.append(time.perf_counter() - start)
            ours.wait()
            wholes.append(time.perf_counter() - start)
            state = {"model": loop.model.state_dict(), "optimizer": loop.optimizer.state_dict()}
            start = time.perf_counter()
            torch.save(state, file)
            saves.append(time.perf_counter() - start)
            with file.open("rb") as written:
                os.fsync(written.fileno())
            safes.append(time.perf_counter() - start)

        def load() -> None:
            content = torch.load(file, map_location=backend.device)
            loop.model.load_state_dict(content["model"])
            loop.optimizer.load_state_dict(content["optimizer"])

        return {
            # The first one takes the memory that the next ones use again.
            "stall": median(stalls[1:]),
            "whole": median(wholes[1:]),
            "save": median(saves[1:]),
            "safe": median(safes[1:]),
            "resume": timed(lambda: ours.resume(backend, {}), times=times),
            "load": timed(load, times=times),
            "bytes": float(sum(path.stat().st_size for path in folder.rglob("*"))),
        }
