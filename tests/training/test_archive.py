"""The archive: equal bytes for equal members; and every way in which one is refused."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zlib
from pathlib import Path

import pytest

from tests.support.weights import weights
from training.files import sha256_of
from training.packaging import archive as archives
from training.packaging.archive import write_archive
from training.packaging.cli import main
from training.packaging.inspection import problems

pytestmark = pytest.mark.training

GOOD = {
    "config.json": b"{}",
    "model.safetensors": weights(),
    "code/inference.py": b"from own import model_fn, transform_fn\n",
}


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
    assert problems(path) == []


def packed(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(mode="w", fileobj=buffer) as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)


# Every reason is tried where the check itself is: tests/unit/lambdas/test_archive.py.
@pytest.mark.case("M06")
@pytest.mark.case("M07")
def test_check_tells_all_problems_at_once_in_the_deliverys_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.tar.gz"
    path.write_bytes(packed({"code/requirements.txt": b"transformers\n", "x/../../y": b""}))
    assert main(["check", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}: archive-unsafe-name: ")
    assert "; archive-missing-file: the archive has no config.json, no model.safetensors" in error
    assert "; archive-requirements: the archive has code/requirements.txt" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("content", [None, b""])
def test_check_of_what_is_no_archive_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    path = tmp_path / "model.tar.gz"
    if content is not None:
        path.write_bytes(content)
    assert main(["check", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["check", str(tmp_path)]) == 2
    assert "Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize("prefix", ["", "./"])
def test_check_accepts_a_good_archive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], prefix: str
) -> None:
    path = tmp_path / "model.tar.gz"
    path.write_bytes(packed({prefix + name: content for name, content in GOOD.items()}))
    assert main(["check", str(path)]) == 0
    assert "the layout is right" in capsys.readouterr().out
