"""The set-up step that installs torch, against a pip that answers as told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.training

SCRIPT = Path(__file__).parents[2] / "requirements" / "install_torch.py"
PIN = "2.13.0"

# Stands for an environment's interpreter: tells the torch that is installed, and notes pip's calls.
FAKE = """#!{python}
import json, pathlib, sys
here = pathlib.Path(__file__).parent
arguments = sys.argv[1:]
state = here / "installed"
if arguments[0] == "-c":
    print(state.read_text()) if state.exists() else sys.exit(1)
    sys.exit()
with (here / "calls").open("a") as calls:
    print(json.dumps(arguments), file=calls)
if (here / "failure").exists():
    sys.exit((here / "failure").read_text())
if "--report" in arguments:
    names = json.loads((here / "names").read_text())
    report = {{"install": [{{"metadata": {{"name": name}}}} for name in names]}}
    pathlib.Path(arguments[arguments.index("--report") + 1]).write_text(json.dumps(report))
else:
    state.write_text("2.13.0+cpu")
"""


class Environment:
    """An interpreter whose pip would bring certain packages."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.folder = folder
        self.python = folder / "python"
        self.python.write_text(FAKE.format(python=sys.executable), encoding="utf-8")
        self.python.chmod(0o755)
        (folder / "names").write_text(json.dumps(names), encoding="utf-8")

    def run(self, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(SCRIPT), str(self.python)],
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin"} | variables,
            check=False,
        )

    @property
    def calls(self) -> list[list[str]]:
        path = self.folder / "calls"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]


def test_a_build_for_the_processor_is_installed(tmp_path: Path) -> None:
    environment = Environment(tmp_path, ["torch", "sympy", "filelock"])
    done = environment.run()
    assert (done.returncode, done.stdout) == (0, f"torch {PIN}+cpu installed\n")
    asked, installed = environment.calls
    assert "--dry-run" in asked
    assert installed == ["-m", "pip", "install", "--quiet", f"torch=={PIN}"]


@pytest.mark.parametrize(
    "name", ["nvidia-cudnn-cu13", "cuda-toolkit", "triton", "NVIDIA_nccl.cu13"]
)
def test_a_cuda_build_is_refused_with_the_way_out(tmp_path: Path, name: str) -> None:
    environment = Environment(tmp_path, ["torch", name])
    done = environment.run()
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip would install a CUDA build of torch with 1 packages such as " in done.stderr
    assert "set TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu" in done.stderr
    assert len(environment.calls) == 1


def test_an_index_that_was_chosen_is_used_without_a_question(tmp_path: Path) -> None:
    environment = Environment(tmp_path, ["torch", "nvidia-cudnn-cu13"])
    done = environment.run(TORCH_INDEX_URL="https://index.example/cu130")
    assert done.returncode == 0
    (installed,) = environment.calls
    assert installed[-3:] == ["--index-url", "https://index.example/cu130", f"torch=={PIN}"]


def test_nothing_is_done_twice(tmp_path: Path) -> None:
    environment = Environment(tmp_path, ["torch"])
    assert environment.run().returncode == 0
    count = len(environment.calls)
    done = environment.run()
    assert (done.returncode, done.stdout) == (0, f"torch {PIN}+cpu is there already\n")
    assert len(environment.calls) == count


def test_another_version_is_replaced(tmp_path: Path) -> None:
    environment = Environment(tmp_path, ["torch"])
    (tmp_path / "installed").write_text("2.9.1", encoding="utf-8")
    assert environment.run().stdout == f"torch {PIN}+cpu installed\n"


def test_pips_own_reason_is_told(tmp_path: Path) -> None:
    environment = Environment(tmp_path, ["torch"])
    (tmp_path / "failure").write_text("notice\nERROR: No matching distribution", encoding="utf-8")
    done = environment.run()
    assert done.returncode == 2
    assert done.stderr == f"error: pip cannot get torch=={PIN}: ERROR: No matching distribution\n"


def test_an_interpreter_that_is_not_there_is_told(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), str(tmp_path / "python")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_the_lock_pins_torch_without_a_build_and_setuptools_that_the_toolkit_can_use() -> None:
    lock = SCRIPT.with_name("training.txt").read_text(encoding="utf-8").splitlines()
    assert f"torch=={PIN}" in lock
    (line,) = [line for line in lock if line.startswith("setuptools==")]
    assert int(line.partition("==")[2].partition(".")[0]) < 82
    assert all("==" in line for line in lock)
