"""Reading a settings file, and telling every mistake of its form."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from ultracluster.settings.model import Settings

DEFAULT_ENVIRONMENT = "dev"


class SettingsError(Exception):
    """Settings that cannot be used; `str()` lists every problem, one a line."""


def load_settings(environment: str, directory: Path) -> Settings:
    """Read and check one settings file.

    Args:
        environment: `NAME` or `FOLDER/NAME` of a file in the directory, or the path of a `.toml`
            file anywhere. The file's own name becomes the name of the environment.
        directory: the folder `config`.

    Raises:
        SettingsError: the file is missing, is not TOML, or breaks the schema; all problems at once.
    """
    path = settings_path(environment, directory)
    if not path.is_file():
        names = (file.relative_to(directory) for file in directory.rglob("*.toml"))
        known = ", ".join(sorted(str(name.with_suffix("")) for name in names)) or "none"
        raise SettingsError(
            f"no settings for environment {environment!r}: {path} does not exist; "
            f"environments here: {known}; choose one with `-c environment=NAME`"
        )
    values = read_toml(path)
    try:
        return Settings.model_validate({"environment": path.stem, **values})
    except ValidationError as error:
        problems = list(_problems(error))
        lines = "\n".join(f"  {line}" for line in problems)
        raise SettingsError(f"{path}: {len(problems)} problem(s)\n{lines}") from None


def settings_path(environment: str, directory: Path) -> Path:
    """The file of an environment."""
    if environment.endswith(".toml"):
        return Path(environment).absolute()
    return directory / f"{environment}.toml"


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file, refused where a key stands twice.

    Raises:
        SettingsError: it cannot be read, or is another kind of file.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read as text: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not valid TOML: {error}{_other_format(text)}") from None


def _other_format(text: str) -> str:
    """What the file seems to be instead."""
    if re.search(r"^\[(cluster|global|vpc|aliases)\b[^\]]*\]\s*$", text, re.MULTILINE):
        return "; it looks like ParallelCluster 2 format: write the settings of docs/settings.md"
    if re.search(r"^(HeadNode|Scheduling|Image|Region|- \w[\w ]*):", text, re.MULTILINE):
        return "; it looks like YAML: ParallelCluster's own keys belong to [cluster.overrides]"
    return ""


def _problems(error: ValidationError) -> Iterator[str]:
    items = error.errors(include_url=False)
    for item in items:
        if any(_inside(other["loc"], item["loc"]) for other in items):
            continue  # a list is short only because its items were refused
        path = _path(item["loc"])
        if item["type"] == "extra_forbidden":
            yield f"{path}: unknown key{_nearest(item['loc'])}"
        elif item["type"] == "missing":
            yield f"{path}: missing; add it"
        else:
            message = item["msg"][0].lower() + item["msg"][1:]
            yield f"{path}: got {item['input']!r}; {message}"


def _inside(location: tuple[int | str, ...], outer: tuple[int | str, ...]) -> bool:
    return len(location) > len(outer) and location[: len(outer)] == outer


def _path(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _nearest(location: tuple[int | str, ...]) -> str:
    section: type[BaseModel] = Settings
    for part in location[:-1]:
        if isinstance(part, str):
            section = section_in(section.model_fields[part].annotation) or section
    known = list(section.model_fields)
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; allowed: {', '.join(known)}"


def section_in(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds: itself, one of several, or none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(section_in, get_args(annotation))), None)
