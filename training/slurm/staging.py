"""Data on their way to the ranks: out of S3 into FSx for Lustre, and on to each node's own disk."""

import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from training.command import InputError
from training.slurm.scheduler import ask

# Names that fit a command line, and what one call of lfs may take.
BATCH = 200
LIMIT = 300
POLL = 5.0
COPIES = 8


def hydrate(paths: Sequence[Path], *, patience: float, poll: float = POLL) -> int:
    """Have Lustre fetch the content of files that are only names of objects in S3; their number.

    A folder that is linked to a bucket shows its objects at once and fetches each when it is first
    read, by whoever reads it: accelerators would wait. Without `lfs`, or on a file system that has
    no link, there is nothing to do.

    Raises:
        InputError: a path is missing, Lustre refuses, or nothing came in for `patience` seconds.
    """
    files = [str(file) for path in paths for file in files_below(path)]
    if shutil.which("lfs") is None:
        return 0
    waiting = _released(files)
    total = len(waiting)
    for start in range(0, total, BATCH):
        ask("lfs", "hsm_restore", *waiting[start : start + BATCH], limit=LIMIT)
    changed = time.monotonic()
    while waiting:
        time.sleep(poll)
        left = _released(waiting)
        if len(left) < len(waiting):
            changed = time.monotonic()
        elif time.monotonic() - changed > patience:
            raise InputError(
                f"{len(left)} of {total} files are still only names after {patience:g} s without "
                f"one more, {left[0]} first; see lfs hsm_action {left[0]}"
            )
        waiting = left
    return total


def files_below(path: Path) -> list[Path]:
    """A file, or all files below a folder, in order.

    Raises:
        InputError: it does not exist.
    """
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    if not path.exists():
        raise InputError(f"{path} does not exist")
    return [path]


def local_path(path: Path, scratch: Path) -> Path:
    """Where the copy of a file or folder is on a node's own disk."""
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return own_folder(scratch) / "data" / digest / path.name


def own_folder(scratch: Path) -> Path:
    """This user's folder on a node's own disk."""
    return scratch / f"ultracluster-{os.getuid()}"


def stage(path: Path, scratch: Path) -> Path:
    """Copy a file or folder to the node's own disk; where it is. What is there is not copied again.

    Raises:
        InputError: it does not exist, or the disk cannot take it.
    """
    target = local_path(path, scratch)
    files = files_below(path)
    wanted = [
        (file, to, file.stat())
        for file in files
        for to in [target / file.relative_to(path) if path.is_dir() else target]
    ]
    wanted = [(file, to, facts) for file, to, facts in wanted if not _same(to, facts)]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        needed = sum(facts.st_size for _, _, facts in wanted)
        if (free := shutil.disk_usage(target.parent).free) < needed:
            raise InputError(
                f"cannot stage {path} to {scratch}: it needs {needed / 1e9:.1f} GB and "
                f"{free / 1e9:.1f} GB are free"
            )
        with ThreadPoolExecutor(COPIES) as pool:
            list(pool.map(lambda one: _copy(one[0], one[1]), wanted))
    except OSError as error:
        raise InputError(f"cannot stage {path} to {scratch}: {error.strerror or error}") from error
    return target


def _released(files: Sequence[str]) -> list[str]:
    """Those of the files whose content is not here, by `lfs hsm_state`."""
    released = []
    for start in range(0, len(files), BATCH):
        told = ask("lfs", "hsm_state", *files[start : start + BATCH], limit=LIMIT)
        # `/fsx/data/a.hdf5: (0x0000000d) released exists archived, archive_id:1`
        for line in told.splitlines():
            name, _, state = line.rpartition(": (")
            if "released" in state.split():
                released.append(name)
    return released


def _same(copy: Path, facts: os.stat_result) -> bool:
    try:
        there = copy.stat()
    except OSError:
        return False
    return (there.st_size, there.st_mtime_ns) == (facts.st_size, facts.st_mtime_ns)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        shutil.copy2(source, beside)  # with its time, by which a later start knows it
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
