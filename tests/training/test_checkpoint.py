"""What a kill, a full disk or a damaged file does to checkpoints: the newest whole one loads."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.training import ranks
from training.core.backend import open_backend
from training.core.checkpoint import Checkpoints
from training.core.store import DONE, STATE, FolderStore, S3Store, open_store, write_tensors

pytestmark = pytest.mark.training

# `make test-soak` asks for more.
KILLS = int(os.environ.get("ULTRACLUSTER_KILLS", "30"))
CALLS = ("write", "fsync", "rename", "mkdir", "rmdir", "unlink", "open")
KEEP = 2


def state(step: int, size: int = 1000) -> dict[str, torch.Tensor]:
    """Tensors that tell which step they are of."""
    return {
        "weight": torch.full((size,), float(step)),
        "half": torch.full((3, 5), float(step), dtype=torch.bfloat16),
        "count": torch.tensor(step),
    }


def newest(folder: Path) -> int:
    """The step of the newest checkpoint that loads, whose content is checked."""
    store = FolderStore(folder)
    for step in store.steps():
        if (found := store.read(step)) is not None:
            tensors, facts = found
            assert facts["step"] == step
            for name, tensor in state(step, len(tensors["weight"])).items():
                assert torch.equal(tensors[name], tensor)
            return step
    return -1


def markers_tell_the_truth(folder: Path) -> bool:
    """Whether every checkpoint that says it is whole is."""
    store = FolderStore(folder)
    return all(store.read(step) is not None for step in store.steps())


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def write_and_prune(folder: Path, step: int, size: int = 1000) -> None:
    store = FolderStore(folder)
    store.write(step, state(step, size), {"step": step})
    for old in store.steps()[KEEP:]:
        store.remove(old)


def forked(work: Callable[[], None]) -> int:
    """Run work in a fork of this process; its exit code, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_at(number: int, *, half: bool) -> None:
    """Kill this process at the n-th call that changes the disk, or in the middle of that call."""
    calls = 0

    def watched(name: str) -> Callable[..., Any]:
        original = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                try:
                    if half and name == "write":
                        original(arguments[0], arguments[1][: len(arguments[1]) // 2])
                    elif half:
                        original(*arguments, **options)
                finally:
                    os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **options)

        return call

    for name in CALLS:
        setattr(os, name, watched(name))


@pytest.mark.case("T05")
@pytest.mark.parametrize("half", [False, True], ids=["before", "within"])
def test_a_kill_at_every_change_of_the_disk_leaves_the_newest_whole_one(
    tmp_path: Path, half: bool
) -> None:
    killed = number = 0
    while True:
        number += 1
        folder = tmp_path / str(number)
        for step in (1, 2):
            write_and_prune(folder, step)

        def work(folder: Path = folder, number: int = number) -> None:
            kill_at(number, half=half)
            write_and_prune(folder, 3)

        code = forked(work)
        assert newest(folder) in (2, 3)
        assert markers_tell_the_truth(folder)
        if code == 0:
            assert newest(folder) == 3
            break
        assert code == -signal.SIGKILL
        killed += 1
        write_and_prune(folder, 4)  # what the kill left is in nobody's way
        assert newest(folder) == 4
        assert len(list(folder.iterdir())) == KEEP
        shutil.rmtree(folder)
    # Two files of two and one parts with their syncs, two folders, renames and a removal.
    assert killed >= 12


@pytest.mark.case("T05")
def test_random_kills_never_lose_what_was_announced(tmp_path: Path) -> None:
    generator = random.Random(KILLS)
    step = 0
    for _ in range(KILLS):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writer, b"0\n")  # it starts; the clock runs from here
            for number in range(step + 1, step + 1000):
                write_and_prune(tmp_path, number, size=200_000)
                os.write(writer, f"{number}\n".encode())
            os._exit(1)
        os.close(writer)
        assert os.read(reader, 2) == b"0\n"
        time.sleep(generator.uniform(0.005, 0.15))
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        with os.fdopen(reader) as pipe:
            announced = [int(line) for line in pipe if line.endswith("\n")]
        found = newest(tmp_path)
        assert found >= max(announced, default=step)
        assert markers_tell_the_truth(tmp_path)
        assert len(FolderStore(tmp_path).steps()) <= KEEP + 1
        step = max(found, 0)
    assert step > 0  # the writers came to something


