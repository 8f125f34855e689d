"""`ultracluster package check`: the delivery's checks, on the machine that made the package."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

from shared import archive
from shared.host import Host, unfit
from shared.layout import MAXIMUM_ARCHIVE
from shared.manifest import MAXIMUM_BYTES, Manifest, ManifestProblem, parse
from shared.problem import Problem
from ultracluster.environment import load_environment
from ultracluster.serving_host import serving_host
from ultracluster.settings import SettingsError

CONFIG = Path(__file__).resolve().parents[1] / "config"
MANIFEST = "manifest.json"


class _Unusable(Exception):
    """There is nothing to check; the message says what to give."""


def package_check(
    file: Path, environment: str | None, *, show: Callable[[str], None] = print
) -> int:
    """Check an archive, its manifest where one lies beside it, and both for an environment.

    Returns 0 where nothing is wrong, 1 where the delivery would refuse it, 2 where it cannot be
    checked.
    """
    try:
        host, gate = _held_against(environment)
        problems = list(_problems(file, host, gate))
    except (SettingsError, _Unusable) as error:
        show(str(error))
        return 2
    except OSError as error:
        show(f"{file}: cannot be read: {error.strerror or error}")
        return 2
    if problems:
        show(f"{file}: the delivery would refuse it, {len(problems)} problem(s)")
        for problem in problems:
            show(f"  {problem}")
        return 1
    beside = "and its manifest" if _manifest_of(file).is_file() else "without a manifest"
    against = f"{host.instance}" if host else "no instance: name one by --environment"
    show(f"{file}: nothing is wrong; archive {beside}, held against {against}")
    return 0


def _held_against(environment: str | None) -> tuple[Host | None, float]:
    """The host and the least macro-F1; without an environment there is neither."""
    if environment is None:
        return None, 0.0
    loaded = load_environment(environment, CONFIG)
    host = serving_host(loaded.settings, loaded.catalog)
    return host, loaded.settings.delivery.minimum_macro_f1


def _manifest_of(file: Path) -> Path:
    return file.with_name(MANIFEST)


def _problems(file: Path, host: Host | None, gate: float) -> Iterator[Problem]:
    if file.is_dir():
        raise _Unusable(f"{file} is a folder; give the model.tar.gz in it")
    if not file.exists():
        raise _Unusable(f"{file} does not exist; give a model.tar.gz")
    if not file.is_file():
        raise _Unusable(f"{file} is no plain file; give a model.tar.gz")
    if (size := file.stat().st_size) > MAXIMUM_ARCHIVE:
        raise _Unusable(
            f"{file} has {size} bytes, and one upload takes at most {MAXIMUM_ARCHIVE} (5 GiB); "
            "make the model smaller"
        )
    if _manifest_of(file).is_file():
        yield from _manifest_problems(file, host, gate)
    with file.open("rb") as stream:
        yield from archive.check(stream, host)


def _manifest_problems(file: Path, host: Host | None, gate: float) -> Iterator[Problem]:
    with _manifest_of(file).open("rb") as stream:
        content = stream.read(MAXIMUM_BYTES + 1)
    try:
        manifest = parse(content)
    except ManifestProblem as error:
        yield from error.problems
        return
    yield from _differences(file, manifest)
    if host is not None:
        yield from unfit(manifest, host, gate)


def _differences(file: Path, manifest: Manifest) -> Iterator[Problem]:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    for name, got, said in (
        ("size-differs", file.stat().st_size, manifest.archive_bytes),
        ("checksum-differs", digest, manifest.archive_sha256),
    ):
        if got != said:
            message = f"{file.name} has {got}, {MANIFEST} says {said}; package it again"
            yield Problem(reason=name, message=message)
