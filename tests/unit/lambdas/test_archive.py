import dataclasses
import gzip
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shared
from shared.archive import check
from shared.reasons import REASONS
from tests.support.weights import head, weights
from tests.unit.lambdas.models import GOOD_FILES, HOST, good_archive, pack, tar

LAMBDAS = Path(shared.__file__).parents[1]
CODE = GOOD_FILES["code/inference.py"]


@pytest.fixture(autouse=True)
def as_deep_as_in_lambda() -> Iterator[None]:
    """Python's own limit; the interpreter of JSONata that other tests load raises it."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(limit)


def reasons(archive: bytes, **host: Any) -> list[str]:
    """The reasons on a host of these facts, or on none."""
    given = dataclasses.replace(HOST, **host) if host else None
    return [problem.reason for problem in check(io.BytesIO(archive), given)]


def message(archive: bytes, **host: Any) -> str:
    (problem,) = check(io.BytesIO(archive), dataclasses.replace(HOST, **host))
    return problem.message


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
        (pack(GOOD_FILES, extra=[member("a", tarfile.BLKTYPE)]), "archive-device"),
        (pack({**GOOD_FILES, "./config.json": b"{}"}), "archive-twice"),
        (pack({**GOOD_FILES, "checkpoints/1.json": b"{}"}), "archive-stray-folder"),
        (pack(GOOD_FILES, extra=[member("runs", tarfile.DIRTYPE)]), "archive-stray-folder"),
        (pack({**GOOD_FILES, "pytorch_model.bin": b""}), "archive-pickle"),
        (pack({**GOOD_FILES, "n" * 2000: b""}), "archive-too-large"),
        (pack({**GOOD_FILES, "config.json": b"{"}), "archive-configuration"),
        (pack({**GOOD_FILES, "config.json": b"[]"}), "archive-configuration"),
        (pack({**GOOD_FILES, "config.json": b"[" * 99_999}), "archive-configuration"),
        (pack({**GOOD_FILES, "config.json": bytes(2_000_000)}), "archive-configuration"),
        (pack({**GOOD_FILES, "code/inference.py": b"def model_fn(:"}), "archive-code"),
        (pack({**GOOD_FILES, "code/inference.py": b"\x00"}), "archive-code"),
        (pack({**GOOD_FILES, "code/inference.py": b"(" * 99_999}), "archive-code"),
        (pack({**GOOD_FILES, "code/inference.py": b"-" * 99_999 + b"1"}), "archive-code"),
        (pack({**GOOD_FILES, "code/inference.py": b"x" + b".x" * 99_999}), "archive-code"),
        (pack({**GOOD_FILES, "code/inference.py": b"#" * 300_000}), "archive-code"),
        (
            pack({**GOOD_FILES, "code/inference.py": b"if 1: 2\n" + b"elif 1: 2\n" * 1500}),
            "archive-code",
        ),
        (pack({**GOOD_FILES, "model.safetensors": b"weights"}), "archive-weights"),
        (pack({**GOOD_FILES, "model.safetensors": b""}), "archive-weights"),
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


def test_an_archive_that_unpacks_to_more_than_the_volume_is_read_no_further() -> None:
    stream = io.BytesIO(pack({**GOOD_FILES, "noise": os.urandom(8 * 1024 * 1024)}))
    (problem,) = check(stream, dataclasses.replace(HOST, disk_gib=1 / 1024))
    assert (problem.reason, problem.of_instance) == ("instance-disk", True)
    assert stream.tell() < 4 * 1024 * 1024


def test_members_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.archive.MAXIMUM_MEMBERS", 10)
    files = {**GOOD_FILES, **{f"f{index}": b"" for index in range(10)}}
    assert reasons(pack(files)) == ["archive-too-large"]


def test_a_header_that_claims_gigabytes_is_refused_before_it_is_read() -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 4 * 1024**3
    assert reasons(gzip.compress(header.tobuf() + bytes(4096))) == ["archive-corrupt"]


def header(kind: bytes, size: int) -> bytes:
    block = tarfile.TarInfo("x")
    block.type, block.size = kind, size
    return block.tobuf(format=tarfile.GNU_FORMAT)


def extended(records: bytes) -> bytes:
    """A member of no bytes behind a pax header with these records."""
    padding = bytes(-len(records) % 512)
    return header(tarfile.XHDTYPE, len(records)) + records + padding + header(b"0", 0)


def pax(**record: str) -> bytes:
    maker = tarfile.TarInfo("x")
    maker.pax_headers = {name.replace("_", "."): value for name, value in record.items()}
    return maker.tobuf(format=tarfile.PAX_FORMAT)


def endless_sparse_map() -> bytes:
    block = bytearray(header(tarfile.GNUTYPE_SPARSE, 0))
    block[482] = 1  # the map goes on in the next block
    total = sum(block[:148]) + sum(block[156:]) + 8 * ord(" ")
    block[148:156] = b"%06o\0 " % total
    return bytes(block) + (b"00000000001\0" * 42 + b"\1" + bytes(7)) * 20_000


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (header(tarfile.XGLTYPE, 0) * 2000 + header(b"0", 0), "archive-corrupt"),
        (extended(b"9" * 30 + b" a=b\n"), "archive-corrupt"),
        (extended(b"9" * 5000 + b" a=b\n"), "archive-corrupt"),
        (pax(GNU_sparse_size="a"), "archive-device"),
        (pax(GNU_sparse_map="a,b"), "archive-device"),
        (pax(GNU_sparse_major="1", GNU_sparse_minor="0") + b"9" * 9000, "archive-device"),
        (endless_sparse_map(), "archive-device"),
        (pax(size="9" * 30), "instance-disk"),
        (header(b"0", 2**80), "instance-disk"),
        (header(b"0", -(2**80)), "archive-truncated"),
        (pax(size="-1024"), "archive-truncated"),
    ],
)
def test_headers_with_absurd_numbers_are_refused_at_once(headers: bytes, reason: str) -> None:
    assert reason in reasons(gzip.compress(headers + bytes(2048)))


def test_thousands_of_faults_make_a_short_report() -> None:
    bad = [(b"[", "config.json"), (b"\x00", "code/inference.py"), (b"", "model.safetensors")] * 500
    many = {f"code/vendor/cp312-{'m' * 200}{index}/x.py": b"" for index in range(500)}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for content, name in [*bad, *((b"", name) for name in many)]:
            one = tarfile.TarInfo(name)
            one.size = len(content)
            archive.addfile(one, io.BytesIO(content))
    problems = check(io.BytesIO(gzip.compress(buffer.getvalue())), HOST)
    assert len("".join(map(str, problems))) < 4000


def test_a_lost_connection_is_no_fault_of_the_archive() -> None:
    class Lost(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise ConnectionResetError("connection reset")

    with pytest.raises(ConnectionResetError):
        check(Lost())


# Two gibibytes of zeros as weights: one compressed block, over and over.
HUGE = """
import io, resource, sys, tarfile, zlib
from shared.archive import check
from tests.support.weights import head
from tests.unit.lambdas.models import GOOD_FILES, HOST

