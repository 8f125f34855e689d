"""Services that MiniStack does not have, put behind its port."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from botocore.validate import ParamValidator
from ministack import app
from ministack.core import iam_actions, router

Response = tuple[int, dict[str, str], bytes]
Query = dict[str, list[str]]


class Answer(Protocol):
    """What answers the requests of one service, on a worker thread."""

    def __call__(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, query: Query
    ) -> Response:
        """Answer one request."""


class ServiceError(Exception):
    """An error that a service answers with."""

    def __init__(self, code: str, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


def add_service(name: str, *, target_prefix: str, answer: Answer) -> None:
    """Route requests that are signed for `name`, or carry the target prefix, to `answer`."""

    async def handle(
        method: str, path: str, headers: dict[str, str], body: bytes | str, query: Query
    ) -> Response:
        content = body.encode() if isinstance(body, str) else body or b""
        return await asyncio.to_thread(answer, method, path, headers, content, query)

    app.SERVICE_HANDLERS[name] = handle
    # Under its own name, or a role would be allowed whatever it asks of the service.
    iam_actions.SERVICE_TO_IAM_NAMESPACE[name] = name
    router.SERVICE_PATTERNS[name] = {"target_prefixes": [target_prefix], "host_patterns": []}


def json_answer(content: Mapping[str, Any], *, status: int = 200) -> Response:
    """A response of AWS's JSON protocol; times become seconds since the epoch."""
    text = json.dumps(content, default=lambda moment: moment.timestamp())
    return status, {"Content-Type": "application/x-amz-json-1.1"}, text.encode()


def json_error(code: str, message: str, *, status: int = 400) -> Response:
    """An error of AWS's JSON protocol."""
    return json_answer({"__type": code, "message": message}, status=status)


def json_service(
    operations: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]], model: Any
) -> Answer:
    """Answer JSON-protocol requests from a table of operations, each request checked first.

    Args:
        operations: Operation name to what carries it out.
        model: botocore's service model, which says what a request may hold.
    """
    validator = ParamValidator()

    def answer(
        method: str, path: str, headers: Mapping[str, str], body: bytes, query: Query
    ) -> Response:
        name = headers.get("x-amz-target", "").rpartition(".")[2]
        operation = operations.get(name)
        if operation is None:
            return json_error("UnknownOperationException", f"the emulator has no {name}")
        request = json.loads(body or b"{}")
        report = validator.validate(request, model.operation_model(name).input_shape)
        if report.has_errors():
            return json_error("ValidationException", report.generate_report())
        try:
            return json_answer(operation(request))
        except ServiceError as error:
            return json_error(error.code, str(error), status=error.status)

    return answer
