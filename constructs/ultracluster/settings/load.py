"""Reading a settings file, and telling every mistake of its form."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ultracluster.settings.model import Settings

DEFAULT_ENVIRONMENT = "dev"


class SettingsError(Exception):
    """Settings that cannot be used; `str()` lists every problem, one a line."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A settings file as far as it can be read.

    Attributes:
        path: the file.
        settings: all that is well formed, or None where too much is missing to tell more.
        problems: every mistake of form, one a line.
    """

    path: Path
    settings: Settings | None
    problems: tuple[str, ...]


def load_settings(environment: str, directory: Path) -> Settings:
    """Read one settings file; `read_draft` says which.

    Raises:
        SettingsError: the file is missing, is not TOML, or breaks the schema; all problems at once.
    """
    draft = read_draft(environment, directory)
    if draft.problems or draft.settings is None:
        raise SettingsError(listed(draft.path, draft.problems))
    return draft.settings


def read_draft(environment: str, directory: Path) -> Draft:
    """Read one settings file, mistakes and all.

    Args:
        environment: `NAME` or `FOLDER/NAME` of a file in the directory, or the path of a `.toml`
            file anywhere. The file's own name becomes the name of the environment.
        directory: the folder `config`.

    Raises:
        SettingsError: the file is missing or is not TOML.
    """
    path = _path_of(environment, directory)
    if not _is_file(path):
        files = (file for file in directory.rglob("*.toml") if file.is_file())
        names = (file.relative_to(directory) for file in files)
        known = ", ".join(sorted(str(name.with_suffix("")) for name in names)) or "none"
        raise SettingsError(
            f"no settings for environment {environment!r}: {path} does not exist; "
            f"environments here: {known}; choose one with `-c environment=NAME`"
        )
    values = _read_toml(path)
    named = (
        ("environment: unknown key; it is the file's own name",) if "environment" in values else ()
    )
    values["environment"] = path.stem
    try:
        return Draft(path=path, settings=Settings.model_validate(values), problems=named)
    except ValidationError as error:
        problems = (*named, *_problems(error))
        for item in _mistakes(error):
            _drop(values, item["loc"])
    try:
        rest = Settings.model_validate(values)
    except ValidationError:
        rest = None
    return Draft(path=path, settings=rest, problems=problems)


def listed(path: Path, problems: Sequence[str]) -> str:
    """The problems of a file, one a line."""
    lines = "\n".join(f"  {line}" for line in problems)
    return f"{path}: {len(problems)} problem(s)\n{lines}"


def _drop(values: Any, location: tuple[int | str, ...]) -> None:
    """Take one value out, so that the rest can be judged."""
    for part in location[:-1]:
        try:
            values = values[part]
        except (KeyError, IndexError, TypeError):
            return
    if isinstance(values, dict):
        values.pop(location[-1], None)


def _path_of(environment: str, directory: Path) -> Path:
    """The file of an environment."""
    if environment.endswith(".toml"):
        return Path(environment).absolute()
    return directory / f"{environment}.toml"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name too long for any file
        return False


def _read_toml(path: Path) -> dict[str, Any]:
    """A TOML file, refused where a key stands twice.

    Raises:
        SettingsError: it cannot be read, or is another kind of file.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        return tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read as text: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not valid TOML: {error}{_other_format(text)}") from None
    except (ValueError, RecursionError) as error:  # a number or a nesting beyond Python's limits
        reason = str(error).split(";")[0]  # the rest is advice to programmers
        raise SettingsError(f"{path}: not valid TOML: {reason}") from None


def _other_format(text: str) -> str:
    """What the file seems to be instead."""
    if re.search(r"^\[(cluster|global|vpc|aliases)\b[^\]]*\]\s*$", text, re.MULTILINE):
        return "; it looks like ParallelCluster 2 format: write the settings of docs/settings.md"
    if re.search(r"^(HeadNode|Scheduling|Image|Region|- \w[\w ]*):", text, re.MULTILINE):
        return "; it looks like YAML: ParallelCluster's own keys belong to [cluster.overrides]"
    return ""


def _mistakes(error: ValidationError) -> Iterator[ErrorDetails]:
    items = error.errors(include_url=False)
    for item in items:
        # A list is short only because its items were refused.
        if not any(_inside(other["loc"], item["loc"]) for other in items):
            yield item


def _problems(error: ValidationError) -> Iterator[str]:
    for item in _mistakes(error):
        path = _path(item["loc"])
        if item["type"] == "extra_forbidden":
            yield f"{path}: unknown key{_nearest(item['loc'])}"
        elif item["type"] == "missing":
            yield f"{path}: missing; add it"
        else:
            yield f"{path}: got {_short(item['input'])}; {_wanted(item)}{_meaning(item['loc'])}"


def _wanted(item: ErrorDetails) -> str:
    """What is allowed, in the words of TOML."""
    limits = item.get("ctx", {})
    match item["type"]:
        case "model_type" | "dict_type":
            return "it should be a table"
        case "tuple_type" | "list_type":
            return "it should be a list"
        case "too_short":
            return f"it should have {limits['min_length']} item(s) or more"
        case "too_long":
            return f"it should have {limits['max_length']} items at most"
    return item["msg"][0].lower() + item["msg"][1:]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def _inside(location: tuple[int | str, ...], outer: tuple[int | str, ...]) -> bool:
    return len(location) > len(outer) and location[: len(outer)] == outer


def _path(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _meaning(location: tuple[int | str, ...]) -> str:
    """What the option is, in its own words."""
    names = tuple(part for part in location if isinstance(part, str))
    field = _section_of(names).model_fields.get(names[-1]) if names else None
    if field is None or field.description is None:
        return ""
    text = field.description.removesuffix(".")
    return ": " + (text if text[1].isupper() else text[0].lower() + text[1:])


def _section_of(location: tuple[int | str, ...]) -> type[BaseModel]:
    section: type[BaseModel] = Settings
    for part in location[:-1]:
        if isinstance(part, str) and part in section.model_fields:
            section = section_in(section.model_fields[part].annotation) or section
    return section


def _nearest(location: tuple[int | str, ...]) -> str:
    known = list(_section_of(location).model_fields)
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; allowed: {', '.join(known)}"


def section_in(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds: itself, one of several, or none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(section_in, get_args(annotation))), None)
