"""The launcher: what it starts, what it hands out, how it fails, and that nothing outlives it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlparse

import pytest

from operations.emulator import Emulator, EmulatorError, launcher
from tests.emulator.conftest import ROOT

pytestmark = pytest.mark.emulator

MODEL_SERVER_PYTHON = ROOT / ".venv-training" / "bin" / "python"

# Starts an account in which a function has run and a model serves, says so, and waits.
STARTER = """
import io, sys, time, zipfile
from pathlib import Path
from operations.emulator import Emulator
from tests.emulator.conftest import model_archive

folder = Path(sys.argv[1])
code = io.BytesIO()
with zipfile.ZipFile(code, "w") as archive:
    archive.writestr("index.py", "def handler(event, context):\\n    return 1\\n")
with Emulator(run_directory=folder, model_server_python=Path(sys.argv[2])) as emulator:
    functions, s3 = emulator.client("lambda"), emulator.client("s3")
    functions.create_function(
        FunctionName="f", Runtime="python3.12", Handler="index.handler",
        Role="arn:aws:iam::000000000000:role/r", Code={"ZipFile": code.getvalue()})
    functions.invoke(FunctionName="f", Payload=b"{}")
    s3.create_bucket(Bucket="models", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    s3.put_object(Bucket="models", Key="model.tar.gz", Body=model_archive("one"))
    sagemaker = emulator.client("sagemaker")
    sagemaker.create_model(
        ModelName="m", ExecutionRoleArn="arn:aws:iam::000000000000:role/r",
        PrimaryContainer={
            "Image": "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-inference-arm64:2.6",
            "ModelDataUrl": "s3://models/model.tar.gz"})
    sagemaker.create_endpoint_config(
        EndpointConfigName="c", ProductionVariants=[{
            "VariantName": "main", "ModelName": "m", "InstanceType": "ml.c7g.large",
            "InitialInstanceCount": 1}])
    sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
    sagemaker.get_waiter("endpoint_in_service").wait(
        EndpointName="e", WaiterConfig={"Delay": 1, "MaxAttempts": 120})
    (folder / "ready").touch()
    time.sleep(600)
"""


def processes(folder: Path) -> dict[int, str]:
    """Living processes whose command line names a folder, other than the test's starter."""
    table = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,stat=,args="], capture_output=True, text=True, check=True
    ).stdout
    found = {}
    for line in table.splitlines():
        number, status, command = line.split(maxsplit=2)
        if str(folder) in command and "starter.py" not in command and status[0] != "Z":
            found[int(number)] = command
    return found


