"""Calls from inside the server back to its own API, with parameters of the types that it wants."""

from __future__ import annotations

import functools
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.model import ListShape, MapShape, OperationModel, Shape, StructureShape
from ministack.core.responses import get_account_id, get_region
from ministack.core.tls import use_ssl_enabled

_GONE = ("NotFound", "NoSuch", "does not exist", "Could not find", "cannot be found")
_lock = threading.Lock()
_recorded: list[Path] = []
_session = boto3.session.Session()


def record_calls(file: Path) -> None:
    """Write each call that CloudFormation makes from now on as a line of JSON to this file."""
    file.touch()
    _recorded.append(file)


def client(service: str, *, place: tuple[str, str] | None = None) -> Any:
    """Client of one of our own services; it calls back over the network.

    Use it on worker threads only, never on the event loop.

    Args:
        service: The service's name as boto3 has it.
        place: Region and account; by default those of the request at hand, which is then one of
            CloudFormation's.
    """
    region, account = place or (get_region(), get_account_id())
    return _client(service, region, account, for_stacks=place is None)


@functools.cache
def _client(service: str, region: str, account: str, *, for_stacks: bool) -> Any:
    scheme = "https" if use_ssl_enabled() else "http"
    with _lock:  # a boto3 session makes one client at a time
        made = _session.client(
            service,
            region_name=region,
            endpoint_url=f"{scheme}://127.0.0.1:{os.environ['GATEWAY_PORT']}",
            aws_access_key_id=account,
            aws_secret_access_key="emulated",  # noqa: S106
            config=Config(
                retries={"total_max_attempts": 1},
                read_timeout=600,
                s3={"addressing_style": "path"},
            ),
        )
    if for_stacks:
        made.meta.events.register("before-parameter-build", _record)
    return made


def _record(params: dict[str, Any], model: OperationModel, **_: Any) -> None:
    service = model.service_model.signing_name
    line = json.dumps({"service": service, "operation": model.name, "request": params}, default=str)
    with _lock:
        for file in _recorded:
            with file.open("a", encoding="utf-8") as target:
                target.write(f"{line}\n")


@contextmanager
def already_gone_is_fine(*codes: str) -> Iterator[None]:
    """Let a deletion pass whose target does not exist; `codes` are further words of its errors."""
    try:
        yield
    except ClientError as error:
        if not any(word in str(error) for word in (*_GONE, *codes)):
            raise


def typed(service: str, operation: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Turn CloudFormation properties into the parameters of an API operation.

    Templates carry numbers and booleans as strings wherever a parameter was involved, and tags as
    a list where some services want a map; the operation's own model tells what is wanted.

    Raises:
        ValueError: A member that the operation does not know, or a value of another type; the
            message names each of them. Nothing is dropped.
    """
    shape = client(service).meta.service_model.operation_model(operation).input_shape
    problems: list[str] = []
    parameters = _cast(shape, properties, "#", problems)
    if problems:
        raise ValueError("; ".join(problems))
    assert isinstance(parameters, dict)  # noqa: S101
    return parameters


def _cast(shape: Shape, value: Any, path: str, problems: list[str]) -> Any:
    if isinstance(shape, StructureShape):
        return _cast_structure(shape, value, path, problems)
    if isinstance(shape, ListShape):
        if not isinstance(value, list):
            problems.append(f"{path}: expected type: JSONArray, found: {_json_type(value)}")
            return value
        return [_cast(shape.member, item, f"{path}/{i}", problems) for i, item in enumerate(value)]
    if isinstance(shape, MapShape):
        pairs = {tag["Key"]: tag["Value"] for tag in value} if isinstance(value, list) else value
        return {
            key: _cast(shape.value, item, f"{path}/{key}", problems) for key, item in pairs.items()
        }
    return _cast_scalar(shape, value, path, problems)


def _cast_structure(shape: StructureShape, value: Any, path: str, problems: list[str]) -> Any:
    if not isinstance(value, Mapping):
        problems.append(f"{path}: expected type: JSONObject, found: {_json_type(value)}")
        return value
    cast = {}
    for name, item in value.items():
        if name not in shape.members:
            problems.append(
                f"{path}: extraneous key [{name}] is not permitted, "
                f"allowed: {', '.join(shape.members)}"
            )
        elif item is not None:
            cast[name] = _cast(shape.members[name], item, f"{path}/{name}", problems)
    return cast


def _cast_scalar(shape: Shape, value: Any, path: str, problems: list[str]) -> Any:
    kind = shape.type_name
    try:
        if isinstance(value, (dict, list)):
            raise ValueError(value)
        if kind in ("integer", "long"):
            number = float(value)
            if number != int(number):
                raise ValueError(value)
            return int(number)
        if kind in ("double", "float"):
            return float(value)
        if kind == "boolean":
            return {"true": True, "false": False}[str(value).lower()]
    except (KeyError, TypeError, ValueError):
        problems.append(f"{path}: expected type: {kind}, found: {json.dumps(value)}")
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


def _json_type(value: Any) -> str:
    if isinstance(value, Mapping):
        return "JSONObject"
    return "JSONArray" if isinstance(value, list) else type(value).__name__
