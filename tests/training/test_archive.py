"""The archive: equal bytes for equal members; and every way in which one is refused."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from training.files import sha256_of
from training.packaging import archive as archives
from training.packaging import layout
from training.packaging.archive import write_archive
from training.packaging.cli import main

pytestmark = pytest.mark.training

GOOD = {"config.json": b"{}", "model.safetensors": b"weights", "code/inference.py": b"x = 1\n"}


def folder_of(root: Path, files: dict[str, bytes]) -> dict[str, Path]:
    """Files on disk, as members."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return {name: root / name for name in files}


def test_the_same_files_give_the_same_archive_whatever_their_age_mode_and_order(
    tmp_path: Path,
) -> None:
    files = GOOD | {f"code/vendor/tag/package/{number}.py": b"y" * 9 for number in range(20)}
    one = folder_of(tmp_path / "one", files)
    write_archive(tmp_path / "one.tar.gz", one)
    before = os.umask(0o077)
    try:
        other = folder_of(tmp_path / "other", dict(reversed(files.items())))
    finally:
        os.umask(before)
    for path in other.values():
        os.utime(path, (1, 1))
        path.chmod(0o600)
    write_archive(tmp_path / "other.tar.gz", dict(reversed(other.items())))
    assert sha256_of(tmp_path / "one.tar.gz") == sha256_of(tmp_path / "other.tar.gz")


def test_members_have_no_owner_no_time_and_plain_modes(tmp_path: Path) -> None:
    path = tmp_path / "model.tar.gz"
    write_archive(path, folder_of(tmp_path / "files", GOOD | {"code/vendor/a/b.so": b"so"}))
    with tarfile.open(path) as tar:
        members = tar.getmembers()
    assert [member.name for member in members] == sorted(member.name for member in members)
    for member in members:
        assert (member.uid, member.gid, member.uname, member.gname, member.mtime) == (
            0,
            0,
            "",
            "",
            0,
        )
        assert member.mode == (0o755 if member.isdir() else 0o644)
    assert {member.name for member in members if member.isdir()} == {
        "code",
        "code/vendor",
        "code/vendor/a",
    }


def test_either_compressor_gives_the_same_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = folder_of(tmp_path / "files", GOOD | {"tokenizer.json": os.urandom(100_000)})
    tars = []
    for library in (archives.DEFLATE, zlib):
        monkeypatch.setattr(archives, "DEFLATE", library)
        path = tmp_path / "model.tar.gz"
        write_archive(path, files)
        assert path.read_bytes()[:10] == b"\x1f\x8b\x08" + bytes(6) + b"\x03"
        tars.append(gzip.decompress(path.read_bytes()))
    assert tars[0] == tars[1]


def test_a_large_file_name_and_long_path_survive(tmp_path: Path) -> None:
    name = "code/vendor/" + "deep/" * 30 + "n" * 120 + ".py"
    path = tmp_path / "model.tar.gz"
    write_archive(path, folder_of(tmp_path / "files", GOOD | {name: b"z"}))
    with tarfile.open(path) as tar:
        assert name in tar.getnames()
    assert layout.problems(path) == []


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, link
    return entry


