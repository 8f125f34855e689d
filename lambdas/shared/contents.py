"""What the members of an archive say, taken in one after the other."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from typing import IO, cast

from shared import libraries, served_code
from shared.host import GIB, Host
from shared.layout import (
    CODE,
    CONFIGURATION,
    ENTRY_POINT,
    MAXIMUM_CODE,
    MAXIMUM_CONFIGURATION,
    MAXIMUM_NAME,
    PICKLES,
    REQUIRED,
    VENDOR,
    WEIGHTS,
)
from shared.problem import Problem
from shared.weights import NoWeights, read_weights

_SHOWN = 5
_WHEEL_BYTES = 64 * 1024
# Reason of each kind of faulty member, and what a sentence calls them, in the order of telling.
_FAULTY = {
    "archive-too-large": f"names of more than {MAXIMUM_NAME} characters",
    "archive-unsafe-name": "names that lead out of the model's folder",
    "archive-link": "links",
    "archive-device": "members that are neither plain file nor folder",
    "archive-twice": "files that are in it twice",
    "archive-stray-folder": f"folders at its root other than {CODE}",
    "archive-pickle": f"pickles, which may run code; save {WEIGHTS} instead of",
    "archive-architecture": "libraries that their folder's platform cannot load",
    "instance-architecture": "libraries that the instance cannot load",
}


class Contents:
    """Collects what is wrong; `host` is what would serve, None where that is not known."""

    def __init__(self, host: Host | None) -> None:
        self._host = host
        self._files: set[str] = set()
        self._roots: set[str] = set()
        self._nested: set[str] = set()
        self._platforms: set[str] = set()
        self._requirements: list[str] = []
        self._counts = dict.fromkeys(_FAULTY, 0)
        self._shown: dict[str, list[str]] = {reason: [] for reason in _FAULTY}
        self._told: list[Problem] = []

    def add(self, member: tarfile.TarInfo, archive: tarfile.TarFile) -> None:
        """Take in the member that the archive stands at."""
        name = member.name
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if len(name) > MAXIMUM_NAME:
            self._fault("archive-too-large", name)
        elif name.startswith("/") or ".." in parts:
            self._fault("archive-unsafe-name", name)
        elif member.issym() or member.islnk():
            self._fault("archive-link", name)
        elif not (member.isreg() or member.isdir()):
            self._fault("archive-device", name)
        elif parts:
            if len(parts) > 1 or member.isdir():
                self._roots.add(parts[0])
            if member.isreg():
                self._add_file("/".join(parts), parts, member, archive)

    def _fault(self, reason: str, name: str) -> None:
        self._counts[reason] += 1
        if self._counts[reason] <= _SHOWN:
            self._shown[reason].append(name[:200])

    def _add_file(
        self, path: str, parts: list[str], member: tarfile.TarInfo, archive: tarfile.TarFile
    ) -> None:
        if path in self._files:
            self._fault("archive-twice", path)
            return
        self._files.add(path)
        if (inner := "/".join(parts[1:])) in REQUIRED:
            self._nested.add(inner)
        if path in ("requirements.txt", f"{CODE}/requirements.txt"):
            self._requirements.append(path)
        if len(parts) == 1 and path.endswith(PICKLES):
            self._fault("archive-pickle", path)
        if path == CONFIGURATION:
            self._told += _configuration(_opened(archive, member).read(MAXIMUM_CONFIGURATION + 1))
        elif path == ENTRY_POINT:
            self._told += _code(_opened(archive, member).read(MAXIMUM_CODE + 1))
        elif path == WEIGHTS:
            self._told += self._weights(_opened(archive, member), member.size)
        else:
            self._library(path, parts, member, archive)

    def _weights(self, content: IO[bytes], size: int) -> Iterator[Problem]:
        try:
            weights = read_weights(content, size)
        except NoWeights as error:
            yield error.problem
            return
        host = self._host
        if host is None:
            return
        if weights.bf16 and not host.bf16:
            yield Problem(
                reason="instance-no-bf16",
                message=(
                    f"{WEIGHTS} has {weights.bf16} tensors of bf16, and {host.instance} has no "
                    "bf16; save fp32, or choose an instance of a newer Graviton"
                ),
            )
        if (needed := host.needed_bytes(weights.bytes_as_fp32)) > host.memory_gib * GIB:
            yield Problem(
                reason="instance-memory",
                message=(
                    f"weights of {weights.bytes_as_fp32 / GIB:.2f} GiB as fp32 need about "
                    f"{needed / GIB:.2f} GiB with {host.workers} worker(s), and {host.instance} "
                    f"has {host.memory_gib:g}; choose a larger instance or fewer workers"
                ),
            )

    def _library(
        self, path: str, parts: list[str], member: tarfile.TarInfo, archive: tarfile.TarFile
    ) -> None:
        """Hold compiled code and wheels against the platform of their folder, or the instance's."""
        vendored = len(parts) > 3 and "/".join(parts[:2]) == VENDOR
        own = vendored and libraries.is_platform(parts[2])
        if own:
            self._platforms.add(parts[2])
        platform = parts[2] if own else self._host.platform if self._host else ""
        if not platform:
            return
        if libraries.is_library(path):
            head = _opened(archive, member).read(libraries.HEAD_BYTES)
            fault = libraries.library_fault(path, head, platform)
        elif path.endswith(".whl"):
            fault = libraries.wheel_fault(libraries.tags_of_name(parts[-1]), platform)
        elif path.endswith(".dist-info/WHEEL"):
            content = _opened(archive, member).read(_WHEEL_BYTES)
            fault = libraries.wheel_fault(libraries.tags_of_metadata(content), platform)
        else:
            return
        if fault:
            reason = "archive-architecture" if own else "instance-architecture"
            self._fault(reason, f"{path}: {fault}")

    def problems(self) -> Iterator[Problem]:
        """Everything that is wrong, once the whole archive was seen."""
        missing = [name for name in REQUIRED if name not in self._files]
        extra_root = bool(missing and self._nested) and len(self._roots) == 1
        if extra_root:
            yield Problem(
                reason="archive-extra-root-folder",
                message=(
                    f"everything lies in {min(self._roots)!r}; "
                    f"pack from inside that folder: {', '.join(REQUIRED)} belong at the root"
                ),
            )
        else:
            for name in sorted(self._roots - {CODE}):
                self._fault("archive-stray-folder", f"{name}/")
        yield from self.faults()
        if missing and not extra_root:
            yield Problem(
                reason="archive-missing-file",
                message=f"the archive has no {', no '.join(missing)} at its root",
            )
        if self._requirements:
            yield Problem(
                reason="archive-requirements",
                message=(
                    f"the archive has {', '.join(self._requirements)}: a serving container "
                    f"installs nothing at its start; unpack the wheels below {VENDOR} instead"
                ),
            )
        host = self._host
        if host and self._platforms and host.platform not in self._platforms:
            found = ", ".join(sorted(self._platforms)[:_SHOWN])
            yield Problem(
                reason="instance-architecture",
                message=f"{VENDOR} is for {found}, {host.instance} needs {host.platform}",
            )

    def faults(self) -> Iterator[Problem]:
        """What is wrong with the members that were seen, whatever comes after them."""
        for reason, names in self._shown.items():
            if names:
                more = self._counts[reason] - len(names)
                shown = ", ".join(map(repr, names)) + (f" and {more} more" if more else "")
                yield Problem(reason=reason, message=f"the archive has {_FAULTY[reason]}: {shown}")
        yield from self._told


def _opened(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    """A regular member's content; of others there is None."""
    return cast(IO[bytes], archive.extractfile(member))


def _configuration(content: bytes) -> Iterator[Problem]:
    message = f"{CONFIGURATION} is no JSON object"
    if len(content) > MAXIMUM_CONFIGURATION:
        message = f"{CONFIGURATION} has more than {MAXIMUM_CONFIGURATION} bytes"
    else:
        try:
            if isinstance(json.loads(content), dict):
                return
        except (ValueError, RecursionError):
            pass
    yield Problem(reason="archive-configuration", message=message)


def _code(content: bytes) -> Iterator[Problem]:
    if len(content) > MAXIMUM_CODE:
        message = f"{ENTRY_POINT} has more than {MAXIMUM_CODE} bytes"
        yield Problem(reason="archive-code", message=message)
    else:
        yield from served_code.check(content)