def limited(folder: Path, size: int) -> None:
    """Write a checkpoint where files may not grow past `size` bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    backend = open_backend("cpu", "fp32")
    model = torch.nn.Linear(1000, 10)
    optimizer = torch.optim.AdamW(model.parameters())
    checkpoints = Checkpoints(FolderStore(folder), keep=2, model=model, optimizer=optimizer)
    assert backend.first
    checkpoints.save(3, {"identity": {}})
    try:
        checkpoints.wait()
    except OSError:
        os._exit(2)


@pytest.mark.case("T05")
def test_a_file_system_that_takes_no_more_leaves_the_older_one(tmp_path: Path) -> None:
    write_and_prune(tmp_path, 2)
    (worker,) = ranks.start(1, limited, tmp_path, 20_000)
    assert worker.code() == 2
    assert newest(tmp_path) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]


@pytest.mark.case("T05")
def test_a_full_disk_leaves_the_older_one(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or not _may_mount(tmp_path):
        pytest.skip("this user may not mount a small file system")
    # The mount lives in a name space of its own and goes away with the process.
    script = """
import sys, errno
from pathlib import Path
from tests.training.test_checkpoint import newest, write_and_prune
folder = Path(sys.argv[1])
write_and_prune(folder, 1, size=100_000)
try:
    for step in range(2, 9):
        write_and_prune(folder, step, size=100_000 * step)
except OSError as error:
    assert error.errno == errno.ENOSPC
    found = newest(folder)
    assert found == step - 1, found
    write_and_prune(folder, step + 1, size=1000)  # the space is given back
    assert newest(folder) == step + 1
    sys.exit(2)
