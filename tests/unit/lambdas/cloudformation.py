"""CloudFormation as a custom resource's function sees it: a request, and where it answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

STACK = "arn:aws:cloudformation:us-west-2:111122223333:stack/uc-dev-cluster/1"


@contextmanager
def answers() -> Iterator[tuple[str, list[bytes]]]:
    """A response address, and the bodies that were put there."""
    received: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/answer", received
        finally:
            server.shutdown()
            thread.join()


def request(kind: str, url: str, properties: dict[str, Any], **rest: str) -> dict[str, Any]:
    return {
        "RequestType": kind,
        "RequestId": "request",
        "StackId": STACK,
        "LogicalResourceId": "Resource",
        "ResponseURL": url,
        "ResourceProperties": properties,
        **rest,
    }


def only(received: list[bytes]) -> dict[str, Any]:
    """The one answer, which must be short enough for CloudFormation."""
    (body,) = received
    assert len(body) < 4096
    answer: dict[str, Any] = json.loads(body)
    assert {answer[name] for name in ("RequestId", "LogicalResourceId")} == {"request", "Resource"}
    assert answer["StackId"] == STACK
    return answer


def looks(client: Any, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The events with which a function calls itself by its Lambda client, as they come."""
    sent: list[dict[str, Any]] = []
    real = client.invoke

    def invoke(**given: Any) -> Any:
        sent.append(json.loads(given["Payload"]))
        return real(**given)

    monkeypatch.setattr(client, "invoke", invoke)
    return sent
