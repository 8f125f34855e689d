"""Checks a model.tar.gz while it streams by: no disk, and memory that does not grow with it."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any, cast

REQUIRED = ("config.json", "model.safetensors", "code/inference.py")
"""What the serving container needs, from the archive's root."""

MAXIMUM_UNPACKED_BYTES = 30 * 1024**3
"""Size of the volume that SageMaker unpacks a model on, by default."""

MAXIMUM_MEMBERS = 100_000
"""tarfile keeps every header: about a kilobyte each."""

_CHUNK = 1024 * 1024
_MAXIMUM_HEADER_BYTES = 64 * 1024
_SHOWN = 5
_EXTENDED = frozenset(
    (
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.SOLARIS_XHDTYPE,
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
    )
)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One reason to refuse: a stable word and a sentence."""

    reason: str
    message: str


class _Unreadable(Exception):
    """The stream cannot be read on."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(reason=reason, message=message)


def check(stream: IO[bytes]) -> list[Problem]:
    """Read a whole archive once and return what speaks against serving it.

    Args:
        stream: the compressed bytes; only `read(n)` is used. Its own errors (a lost connection)
            pass through: they say nothing about the archive.
    """
    content = _Content(stream)
    contents = _Contents()
    try:
        with tarfile.open(
            fileobj=cast(IO[bytes], content), mode="r|", bufsize=_CHUNK, tarinfo=_BoundedHeader
        ) as archive:
            while (member := archive.next()) is not None:
                contents.add(member)
        content.drain()
    except _Unreadable as error:
        return [error.problem]
    except tarfile.TarError as error:
        if contents.count:
            message = f"the tar inside the gzip ends early: {error}"
            return [Problem(reason="archive-truncated", message=message)]
        return [Problem(reason="archive-not-tar", message=f"inside the gzip is no tar: {error}")]
    return list(contents.problems())


class _Content:
    """The unpacked bytes; tells a cut gzip from a damaged one and from no gzip at all."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._source = _Source(stream)
        self._gzip = gzip.GzipFile(fileobj=cast(IO[bytes], self._source), mode="rb")
        self._unpacked = 0

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
            raise _Unreadable("archive-corrupt", f"the gzip is damaged: {error}") from None
        if not self._source.bytes:
            raise _Unreadable("archive-empty", "the archive has no bytes")
        self._unpacked += len(data)
        if self._unpacked > MAXIMUM_UNPACKED_BYTES:
            raise _Unreadable(
                "archive-too-large",
                f"the archive unpacks to more than {MAXIMUM_UNPACKED_BYTES} bytes",
            )
        return data

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
    """A header whose extension records are small: tarfile reads those into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _BoundedHeader:
        header = super().frombuf(buf, encoding, errors)
        if header.type in _EXTENDED and header.size > _MAXIMUM_HEADER_BYTES:
            raise _Unreadable("archive-corrupt", f"a tar header claims {header.size} bytes")
        return header


@dataclass
class _Contents:
    """What the members say; keeps names only where they are at fault."""

    count: int = 0
    files: set[str] = field(default_factory=set)
    roots: set[str] = field(default_factory=set)
    nested: set[str] = field(default_factory=set)
    unsafe: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    requirements: list[str] = field(default_factory=list)

    def add(self, member: tarfile.TarInfo) -> None:
        self.count += 1
        if self.count > MAXIMUM_MEMBERS:
            raise _Unreadable(
                "archive-too-large", f"the archive has more than {MAXIMUM_MEMBERS} members"
            )
        name = member.name
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts:
            self.unsafe.append(name)
        if member.issym() or member.islnk():
            self.links.append(name)
        elif not (member.isreg() or member.isdir()):
            self.devices.append(name)
        if not parts:
            return
        if len(self.roots) <= 1:  # one root folder or more is all that matters
            self.roots.add(parts[0])
        path = "/".join(parts)
        if member.isreg():
            if path in REQUIRED:
                self.files.add(path)
            if "/".join(parts[1:]) in REQUIRED:
                self.nested.add("/".join(parts[1:]))
            if path in ("requirements.txt", "code/requirements.txt"):
                self.requirements.append(path)

    def problems(self) -> Iterator[Problem]:
        for reason, names, what in (
            ("archive-unsafe-name", self.unsafe, "names that lead out of the model's folder"),
            ("archive-link", self.links, "links"),
            ("archive-device", self.devices, "members that are neither file nor folder"),
        ):
            if names:
                yield Problem(reason=reason, message=f"the archive has {what}: {_shown(names)}")
        missing = [name for name in REQUIRED if name not in self.files]
        if missing and self.nested and len(self.roots) == 1:
            yield Problem(
                reason="archive-extra-root-folder",
                message=(
                    f"everything lies in {min(self.roots)!r}; "
                    f"pack from inside that folder: {', '.join(REQUIRED)} belong at the root"
                ),
            )
        elif missing:
            yield Problem(
                reason="archive-missing-file",
                message=f"the archive has no {', no '.join(missing)} at its root",
            )
        if self.requirements:
            yield Problem(
                reason="archive-requirements",
                message=(
                    f"the archive has {', '.join(self.requirements)}: a serving container installs "
                    "nothing at its start; pack the wheels under code/vendor instead"
                ),
            )


def _shown(names: list[Any]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(repr(name[:100]) for name in names[:_SHOWN]) + more
