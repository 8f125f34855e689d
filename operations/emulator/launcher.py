"""Start and end the emulated AWS account."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from operations.emulator import parallelcluster
from operations.processes import Child

ROOT = Path(__file__).parents[2]
ACCOUNT = "000000000000"

_PYTHON = ROOT / ".venv-emulator" / "bin" / "python"
_START_SECONDS = 120.0
_GRACE_SECONDS = 2.0
_LAST_LINES = 15
_NEEDED_BYTES = 200 * 2**20
# Unpacked functions and models; the logs beside them stay.
_BULK = ("scratch", "sagemaker/*/containers", "sagemaker/*/downloads")


def _misleads(variable: str) -> bool:
    """Whether a variable of the user could lead a child away from this account or checkout."""
    return (
        variable.startswith("AWS_")
        or variable.lower().endswith("_proxy")
        or variable in ("PYTHONHOME", "PYTHONPATH", "PYTHONSAFEPATH")
    )


class EmulatorError(Exception):
    """The emulated account cannot be started, or has ended; the message says what to do."""


class Emulator:
    """An emulated AWS account on a free port of the loopback interface, as a context manager.

    Everything is gone when the context is left, and when this process is killed: the server, the
    Lambda workers and the model servers. Only the logs stay.

    Attributes:
        log: What the server wrote.
        stack_calls: The calls that CloudFormation made for stacks, each a line of JSON with the
            service, the operation and the request; a service role is held against them.
        region: Region of the clients and of `environment()`.
    """

    def __init__(
        self,
        *,
        run_directory: Path,
        model_server_python: Path,
        settle_seconds: float = 1.0,
        region: str = "us-west-2",
        enforce_iam: bool = False,
    ) -> None:
        """Describe the account; it starts when the context is entered.

        Args:
            run_directory: Folder for the log and for everything that the server writes.
            model_server_python: Interpreter that runs the model servers of SageMaker endpoints.
            settle_seconds: How long a slow resource stays in its `...ing` state.
            region: The region to work in.
            enforce_iam: Whether a role may do no more than its policies say; over HTTPS then.
        """
        self._run_directory = run_directory.absolute()
        self._model_server_python = model_server_python.absolute()
        self._settle_seconds = settle_seconds
        self._server: Child | None = None
        self._url = ""
        self._lock = threading.Lock()
        self._session = _session()
        self._enforce_iam = enforce_iam
        self.region = region
        self.log = self._run_directory / "emulator.log"
        self.stack_calls = self._run_directory / "cloudformation-calls.jsonl"

    @property
    def url(self) -> str:
        """Endpoint of every service.

        Raises:
            EmulatorError: The account was never started, or its server has ended.
        """
        if self._server is None:
            raise EmulatorError("the emulated account is not running: use it as a context manager")
        self._check()
        return self._url

    @property
    def _certificate(self) -> Path:
        return self._run_directory / "certificate.pem"

    def environment(self) -> dict[str, str]:
        """The whole environment of a process that is to see this account and no other.

        It is ours without any AWS setting of the user (profiles, keys, files), without proxies,
        which know no 127.0.0.1, and without what sends Python elsewhere; plus the account's.
        """
        kept = {name: value for name, value in os.environ.items() if not _misleads(name)}
        if self._enforce_iam:
            trusted = str(self._certificate)
            kept |= {"AWS_CA_BUNDLE": trusted, "NODE_EXTRA_CA_CERTS": trusted}
        return {
            **kept,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "CDK_DEFAULT_ACCOUNT": ACCOUNT,
            "CDK_DEFAULT_REGION": self.region,
            "CDK_DISABLE_VERSION_CHECK": "1",
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "CI": "1",
        }

    def client(self, service: str) -> Any:
        """A boto3 client of one service of the account."""
        with self._lock:  # a session makes one client at a time
            return self._session.client(
                service,
                region_name=self.region,
                endpoint_url=self.url,
                verify=str(self._certificate) if self._enforce_iam else None,
                aws_access_key_id="test",
                aws_secret_access_key="test",  # noqa: S106
                config=Config(
                    s3={"addressing_style": "path"},
                    retries={"total_max_attempts": 1},
                    proxies={},  # not even those of the user's environment
                ),
            )

    def __enter__(self) -> Self:
        """Start the server and wait until it answers.

        Raises:
            EmulatorError: It cannot be started.
        """
        for python, purpose in (
            (_PYTHON, "the emulator"),
            (self._model_server_python, "model servers"),
        ):
            if not python.exists():
                raise EmulatorError(f"no python for {purpose} at {python}: run `make setup`")
        announcement = self._run_directory / "emulator.url"
        try:
            self._run_directory.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self._run_directory).free
            if free < _NEEDED_BYTES:
                raise EmulatorError(
                    f"{free / 2**20:.0f} MiB free at {self._run_directory}, the emulated account "
                    f"needs {_NEEDED_BYTES / 2**20:.0f} MiB: make room"
                )
            announcement.unlink(missing_ok=True)
            self._server = Child(
                self._command(announcement),
                log=self.log,
                env=self._server_environment(),
                cwd=ROOT,
                grace_seconds=_GRACE_SECONDS,
            )
        except OSError as error:
            raise EmulatorError(f"cannot write to {self._run_directory}: {error}") from error
        try:
            self._wait_for(announcement)
            parallelcluster.seed(self.client("s3"), self.region)
        except (BotoCoreError, ClientError) as error:
            self.close()
            raise EmulatorError(
                f"the emulated account does not answer: {error}{self._tail()}"
            ) from error
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the server and all that it started."""
        self.close()

    def close(self) -> None:
        """End the server and all that it started; does nothing the second time."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for bulk in _BULK:
            for folder in self._run_directory.glob(bulk):
                shutil.rmtree(folder, ignore_errors=True)

    def _command(self, announcement: Path) -> list[str | Path]:
        return [
            _PYTHON, "-m", "operations.emulator.server",
            "--region", self.region,
            "--account", ACCOUNT,
            "--work-directory", self._run_directory,
            "--model-server-python", self._model_server_python,
            "--settle-seconds", str(self._settle_seconds),
            "--announcement", announcement,
            *(["--enforce-iam"] if self._enforce_iam else []),
        ]  # fmt: skip

    def _server_environment(self) -> dict[str, str]:
        """What the server and, through it, Lambda functions and model servers get to see."""
        names = ("PATH", "HOME", "LANG", "LC_ALL", "SSL_CERT_FILE")
        return {
            **{name: os.environ[name] for name in names if name in os.environ},
            "NODE_PATH": str(ROOT / "node_modules"),
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def _wait_for(self, announcement: Path) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not announcement.exists():
            self._check()
            if time.monotonic() > deadline:
                raise EmulatorError(
                    f"the emulated account did not start in {_START_SECONDS:.0f} s{self._tail()}"
                )
            time.sleep(0.05)
        self._url = announcement.read_text(encoding="utf-8")

    def _check(self) -> None:
        status = None if self._server is None else self._server.exit_status
        if status is not None:
            raise EmulatorError(
                f"the emulated account has ended with status {status}{self._tail()}"
            )

    def _tail(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join((f"; the end of {self.log}:", *lines[-_LAST_LINES:]))


def _session() -> boto3.session.Session:
    """A session that knows nothing of the user's profiles and files."""
    unset = (None, None, None, None)
    nowhere = (None, None, os.devnull, None)
    return boto3.session.Session(
        botocore_session=botocore.session.Session(
            session_vars={
                "profile": unset,
                "use_fips_endpoint": unset,
                "use_dualstack_endpoint": unset,
                "config_file": nowhere,
                "credentials_file": nowhere,
            }
        )
    )