def eventually(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + 180
    while not true():
        assert time.monotonic() < limit, "it never came true"
        time.sleep(0.1)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_the_process_that_started_the_account(
    tmp_path: Path, end: signal.Signals
) -> None:
    (tmp_path / "starter.py").write_text(STARTER)
    folder = tmp_path / "run"
    with (tmp_path / "output").open("w") as output:
        starter = subprocess.Popen(
            [sys.executable, str(tmp_path / "starter.py"), str(folder), str(MODEL_SERVER_PYTHON)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=output,
            stderr=output,
        )
    try:
        eventually(lambda: (folder / "ready").exists() or starter.poll() is not None)
        assert starter.poll() is None, (tmp_path / "output").read_text()
        commands = "\n".join(processes(folder).values())
        for part in ("operations.emulator.server", "_worker.py", "model_server.py"):
            assert part in commands
    finally:
        os.kill(starter.pid, end)
        starter.wait()
    eventually(lambda: not processes(folder))


def test_leaving_the_context_ends_everything_and_the_folder_can_be_used_again(
    tmp_path: Path,
) -> None:
    for _ in range(2):
        with Emulator(run_directory=tmp_path, model_server_python=MODEL_SERVER_PYTHON) as emulator:
            buckets = emulator.client("s3").list_buckets()["Buckets"]
            assert [bucket["Name"] for bucket in buckets] == ["us-west-2-aws-parallelcluster"]
            assert processes(tmp_path)
        assert not processes(tmp_path)
        assert not (tmp_path / "scratch").exists()
        assert "Ready" in emulator.log.read_text()


def test_two_accounts_side_by_side_in_other_regions(tmp_path: Path) -> None:
    def emulator(region: str) -> Emulator:
        return Emulator(
            run_directory=tmp_path / region,
            model_server_python=MODEL_SERVER_PYTHON,
            region=region,
        )

    with emulator("eu-central-1") as one, emulator("us-east-1") as other:
        assert one.url != other.url
        one.client("sqs").create_queue(QueueName="mine")
        assert not other.client("sqs").list_queues().get("QueueUrls")
        [url] = one.client("sqs").list_queues()["QueueUrls"]
        attributes = one.client("sqs").get_queue_attributes(
            QueueUrl=url, AttributeNames=["QueueArn"]
        )["Attributes"]
        assert attributes["QueueArn"] == "arn:aws:sqs:eu-central-1:000000000000:mine"
        zones = one.client("ec2").describe_availability_zones()["AvailabilityZones"]
        assert [zone["ZoneId"] for zone in zones] == ["euc1-az1", "euc1-az2", "euc1-az3"]


def test_only_the_loopback_address_is_served(emulator: Emulator) -> None:
    place = urlparse(emulator.url)
    assert place.hostname == "127.0.0.1"
    assert place.port is not None
    with socket.socket() as caller:
        caller.settimeout(5)
        # Another address of the same machine, which a server on 0.0.0.0 would answer.
        assert caller.connect_ex(("127.0.0.2", place.port)) != 0


def test_a_process_sees_this_account_and_none_of_the_user(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "real")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "https://sts.us-east-1.amazonaws.com")
    program = (
        "import boto3, json\n"
        "identity = boto3.client('sts').get_caller_identity()\n"
        "print(json.dumps([identity['Account'], boto3.client('s3').meta.endpoint_url,"
        " boto3.client('ec2').meta.region_name]))"
    )
    told = subprocess.run(
        [sys.executable, "-c", program],
        env=emulator.environment(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert json.loads(told) == ["000000000000", emulator.url, "us-west-2"]
    assert emulator.environment()["PATH"] == os.environ["PATH"]


def test_the_user_s_own_settings_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "a-profile-that-does-not-exist")
    monkeypatch.setenv("AWS_USE_FIPS_ENDPOINT", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    (tmp_path / "config").write_text("this is [no configuration\n")
    with Emulator(
        run_directory=tmp_path / "run", model_server_python=MODEL_SERVER_PYTHON
    ) as emulator:
        buckets = emulator.client("s3").list_buckets()["Buckets"]
        assert [bucket["Name"] for bucket in buckets] == ["us-west-2-aws-parallelcluster"]


def test_the_emulated_cloud_is_blind_to_the_user_s_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_USER", "1")
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    described = Emulator(run_directory=tmp_path, model_server_python=MODEL_SERVER_PYTHON)
    environment = described._server_environment()
    assert not {"SECRET_OF_THE_USER", "AWS_PROFILE", "PYTHONPATH"} & environment.keys()
    assert environment["NODE_PATH"] == str(ROOT / "node_modules")


def test_a_server_that_dies_says_what_it_said_last(tmp_path: Path) -> None:
    with Emulator(run_directory=tmp_path, model_server_python=MODEL_SERVER_PYTHON) as emulator:
        for number, command in processes(tmp_path).items():
            if "supervisor.py" not in command:
                os.kill(number, signal.SIGKILL)
        eventually(lambda: not processes(tmp_path))
        with pytest.raises(EmulatorError, match="has ended with status 137") as caught:
            emulator.environment()
        assert str(emulator.log) in str(caught.value)
        assert "Ready" in str(caught.value)


def test_a_server_that_cannot_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "_PYTHON", Path(sys.executable))  # it has no MiniStack
    with (
        pytest.raises(EmulatorError, match="No module named 'hypercorn'"),
        Emulator(run_directory=tmp_path, model_server_python=MODEL_SERVER_PYTHON),
    ):
        pass
    assert not processes(tmp_path)


def test_a_missing_environment_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "no" / "python"
    with (
        pytest.raises(EmulatorError, match=r"no python for model servers at .*: run `make setup`"),
        Emulator(run_directory=tmp_path, model_server_python=missing),
    ):
        pass
    monkeypatch.setattr(launcher, "_PYTHON", missing)
    with (
        pytest.raises(EmulatorError, match=r"no python for the emulator at .*: run `make setup`"),
        Emulator(run_directory=tmp_path, model_server_python=MODEL_SERVER_PYTHON),
    ):
        pass


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.touch()
    with (
        pytest.raises(EmulatorError, match=r"cannot write to .*file/run"),
        Emulator(run_directory=taken / "run", model_server_python=MODEL_SERVER_PYTHON),
    ):
        pass


def test_a_full_disk_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2**20))
    with (
        pytest.raises(EmulatorError, match=r"1 MiB free at .*, .* needs 200 MiB: make room"),
        Emulator(run_directory=tmp_path, model_server_python=MODEL_SERVER_PYTHON),
    ):
        pass
    assert not (tmp_path / "emulator.log").exists()


def test_an_account_that_was_not_started_says_so(tmp_path: Path) -> None:
    emulator = Emulator(run_directory=tmp_path, model_server_python=MODEL_SERVER_PYTHON)
    with pytest.raises(EmulatorError, match="use it as a context manager"):
        emulator.client("s3")
