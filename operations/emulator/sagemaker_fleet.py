"""The instances behind one endpoint variant: here one real model server process."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# The real service gives a container this long to answer.
# https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_runtime_InvokeEndpoint.html
ANSWER_SECONDS = 60.0
_PING_SECONDS = 2.0
_BETWEEN_PINGS_SECONDS = 0.1
# The model server's exit status for an archive that cannot be unpacked (EX_DATAERR).
BAD_ARCHIVE = 65
_MODEL_SERVER = Path(__file__).with_name("model_server.py")
_INHERITED = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR")


@dataclass(frozen=True)
class Answer:
    """What a container answered to one request."""

    status: int
    content_type: str
    body: bytes


class Fleet:
    """One model server process, from start to end.

    Args:
        python: the interpreter that has the serving packages.
        directory: the container's own folder; removed when the fleet ends.
        log: the file that takes what the container writes.
        environment: the container's environment variables.
    """

    def __init__(
        self, *, python: Path, directory: Path, log: Path, environment: Mapping[str, str]
    ) -> None:
        self.log = log
        self._python = python
        self._directory = directory
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._idle = threading.Condition()
        self._in_flight = 0
        self._stopped = False

    def start(self, archive: bytes | Path) -> None:
        """Start the process; it unpacks the archive and loads the model on its own time."""
        self._directory.mkdir(parents=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(archive, bytes):
            path = self._directory / "model.tar.gz"
            path.write_bytes(archive)
            archive = path
        # The socket is bound here and only listens once the model is loaded: no other
        # process can take the port in between, and /ping is refused until then.
        with socket.socket() as listener, self.log.open("wb") as log:
            listener.bind(("127.0.0.1", 0))
            self._port = listener.getsockname()[1]
            command = [str(self._python), "-P", "-u", str(_MODEL_SERVER)]
            command += ["--archive", str(archive.absolute()), "--socket", str(listener.fileno())]
            with self._idle:
                if self._stopped:
                    return
                self._process = subprocess.Popen(
                    command,
                    env=self._container_environment(),
                    cwd=self._directory,
                    stdin=subprocess.PIPE,  # its end tells the server that this process is gone
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(listener.fileno(),),
                    start_new_session=True,
                )

    def becomes_healthy(self, *, limit_seconds: float, cancelled: threading.Event) -> bool:
        """Wait for the first good ping; False if it ends, is late, or the wait is cancelled."""
        end = time.monotonic() + limit_seconds
        while time.monotonic() < end and self.exit_status() is None:
            if self._ping():
                return True
            if cancelled.wait(_BETWEEN_PINGS_SECONDS):
                break
        return False

    def exit_status(self) -> int | None:
        """The process's exit status, None while it runs."""
        process = self._process
        if process is None:
            return None
        if process.returncode is None and process.poll() is not None:
            _end_group(process.pid)  # what it had started
        return process.returncode

    def enter(self) -> None:
        """Announce a request, so that the process outlives it."""
        with self._idle:
            self._in_flight += 1

    def leave(self) -> None:
        """End what ``enter`` announced."""
        with self._idle:
            self._in_flight -= 1
            self._idle.notify_all()

    def invoke(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Hand one request to ``/invocations``.

        Raises:
            TimeoutError: no answer within 60 s.
            OSError: the process is gone.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_SECONDS)
        with contextlib.closing(connection):
            try:
                connection.request("POST", "/invocations", body=body, headers=dict(headers))
                response = connection.getresponse()
                content_type = response.getheader("Content-Type") or ""
                return Answer(response.status, content_type, response.read())
            except http.client.HTTPException as error:
                raise ConnectionError(f"the container broke off its answer: {error!r}") from error

    def drain(self) -> None:
        """Wait for the requests under way, then end the process."""
        with self._idle:
            self._idle.wait_for(
                lambda: self._in_flight == 0 or self._stopped, timeout=ANSWER_SECONDS
            )
        self.stop()

    def stop(self) -> None:
        """End the process and all that it started, now; may be called again."""
        with self._idle:
            self._stopped = True
            self._idle.notify_all()
            process, self._process = self._process, None
        if process is not None:
            # Once waited for, its id may be that of another process.
            if process.returncode is None:
                _end_group(process.pid)
                process.wait()
            if process.stdin:
                process.stdin.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _ping(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_PING_SECONDS)
        with contextlib.closing(connection):
            try:
                connection.request("GET", "/ping")
                return connection.getresponse().status == http.client.OK
            except (OSError, http.client.HTTPException):
                return False

    def _container_environment(self) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        return {
            **inherited,
            "OMP_NUM_THREADS": "1",
            "HOME": str(self._directory),
            **self._environment,
            "SAGEMAKER_BASE_DIR": str(self._directory),
            "SAGEMAKER_BIND_TO_PORT": str(self._port),
        }


def _end_group(process_id: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process_id, signal.SIGKILL)
