"""Small safetensors files."""

from __future__ import annotations

import json


def weights(content: bytes = bytes(64), *, dtype: str = "U8", shape: tuple[int, ...] = ()) -> bytes:
    """A file with one tensor; `shape` is for dtypes of more than a byte."""
    return head(len(content), dtype=dtype, shape=shape or (len(content),)) + content


def head(size: int, *, dtype: str = "F32", shape: tuple[int, ...] = ()) -> bytes:
    """What comes before one tensor of so many bytes."""
    tensor = {"dtype": dtype, "shape": shape or [size // 4], "data_offsets": [0, size]}
    table = json.dumps({"__metadata__": {"format": "pt"}, "weight": tensor}).encode()
    return len(table).to_bytes(8, "little") + table
