"""What the launcher tells the server, and the environment that MiniStack reads when imported."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """The server's settings.

    Attributes:
        region: Region of requests that name none.
        account: Account id, 12 digits.
        work_directory: Folder for everything that the server writes.
        model_server_python: Interpreter of the model servers behind SageMaker endpoints.
        settle_seconds: How long a slow resource stays in its `...ing` state.
        announcement: File that the server writes its URL to once it listens.
        enforce_iam: Whether a role may do no more than its policies say, over HTTPS.
    """

    region: str
    account: str
    work_directory: Path
    model_server_python: Path
    settle_seconds: float
    announcement: Path
    enforce_iam: bool


def parse(arguments: list[str]) -> Settings:
    """Read the settings from the command line."""
    parser = argparse.ArgumentParser(prog="operations.emulator.server")
    parser.add_argument("--region", required=True)
    parser.add_argument("--account", required=True)
    parser.add_argument("--work-directory", type=Path, required=True)
    parser.add_argument("--model-server-python", type=Path, required=True)
    parser.add_argument("--settle-seconds", type=float, required=True)
    parser.add_argument("--announcement", type=Path, required=True)
    parser.add_argument("--enforce-iam", action="store_true")
    return Settings(**vars(parser.parse_args(arguments)))


def prepare_environment(settings: Settings, *, port: int) -> None:
    """Set what MiniStack and moto read at import time; call it before importing either.

    Only the loopback address is bound, nothing is kept on disk beyond the work folder, and no
    Docker daemon is ever asked, even where the machine has one.
    """
    scratch = settings.work_directory / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    os.environ.update(
        {
            "GATEWAY_PORT": str(port),
            "BIND_HOST": "127.0.0.1",
            "MINISTACK_HOST": "127.0.0.1",
            "MINISTACK_REGION": settings.region,
            "MINISTACK_ACCOUNT_ID": settings.account,
            "MOTO_ACCOUNT_ID": settings.account,
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
            "LAMBDA_EXECUTOR": "local",
            "S3_PERSIST": "0",
            "TMPDIR": str(scratch),
            "DOCKER_HOST": f"unix://{scratch / 'no-docker.sock'}",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_DEFAULT_REGION": settings.region,
            "AUTH": str(settings.enforce_iam).lower(),
        }
    )
