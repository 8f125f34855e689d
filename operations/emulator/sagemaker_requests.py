"""Check SageMaker requests against botocore's model of the service, in the service's own words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import botocore.session
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StringShape, StructureShape

Json = dict[str, Any]


class ApiError(Exception):
    """An error answer of an AWS service.

    Attributes:
        code: the error code that botocore puts into ``Error.Code``.
        message: the text for people.
        status: the HTTP status.
    """

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


def validation_error(message: str) -> ApiError:
    """The error that SageMaker gives for nearly everything."""
    return ApiError("ValidationException", message)


@cache
def service_model() -> ServiceModel:
    """SageMaker as botocore describes it."""
    return botocore.session.Session().get_service_model("sagemaker")


def check_request(operation: str, request: Mapping[str, Any]) -> None:
    """Refuse a request that the service's model does not allow.

    Types, required and unknown members, lengths, ranges, patterns and enumerations are checked,
    which is more than botocore does on the client's side.

    Raises:
        ApiError: ``SerializationException`` for a wrong type, else ``ValidationException`` that
            names every problem.
    """
    shape = service_model().operation_model(operation).input_shape
    if shape is None:
        return
    problems = list(_problems(request, shape, ""))
    if problems:
        noun = "error" if len(problems) == 1 else "errors"
        raise validation_error(f"{len(problems)} validation {noun} detected: {'; '.join(problems)}")


def _problems(value: Any, shape: Shape, path: str) -> Iterator[str]:
    _check_type(value, shape, path)
    if isinstance(shape, StructureShape):
        yield from _structure_problems(value, shape, path)
    elif isinstance(shape, ListShape):
        yield from _size_problems(len(value), value, shape, path, "length")
        for number, item in enumerate(value, start=1):
            yield from _problems(item, shape.member, f"{path}.{number}.member")
    elif isinstance(shape, MapShape):
        yield from _size_problems(len(value), value, shape, path, "length")
        for key, item in value.items():
            yield from _problems(key, shape.key, f"{path}.key")
            yield from _problems(item, shape.value, f"{path}.{key}.member")
    elif isinstance(shape, StringShape):
        yield from _size_problems(len(value), value, shape, path, "length")
        yield from _string_problems(value, shape, path)
    elif shape.type_name in ("integer", "long", "float", "double"):
        yield from _size_problems(value, value, shape, path, "value")


def _structure_problems(value: Json, shape: StructureShape, path: str) -> Iterator[str]:
    prefix = f"{path}." if path else ""
    for name in shape.required_members:
        if value.get(name) is None:
            yield _failed(None, f"{prefix}{_lower_first(name)}", "not be null")
    for name, item in value.items():
        if name not in shape.members:
            allowed = ", ".join(shape.members)
            where = f" at '{path}'" if path else ""
            yield f'Unknown parameter "{name}"{where}, must be one of: {allowed}'
        elif item is not None:
            yield from _problems(item, shape.members[name], f"{prefix}{_lower_first(name)}")


def _size_problems(size: float, value: Any, shape: Shape, path: str, what: str) -> Iterator[str]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if least is not None and size < least:
        yield _failed(value, path, f"have {what} greater than or equal to {least}")
    if most is not None and size > most:
        yield _failed(value, path, f"have {what} less than or equal to {most}")


def _string_problems(value: str, shape: StringShape, path: str) -> Iterator[str]:
    if shape.enum and value not in shape.enum:
        yield _failed(value, path, f"satisfy enum value set: [{', '.join(shape.enum)}]")
    pattern = shape.metadata.get("pattern")
    if pattern and not _compiled(pattern).fullmatch(value):
        yield _failed(value, path, f"satisfy regular expression pattern: {pattern}")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    # The model's patterns are Java's: classes of Unicode letters, numbers and blanks
    # that Python's re has under other names.
    for java, python in (("{L}", r"\w"), ("{N}", r"\d"), ("{Z}", r"\s")):
        pattern = pattern.replace(rf"\p{java}", python)
    return re.compile(pattern)


_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "structure": (dict,),
    "map": (dict,),
    "list": (list, tuple),
    "string": (str,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "boolean": (bool,),
    "timestamp": (int, float, str),
}


def _check_type(value: Any, shape: Shape, path: str) -> None:
    allowed = _PYTHON_TYPES[shape.type_name]
    fits = isinstance(value, allowed)
    if isinstance(value, bool) and bool not in allowed:
        fits = False
    if not fits:
        got = type(value).__name__
        raise ApiError(
            "SerializationException",
            f"Value of '{path or 'request'}' is of type {got}, it must be {shape.type_name}",
        )


def _failed(value: Any, path: str, rule: str) -> str:
    shown = "null" if value is None else f"'{value}'"
    return f"Value {shown} at '{path}' failed to satisfy constraint: Member must {rule}"


def _lower_first(name: str) -> str:
    return name[:1].lower() + name[1:]
