"""The delivery's own checks of an archive, before it leaves the machine."""

from pathlib import Path

from shared.archive import check
from training.command import InputError


def problems(path: Path) -> list[str]:
    """All reasons to refuse an archive that do not depend on an instance; reads every byte of it.

    Raises:
        InputError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return [str(problem) for problem in check(file)]
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
