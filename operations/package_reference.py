"""The reference part of docs/package.md, from the definitions that the checks read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shared import layout, manifest
from shared.host import DISK_GIB
from shared.reasons import REASONS

_MIB = 1024**2


def package_reference() -> str:
    """Layout, manifest and reasons, as Markdown."""
    parts = (_layout(), _manifest(), _reasons())
    return "\n".join(line for part in parts for line in part).rstrip()


def _layout() -> Iterator[str]:
    yield from (f"## Layout of `model.tar.gz`, version {layout.VERSION}", "")
    yield "Members lie at the root of a gzip-compressed tar: plain files and folders, nothing else."
    yield from ("", "| member | holds |", "|---|---|")
    for name, holds in layout.REQUIRED.items():
        yield f"| `{name}` | {holds}; required |"
    yield "| tokenizer files | what the tokenizer needs, at the root |"
    yield f"| `{layout.CODE}/` | the only folder at the root |"
    yield (
        f"| `{layout.VENDOR}/<platform>/` | unpacked wheels for images that lack them, such as "
        "`cp312-aarch64` |"
    )
    sets = " or ".join(", ".join(f"`{name}`" for name in names) for names in layout.HANDLERS)
    yield from ("", f"`{layout.ENTRY_POINT}` defines {sets}.", "")
    yield (
        f"At most {layout.MAXIMUM_ARCHIVE // 1024**3} GiB packed, {DISK_GIB} GiB unpacked, "
        f"{layout.MAXIMUM_MEMBERS:,} members, {layout.MAXIMUM_NAME} characters a name, "
        f"{layout.MAXIMUM_CONFIGURATION // _MIB} MiB of configuration, "
        f"{layout.MAXIMUM_CODE // 1024} KiB of code, "
        f"{layout.MAXIMUM_WEIGHTS_HEADER // _MIB} MiB of table at the head of the weights. No "
        f"pickles ({', '.join(layout.PICKLES)}) at the root."
    )
    yield ""


def _manifest() -> Iterator[str]:
    path = Path(manifest.__file__).with_name("manifest.schema.json")
    schema = json.loads(path.read_text(encoding="utf-8"))
    version = schema["properties"]["schema_version"]["const"]
    yield from (f"## `manifest.json`, version {version}", "")
    yield (
        "A JSON Schema: `lambdas/shared/manifest.schema.json`. No other keys; at most "
        f"{manifest.MAXIMUM_BYTES // 1024} KiB."
    )
    yield from ("", "| key | takes | meaning |", "|---|---|---|")
    yield from _rows(schema, "")
    yield ""


def _rows(schema: dict[str, Any], prefix: str) -> Iterator[str]:
    required = schema.get("required", [])
    for key, inner in schema["properties"].items():
        name = f"{prefix}{key}"
        if inner.get("properties"):
            yield from _rows(inner, f"{name}.")
            continue
        optional = "" if key in required else "; optional"
        yield f"| `{name}` | {_takes(inner)}{optional} | {inner['description']} |"
        items = inner.get("items", {})
        if items.get("properties"):
            yield from _rows(items, f"{name}[].")


def _takes(schema: dict[str, Any]) -> str:
    if "const" in schema:
        return f"{schema['const']}"
    kind = str(schema["type"])
    if kind == "array":
        return f"{schema['minItems']} to {schema['maxItems']} of {schema['items']['type']}"
    if kind == "object":
        return "texts by name"
    if "minimum" in schema:
        return f"{kind}, {schema['minimum']} to {schema['maximum']}"
    if "pattern" in schema:
        return f"`{schema['pattern']}`"
    return f"{schema.get('minLength', 0)} to {schema['maxLength']} characters"


def _reasons() -> Iterator[str]:
    yield from ("## Reasons to refuse", "", "| reason | when |", "|---|---|")
    yield from (f"| `{reason}` | {meaning} |" for reason, meaning in REASONS.items())
