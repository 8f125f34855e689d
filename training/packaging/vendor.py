"""The Python packages that travel inside an archive, for images that lack them.

The serving image of AWS for arm64 has torch and numpy, and no transformers. An endpoint in network
isolation cannot install it, so the archive carries unpacked wheels under `code/vendor/<tag>/`.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.metadata import Distribution
from pathlib import Path, PurePosixPath
from typing import Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from training.command import InputError
from training.files import sha256_of

Platform = Literal["cp312-aarch64"]
REQUIREMENTS = Path(__file__).with_name("serving-requirements.txt")
PYTHON = {"cp312-aarch64": "3.12"}
PIP_PLATFORM = {
    "cp312-aarch64": (
        *("--platform", "manylinux_2_28_aarch64"),
        *("--platform", "manylinux2014_aarch64"),
        *("--python-version", "312"),
    ),
}


def fetch(platform: Platform, *, cache: Path) -> Path:
    """The folder of wheels for a platform, downloaded by pip the first time.

    The requirements name each wheel's digest, so pip takes no other file than the known one.

    Raises:
        InputError: pip cannot get the wheels, or the cache is not writable.
    """
    folder = cache / f"{platform}-{sha256_of(REQUIREMENTS)[:16]}"
    if folder.is_dir():
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=".wheels-", dir=cache))
    except OSError as error:
        raise InputError(f"cannot write to the cache {cache}: {error.strerror}") from error
    # fmt: off
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
        "--only-binary", ":all:", *PIP_PLATFORM[platform], "--no-deps", "--require-hashes",
        "--requirement", str(REQUIREMENTS), "--dest", str(beside),
    ]
    # fmt: on
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise InputError(
                f"pip cannot download the serving packages for {platform}: "
                f"{(errors or ['no reason'])[-1]}; --serving-platform none leaves them out"
            )
        if not folder.is_dir():  # another run may have been quicker
            beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return folder


def unpack(wheels: Path, *, into: Path) -> None:
    """Lay wheels out as an installer would.

    Scripts and headers are left out, since nothing calls them in a container.
    """
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as content:
            for name in content.namelist():
                place = _installed_name(name)
                if place is not None:
                    target = into / place
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content.read(name))


def _installed_name(name: str) -> PurePosixPath | None:
    """Where a wheel's member lies once installed; None for what is left out."""
    path = PurePosixPath(name)
    if name.endswith("/") or ".." in path.parts or path.is_absolute():
        return None
    if not path.parts[0].endswith(".data"):
        return path
    if path.parts[1] in ("purelib", "platlib"):
        return PurePosixPath(*path.parts[2:])
    return None


def least_versions(transformers: Distribution) -> dict[str, str]:
    """The least torch and Python that a release of transformers says it needs.

    Raises:
        InputError: its metadata names none.
    """
    lines = [Requirement(line) for line in transformers.requires or []]
    ranges = {
        "torch": [
            line.specifier
            for line in lines
            if line.name == "torch" and line.marker and line.marker.evaluate({"extra": "torch"})
        ],
        "python": [SpecifierSet(transformers.metadata["Requires-Python"] or "")],
    }
    least = {
        name: [part.version for found in specifiers for part in found if part.operator == ">="]
        for name, specifiers in ranges.items()
    }
    if not all(least.values()):
        raise InputError(
            f"transformers {transformers.version} does not say which torch and Python it needs"
        )
    return {name: ".".join(versions[0].split(".")[:2]) for name, versions in least.items()}
