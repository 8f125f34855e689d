"""Checks a model.tar.gz while it streams by: no disk, and memory that does not grow with it."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from typing import IO, NoReturn, Self, cast

from shared.contents import Contents
from shared.host import DISK_GIB, GIB, Host
from shared.layout import MAXIMUM_MEMBERS
from shared.problem import Problem

_CHUNK = 1024 * 1024
_MAXIMUM_HEADER_BYTES = 64 * 1024
_EXTENDED = frozenset(
    (
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.SOLARIS_XHDTYPE,
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
    )
)


class _Unreadable(Exception):
    """The stream cannot be read on."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(reason=reason, message=message)


def check(stream: IO[bytes], host: Host | None = None) -> list[Problem]:
    """Read a whole archive once and return what speaks against serving it.

    A tar has no index, and a gzip's checksum is at its end: nothing less than all of it says that
    all of it is right. Reading ends early where something keeps it from being read on.

    Args:
        stream: the compressed bytes; only `read(n)` is used. Its own errors (a lost connection)
            pass through: they say nothing about the archive.
        host: what would serve it; without one, nothing that depends on that is checked.
    """
    content = _Content(stream, host)
    contents = Contents(host)
    count = 0
    try:
        with tarfile.open(
            fileobj=cast(IO[bytes], content), mode="r|", bufsize=_CHUNK, tarinfo=_BoundedHeader
        ) as archive:
            while (member := archive.next()) is not None:
                count += 1
                content.make_room(member.size)
                if count > MAXIMUM_MEMBERS:
                    raise _Unreadable(
                        "archive-too-large", f"the archive has more than {MAXIMUM_MEMBERS} members"
                    )
                contents.add(member, archive)
                # tarfile keeps every header; nothing here looks back.
                archive.members.clear()  # type: ignore[attr-defined]
        content.drain()
    except _Unreadable as error:
        return [*contents.faults(), error.problem]
    except tarfile.TarError as error:
        if count:
            message = f"the tar inside the gzip ends early: {error}"
            return [
                *contents.faults(),
                Problem(reason="archive-truncated", message=message),
            ]
        return [Problem(reason="archive-not-tar", message=f"inside the gzip is no tar: {error}")]
    return list(contents.problems())


def _damaged(message: str) -> _Unreadable:
    return _Unreadable("archive-corrupt", message)


class _Content:
    """The unpacked bytes; tells a cut gzip from a damaged one and from no gzip at all."""

    def __init__(self, stream: IO[bytes], host: Host | None) -> None:
        self._source = _Source(stream)
        self._gzip = gzip.GzipFile(fileobj=cast(IO[bytes], self._source), mode="rb")
        self._unpacked = 0
        self._room_gib = host.disk_gib if host else DISK_GIB

    def read(self, size: int) -> bytes:
        try:
            data = self._gzip.read(size)
        except EOFError:
            raise _Unreadable(
                "archive-truncated",
                f"the gzip ends after {self._source.bytes} bytes, before its end",
            ) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            if self._source.head[:2] != b"\x1f\x8b":
                raise _Unreadable(
                    "archive-not-gzip",
                    f"the archive starts with {self._source.head[:2]!r}, a gzip with b'\\x1f\\x8b'",
                ) from None
            raise _damaged(f"the gzip is damaged: {error}") from None
        if not self._source.bytes:
            raise _Unreadable("archive-empty", "the archive has no bytes")
        self.make_room(len(data))
        self._unpacked += len(data)
        return data

    def make_room(self, size: int) -> None:
        """Refuse what is larger than the volume: tarfile would skip a claimed size for ever."""
        if self._unpacked + size > self._room_gib * GIB:
            raise _Unreadable(
                "instance-disk",
                f"the archive unpacks to more than {self._room_gib} GiB, which the instance's "
                "volume holds",
            )

    def drain(self) -> None:
        """Read to the end, where the gzip's checksum is."""
        while self.read(_CHUNK):
            pass


class _Source:
    """Counts the compressed bytes and remembers the first ones."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.bytes = 0
        self.head = b""

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self.head = self.head or data[:2]
        self.bytes += len(data)
        return data


class _BoundedHeader(tarfile.TarInfo):
    """A header that tarfile may trust: it takes numbers as they are, and reads what they claim."""

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> Self:
        """Read one, with its extensions, along which tarfile recurses."""
        try:
            return super().fromtarfile(tarfile)
        except (ValueError, OverflowError, RecursionError):
            raise _damaged("a tar header is damaged") from None

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _BoundedHeader:
        header = super().frombuf(buf, encoding, errors)
        if header.type in _EXTENDED and header.size > _MAXIMUM_HEADER_BYTES:
            raise _damaged(f"a tar header claims {header.size} bytes")
        return header

    def _refuse_sparse(self, *_: object) -> NoReturn:
        """Of a sparse file, tarfile reads a map without a bound, before anybody sees the member."""
        raise _Unreadable("archive-device", "the archive has a sparse file; pack it as a plain one")

    # How tarfile names its readers of the four formats of sparse files.
    _proc_sparse = _refuse_sparse
    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse_sparse
