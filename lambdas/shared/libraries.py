"""For which processor and Python a compiled library or a wheel was made.

Platforms are written like folders below `code/vendor`: `cp312-aarch64`.
"""

from __future__ import annotations

import re
from itertools import product

HEAD_BYTES = 20
"""What of a shared object tells its processor."""

_SHARED_OBJECT = re.compile(r"\.so(\.[0-9.]+)?$")
_FOREIGN = (".dylib", ".pyd", ".dll")
_PYTHON = re.compile(r"\.cpython-(\d+)\w*-")
_PLATFORM = re.compile(r"cp(\d)(\d+)-(\w+)")
# e_machine of the ELF header.
_MACHINES = {3: "x86", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv"}


def is_library(name: str) -> bool:
    """Whether a file's name is that of compiled code."""
    return bool(_SHARED_OBJECT.search(name)) or name.endswith(_FOREIGN)


def is_platform(name: str) -> bool:
    """Whether a name is that of a platform."""
    return bool(_PLATFORM.fullmatch(name))


def library_fault(name: str, head: bytes, platform: str) -> str:
    """What is wrong with a shared object on a platform; empty where nothing is."""
    machine = platform.partition("-")[2]
    if head[:4] != b"\x7fELF" or len(head) < HEAD_BYTES:
        return "it is no Linux library"
    number = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
    made_for = _MACHINES.get(number, f"machine {number}")
    if made_for != machine:
        return f"it is for {made_for}"
    python = _PYTHON.search(name)
    if python and f"cp{python[1]}" != platform.partition("-")[0]:
        return f"it is for CPython {python[1][0]}.{python[1][1:]}"
    return ""


def wheel_fault(tags: list[str], platform: str) -> str:
    """What is wrong with a wheel of these tags on a platform; empty where one of them fits."""
    if any(_fits(tag, platform) for tag in tags):
        return ""
    return f"it is for {', '.join(tags[:3]) or 'no platform'}"


def tags_of_name(name: str) -> list[str]:
    """The tags in a wheel's file name; PEP 425 writes several with dots between."""
    parts = name.removesuffix(".whl").split("-")[-3:]
    return ["-".join(tag) for tag in product(*(part.split(".") for part in parts))]


def tags_of_metadata(content: bytes) -> list[str]:
    """The tags in the `WHEEL` file of an unpacked wheel."""
    lines = content.decode("utf-8", "replace").splitlines()
    return [line.partition(":")[2].strip() for line in lines if line.startswith("Tag:")]


def _fits(tag: str, platform: str) -> bool:
    found = _PLATFORM.fullmatch(platform)
    parts = tag.split("-")
    if found is None or len(parts) != 3:
        return False
    python, abi, system = parts
    major, minor, machine = found[1], int(found[2]), found[3]
    if system != "any" and not re.fullmatch(rf"(linux|manylinux\w*?)_{machine}", system):
        return False
    if python in (f"py{major}", f"py{major}{minor}", f"cp{major}{minor}"):
        return True
    # The stable ABI of an older Python serves a newer one.
    older = re.fullmatch(rf"cp{major}(\d+)", python)
    return bool(older) and abi == "abi3" and int(older[1]) <= minor if older else False
