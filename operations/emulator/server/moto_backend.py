"""moto in this process: its WSGI application called directly, with no second port."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from urllib.parse import urlencode

from moto.server import DomainDispatcherApplication, create_backend_app

from operations.emulator.server.gateway import Query, Response

_application = DomainDispatcherApplication(create_backend_app)
_HOP_BY_HOP = ("content-length", "connection", "transfer-encoding")


def answer(
    method: str, path: str, headers: Mapping[str, str], body: bytes, query: Query
) -> Response:
    """Have moto answer one request."""
    environ = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "QUERY_STRING": urlencode(query, doseq=True),
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": os.environ["GATEWAY_PORT"],
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": headers.get("content-type", ""),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in headers.items():
        if name not in ("content-type", "content-length"):
            environ[f"HTTP_{name.upper().replace('-', '_')}"] = value
    started: list[tuple[int, dict[str, str]]] = []

    def start_response(status: str, fields: list[tuple[str, str]], *_: object) -> None:
        kept = {name: value for name, value in fields if name.lower() not in _HOP_BY_HOP}
        started.append((int(status.split()[0]), kept))

    content = b"".join(_application(environ, start_response))
    status, response_headers = started[-1]
    return status, response_headers, content
