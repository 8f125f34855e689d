"""Compiled programs: each job has its own on the node's disk, and whole ones are shared.

The compiler locks files of its cache, which file systems of many nodes are bad at, and a rank that
is killed leaves half a program there. So ranks compile into a folder on their node's own disk,
which starts as a copy of the shared one; what is whole and new goes back, by rename under a lock.

Layout, the compiler's own: `neuronxcc-<version>/MODULE_<graph>+<flags>/` with `model.neff`, and
`model.done` once it is whole.
"""

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from training.command import InputError
from training.files import sync_files

# What the compiler's wrapper says of a graph that it did not have to compile.
_HIT = re.compile(r"Using a cached neff at \S*?/(MODULE_[^/\s]+)/")


def shared_folder(cache: Path, packages: Mapping[str, str]) -> Path:
    """The shared folder of one set of versions, of which none reads what another has compiled."""
    name = "_".join(f"{name}-{number}" for name, number in sorted(packages.items()))
    return cache / (name or "no-neuron")


def modules(folder: Path) -> dict[str, Path]:
    """The whole programs of a cache, by `neuronxcc-<version>/MODULE_...`."""
    return {
        f"{path.parent.name}/{path.name}": path
        for path in folder.glob("neuronxcc-*/MODULE_*")
        if (path / "model.done").is_file() and (path / "model.neff").is_file()
    }


def fetch(shared: Path, private: Path) -> int:
    """Copy the shared programs to the node's own disk; how many there are."""
    found = modules(shared)
    for name, path in found.items():
        target = private / name
        if not target.exists():
            _copy(path, target)
    private.mkdir(parents=True, exist_ok=True)
    return len(found)


def publish(private: Path, shared: Path, *, patience: float) -> int:
    """Share what this job has compiled; how many programs were new.

    Raises:
        InputError: another job has held the lock for `patience` seconds.
    """
    shared.mkdir(parents=True, exist_ok=True)
    new = modules(private).keys() - modules(shared).keys()
    if not new:
        return 0
    published = 0
    with waiting_lock(shared / ".publishing", patience):
        for name in sorted(new):
            if not (shared / name).exists():
                _copy(private / name, shared / name)
                published += 1
    return published


def hits(logs: Path, ranks: int) -> set[str]:
    """The programs that the first ranks found compiled, by what their logs say."""
    found: set[str] = set()
    for rank in range(ranks):
        try:
            text = (logs / f"rank-{rank}.txt").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        found |= set(_HIT.findall(text))
    return found


@contextmanager
def waiting_lock(file: Path, patience: float) -> Iterator[None]:
    """Hold a lock that works between nodes; a killed holder frees it.

    Raises:
        InputError: somebody else has held it for `patience` seconds.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + patience
    with file.open("wb") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise InputError(f"another job has held {file} for {patience:g} s") from None
                time.sleep(0.5)
        yield


def _copy(source: Path, target: Path) -> None:
    """Copy a program so that nobody sees a part of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{os.uname().nodename}.{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree(source, beside)
    sync_files(beside)
    try:
        beside.rename(target)
    except OSError:  # somebody was faster, and has the same
        shutil.rmtree(beside)