BLOCK, TIMES = 64 * 1024**2, 32
small = {name: data for name, data in GOOD_FILES.items() if name != "model.safetensors"}
member = tarfile.TarInfo("model.safetensors")
start = head(BLOCK * TIMES)
member.size = len(start) + BLOCK * TIMES
buffer = io.BytesIO()
with tarfile.open(fileobj=buffer, mode="w") as tar:
    for name, data in small.items():
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        tar.addfile(entry, io.BytesIO(data))
    before = buffer.tell()
before = buffer.getvalue()[:before] + member.tobuf() + start
after = bytes(-member.size % 512 + 1024)

def parts():
    zip = zlib.compressobj(1, zlib.DEFLATED, -15)
    yield b"\\x1f\\x8b\\x08" + bytes(6) + b"\\x03"
    yield zip.compress(before) + zip.flush(zlib.Z_FULL_FLUSH)
    block = zip.compress(bytes(BLOCK)) + zip.flush(zlib.Z_FULL_FLUSH)
    checksum = zlib.crc32(before)
    for _ in range(TIMES):
        checksum = zlib.crc32(bytes(BLOCK), checksum)
        yield block
    yield zip.compress(after) + zip.flush()
    size = len(before) + BLOCK * TIMES + len(after)
    checksum = zlib.crc32(after, checksum)
    yield checksum.to_bytes(4, "little") + (size & 0xFFFFFFFF).to_bytes(4, "little")

