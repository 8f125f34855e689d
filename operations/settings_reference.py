"""Every option of the settings, as docs/settings.md lists them."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ultracluster.settings import Settings
from ultracluster.settings.load import section_in

HEADER = "| option | takes | default | meaning |\n|---|---|---|---|"


def settings_reference() -> str:
    """A table for each section, in Markdown."""
    return "\n\n".join(_section("Top of the file", Settings, ()))


def _section(title: str, section: type[BaseModel], path: tuple[str, ...]) -> Iterator[str]:
    rows = []
    deeper = []
    for name, field in section.model_fields.items():
        if name == "environment":
            continue  # it is the file's name
        inner = section_in(field.annotation)
        if inner is not None:
            deeper.append((inner, (*path, name)))
        if inner is None or name in ("queues", "links"):
            rows.append(_row(name, field))
    yield f"## {title}\n\n{HEADER}\n" + "\n".join(rows)
    for inner, inner_path in deeper:
        summary = (inner.__doc__ or "").strip().split("\n")[0].removesuffix(".")
        yield from _section(summary, inner, inner_path)


def _row(name: str, field: FieldInfo) -> str:
    meaning = " ".join((field.description or "").split()).replace("|", "\\|")
    return f"| `{name}` | {_takes(field)} | {_default(field)} | {meaning} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined or value is None:
        return "unset"
    if isinstance(value, tuple) and any(isinstance(item, BaseModel) for item in value):
        return "one link"
    if value in ((), {}):
        return "none"
    return f"`{_toml(value)}`"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return str(value)


def _takes(field: FieldInfo) -> str:
    return _name(field.annotation)


def _name(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Literal:
        return ", ".join(f"`{_toml(value)}`" for value in get_args(annotation))
    if origin in (Union, types.UnionType):
        kept = [item for item in get_args(annotation) if item is not type(None)]
        return " or ".join(map(_name, kept))
    if origin is tuple:
        return f"list of {_name(get_args(annotation)[0])}"
    if origin is dict:
        return "table"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "tables"
    if hasattr(annotation, "__metadata__"):
        return _name(get_args(annotation)[0])
    return {str: "text", int: "number", float: "number", bool: "`true`, `false`"}[annotation]
