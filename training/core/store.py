"""Where checkpoints lie: a folder on a shared file system, or S3.

A step is there whole or not at all. It is `step-00000123/` with `state.safetensors` and
`done.json`, which holds the size and the digest of the state. In a folder it is written under
another name, synced and renamed; in S3 `done.json` is put last. What lacks it, or does not match
it, does not count.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from training.command import InputError, first_line
from training.files import locked, sha256_of

STATE = "state.safetensors"
DONE = "done.json"
WRITING = ".writing"
LOCK = "lock"
CHUNK = 8 << 20
KINDS = {
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}

Tensors = Mapping[str, torch.Tensor]
Facts = dict[str, Any]


class Store(Protocol):
    """Checkpoints by their step."""

    def steps(self) -> list[int]:
        """The steps that seem whole, newest first."""

    def write(self, step: int, tensors: Tensors, facts: Facts) -> None:
        """Keep the state of a step; a kill at any moment leaves it whole or not there."""

    def read(self, step: int) -> tuple[dict[str, torch.Tensor], Facts] | None:
        """The state of a step, or None where it is damaged."""

    def remove(self, step: int) -> None:
        """Forget a step."""

    def alone(self) -> AbstractContextManager[None]:
        """Keep other runs away, where that can be done."""


def open_store(place: str | Path) -> Store:
    """The store at a folder or `s3://bucket/prefix`."""
    if str(place).startswith("s3://"):
        bucket, _, prefix = str(place).removeprefix("s3://").partition("/")
        if not bucket or not prefix.strip("/"):
            raise InputError(f"checkpoints at {place!r}: give s3://bucket/prefix")
        return S3Store(bucket, prefix.strip("/"))
    return FolderStore(Path(place))


class FolderStore:
    """Checkpoints in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def steps(self) -> list[int]:
        """The steps that have a done marker, newest first."""
        return sorted(
            (
                number
                for path in self._folder.glob("step-*")
                if (number := _number(path.name)) is not None and (path / DONE).is_file()
            ),
            reverse=True,
        )

    def write(self, step: int, tensors: Tensors, facts: Facts) -> None:
        """Write beside, sync, rename."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in self._folder.glob("step-*"):  # what a kill left half written or half removed
            if path.name.endswith(WRITING) or not (path / DONE).is_file():
                shutil.rmtree(path)
        beside = self._folder / f"{_name(step)}{WRITING}"
        final = self._folder / _name(step)
        try:
            beside.mkdir()
            facts = facts | write_tensors(beside / STATE, tensors)
            _write_synced(beside / DONE, _encode(facts))
            _sync(beside)
            if final.exists():  # damaged, or it would have been resumed from
                self.remove(step)
            beside.rename(final)
            _sync(self._folder)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)  # a full disk gets its space back
            raise

    def read(self, step: int) -> tuple[dict[str, torch.Tensor], Facts] | None:
        """Check against the marker, then load."""
        return _load(self._folder / _name(step))

    def remove(self, step: int) -> None:
        """Remove, the marker first, so that what a kill leaves does not count."""
        folder = self._folder / _name(step)
        (folder / DONE).unlink(missing_ok=True)
        shutil.rmtree(folder)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold a lock in the folder."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = error.strerror or error
            raise InputError(f"cannot write checkpoints to {self._folder}: {problem}") from error
        refusal = f"another run keeps its checkpoints in {self._folder}; give another --checkpoints"
        with locked(self._folder / LOCK, refusal=refusal):
            yield


class S3Store:
    """Checkpoints under a prefix of a bucket; they pass through the node's temporary folder."""

    def __init__(self, bucket: str, prefix: str, client: Any = None) -> None:
        import boto3
        from boto3.exceptions import S3UploadFailedError
        from botocore.exceptions import BotoCoreError, ClientError

        self._refused = ClientError
        self._errors = (BotoCoreError, ClientError, S3UploadFailedError)
        self._bucket = bucket
        self._prefix = prefix
        try:
            self._client = client or boto3.client("s3")
        except self._errors as error:
            raise InputError(f"no S3 client for the checkpoints: {first_line(error)}") from error

    def steps(self) -> list[int]:
        """The steps that have a done marker, newest first."""
        found = []
        with self._told("list"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=f"{self._prefix}/"
            )
            for page in pages:
                for entry in page.get("Contents", []):
                    folder, _, file = entry["Key"].removeprefix(f"{self._prefix}/").rpartition("/")
                    if file == DONE and (number := _number(folder)) is not None:
                        found.append(number)
        return sorted(found, reverse=True)

    def write(self, step: int, tensors: Tensors, facts: Facts) -> None:
        """Upload the state, then the marker."""
        with tempfile.TemporaryDirectory() as scratch:
            state = Path(scratch) / STATE
            content = _encode(facts | write_tensors(state, tensors))
            with self._told("write"):
                # The marker of a damaged step must not speak for the new state while that arrives.
                self._client.delete_object(Bucket=self._bucket, Key=self._key(step, DONE))
                self._client.upload_file(str(state), self._bucket, self._key(step, STATE))
                self._client.put_object(
                    Bucket=self._bucket, Key=self._key(step, DONE), Body=content
                )

    def read(self, step: int) -> tuple[dict[str, torch.Tensor], Facts] | None:
        """Download, check against the marker, load."""
        with tempfile.TemporaryDirectory() as scratch, self._told("read"):
            try:
                for name in (DONE, STATE):
                    target = str(Path(scratch) / name)
                    self._client.download_file(self._bucket, self._key(step, name), target)
            except self._refused as error:
                # Anything else than an absent object says nothing about the checkpoint.
                if error.response["Error"]["Code"] not in ("404", "NoSuchKey"):
                    raise
                return None
            return _load(Path(scratch))

    def remove(self, step: int) -> None:
        """Remove, the marker first."""
        with self._told("remove"):
            for name in (DONE, STATE):
                self._client.delete_object(Bucket=self._bucket, Key=self._key(step, name))

    def alone(self) -> AbstractContextManager[None]:
        """S3 has no locks."""
        return nullcontext()

    def _key(self, step: int, name: str) -> str:
        return f"{self._prefix}/{_name(step)}/{name}"

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Say in one line what S3 or the way to it refuses."""
        try:
            yield
        except self._errors as error:
            raise InputError(
                f"cannot {what} the checkpoints in s3://{self._bucket}/{self._prefix}: "
                f"{first_line(error)}"
            ) from error


def write_tensors(path: Path, tensors: Tensors) -> Facts:
    """Write and sync a safetensors file, tensor by tensor; its size and digest.

    The format: eight bytes of header length, a JSON header padded to eight, the tensors' bytes.
    """
    header, start = {}, 0
    for name, tensor in tensors.items():
        end = start + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": KINDS[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with path.open("wb", buffering=0) as file:
        for part in (len(text).to_bytes(8, "little") + text, *map(_bytes, tensors.values())):
            view = memoryview(part)
            for at in range(0, len(view), CHUNK):
                _write_all(file.fileno(), view[at : at + CHUNK])
                digest.update(view[at : at + CHUNK])
        os.fsync(file.fileno())
        size = file.tell()
    return {"bytes": size, "sha256": digest.hexdigest()}


def _bytes(tensor: torch.Tensor) -> Any:
    """A tensor's bytes, without a copy where it is contiguous."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy()


def _load(folder: Path) -> tuple[dict[str, torch.Tensor], Facts] | None:
    """The checkpoint in a folder, or None where it is not whole."""
    try:
        facts = json.loads((folder / DONE).read_text(encoding="utf-8"))
        state = folder / STATE
        if state.stat().st_size != facts["bytes"] or sha256_of(state) != facts["sha256"]:
            return None
        return load_file(state), facts
    except (OSError, ValueError, LookupError, TypeError, RecursionError, SafetensorError):
        return None


def _encode(facts: Facts) -> bytes:
    return (json.dumps(facts, indent=2) + "\n").encode()


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _number(name: str) -> int | None:
    """The step of a folder's name."""
    found = re.fullmatch(r"step-(\d{8,})", name)
    return int(found[1]) if found else None


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb", buffering=0) as file:
        _write_all(file.fileno(), memoryview(content))
        os.fsync(file.fileno())


def _write_all(descriptor: int, view: memoryview) -> None:
    while view:
        view = view[os.write(descriptor, view) :]


def _sync(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
