"""The model server: one process that loads one package and answers as the PyTorch image does."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.hosting import ROOT, SERVER_PYTHON, packed

pytestmark = pytest.mark.emulator

PROGRAM = """
from sagemaker_inference.errors import GenericInferenceToolkitError

def model_fn(folder):
    return folder

def input_fn(body, kind):
    if kind == "text/refuse":
        raise GenericInferenceToolkitError(415, "send something else")
    return body if isinstance(body, bytes) else body.encode()

def predict_fn(data, folder):
    return data

def output_fn(data, accept):
    if accept == "application/x-list":
        return ["a", 1], accept
    return data, accept
"""


class Server:
    """A model server process with our end of its standard input."""

    def __init__(self, folder: Path, files: Mapping[str, str] | bytes) -> None:
        archive = folder / "model.tar.gz"
        archive.write_bytes(files if isinstance(files, bytes) else packed(files))
        self.log = folder / "log"
        with socket.socket() as listener, self.log.open("wb") as log:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]
            script = ROOT / "operations" / "emulator" / "model_server.py"
            given = ["--archive", str(archive), "--socket", str(listener.fileno())]
            self.process = subprocess.Popen(
                [str(SERVER_PYTHON), "-P", str(script), *given],
                env={"SAGEMAKER_BASE_DIR": str(folder), "PATH": os.environ["PATH"]},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(listener.fileno(),),
                start_new_session=True,
            )

    def ready(self) -> Server:
        while self.process.poll() is None:
            with contextlib.suppress(ConnectionRefusedError):
                self.ask("GET", "/ping")
                return self
            time.sleep(0.05)
        raise AssertionError(self.log.read_text())

    def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, str, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request(
                method, path, body, {name.replace("_", "-"): text for name, text in headers.items()}
            )
            response = connection.getresponse()
            return response.status, response.getheader("Content-Type", ""), response.read()

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[Mapping[str, str] | bytes], Server]]:
    servers: list[Server] = []

    def begin(files: Mapping[str, str] | bytes) -> Server:
        servers.append(Server(tmp_path, files))
        return servers[-1]

    yield begin
    for server in servers:
        server.end()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("server"), {"code/inference.py": PROGRAM}).ready()
    yield made
    made.end()


@pytest.mark.case("M09")
def test_a_ping_is_refused_until_the_model_is_loaded(
    start: Callable[[Mapping[str, str]], Server], tmp_path: Path
) -> None:
    go_on = tmp_path / "go on"
    slow = (
        "import os, time\n"
        "def model_fn(folder):\n"
        f"    open({str(tmp_path / 'loading')!r}, 'w').close()\n"
        f"    while not os.path.exists({str(go_on)!r}): time.sleep(0.02)\n"
    )
    server = start({"code/inference.py": slow})
    while not (tmp_path / "loading").exists():
        assert server.process.poll() is None, server.log.read_text()
        time.sleep(0.02)
    with pytest.raises(ConnectionRefusedError):
        server.ask("GET", "/ping")
    go_on.touch()
    status, content_type, body = server.ready().ask("GET", "/ping")
    assert (status, content_type) == (200, "application/json")
    assert b"Healthy" in body


def test_an_invocation_runs_the_four_functions(server: Server) -> None:
    answer = server.ask("POST", "/invocations", b"abc", Content_Type="text/plain", Accept="text/x")
    assert answer == (200, "text/x", b"abc")
    assert server.ask("POST", "/invocations", b"abc", Content_Type="application/json") == (
        200,
        "application/json",
        b"abc",
    )
    listed = server.ask("POST", "/invocations", b"", Accept="application/x-list")
    assert listed == (200, "application/x-list", b'["a", 1]')


def test_an_error_of_the_package_keeps_its_status(server: Server) -> None:
    status, content_type, body = server.ask(
        "POST", "/invocations", b"abc", Content_Type="text/refuse"
    )
    assert (status, content_type) == (415, "text/plain")
    assert body.startswith(b"send something else\nTraceback")


def test_text_that_is_no_utf_8_is_an_error_before_the_package(server: Server) -> None:
    answer = server.ask("POST", "/invocations", b"\xff", Content_Type="application/json")
    assert answer[0] == 500
    assert b"'utf-8' codec can't decode byte 0xff" in answer[2]


@pytest.mark.case("M20")
def test_a_body_may_be_as_large_as_the_image_allows(server: Server) -> None:
    assert server.ask("POST", "/invocations", bytes(6_553_500))[0] == 200
    with contextlib.closing(socket.create_connection(("127.0.0.1", server.port))) as raw:
        raw.sendall(b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: 6553501\r\n\r\n")
        answer = raw.recv(4096)
    assert answer.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/nope", {}, 404),
        ("POST", "/", {}, 404),
        ("POST", "/invocations", {"Content_Length": "-1"}, 400),
        ("POST", "/invocations", {"Content_Length": "x"}, 400),
        ("POST", "/invocations", {"Transfer_Encoding": "chunked"}, 411),
        ("PATCH", "/ping", {}, 501),
    ],
)
def test_other_requests_are_refused(
    server: Server, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    assert server.ask(method, path, None, **headers)[0] == status


GONE = "No module named 'sagemaker'"
BAD: dict[str, tuple[Mapping[str, str] | bytes, int, str]] = {
    "model_fn raises": (
        {"code/inference.py": "def model_fn(folder):\n    raise ValueError('no\\n  weights')\n"},
        1,
        "cannot load the model: ValueError: no weights\n",
    ),
    "a syntax error": (
        {"code/inference.py": "def model_fn(folder) return 1\n"},
        1,
        "cannot load the model: SyntaxError: expected ':' (inference.py, line 1)\n",
    ),
    "no program": (
        {"config.json": "{}"},
        1,
        "cannot load the model: ValueError: Exactly one .pth or .pt file is required for PyTorch "
        "models: []\n",
    ),
    "a folder around everything": (
        {"model/code/inference.py": PROGRAM},
        1,
        "cannot load the model: ValueError: Exactly one .pth or .pt file is required for PyTorch "
        "models: []\n",
    ),
    "a module of the server's folder": (
        {"code/inference.py": "import sagemaker\n"},
        1,
        f"cannot load the model: ModuleNotFoundError: {GONE}\n",
    ),
    "no archive": (b"hello", 65, "cannot unpack model.tar.gz: ReadError: not a gzip file\n"),
    "a name that leads out": (
        packed({"../../outside": ""}),
        65,
        "cannot unpack model.tar.gz: OutsideDestinationError: '../../outside' would be extracted",
    ),
}


@pytest.mark.case("M06")
@pytest.mark.parametrize("title", BAD)
def test_a_package_that_does_not_load_ends_the_server_with_one_line(
    start: Callable[[Mapping[str, str] | bytes], Server], title: str
) -> None:
    files, status, line = BAD[title]
    server = start(files)
    assert server.process.wait(timeout=120) == status
    said = server.log.read_text()
    assert said.startswith(line)
    assert said.count("\n") == 1


def test_the_end_of_the_parent_ends_a_server_that_loads_and_its_children(
    start: Callable[[Mapping[str, str]], Server], tmp_path: Path
) -> None:
    pid_file = tmp_path / "child"
    program = (
        "import os, subprocess, time\n"
        "def model_fn(folder):\n"
        "    child = subprocess.Popen(['sleep', '600'])\n"
        f"    with open({str(pid_file) + '.part'!r}, 'w') as f: f.write(str(child.pid))\n"
        f"    os.rename({str(pid_file) + '.part'!r}, {str(pid_file)!r})\n"
        "    time.sleep(600)\n"
    )
    server = start({"code/inference.py": program})
    while not pid_file.exists():
        assert server.process.poll() is None, server.log.read_text()
        time.sleep(0.02)
    server.end()
    assert not running(int(pid_file.read_text()))


def running(pid: int) -> bool:
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return bool(state) and not state.startswith("Z")
