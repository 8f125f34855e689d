import gzip
import io
import os
import tarfile
import tracemalloc

import pytest

from shared.archive import MAXIMUM_UNPACKED_BYTES, check
from tests.unit.lambdas.models import GOOD_FILES, good_archive, pack, tar


def reasons(archive: bytes) -> list[str]:
    return [problem.reason for problem in check(io.BytesIO(archive))]


def member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def without(name: str) -> dict[str, bytes]:
    return {key: value for key, value in GOOD_FILES.items() if key != name}


def test_a_good_archive_has_no_problem() -> None:
    assert check(io.BytesIO(good_archive())) == []


def test_names_with_a_leading_dot_are_at_the_root() -> None:
    assert reasons(pack({f"./{name}": data for name, data in GOOD_FILES.items()})) == []


def test_folders_and_vendored_wheels_are_fine() -> None:
    files = {**GOOD_FILES, "code/vendor/cp312-aarch64/x/requirements.txt": b"y"}
    assert reasons(pack(files, extra=[member("code", tarfile.DIRTYPE)])) == []


@pytest.mark.case("M06")
@pytest.mark.parametrize(
    ("archive", "reason"),
    [
        (b"", "archive-empty"),
        (tar(GOOD_FILES), "archive-not-gzip"),
        (b"PK\x03\x04" + bytes(100), "archive-not-gzip"),
        (good_archive()[:-40], "archive-truncated"),
        (good_archive()[:2], "archive-truncated"),
        (good_archive()[:-8] + bytes(8), "archive-corrupt"),
        (good_archive() + b"more", "archive-corrupt"),
        (gzip.compress(b"no tar at all" * 100), "archive-not-tar"),
        (gzip.compress(b""), "archive-not-tar"),
        (gzip.compress(tar(GOOD_FILES)[:2000]), "archive-truncated"),
        (pack({**GOOD_FILES, "/etc/passwd": b"x"}), "archive-unsafe-name"),
        (pack({**GOOD_FILES, "code/../../x": b"x"}), "archive-unsafe-name"),
        (pack(GOOD_FILES, extra=[member("a", tarfile.SYMTYPE, "/etc")]), "archive-link"),
        (pack(GOOD_FILES, extra=[member("a", tarfile.LNKTYPE, "config.json")]), "archive-link"),
        (pack(GOOD_FILES, extra=[member("a", tarfile.CHRTYPE)]), "archive-device"),
        (pack(GOOD_FILES, extra=[member("a", tarfile.FIFOTYPE)]), "archive-device"),
        (pack({f"m/{n}": d for n, d in GOOD_FILES.items()}), "archive-extra-root-folder"),
        (pack(without("code/inference.py")), "archive-missing-file"),
        (pack(without("config.json")), "archive-missing-file"),
        (pack(without("model.safetensors")), "archive-missing-file"),
        (pack({**without("code/inference.py"), "inference.py": b""}), "archive-missing-file"),
        (pack({**GOOD_FILES, "code/requirements.txt": b"x"}), "archive-requirements"),
        (pack({**GOOD_FILES, "requirements.txt": b"x"}), "archive-requirements"),
    ],
)
def test_each_fault_has_its_own_reason(archive: bytes, reason: str) -> None:
    assert reasons(archive) == [reason]


def test_all_faults_are_told_at_once() -> None:
    files = {**without("config.json"), "/x": b"", "code/requirements.txt": b""}
    archive = pack(files, extra=[member("l", tarfile.SYMTYPE, "x")])
    assert reasons(archive) == [
        "archive-unsafe-name",
        "archive-link",
        "archive-missing-file",
        "archive-requirements",
    ]


def test_a_missing_file_is_named() -> None:
    (problem,) = check(io.BytesIO(pack(without("code/inference.py"))))
    assert "code/inference.py" in problem.message


def test_an_archive_that_unpacks_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAXIMUM_UNPACKED_BYTES > 10 * 1024**3
    monkeypatch.setattr("shared.archive.MAXIMUM_UNPACKED_BYTES", 1024 * 1024)
    assert reasons(pack({**GOOD_FILES, "zeros": bytes(4 * 1024 * 1024)})) == ["archive-too-large"]


def test_members_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.archive.MAXIMUM_MEMBERS", 10)
    files = {**GOOD_FILES, **{f"f{index}": b"" for index in range(10)}}
    assert reasons(pack(files)) == ["archive-too-large"]


def test_a_header_that_claims_gigabytes_is_refused_before_it_is_read() -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 4 * 1024**3
    assert reasons(gzip.compress(header.tobuf() + bytes(4096))) == ["archive-corrupt"]


def test_a_lost_connection_is_no_fault_of_the_archive() -> None:
    class Lost(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise ConnectionResetError("connection reset")

    with pytest.raises(ConnectionResetError):
        check(Lost())


def test_memory_does_not_grow_with_the_archive() -> None:
    archive = pack({**GOOD_FILES, "weights": os.urandom(24 * 1024 * 1024)})
    stream = io.BytesIO(archive)
    tracemalloc.start()
    try:
        assert check(stream) == []
        assert tracemalloc.get_traced_memory()[1] < 12 * 1024 * 1024
    finally:
        tracemalloc.stop()
