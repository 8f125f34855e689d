"""Writes `model.tar.gz` so that equal members give equal bytes, on any machine, at any time."""

import tarfile
import zlib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

# isal is about ten times faster. The two write different bytes for the same members, so a digest
# of an archive holds for one of them only.
try:
    DEFLATE: Any = import_module("isal.isal_zlib")
    COMPRESSOR = "isal"
except ImportError:
    DEFLATE, COMPRESSOR = zlib, "zlib"
# Deflate, no flags, time 0, written on unix: nothing of the machine or the moment.
GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"
BUFFER = 1 << 20


class _GzipWriter:
    """A gzip stream with the header above, onto a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        # Level 1 and no zlib header: weights get hardly smaller at higher levels, only slower.
        self._deflate = DEFLATE.compressobj(1, zlib.DEFLATED, -15)
        self._checksum = 0
        self._size = 0
        file.write(GZIP_HEADER)

    def write(self, content: bytes) -> int:
        """Compress and pass on."""
        self._checksum = DEFLATE.crc32(content, self._checksum)
        self._size += len(content)
        self._file.write(self._deflate.compress(content))
        return len(content)

    def finish(self) -> None:
        """End the stream with the checksum and the size modulo 2**32."""
        self._file.write(self._deflate.flush())
        self._file.write(self._checksum.to_bytes(4, "little"))
        self._file.write((self._size & 0xFFFFFFFF).to_bytes(4, "little"))


def write_archive(path: Path, members: Mapping[str, Path]) -> None:
    """Write files under their names in the archive: sorted; owner, time and mode fixed."""
    folders = {
        str(parent) for name in members for parent in PurePosixPath(name).parents if parent.name
    }
    with path.open("wb") as file:
        stream: Any = _GzipWriter(file)
        # tarfile joins what it is given to its buffer, which costs most where the pieces are small.
        with tarfile.open(  # type: ignore[call-overload]
            mode="w|", fileobj=stream, bufsize=BUFFER, copybufsize=BUFFER
        ) as tar:
            for name in sorted(folders | set(members)):
                entry = tarfile.TarInfo(name)
                if name in folders:
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(entry)
                    continue
                entry.mode = 0o644
                entry.size = members[name].stat().st_size
                with members[name].open("rb") as content:
                    tar.addfile(entry, content)
        stream.finish()
