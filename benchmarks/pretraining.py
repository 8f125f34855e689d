"""How fast pre-training is: `make benchmark-pretraining`.

One machine, one thread, the same samples; what is compared runs in turns. The other side is built
as the Trn1 reference is: h5py and a DataLoader with RandomSampler; logits of every token, the mean
of the micro-batches' means, and a loss that the host waits for in each of them. Prints a table in
Markdown.
"""

import copy
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")

import h5py
import torch
from torch.utils.data import DataLoader, RandomSampler

from benchmarks.pretraining_loops import Ours, Reference, Theirs
from training.bert_pretraining.builder import Request, build_shards, make_vocabulary
from training.bert_pretraining.corpus import find_texts
from training.bert_pretraining.docstrings import write_docstrings
from training.bert_pretraining.model import make_model
from training.bert_pretraining.order import Stream
from training.bert_pretraining.samples import Samples
from training.bert_pretraining.settings import Build, Shape
from training.bert_pretraining.shards import find_shards, inspect, read_shard, unpack
from training.bert_pretraining.task import collate
from training.bert_pretraining.vocabulary import FILE, read_vocabulary
from training.command import Parser, run
from training.core.backend import open_backend
from training.core.settings import Speed

NODE_EATS = (
    3827  # sequences/s of one trn1.32xlarge, BERT-large phase 1, as AWS Neuron 2.28 lists it
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command is told."""

    packages: list[str]
    rounds: int
    steps: int


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = Parser(prog="python -m benchmarks.pretraining", description=__doc__)
    add = parser.add_argument
    add("--packages", nargs="+", default=["networkx"], help="whose documentation is the text")
    add("--rounds", type=int, default=3, help="turns of each (3)")
    add("--steps", type=int, default=4, help="measured steps a turn (4)")
    options = Options(**vars(parser.parse_args(arguments)))
    return run(lambda: print(measure(options)))


def measure(options: Options) -> str:
    """The whole table."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _, size = write_docstrings(options.packages, folder / "text")
        building = _build(folder)
        loaders, unpacking = loading(folder, rounds=options.rounds)
        steps = _stepping(folder, options)
    ours, theirs = loaders
    copies = Build().copies
    return "\n".join(
        [
            f"{datetime.now(UTC):%Y-%m-%d}: {open_backend('cpu', 'fp32').name()}, one thread",
            "",
            "| | other | ours | times as fast |",
            "|---|---|---|---|",
            f"| batches of 16 by one core: against h5py, RandomSampler and DataLoader | "
            f"{theirs:,.0f} samples/s | {ours:,.0f} samples/s | {ours / theirs:.1f} |",
            f"| the same, against what a trn1.32xlarge takes | {NODE_EATS:,} samples/s | "
            f"{ours:,.0f} samples/s | {ours / NODE_EATS:.1f} |",
            f"| a step of 32 samples in 4 parts: against the reference's structure | "
            f"{steps['theirs'] * 1e3:.0f} ms | {steps['ours'] * 1e3:.0f} ms | "
            f"{steps['theirs'] / steps['ours']:.2f} |",
            f"| the same with fused AdamW | {steps['theirs'] * 1e3:.0f} ms | "
            f"{steps['fused'] * 1e3:.0f} ms | {steps['theirs'] / steps['fused']:.2f} |",
            "",
            f"One core turns {size / building / 1e6:.2f} MB of text a second into shards, each "
            f"masked {copies} times, and unpacks compressed ones at {unpacking / 1e6:.0f} MB a "
            "second. All seconds are core seconds.",
        ]
    )


def _build(folder: Path) -> float:
    """Core seconds of making shards, with a vocabulary at hand."""
    build = Build(shards=2)
    vocabulary = make_vocabulary(find_texts([folder / "text"], documents="file"), build)
    (folder / FILE).write_bytes(vocabulary.content)
    request = Request(
        texts=(folder / "text",),
        output=folder / "shards",
        vocab=folder / FILE,
        build=build,
        processes=1,
    )
    start = time.process_time()
    build_shards(request, _progress)
    return time.process_time() - start


def loading(folder: Path, *, rounds: int) -> tuple[tuple[float, float], float]:
    """Samples a core second of both loaders; bytes a core second of unpacking."""
    path = find_shards(folder / "shards", "training")[0]
    packed = folder / "packed.hdf5"
    with h5py.File(packed, "w") as file:
        for key, values in read_shard(path).items():
            file.create_dataset(key, data=values, compression="gzip")
    start = time.process_time()
    unpack(packed, folder / "unpacked.hdf5")
    unpacking = path.stat().st_size / (time.process_time() - start)
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(_rate(_our_batches(path)))
        theirs.append(_rate(_their_batches(packed)))
    return (max(ours), max(theirs)), unpacking


def _rate(batches: Iterator[int]) -> float:
    """Samples a core second, opening the shard included."""
    start = time.process_time()
    count = sum(batches)
    return count / (time.process_time() - start)


def _our_batches(path: Path) -> Iterator[int]:
    """An epoch of one shard; sizes of the batches."""
    samples = Samples([inspect(path)], tokens=30522)
    stream = Stream(len(samples), batch=16, seed=0, width=samples.sequence)
    for step in range(len(samples) // 16):
        yield len(collate(samples, stream.rows(step)[:])["ids"])


def _their_batches(path: Path) -> Iterator[int]:
    """The same as the reference has it."""
    data = Theirs(path)
    loader = DataLoader(data, batch_size=16, sampler=RandomSampler(data), drop_last=True)
    for batch in loader:
        yield len(batch[0])


def _stepping(folder: Path, options: Options) -> dict[str, float]:
    """Core seconds of a step of each loop, in its fastest turn."""
    path = find_shards(folder / "shards", "training")[0]
    samples = Samples([inspect(path)], tokens=30522)
    torch.manual_seed(0)
    model = make_model(Shape(dropout=0.0), read_vocabulary(folder / FILE))
    backend = open_backend("cpu", "fp32")
    loops: dict[str, Ours | Reference] = {
        "theirs": Reference(copy.deepcopy(model), Theirs(path), backend),
        "ours": Ours(copy.deepcopy(model), samples, backend, Speed(optimizer="adamw")),
        "fused": Ours(copy.deepcopy(model), samples, backend, Speed()),
    }
    seconds = dict.fromkeys(loops, math.inf)
    for turn in range(options.rounds):
        _progress(f"turn {turn + 1} of {options.rounds}")
        for name, loop in loops.items():
            start = time.process_time()
            loop.go(options.steps)
            taken = (time.process_time() - start) / options.steps
            seconds[name] = min(seconds[name], taken)
    return seconds


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
