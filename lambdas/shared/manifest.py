"""The manifest that announces a model, and its check against `manifest.schema.json`.

The check reads the schema, and knows just the JSON Schema keywords that the schema uses: Lambda
brings no validator, and a vendored one would be the only dependency of these functions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shared.problem import Problem

MAXIMUM_BYTES = 256 * 1024
"""No honest manifest is larger; a function must not read a large object into memory."""

_SHOWN = 50
"""Problems of one manifest that are told."""

_SCHEMA: dict[str, Any] = json.loads(
    Path(__file__).with_name("manifest.schema.json").read_text(encoding="utf-8")
)
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
}


class ManifestProblem(Exception):
    """A manifest that cannot be used; `problems` holds every problem, each with its path."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = problems


@dataclass(frozen=True, kw_only=True)
class Smoke:
    """A text and the label that the model gave it when it was packed."""

    text: str
    label: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What delivery reads of a manifest, version 1.

    `created` is in UTC; `archive_bytes` the size of the archive; `requires_*` the lowest versions
    that the serving image must have.
    """

    model_name: str
    created: datetime
    archive_key: str
    archive_sha256: str
    archive_bytes: int
    requires_torch: str
    requires_python: str
    evaluation_set: str
    accuracy: float
    macro_f1: float
    smoke: tuple[Smoke, ...]


def parse(content: bytes) -> Manifest:
    """Read a manifest.

    Raises:
        ManifestProblem: the content is not JSON or breaks the schema; every problem at once.
    """
    if len(content) > MAXIMUM_BYTES:
        raise ManifestProblem([_problem(f"the manifest has more than {MAXIMUM_BYTES} bytes")])
    try:
        value = json.loads(content, parse_constant=_refuse_constant)
        json.dumps(value, ensure_ascii=False).encode()  # halves of surrogate pairs are no text
    except (ValueError, RecursionError) as error:
        raise ManifestProblem([_problem(f"the manifest is not JSON: {error}")]) from None
    if other := _other_version(value):
        raise ManifestProblem([other])
    if messages := list(problems_of(value, _SCHEMA)) or list(_cross_check(value)):
        # A state machine carries 256 KiB, and ends without a word on more.
        more = len(messages) - _SHOWN
        told = [*messages[:_SHOWN], f"and {more} more"] if more > 0 else messages
        raise ManifestProblem([_problem(message) for message in told])
    return Manifest(
        model_name=value["model_name"],
        created=_moment(value["created"]),
        archive_key=value["archive"]["key"],
        archive_sha256=value["archive"]["sha256"],
        archive_bytes=int(value["archive"]["bytes"]),
        requires_torch=value["requires"]["torch"],
        requires_python=value["requires"]["python"],
        evaluation_set=value["metrics"]["evaluation_set"],
        accuracy=value["metrics"]["accuracy"],
        macro_f1=value["metrics"]["macro_f1"],
        smoke=tuple(Smoke(text=item["text"], label=item["label"]) for item in value["smoke"]),
    )


def _other_version(value: Any) -> Problem | None:
    """Of a manifest of another version, nothing else can be judged."""
    known = _SCHEMA["properties"]["schema_version"]["const"]
    version = value.get("schema_version") if isinstance(value, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version == known:
        return None
    message = f"schema_version: got {version}, allowed: {known}"
    return Problem(reason="manifest-version", message=message)


def _problem(message: str) -> Problem:
    missing = message.startswith("metrics") and message.endswith(": missing")
    return Problem(reason="metrics-missing" if missing else "manifest-invalid", message=message)


def problems_of(value: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Every way in which a JSON value breaks the schema, each with its path."""
    where = path or "the manifest"
    if "const" in schema:
        if isinstance(value, bool) or value != schema["const"]:
            yield f"{where}: got {_short(value)}, allowed: {schema['const']!r}"
    elif not _is(value, schema["type"]):
        yield f"{where}: got {_short(value)}, allowed: {_article(schema['type'])}"
    elif isinstance(value, str):
        yield from _string(value, schema, where)
    elif isinstance(value, list):
        yield from _array(value, schema, path, where)
    elif isinstance(value, dict):
        yield from _object(value, schema, path)
    elif "minimum" in schema and not schema["minimum"] <= value <= schema["maximum"]:
        yield f"{where}: got {value!r}, allowed: {schema['minimum']} to {schema['maximum']}"


def _string(value: str, schema: dict[str, Any], where: str) -> Iterator[str]:
    low, high = schema.get("minLength", 0), schema.get("maxLength", len(value))
    if not low <= len(value) <= high:
        yield f"{where}: got {len(value)} characters, allowed: {low} to {high}"
    elif "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{where}: got {_short(value)}, allowed: {schema['pattern']}"


def _array(value: list[Any], schema: dict[str, Any], path: str, where: str) -> Iterator[str]:
    if not schema["minItems"] <= len(value) <= schema["maxItems"]:
        yield (
            f"{where}: got {len(value)} items, "
            f"allowed: {schema['minItems']} to {schema['maxItems']}"
        )
    for index, item in enumerate(value):
        yield from problems_of(item, schema["items"], f"{path}[{index}]")


def _object(value: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[str]:
    known: dict[str, Any] = schema.get("properties", {})
    others = schema["additionalProperties"]
    prefix = f"{path}." if path else ""
    for key in schema.get("required", []):
        if key not in value:
            yield f"{prefix}{key}: missing"
    for key, item in value.items():
        if key in known:
            yield from problems_of(item, known[key], prefix + key)
        elif others is False:
            yield f"{prefix}{key[:100]}: unknown key, allowed: {', '.join(known)}"
        else:
            yield from problems_of(item, others, prefix + key[:100])


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return False
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])


def _cross_check(value: dict[str, Any]) -> Iterator[str]:
    try:
        _moment(value["created"])
    except ValueError:
        yield f"created: got {value['created']!r}, which is no date"
    for index, item in enumerate(value["smoke"]):
        if item["label"] not in value["labels"]:
            yield (
                f"smoke[{index}].label: got {item['label']!r}, "
                f"allowed: {', '.join(value['labels'])[:200]}"
            )


def _moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeio' else 'a'} {kind}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