"""
    mount = f'mount -t tmpfs -o size=4m tmpfs "{tmp_path}" && exec "$@"'
    done = subprocess.run(
        [
            *("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"),
            *(_python(), "-c", script, str(tmp_path)),
        ],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "")


def _python() -> str:
    import sys

    return sys.executable


def _may_mount(folder: Path) -> bool:
    mount = f'mount -t tmpfs -o size=1m tmpfs "{folder}"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / STATE).write_bytes((folder / STATE).read_bytes()[:-1]),
        lambda folder: (folder / STATE).write_bytes(b"x" * (folder / STATE).stat().st_size),
        lambda folder: flip_a_bit(folder / STATE),
        lambda folder: (folder / STATE).unlink(),
        lambda folder: (folder / DONE).write_text("{"),
        lambda folder: (folder / DONE).unlink(),
    ],
    ids=["cut off", "overwritten", "one bit", "no state", "broken marker", "no marker"],
)
def test_a_damaged_checkpoint_is_passed_over(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    for step in (1, 2):
        write_and_prune(tmp_path, step)
    spoil(tmp_path / "step-00000002")
    assert newest(tmp_path) == 1
    write_and_prune(tmp_path, 2)  # the run comes there again
    assert newest(tmp_path) == 2


@pytest.mark.parametrize(("written", "kept"), [(15, [15, 10]), (30, [30, 10]), (50, [50, 10])])
def test_damaged_checkpoints_do_not_count_as_kept(
    tmp_path: Path, written: int, kept: list[int]
) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    store = FolderStore(tmp_path)

    def checkpoints() -> Checkpoints:
        return Checkpoints(store, keep=KEEP, model=model, optimizer=optimizer)

    for step in (5, 10, 20, 30, 40):
        store.write(step, checkpoints()._state(), {"identity": {}, "samples": 1, "step": step})
    for step in (20, 30, 40):
        flip_a_bit(tmp_path / f"step-{step:08d}" / STATE)
    going_on = checkpoints()
    found = going_on.resume(open_backend("cpu", "fp32"), {})
    assert found is not None
    assert (found["step"], going_on.damaged) == (10, [40, 30, 20])
    going_on.save(written, {"identity": {}})
    going_on.wait()
    assert store.steps() == kept
    going_on.save(written + 20, {"identity": {}})
    going_on.wait()
    assert store.steps() == [written + 20, written]


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"samples": 8},
        {"identity": {}},
        {"identity": 1, "samples": 8},
        {"identity": {}, "samples": "many"},
    ],
)
def test_a_marker_without_identity_or_samples_is_no_checkpoint(
    tmp_path: Path, facts: dict[str, Any]
) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    checkpoints = Checkpoints(FolderStore(tmp_path), keep=2, model=model, optimizer=optimizer)
    checkpoints.save(1, facts)
    checkpoints.wait()
    assert checkpoints.resume(open_backend("cpu", "fp32"), {}, needs=["samples"]) is None
    assert checkpoints.damaged == [1]


def test_the_file_is_plain_safetensors(tmp_path: Path) -> None:
    tensors = {
        "scalar": torch.tensor(1.5),
        "empty": torch.zeros(0),
        "turned": torch.arange(6.0).view(2, 3).t(),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "whole": torch.arange(3),
    }
    facts = write_tensors(tmp_path / "file", tensors)
    assert facts["bytes"] == (tmp_path / "file").stat().st_size
    loaded = load_file(tmp_path / "file")
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    class Slow(FolderStore):
        """Writes only once the weights have changed."""

        def write(self, step: int, tensors: Any, facts: Any) -> None:
            while model.weight[0, 0] != 7:
                time.sleep(0.001)
            super().write(step, tensors, facts)

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    before = model.weight.detach().clone()
    checkpoints = Checkpoints(Slow(tmp_path), keep=2, model=model, optimizer=optimizer)
    checkpoints.save(1, {"identity": {}})
    with torch.no_grad():
        model.weight.fill_(7)
    checkpoints.wait()
    found = FolderStore(tmp_path).read(1)
    assert found is not None
    assert torch.equal(found[0]["model.weight"], before)
    assert len(checkpoints.stalls) == 1


def test_a_checkpoint_of_another_run_is_refused_with_what_differs(tmp_path: Path) -> None:
    from training.command import InputError

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    checkpoints = Checkpoints(FolderStore(tmp_path), keep=2, model=model, optimizer=optimizer)
    checkpoints.save(1, {"identity": {"seed": 1, "steps": 9}})
    checkpoints.wait()
    with pytest.raises(InputError, match=r"seed was 1 and is 2; go on with the same settings"):
        checkpoints.resume(open_backend("cpu", "fp32"), {"seed": 2, "steps": 9})


class Bucket:
    """S3 that keeps objects in memory and dies at a chosen call."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.calls = 0
        self.dies_at = 0

    def _call(self) -> None:
        self.calls += 1
        if self.calls == self.dies_at:
            raise KeyboardInterrupt

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:
        self._call()
        self.objects[f"{Bucket}/{Key}"] = Body

    def upload_file(self, path: str, bucket: str, key: str) -> None:
        self._call()
        self.objects[f"{bucket}/{key}"] = Path(path).read_bytes()

    def delete_object(self, *, Bucket: str, Key: str) -> None:
        self._call()
        self.objects.pop(f"{Bucket}/{Key}", None)

    def download_file(self, bucket: str, key: str, path: str) -> None:
        from botocore.exceptions import ClientError

        if f"{bucket}/{key}" not in self.objects:
            raise ClientError({"Error": {"Code": "404"}}, "HeadObject")
        Path(path).write_bytes(self.objects[f"{bucket}/{key}"])

    def get_paginator(self, operation: str) -> Bucket:
        assert operation == "list_objects_v2"
        return self

    def paginate(self, *, Bucket: str, Prefix: str) -> list[dict[str, Any]]:
        names = [name.removeprefix(f"{Bucket}/") for name in self.objects]
        return [{"Contents": [{"Key": name} for name in names if name.startswith(Prefix)]}]


@pytest.mark.case("T05")
def test_on_s3_a_death_at_every_request_leaves_the_newest_whole_one() -> None:
    for number in range(1, 20):
        bucket = Bucket()
        store = S3Store("bucket", "runs/one", bucket)
        store.write(1, state(1), {"step": 1})
        store.write(2, state(2), {"step": 2})
        bucket.calls, bucket.dies_at = 0, number
        try:
            store.write(3, state(3), {"step": 3})
            store.remove(1)
        except KeyboardInterrupt:
            pass
        whole = [step for step in store.steps() if store.read(step) is not None]
        assert whole[0] in (2, 3)
        found = store.read(whole[0])
        assert found is not None
        assert torch.equal(found[0]["weight"], state(whole[0])["weight"])
        if bucket.calls < number:
            assert whole == [3, 2]
            return
    pytest.fail("the requests never ended")


@pytest.mark.parametrize("place", ["s3://", "s3://bucket", "s3://bucket/"])
def test_a_bucket_without_a_prefix_is_refused(place: str) -> None:
    from training.command import InputError

    with pytest.raises(InputError, match="give s3://bucket/prefix"):
        open_store(place)
