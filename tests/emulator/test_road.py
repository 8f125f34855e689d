"""The whole road on the emulated account, and what ends it early."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from operations.rehearsal.models import Workbench
from operations.rehearsal.progress import Progress
from operations.rehearsal.rehearse import rehearse
from operations.rehearsal.road import Recipe

pytestmark = pytest.mark.emulator

ROOT = Path(__file__).parents[2]
# Enough for the gate of config/rehearsal.toml, and for the second model to be the better one.
SHORT = Recipe(
    first=("--max-steps", "20", "--learning-rate", "3e-4"),
    second=("--max-steps", "60", "--learning-rate", "3e-4"),
    package=("--serving-platform", "none"),
)


def processes(marker: str) -> list[str]:
    """Command lines of running processes that mention the marker."""
    lines = subprocess.run(
        ["ps", "-ww", "-eo", "pid=,args="], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return [line for line in lines if marker in line and "ps -ww" not in line]


def wait_until_gone(marker: str, seconds: float = 30.0) -> list[str]:
    deadline = time.monotonic() + seconds
    while (left := processes(marker)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def start(runs: Path) -> subprocess.Popen[str]:
    code = (
        "import sys; from pathlib import Path; from operations.rehearsal.rehearse import rehearse; "
        "sys.exit(rehearse(runs=Path(sys.argv[1])))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, str(runs)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for(path: Path, pattern: str, process: subprocess.Popen[str]) -> Path:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        found = [item for item in path.glob(pattern) if item.stat().st_size > 0]
        if found:
            return found[0]
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise AssertionError(f"{pattern} did not appear: {process.stdout and process.stdout.read()}")


def test_the_road_after_a_kill_in_mid_deploy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    first = start(runs)
    wait_for(runs, "run-*/cdk-deploy.log", first)
    second = start(runs)
    output, _ = second.communicate(timeout=60)
    assert second.returncode == 1
    assert f"another rehearsal runs in this checkout (process {first.pid})" in output
    assert processes(str(runs)) != []
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert wait_until_gone(str(runs)) == []

    status = rehearse(recipe=SHORT, runs=runs)

    shown = capsys.readouterr().out
    assert status == 0, shown
    assert "Left-overs: none" in shown
    for line in ("Covid cases are increasing fast!", "majority", "vader lexicon"):
        assert line in shown
    assert {"serving", "refused", "rolled-back"} <= set(shown.split())
    assert wait_until_gone(str(runs)) == []


def test_a_dead_server_is_one_clear_line_and_leaves_nothing(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    process = start(runs)
    wait_for(runs, "run-*/cdk-deploy.log", process)
    # The supervisor's command line names the server too; the server is the younger one.
    servers = [line for line in processes(str(runs)) if "operations.emulator.server" in line]
    os.kill(max(int(line.split()[0]) for line in servers), signal.SIGKILL)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 1
    assert "Traceback" not in output
    assert "the emulated account has ended" in output
    assert wait_until_gone(str(runs)) == []


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_ends_everything(tmp_path: Path, ending: signal.Signals) -> None:
    runs = tmp_path / "runs"
    process = start(runs)
    wait_for(runs, "run-*/cdk-bootstrap.log", process)
    process.send_signal(ending)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "everything that was started has been ended" in output
    assert "Traceback" not in output
    assert wait_until_gone(str(runs)) == []


def test_a_bert_for_the_road_is_pre_trained_from_plain_text(tmp_path: Path) -> None:
    bench = Workbench(tmp_path, env=os.environ)
    with Progress(1).step("pre-train") as step:
        results = bench.pretrain(
            step, "--max-steps", "2", "--batch-size", "8", packages=("attr", "click")
        )
    assert results["metrics"]["mlm_loss"] > 0
    assert results["baselines"]["unigram_mlm_loss"] > 0
    assert (tmp_path / "bert" / "model.safetensors").is_file()
    with Progress(1).step("train") as step:
        trained = bench.train(step, "first", "--max-steps", "2", encoder=str(tmp_path / "bert"))
    assert trained["model"]["base_model"] == "bert"
