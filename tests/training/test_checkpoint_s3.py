"""Checkpoints in S3, through boto3 and a real HTTP server that answers like S3."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import torch

from training.command import InputError
from training.core.store import S3Store
from training.roberta_sentiment import scoring
from training.roberta_sentiment.cli import main

pytestmark = pytest.mark.training

PYTHON = Path(__file__).parents[2] / ".venv-emulator" / "bin" / "python"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """An empty bucket; boto3 is led to it."""
    if not PYTHON.is_file():
        pytest.skip("the emulator's environment is not set up; make setup makes it")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    command = [str(PYTHON), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            client = boto3.client("s3", region_name="us-east-1")
            deadline = time.monotonic() + 60
            while True:
                try:
                    client.create_bucket(Bucket="training")
                    break
                except Exception:
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
            yield client
        finally:
            server.send_signal(signal.SIGTERM)


def names(client: Any) -> list[str]:
    content = client.list_objects_v2(Bucket="training").get("Contents", [])
    return [entry["Key"] for entry in content]


def test_a_stopped_run_goes_on_from_s3(
    bucket: Any,
    encoder: Path,
    tweets: Path,
    tmp_path: Path,
    run_arguments: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = ("--checkpoints", "s3://training/runs/one/", "--set", "checkpoint.every=2")
    arguments = run_arguments(encoder, tweets, tmp_path / "out", "--max-steps", "7", *more)
    with monkeypatch.context() as patch:
        patch.setattr(scoring, "predict", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            main(arguments)
    kept = [
        f"runs/one/step-{step:08d}/{name}"
        for step in (6, 7)
        for name in ("done.json", "state.safetensors")
    ]
    assert names(bucket) == kept
    # The newest is damaged: the one before serves, and is written over on the way.
    bucket.put_object(Bucket="training", Key=kept[3], Body=b"cut off")
    capsys.readouterr()
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "the checkpoint of step 7 is damaged and was passed over" in shown
    assert "going on after step 6 of 7" in shown
    store = S3Store("training", "runs/one")
    assert store.steps() == [7, 6]
    found = store.read(7)
    assert found is not None
    assert found[1]["step"] == 7


def test_a_bucket_that_is_not_there_is_one_line(
    bucket: Any,
    encoder: Path,
    tweets: Path,
    tmp_path: Path,
    run_arguments: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = run_arguments(encoder, tweets, tmp_path / "out", "--checkpoints", "s3://none/x")
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: cannot list the checkpoints in s3://none/x: ")
    assert "NoSuchBucket" in error


def test_a_read_that_fails_is_not_taken_for_a_damaged_checkpoint(
    bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = S3Store("training", "runs/two")
    store.write(1, {"weight": torch.ones(2)}, {"step": 1})
    assert store.read(2) is None
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(InputError, match="cannot read the checkpoints in s3://training/runs/two"):
        S3Store("training", "runs/two").read(1)