def tar_of(files: dict[str, bytes], *more: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(mode="w", fileobj=buffer) as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        for entry in more:
            tar.addfile(entry)
    return buffer.getvalue()


def packed(files: dict[str, bytes], *more: tarfile.TarInfo) -> bytes:
    return gzip.compress(tar_of(files, *more), mtime=0)


def without(name: str) -> dict[str, bytes]:
    return {key: value for key, value in GOOD.items() if key != name}


REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "zero bytes": (lambda: b"", "the file is empty (0 bytes)"),
    "plain tar": (lambda: tar_of(GOOD), "the file is a tar that is not compressed"),
    "not an archive": (lambda: b"<html>", "the file is not gzip"),
    "gzip of something else": (lambda: gzip.compress(b"hello" * 999), "the archive is damaged"),
    "truncated gzip": (lambda: packed(GOOD)[:-20], "the gzip data is cut off before its end"),
    "cut in the middle": (
        lambda: packed(GOOD | {"tokenizer.json": os.urandom(50_000)})[:20_000],
        "the gzip data is cut off before its end",
    ),
    "wrong checksum": (lambda: packed(GOOD)[:-8] + b"\0" * 8, "the file cannot be read: CRC"),
    "extra root": (
        lambda: packed({f"model/{name}": content for name, content in GOOD.items()}),
        "everything is inside the extra root folder model/",
    ),
    "stray folder": (
        lambda: packed(GOOD | {"checkpoints/1.json": b"{}"}),
        "the folder checkpoints/ does not belong at the root",
    ),
    "no inference script": (
        lambda: packed(without("code/inference.py")),
        "code/inference.py is missing",
    ),
    "inference script at the root": (
        lambda: packed(without("code/inference.py") | {"inference.py": b""}),
        "code/inference.py is missing",
    ),
    "no configuration": (lambda: packed(without("config.json")), "config.json is missing"),
    "no weights": (lambda: packed(without("model.safetensors")), "model.safetensors is missing"),
    "configuration is not JSON": (
        lambda: packed(GOOD | {"config.json": b"{"}),
        "config.json is not JSON",
    ),
    "configuration is a list": (
        lambda: packed(GOOD | {"config.json": b"[]"}),
        "config.json is not a JSON object",
    ),
    "absolute path": (lambda: packed(GOOD, member("/etc/passwd")), "/etc/passwd is an absolute"),
    "path traversal": (
        lambda: packed(GOOD, member("code/../../evil.py")),
        "code/../../evil.py leads out of the archive",
    ),
    "symbolic link": (
        lambda: packed(GOOD, member("code/run", tarfile.SYMTYPE, "/bin/sh")),
        "code/run is a link to /bin/sh",
    ),
    "hard link": (
        lambda: packed(GOOD, member("vocab.txt", tarfile.LNKTYPE, "config.json")),
        "vocab.txt is a link to config.json",
    ),
    "device": (lambda: packed(GOOD, member("null", tarfile.CHRTYPE)), "null is a device or pipe"),
    "block device": (lambda: packed(GOOD, member("sda", tarfile.BLKTYPE)), "sda is a device or"),
    "pipe": (lambda: packed(GOOD, member("queue", tarfile.FIFOTYPE)), "queue is a device or pipe"),
    "twice": (lambda: packed(GOOD, member("config.json")), "config.json is in the archive twice"),
    "pickle": (
        lambda: packed(GOOD | {"pytorch_model.bin": b"\x80"}),
        "pytorch_model.bin is a pickle, which may run code",
    ),
}


@pytest.mark.case("M06")
@pytest.mark.parametrize("name", REFUSED)
def test_check_refuses(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, reason = REFUSED[name]
    path = tmp_path / "model.tar.gz"
    path.write_bytes(content())
    assert main(["check", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}: ")
    assert reason in error
    assert error.count("\n") == 1


@pytest.mark.case("M06")
def test_each_kind_of_damage_has_a_reason_of_its_own(tmp_path: Path) -> None:
    kinds = ["zero bytes", "plain tar", "truncated gzip", "extra root", "no inference script"]
    kinds += ["path traversal", "symbolic link", "device"]
    reasons = []
    for name in kinds:
        path = tmp_path / "model.tar.gz"
        path.write_bytes(REFUSED[name][0]())
        reasons += layout.problems(path)
    assert len(reasons) == len(set(reasons)) == len(kinds)


@pytest.mark.case("M07")
def test_check_refuses_a_requirements_file(tmp_path: Path) -> None:
    path = tmp_path / "model.tar.gz"
    path.write_bytes(packed(GOOD | {"code/requirements.txt": b"transformers\n"}))
    (problem,) = layout.problems(path)
    assert "code/requirements.txt makes the container call pip" in problem


def test_check_tells_all_problems_at_once(tmp_path: Path) -> None:
    path = tmp_path / "model.tar.gz"
    path.write_bytes(packed({"x/y.bin": b"", "a.json": json.dumps(1).encode()}))
    assert len(layout.problems(path)) == 4


@pytest.mark.parametrize("prefix", ["", "./"])
def test_check_accepts_a_good_archive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], prefix: str
) -> None:
    path = tmp_path / "model.tar.gz"
    path.write_bytes(packed({prefix + name: content for name, content in GOOD.items()}))
    assert main(["check", str(path)]) == 0
    assert "the layout is right" in capsys.readouterr().out
