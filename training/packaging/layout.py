"""What a model archive must look like, and every way in which one can be wrong.

The serving image unpacks the archive into its model folder as it is, so members lie at the root.
"""

import gzip
import json
import tarfile
import zlib
from pathlib import Path, PurePosixPath

ENTRY_POINT = "code/inference.py"
WEIGHTS = "model.safetensors"
CONFIGURATION = "config.json"
REQUIRED = (CONFIGURATION, WEIGHTS, ENTRY_POINT)
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
GZIP_MAGIC = b"\x1f\x8b"
BLOCK = 1 << 20


def problems(path: Path) -> list[str]:
    """All reasons to refuse an archive, none where it is good. Reads every byte of it."""
    try:
        with path.open("rb") as file:
            start = file.read(len(GZIP_MAGIC))
        if not start:
            return ["the file is empty (0 bytes)"]
        if start != GZIP_MAGIC:
            kind = "a tar that is not compressed" if tarfile.is_tarfile(path) else "not gzip"
            return [f"the file is {kind}; a model archive is a gzip-compressed tar"]
        with gzip.open(path) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            found = _members(tar)
            while stream.read(BLOCK):  # on to the end, where gzip compares the checksum
                pass
            return found
    except OSError as error:
        # gzip reports a bad checksum this way too, with no error number.
        return [f"the file cannot be read: {error.strerror or error}"]
    except EOFError:
        return ["the gzip data is cut off before its end"]
    except (tarfile.TarError, zlib.error) as error:
        return [f"the archive is damaged: {error}"]


def _members(tar: tarfile.TarFile) -> list[str]:
    found: list[str] = []
    names: set[str] = set()
    for member in tar:
        name = member.name.removeprefix("./").rstrip("/")
        if member.name in (".", "./"):
            continue
        found += _bad_name(member.name)
        if member.issym() or member.islnk():
            found.append(f"{name} is a link to {member.linkname}; only files and folders may be in")
        elif not (member.isfile() or member.isdir()):
            found.append(f"{name} is a device or pipe; only files and folders may be in")
        if name in names and not member.isdir():
            found.append(f"{name} is in the archive twice")
        if member.isdir():
            continue
        names.add(name)
        content = tar.extractfile(member) if member.isfile() else None
        if content is None:
            continue
        if name == CONFIGURATION:
            found += _bad_configuration(content.read())
    return found + _bad_set(names)


def _bad_name(name: str) -> list[str]:
    parts = PurePosixPath(name).parts
    if name.startswith("/"):
        return [f"{name} is an absolute path"]
    if ".." in parts:
        return [f"{name} leads out of the archive ('..')"]
    return []


def _bad_configuration(content: bytes) -> list[str]:
    try:
        configuration = json.loads(content)
    except ValueError:
        return [f"{CONFIGURATION} is not JSON"]
    if not isinstance(configuration, dict):
        return [f"{CONFIGURATION} is not a JSON object"]
    return []


def _bad_set(names: set[str]) -> list[str]:
    """What is missing, or should not be there, seen over all names of files."""
    roots = {PurePosixPath(name).parts[0] for name in names if "/" in name.lstrip("/")}
    if len(roots) == 1 and not any("/" not in name for name in names):
        (root,) = roots
        if root != "code":
            return [f"everything is inside the extra root folder {root}/; members lie at the root"]
    found = [f"{name} is missing" for name in REQUIRED if name not in names]
    extra = sorted(root for root in roots - {"code", "/", ".."})
    found += [f"the folder {root}/ does not belong at the root; only code/ does" for root in extra]
    if "code/requirements.txt" in names:
        found.append(
            "code/requirements.txt makes the container call pip at its start, which fails in "
            "network isolation; vendor the wheels"
        )
    found += [
        f"{name} is a pickle, which may run code; save {WEIGHTS}"
        for name in sorted(names)
        if "/" not in name and name.endswith(PICKLES)
    ]
    return found