packed = b"".join(parts())
resource.setrlimit(resource.RLIMIT_AS, (400 * 1024**2,) * 2)
print([problem.reason for problem in check(io.BytesIO(packed), HOST)], len(packed) < 20_000_000)
"""


def test_two_gibibytes_are_checked_in_less_memory_than_the_function_has() -> None:
    environment = os.environ | {"PYTHONPATH": f"{LAMBDAS}{os.pathsep}{LAMBDAS.parent}"}
    done = subprocess.run(
        [sys.executable, "-c", HUGE], env=environment, capture_output=True, text=True
    )
    assert done.stdout == "[] True\n", done.stderr


def test_memory_grows_neither_with_the_archive_nor_with_its_members() -> None:
    files = {f"code/vendor/x/{index}.py": b"" for index in range(5000)}
    archive = pack({**GOOD_FILES, **files, "noise": os.urandom(16 * 1024 * 1024)})
    stream = io.BytesIO(archive)
    tracemalloc.start()
    try:
        assert check(stream) == []
        assert tracemalloc.get_traced_memory()[1] < 12 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def load(p): ...\ndef predict(d, m): ...", "no model_fn, no input_fn, no predict_fn"),
        ("def load(p): ...\ndef predict(d, m): ...", "; it defines load, predict"),
        ("def model_fn(p): ...\ndef transform(m, b): ...", "no input_fn, no predict_fn"),
        ("def transform_fn(m, b, c, a): ...", "code/inference.py defines no model_fn"),
        ("class Model:\n    def model_fn(self): ...", "defines no model_fn, no input_fn"),
    ],
)
def test_functions_that_the_toolkit_does_not_call_are_named(code: str, said: str) -> None:
    archive = pack({**GOOD_FILES, "code/inference.py": code.encode()})
    assert reasons(archive) == ["archive-handlers"]
    assert said in message(archive)


@pytest.mark.parametrize(
    "code",
    [
        "def model_fn(d): ...\ndef transform_fn(m, b, c, a): ...",
        "from handlers import model_fn, transform_fn",
        "from handlers import *",
        "model_fn = transform_fn = None",
        "import os\nmodel_fn: object = 1\nif os.name:\n    def transform_fn(*a): ...",
        "try:\n    from a import model_fn\nexcept ImportError:\n    from b import model_fn\n"
        "import c as transform_fn",
    ],
)
def test_handlers_may_be_bound_in_any_way(code: str) -> None:
    assert reasons(pack({**GOOD_FILES, "code/inference.py": code.encode()})) == []


def elf(machine: int) -> bytes:
    """The head of a 64-bit little-endian shared object."""
    return b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00" + machine.to_bytes(2, "little")


ARM, INTEL = elf(183), elf(62)
VENDORED = "code/vendor/cp312-aarch64"
WHEEL = "Wheel-Version: 1.0\nTag: {}\nTag: {}\n"


@pytest.mark.case("M03")
@pytest.mark.case("L06")
@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        (f"{VENDORED}/x/core.so", INTEL, "it is for x86_64"),
        (f"{VENDORED}/x/libgomp.so.1.0", INTEL, "it is for x86_64"),
        (f"{VENDORED}/x/core.so", b"\xcf\xfa\xed\xfe" + bytes(40), "it is no Linux library"),
        (f"{VENDORED}/x/core.dylib", b"\xcf\xfa\xed\xfe", "it is no Linux library"),
        (f"{VENDORED}/x/c.cpython-311-aarch64-linux-gnu.so", ARM, "it is for CPython 3.11"),
        (
            f"{VENDORED}/x-1.dist-info/WHEEL",
            WHEEL.format("cp312-cp312-macosx_11_0_arm64", "cp312-cp312-win_amd64").encode(),
            "it is for cp312-cp312-macosx_11_0_arm64, cp312-cp312-win_amd64",
        ),
        (
            f"{VENDORED}/x-1.dist-info/WHEEL",
            WHEEL.format("cp312-cp312-musllinux_1_2_aarch64", "cp313-cp313-linux_aarch64").encode(),
            "it is for cp312-cp312-musllinux_1_2_aarch64, cp313-cp313-linux_aarch64",
        ),
    ],
)
def test_libraries_of_another_platform_than_their_folders_are_refused(
    name: str, content: bytes, fault: str
) -> None:
    archive = pack({**GOOD_FILES, name: content})
    assert reasons(archive) == ["archive-architecture"]
    assert f"{name}: {fault}" in message(archive)


@pytest.mark.case("L06")
@pytest.mark.parametrize(
    "name",
    [
        "code/wheels/x-1-cp312-cp312-manylinux_2_28_x86_64.whl",
        "code/wheels/x-1-cp311-cp311-manylinux2014_aarch64.whl",
        "code/wheels/x-1-cp313-abi3-manylinux2014_aarch64.whl",
        "code/lib/core.so",
    ],
)
def test_libraries_of_another_platform_than_the_instances_are_refused(name: str) -> None:
    archive = pack({**GOOD_FILES, name: INTEL})
    assert reasons(archive) == []
    assert reasons(archive, workers=4) == ["instance-architecture"]


@pytest.mark.parametrize(
    "name",
    [
        "code/wheels/x-1-py3-none-any.whl",
        "code/wheels/x-1-py2.py3-none-any.whl",
        "code/wheels/x-1-1build-cp39-abi3-manylinux_2_17_aarch64.manylinux2014_aarch64.whl",
        "code/wheels/x-1-cp312-cp312-linux_aarch64.whl",
        "code/lib/c.cpython-312-aarch64-linux-gnu.so",
        f"{VENDORED}/x/c.abi3.so",
        "code/data.so.txt",
        "WHEEL",
        "code/x.dist-info/RECORD",
    ],
)
def test_libraries_of_the_platform_are_taken(name: str) -> None:
    assert reasons(pack({**GOOD_FILES, name: ARM}), workers=4) == []


@pytest.mark.case("L06")
def test_packages_for_other_platforms_alone_are_refused() -> None:
    other = {**GOOD_FILES, "code/vendor/cp311-x86_64/x/core.so": INTEL}
    assert reasons(pack(other)) == []
    assert message(pack(other)) == (
        "code/vendor is for cp311-x86_64, ml.c7g.4xlarge needs cp312-aarch64"
    )
    assert reasons(pack({**other, f"{VENDORED}/x/core.so": ARM}), workers=4) == []


def table(tensors: dict[str, list[Any]], size: int = 0) -> bytes:
    """Weights of fp32; each tensor is its shape, its first byte and the one after its last."""
    form = {
        name: {"dtype": "F32", "shape": shape, "data_offsets": offsets}
        for name, (shape, *offsets) in tensors.items()
    }
    text = json.dumps(form).encode()
    return len(text).to_bytes(8, "little") + text + bytes(size)


@pytest.mark.parametrize(
    "content",
    [
        weights()[:-1],
        weights() + b"x",
        (10**15).to_bytes(8, "little") + b"{}",
        (9 * 1024**2).to_bytes(8, "little") + bytes(9 * 1024**2),
        (2).to_bytes(8, "little") + b"[]",
        (2).to_bytes(8, "little") + b"}{",
        (14).to_bytes(8, "little") + b'{"weight": {}}',
        weights(dtype="F32", shape=(1, 1)),
        weights().replace(b"U8", b"Q8"),
        table({"a": [[1.0], 0, 4.0]}, 4),
        table({"a": [[-1, -1], 0, 4]}, 4),
        table({"a": [[1], -4, 0]}),
        table({"a": [[1], 0, 4], "b": [[1], 100, 104]}, 104),
        table({"a": [[1], 0, 4], "b": [[1], 0, 4]}, 4),
        table({"a": [["a", 10**12], 0, 4]}, 4),
        table({"a": [[["a"], 10**12], 0, 4]}, 4),
        table({"a": [[int("9" * 4000)] * 1000, 0, 4]}, 4),
        table({"\ud800": [[2], 0, 4]}, 4),
    ],
)
def test_weights_that_are_not_whole_are_refused(content: bytes) -> None:
    archive = pack({**GOOD_FILES, "model.safetensors": content})
    assert reasons(archive) == ["archive-weights"]
    assert message(archive).encode()


def test_bf16_weights_need_a_processor_that_has_bf16() -> None:
    archive = pack({**GOOD_FILES, "model.safetensors": weights(dtype="BF16", shape=(4, 8))})
    assert reasons(archive) == reasons(archive, bf16=True) == []
    assert reasons(archive, bf16=False, instance="ml.c6g.large") == ["instance-no-bf16"]
    assert "1 tensors of bf16, and ml.c6g.large has no bf16" in message(
        archive, bf16=False, instance="ml.c6g.large"
    )


@pytest.mark.case("M19")
@pytest.mark.parametrize(
    ("dtype", "gigabytes", "memory", "workers", "fits"),
    [
        ("F32", 3, 4, 1, False),
        ("F32", 3, 16, 1, True),
        ("F32", 3, 16, 5, False),
        ("BF16", 3, 8, 2, False),  # served as fp32
        ("F32", 0.5, 32, 4, True),
        ("I64", 3, 8, 1, True),
    ],
)
def test_weights_that_do_not_fit_into_memory_once_a_worker_are_refused(
    dtype: str, gigabytes: float, memory: float, workers: int, fits: bool
) -> None:
    """Told from the table: the archive ends soon after the weights begin."""
    size = int(gigabytes * 1e9) // 8 * 8
    start = head(size, dtype=dtype, shape=(size // {"F32": 4, "BF16": 2, "I64": 8}[dtype],))
    member = tarfile.TarInfo("model.safetensors")
    member.size = len(start) + size
    found = reasons(
        gzip.compress(member.tobuf() + start + bytes(65536)), memory_gib=memory, workers=workers
    )
    assert found == ([] if fits else ["instance-memory"]) + ["archive-truncated"]


def test_every_reason_is_in_the_table_and_given_by_something() -> None:
    sources = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("shared", "validate")
        for path in (LAMBDAS / folder).glob("*.py")
        if path.name != "reasons.py"
    )
    given = set(
        re.findall(r'(?:reason=|_Unreadable\(|refuse\(|_fault\()\s*"([a-z0-9-]+)"', sources)
    )
    given |= {f"{name}-too-old" for name in ("torch", "python") if f'("{name}", man' in sources}
    # Of those that are chosen among two.
    given |= {reason for reason in REASONS if re.search(f'"{reason}" (if|else)', sources)}
    given |= set(re.findall(r'else "([a-z-]+)"', sources)) & set(REASONS)
    assert given == set(REASONS)
