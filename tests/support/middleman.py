"""Stands between the Lambda functions and the emulated account, and breaks single calls."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

# Headers that belong to one connection only.
_OWN = ("connection", "transfer-encoding", "content-length")


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a function gets to see."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a function, on its way."""

    operation: str
    forward: Callable[[], Reply]
    kill: Callable[[], None]


Trouble = Callable[[Call], Reply | None]


def refusal(code: str, message: str) -> Reply:
    """An error in the words of CloudFormation."""
    body = f"<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Reply(
        status=400, headers={"Content-Type": "text/xml"}, body=f"{body}</ErrorResponse>".encode()
    )


class Middleman:
    """A proxy with one trouble at a time for the next call of an operation."""

    def __init__(self, account: str) -> None:
        self._account = urlparse(account)
        self._lock = threading.Lock()
        self._troubles: list[tuple[str, Trouble]] = []
        self.url = ""

    def at(self, operation: str, trouble: Trouble, *, times: int = 1) -> None:
        """Trouble for the next calls of an operation: what they get, or None for the truth."""
        with self._lock:
            self._troubles += [(operation, trouble)] * times

    def forget(self) -> None:
        """Let every call through."""
        with self._lock:
            self._troubles.clear()

    @property
    def pending(self) -> list[str]:
        """The operations whose trouble has not come."""
        return [operation for operation, _ in self._troubles]

    @contextlib.contextmanager
    def listening(self) -> Iterator[Middleman]:
        """Answer until the context is left."""
        answer = self._answer

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                reply = answer(self, body)
                if reply is None:
                    self.close_connection = True
                    return
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                if self.command != "HEAD" or "Content-Length" not in reply.headers:
                    self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            server.daemon_threads = True
            self.url = f"http://127.0.0.1:{server.server_port}"
            thread = threading.Thread(target=server.serve_forever, args=(0.05,))
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()

    def _answer(self, request: BaseHTTPRequestHandler, body: bytes) -> Reply | None:
        killed = threading.Event()

        def kill() -> None:
            killed.set()
            os.kill(_process_with(request.client_address[1]), signal.SIGKILL)

        call = Call(
            operation=_operation(request, body),
            forward=lambda: self._forward(request, body),
            kill=kill,
        )
        trouble = self._trouble(call.operation)
        reply = trouble(call) if trouble else None
        if killed.is_set():
            return None
        return reply or call.forward()

    def _trouble(self, operation: str) -> Trouble | None:
        with self._lock:
            for place, (name, trouble) in enumerate(self._troubles):
                if name == operation:
                    del self._troubles[place]
                    return trouble
        return None

    def _forward(self, request: BaseHTTPRequestHandler, body: bytes) -> Reply:
        assert self._account.hostname
        connection = http.client.HTTPConnection(
            self._account.hostname, self._account.port, timeout=120
        )
        with contextlib.closing(connection):
            connection.request(request.command, request.path, body, dict(request.headers))
            answer = connection.getresponse()
            content = answer.read()
            headers = {
                name: value
                for name, value in answer.getheaders()
                if name.lower() not in _OWN or request.command == "HEAD"
            }
            return Reply(status=answer.status, headers=headers, body=content)


def _operation(request: BaseHTTPRequestHandler, body: bytes) -> str:
    """The operation's name as boto3 has it, as far as the protocols say it."""
    if target := request.headers.get("X-Amz-Target"):
        return target.rpartition(".")[2]
    if request.path.endswith("/invocations"):
        return "InvokeEndpoint"
    if found := re.search(rb"(?:^|&)Action=(\w+)", body):
        return found[1].decode()
    return {"GET": "GetObject", "PUT": "PutObject", "HEAD": "HeadObject"}.get(request.command, "")


def _process_with(port: int) -> int:
    """Id of the process that has the local end of a connection."""
    mine = f"0100007F:{port:04X}"
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if fields[1] == mine:
            socket = f"socket:[{fields[9]}]"
            for handle in Path("/proc").glob("[0-9]*/fd/*"):
                with contextlib.suppress(OSError):
                    if str(handle.readlink()) == socket:
                        return int(handle.parts[2])
    raise AssertionError(f"no process has port {port}")
