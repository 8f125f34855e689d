"""Processes that serve an unpacked model over HTTP: TorchServe, and the rehearsal's own server."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TORCHSERVE = ROOT / ".venv-torchserve"
OWN = ROOT / "operations" / "emulator" / "model_server.py"
PATIENCE_SECONDS = 60


def missing() -> str | None:
    """Why TorchServe cannot run here; None where it can."""
    if not (TORCHSERVE / "ts").is_dir():
        return "TorchServe is not installed: `make test-torchserve` does it, and runs these tests"
    if shutil.which("java") is None:
        return "TorchServe needs Java, and there is none: install a JRE of 17 or newer"
    return None


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a server answered."""

    status: int
    content_type: str | None
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Server:
    """A process in a session of its own, the port it serves on and its log."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return Reply(
                status=answer.status,
                content_type=answer.getheader("content-type"),
                body=answer.read(),
            )

    def ping(self) -> int | None:
        """The status of a ping, None where nobody listens."""
        with contextlib.suppress(ConnectionError):
            return self.ask("GET", "/ping").status
        return None

    def until_healthy(self) -> Server:
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            if self.ping() == 200:
                return self
            time.sleep(0.1)
        raise AssertionError(self.log.read_text(errors="replace"))


@contextlib.contextmanager
def own(archive: Path, folder: Path) -> Iterator[Server]:
    """The server of the emulated account."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        descriptor = listener.fileno()
        command = [sys.executable, "-P", str(OWN), "--archive", str(archive)]
        command += ["--socket", str(descriptor)]
        with _running(command, folder, listener.getsockname()[1], {}, (descriptor,)) as server:
            yield server


@contextlib.contextmanager
def torchserve(archive: Path, folder: Path) -> Iterator[Server]:
    """TorchServe behind the toolkit, as the serving image's entry point starts it."""
    model = folder / "model"
    model.mkdir()
    shutil.unpack_archive(archive, model, "gztar")
    port, *others = _free_ports(4)
    environment = {
        "PATH": os.pathsep.join(
            [str(Path(sys.executable).parent), str(TORCHSERVE / "bin"), os.environ["PATH"]]
        ),
        "PYTHONPATH": str(TORCHSERVE),
        "SAGEMAKER_PROGRAM": "inference.py",
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "SAGEMAKER_MODEL_SERVER_WORKERS": "1",
        "TS_GRPC_INFERENCE_PORT": str(others[0]),
        "TS_GRPC_MANAGEMENT_PORT": str(others[1]),
        "TS_METRICS_ADDRESS": f"http://127.0.0.1:{others[2]}",
    }
    script = Path(__file__).with_name("run_torchserve.py")
    command = [sys.executable, str(script), str(folder / "ts.properties")]
    with _running(command, folder, port, environment, ()) as server:
        yield server


@contextlib.contextmanager
def _running(
    command: list[str],
    folder: Path,
    port: int,
    environment: dict[str, str],
    descriptors: tuple[int, ...],
) -> Iterator[Server]:
    log = folder / "log"
    given = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "TEMP": str(folder),
        "TMPDIR": str(folder),
        "SAGEMAKER_BASE_DIR": str(folder),
        "OMP_NUM_THREADS": "1",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=given | environment,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=descriptors,
            start_new_session=True,
        )
    try:
        yield Server(process=process, port=port, log=log)
    finally:
        # The whole session: of TorchServe, Java and its workers are in it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
