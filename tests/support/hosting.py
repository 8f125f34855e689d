"""SageMaker hosting driven directly: a bucket of archives, and what tests say often in short."""

from __future__ import annotations

import io
import subprocess
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operations.emulator.sagemaker import InvokeResult, SageMaker

ROOT = Path(__file__).parents[2]
SERVER_PYTHON = ROOT / ".venv-training" / "bin" / "python"

# A model that answers its own WORD, and does as it is asked.
PROGRAM = """
import os, time

def model_fn(folder):
    if os.environ.get("FAIL"):
        raise RuntimeError("the weights\\n  are torn")
    time.sleep(float(os.environ.get("LOAD_SECONDS", "0")))
    return os.environ["WORD"]

def input_fn(body, kind):
    return body

def predict_fn(data, word):
    if data == b"end yourself":
        os._exit(3)
    if data == b"fail":
        raise ValueError("no such thing")
    if data.startswith(b"wait for "):
        while not os.path.exists(data[9:]):
            time.sleep(0.02)
    return word

def output_fn(word, accept):
    return word, "text/plain"
"""


def packed(files: Mapping[str, str]) -> bytes:
    """A gzipped tar of these files."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return target.getvalue()


class Hosting:
    """One account's SageMaker over processes of this machine."""

    def __init__(
        self, folder: Path, *, startup_seconds: float = 60.0, server_python: Path = SERVER_PYTHON
    ) -> None:
        self.folder = folder
        self.objects: dict[str, bytes | Path] = {
            "s3://models/model.tar.gz": packed({"code/inference.py": PROGRAM})
        }
        self.ringing: list[str] = []
        self.scaled: set[str] = set()
        self.service = SageMaker(
            region="us-west-2",
            account="000000000000",
            work_directory=folder,
            server_python=server_python,
            store=self.objects.__setitem__,
            scaled=self.scaled.__contains__,
            fetch=self._fetch,
            settle_seconds=0.5,
            startup_seconds=startup_seconds,
            ringing=lambda alarms: [name for name in self.ringing if name in alarms],
        )

    def _fetch(self, url: str) -> bytes | Path:
        if url not in self.objects:
            raise FileNotFoundError(url)
        return self.objects[url]

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        return self.service.call(operation, request)

    def release(
        self,
        name: str,
        *,
        url: str = "s3://models/model.tar.gz",
        count: int = 1,
        instance_type: str = "ml.c7g.4xlarge",
        capture: Mapping[str, Any] | None = None,
        **variables: str,
    ) -> None:
        """Make a model and a configuration of this name; WORD is the name unless given."""
        self.call(
            "CreateModel",
            ModelName=name,
            PrimaryContainer={
                "Image": "image",
                "ModelDataUrl": url,
                "Environment": {"WORD": name, **variables},
            },
            ExecutionRoleArn="arn:aws:iam::000000000000:role/execution",
        )
        variant = {
            "VariantName": "main",
            "ModelName": name,
            "InstanceType": instance_type,
            "InitialInstanceCount": count,
        }
        self.call(
            "CreateEndpointConfig",
            EndpointConfigName=name,
            ProductionVariants=[variant],
            DataCaptureConfig=capture,
        )

    def create(self, release: str) -> None:
        self.call("CreateEndpoint", EndpointName="endpoint", EndpointConfigName=release)

    def update(self, release: str, **rest: Any) -> None:
        self.call("UpdateEndpoint", EndpointName="endpoint", EndpointConfigName=release, **rest)

    def describe(self) -> dict[str, Any]:
        return self.call("DescribeEndpoint", EndpointName="endpoint")

    def passes(self) -> list[str]:
        """Wait until the endpoint has settled; the states that were seen."""
        seen: list[str] = []
        while True:
            status = self.describe()["EndpointStatus"]
            if status not in seen:
                seen.append(status)
            if status in ("InService", "Failed"):
                return seen
            time.sleep(0.02)

    def invoke(self, body: bytes = b"", content_type: str = "text/plain") -> InvokeResult:
        return self.service.invoke("endpoint", body, content_type, None)

    def servers(self) -> list[int]:
        """Ids of the processes that run in this service's folder."""
        return processes_of(self.folder)


def processes_of(folder: Path) -> list[int]:
    """Ids of the processes whose command names this folder."""
    listed = subprocess.run(
        ["ps", "-eww", "-o", "pid=,args="], capture_output=True, text=True, check=True
    ).stdout
    lines = [line.split(None, 1) for line in listed.splitlines()]
    return [
        int(pid)
        for pid, command in lines
        if "model_server.py" in command and str(folder) in command
    ]


def make_packages(folder: Path, *labels: str) -> list[Path]:
    """Real packages: tiny random RoBERTas, each of which always answers its label."""
    script = Path(__file__).with_name("make_package.py")
    ended = subprocess.run(
        [SERVER_PYTHON, script, folder, *labels], capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise RuntimeError(f"{script.name} ended with status {ended.returncode}: {ended.stderr}")
    return [folder / f"{label}.tar.gz" for label in labels]
