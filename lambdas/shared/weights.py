"""Reads the table at the head of a safetensors file, and no weight."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import IO, Any

from shared.layout import MAXIMUM_WEIGHTS_HEADER, WEIGHTS
from shared.problem import Problem

_LENGTH = 8
_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2,
    "U16": 2, "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1,
}  # fmt: skip


class NoWeights(Exception):
    """A file that no safetensors reader opens."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(reason="archive-weights", message=f"{WEIGHTS}: {message}")


@dataclass(frozen=True, kw_only=True)
class Weights:
    """What a file holds: number of tensors with bf16, and bytes once floats are fp32."""

    bf16: int
    bytes_as_fp32: int


def read_weights(stream: IO[bytes], size: int) -> Weights:
    """Read the table of a file of `size` bytes.

    The format: eight bytes of length, that much JSON, then the tensors without gaps.

    Raises:
        NoWeights: the file has another form, or another size than its table says.
    """
    length = int.from_bytes(stream.read(_LENGTH), "little")
    if size < _LENGTH + length:
        raise NoWeights(f"{size} bytes, and its table alone claims {length}")
    if length > MAXIMUM_WEIGHTS_HEADER:
        raise NoWeights(f"its table has {length} bytes, allowed: {MAXIMUM_WEIGHTS_HEADER}")
    bf16 = as_fp32 = 0
    spans = []
    try:
        table = json.loads(stream.read(length))
        for name, tensor in table.items():
            if name == "__metadata__":
                continue
            kind = tensor["dtype"]
            start, stop = map(_whole, tensor["data_offsets"])
            elements = _elements(tensor["shape"], size)
            if stop - start != elements * _BYTES[kind]:
                raise NoWeights(f"{name[:100]!r}: {stop - start} bytes for {elements} of {kind}")
            bf16 += kind == "BF16"
            as_fp32 += elements * 4 if kind.startswith(("F", "BF")) else stop - start
            spans.append((start, stop))
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
        raise NoWeights("its table is not in the safetensors format") from None
    end = 0
    for start, stop in sorted(spans):
        if start != end:
            raise NoWeights(f"a tensor starts at byte {start}, the one before it ends at {end}")
        end = stop
    if _LENGTH + length + end != size:
        raise NoWeights(f"{size} bytes, its table says {_LENGTH + length + end}")
    return Weights(bf16=bf16, bytes_as_fp32=as_fp32)


def _elements(shape: list[Any], most: int) -> int:
    """How many elements a tensor has; the product is not made where it is larger than the file."""
    count = 1
    for length in shape:
        count *= _whole(length)
        if count > most:
            raise ValueError(f"more than {most}")
    return count


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no length")
    return value
