"""Small safetensors files."""

from __future__ import annotations

import json
import math


def weights(content: bytes = bytes(64), *, dtype: str = "U8", shape: tuple[int, ...] = ()) -> bytes:
    """A file with one tensor; `shape` is for dtypes of more than a byte."""
    return head(len(content), dtype=dtype, shape=shape or (len(content),)) + content


def head(size: int, *, dtype: str = "F32", shape: tuple[int, ...] = ()) -> bytes:
    """What comes before one tensor of so many bytes."""
    entry = {"dtype": dtype, "shape": shape or [size // 4], "data_offsets": [0, size]}
    assert math.prod(entry["shape"]) <= size  # type: ignore[arg-type]
    table = json.dumps({"__metadata__": {"format": "pt"}, "weight": entry}).encode()
    return len(table).to_bytes(8, "little") + table
