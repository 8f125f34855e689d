"""Files that are either whole or absent, and their digests."""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jsonschema

from training.command import InputError


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a file so that a reader sees the old content or the new, never a part."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_json(path: Path, content: object) -> None:
    """Write indented JSON, whole or not at all."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_bytes(path, text.encode("utf-8", "backslashreplace"))  # a path may hold bytes of no text


def read_json(path: Path, *, schema: Path | None = None) -> dict[str, object]:
    """Read a JSON object and check it against a JSON Schema file, where one is given.

    Raises:
        InputError: the file is missing, is not JSON, or breaks the schema; names every problem.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    if schema is not None:
        check_schema(content, schema=schema, name=str(path))
    if not isinstance(content, dict):
        raise InputError(f"cannot read {path}: it is no JSON object")
    return content


def check_schema(content: object, *, schema: Path, name: str) -> None:
    """Refuse content that breaks a JSON Schema file, with every problem in one line."""
    validator = jsonschema.Draft202012Validator(json.loads(schema.read_text(encoding="utf-8")))
    problems = [
        f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(content)
    ]
    if problems:
        raise InputError(f"{name} does not follow {schema.name}: {'; '.join(sorted(problems))}")


def sync_files(folder: Path) -> None:
    """Make the content of all files below a folder survive a power cut."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def check_free(output: Path, *, holds: str) -> None:
    """Refuse an output folder that is in use.

    Raises:
        InputError: there is a file, or a folder that is not empty, or it cannot be seen.
    """
    try:
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise InputError(
                f"{output} holds something already; give a new folder for the {holds}, or remove it"
            )
    except OSError as error:
        raise InputError(f"cannot write to {output}: {error.strerror or error}") from error


@contextmanager
def locked(file: Path, *, refusal: str, shared: bool = False) -> Iterator[None]:
    """Hold a lock on a file until the block ends; the system frees that of a killed process.

    Raises:
        InputError: another process holds it, unless both share it.
    """
    with file.open("wb") as lock:
        try:
            fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(refusal) from None
        except OSError:
            pass  # a file system without locks
        yield


@contextmanager
def staged_folder(output: Path, *, holds: str) -> Iterator[Path]:
    """A new folder beside `output` that takes its name when the block ends well.

    Made before the work starts, so that a folder that cannot be written is known at once. After an
    error or Ctrl-C nothing is left.

    Args:
        output: the folder to make; it may exist only while it is empty.
        holds: what a finished folder holds, for the message that refuses a used one.

    Raises:
        InputError: `output` is in use, or cannot be made.
    """
    output = output.resolve()
    staging = output.parent / f".{output.name}.{os.getpid()}"
    check_free(output, holds=holds)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        staging.mkdir()
    except OSError as error:
        raise InputError(f"cannot write to {output}: {error.strerror or error}") from error
    try:
        yield staging
        sync_files(staging)
        staging.replace(output)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
