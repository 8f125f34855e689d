"""The model server of an emulated SageMaker endpoint: one process, one loaded model.

It unpacks a ``model.tar.gz`` into ``$SAGEMAKER_BASE_DIR/model``, loads it with the classes of
AWS's own serving toolkit (``sagemaker-pytorch-inference``) and answers /ping and /invocations as
TorchServe does in the PyTorch image, by any method. It listens only once the model is loaded, so
that a ping tells the truth. When the other end of its standard input closes, it ends.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import sys
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

# TorchServe's limit in the image; SageMaker's own, for the whole request, is a little lower.
MAX_REQUEST_BYTES = int(os.environ.get("TS_MAX_REQUEST_SIZE", "6553500"))
HEALTHY = b'{\n  "status": "Healthy"\n}\n'
NOT_FOUND = b"""{
  "code": 404,
  "type": "ResourceNotFoundException",
  "message": "Requested resource is not found, please refer to API document."
}
"""
BAD_ARCHIVE = 65  # EX_DATAERR
BAD_MODEL = 1
_LINGER_SECONDS = 1


def main() -> int:
    """Load, then serve until the parent is gone; returns an exit status only on failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--archive", type=Path, required=True, help="the model.tar.gz to serve")
    parser.add_argument(
        "--socket", type=int, required=True, help="file descriptor of a bound TCP socket"
    )
    arguments = parser.parse_args()
    _end_with_parent()
    model_directory = Path(os.environ["SAGEMAKER_BASE_DIR"]) / "model"
    try:
        unpack(arguments.archive, model_directory)
    except (OSError, EOFError, tarfile.TarError) as error:
        return _failed(f"cannot unpack {arguments.archive.name}", error, BAD_ARCHIVE)
    # The image has this folder on PYTHONPATH.
    sys.path.insert(0, str(model_directory / "code"))
    try:
        model = Model(model_directory)
    except Exception as error:
        return _failed("cannot load the model", error, BAD_MODEL)
    with socket.socket(fileno=arguments.socket) as listener:
        serve(model, listener)
    return 0


def unpack(archive: Path, directory: Path) -> None:
    """Unpack a gzipped tar; links and names that lead out of the directory are refused."""
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "r:gz") as tar:
        tar.extractall(directory, filter="data")


class _Context:
    """What TorchServe hands to the toolkit with a request, and takes back from it.

    It is one object for all requests, as TorchServe's is: handlers keep the one they load with.
    """

    def __init__(self, model_directory: Path) -> None:
        self.model_name = "model"
        self.system_properties = {"model_dir": str(model_directory)}
        self.request_processor = [self]
        self.begin({})

    def begin(self, headers: dict[str, str]) -> None:
        """Forget the request before this one."""
        self._headers = headers
        self.status = 200
        self.content_type = "text/plain"

    def get_request_properties(self) -> dict[str, str]:
        return self._headers

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        self.status = code

    def set_response_content_type(self, idx: int, value: str) -> None:
        self.content_type = value


class Model:
    """A package loaded by its own ``model_fn``.

    Raises:
        Exception: whatever the package's code raises.
    """

    def __init__(self, directory: Path) -> None:
        from sagemaker_inference.transformer import (  # type: ignore[import-not-found,unused-ignore]
            Transformer,
        )
        from sagemaker_pytorch_serving_container.default_pytorch_inference_handler import (  # type: ignore[import-not-found,unused-ignore]
            DefaultPytorchInferenceHandler,
        )

        # One request at a time, as one worker of the image.
        self._lock = threading.Lock()
        self._context = _Context(directory)
        self._transformer = Transformer(default_inference_handler=DefaultPytorchInferenceHandler())
        self._transformer.validate_and_initialize(model_dir=str(directory), context=self._context)

    def answer(self, body: bytes, headers: dict[str, str]) -> tuple[int, str, bytes]:
        """Status, content type and body for one invocation."""
        with self._lock:
            self._context.begin(headers)
            result = self._transformer.transform([{"body": body}], self._context)[0]
            return self._context.status, self._context.content_type, _encoded(result)


def _encoded(result: Any) -> bytes:
    if isinstance(result, (bytes, bytearray)):
        return bytes(result)
    return (result if isinstance(result, str) else json.dumps(result)).encode()


class _Handler(BaseHTTPRequestHandler):
    model: ClassVar[Model]
    protocol_version = "HTTP/1.1"
    # Without these two each answer waits some 40 ms for the client's delayed acknowledgement.
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "0")
        path = self.path.partition("?")[0].rstrip("/")
        if "Transfer-Encoding" in self.headers:
            self.close_connection = True
            self._send(411)
        elif not length.isdecimal():
            self.close_connection = True
            self._send(400)
        elif int(length) > MAX_REQUEST_BYTES:
            self.close_connection = True
            self._send(413)
            self._drop(int(length))
        else:
            body = self.rfile.read(int(length))
            if path == "/invocations":
                self._send(*self.model.answer(body, dict(self.headers.items())))
            elif path == "/ping":
                self._send(200, "application/json", HEALTHY)
            else:
                self._send(404, "application/json", NOT_FOUND)

    do_GET = do_PUT = do_DELETE = do_POST

    def _send(self, status: int, content_type: str = "", body: bytes = b"") -> None:
        self.send_response(status)
        if content_type:
            self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _drop(self, length: int) -> None:
        """Take what the client still sends: it reads no answer before it is through."""
        self.connection.settimeout(_LINGER_SECONDS)
        with contextlib.suppress(OSError):
            while length > 0 and (block := self.rfile.read1(min(length, 1 << 16))):
                length -= len(block)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Pings come many times a second: they are not logged."""
        if not self.path.startswith("/ping"):
            super().log_message(format, *arguments)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def serve(model: Model, listener: socket.socket) -> None:
    """Listen on a bound socket and answer for ever."""
    handler = type("Handler", (_Handler,), {"model": model})
    server = _Server(listener.getsockname(), handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.server_activate()
    print(f"the model is loaded; serving on port {listener.getsockname()[1]}", flush=True)
    server.serve_forever()


def _failed(what: str, error: BaseException, status: int) -> int:
    said = " ".join(str(error).split())
    print(f"{what}: {type(error).__name__}: {said}", file=sys.stderr, flush=True)
    return status


def _end_with_parent() -> None:
    """End this process and its children once the parent's end of standard input closes."""
    pipe = os.dup(0)
    # The package's own code reads nothing, and its children do not hold the pipe.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def watch() -> None:
        while os.read(pipe, 1024):
            pass
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
