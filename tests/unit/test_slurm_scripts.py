"""What holds for every Slurm script of the training as a text."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SLURM = ROOT / "training" / "slurm"
BATCH = sorted(SLURM.glob("*.sbatch"))
SHELL = [*BATCH, *sorted(SLURM.glob("*.sh")), ROOT / "requirements" / "slurm.sh"]


def test_shellcheck_finds_nothing() -> None:
    shellcheck = Path(sys.executable).parent / "shellcheck"
    result = subprocess.run([shellcheck, *SHELL], capture_output=True, text=True)
    assert len(SHELL) > 5
    assert result.returncode == 0, result.stdout


@pytest.mark.case("T06")
@pytest.mark.parametrize("script", BATCH, ids=lambda path: path.name)
def test_a_lost_node_starts_a_job_again_and_its_log_goes_on(script: Path) -> None:
    options = re.findall(r"^#SBATCH (\S+)$", script.read_text(), re.M)
    assert {"--requeue", "--open-mode=append", "--kill-on-invalid-dep=yes"} <= set(options)
    if script.name in ("train.sbatch", "compile.sbatch"):
        assert any(option.startswith("--signal=B:USR1@") for option in options)


@pytest.mark.case("T11")
@pytest.mark.parametrize(
    "script", [*BATCH, *sorted(SLURM.glob("*.py"))], ids=lambda path: path.name
)
def test_no_job_asks_for_memory(script: Path) -> None:
    """Nodes of ParallelCluster tell Slurm of 1 MB, unless memory-based scheduling is on."""
    assert not re.search(r"""^#SBATCH --mem|["']--mem""", script.read_text(), re.M)


@pytest.mark.case("T10")
def test_submitting_compiles_and_trains_nothing() -> None:
    """The head node is small; all that is heavy is in the batch scripts."""
    text = (SLURM / "submit.py").read_text()
    assert not re.search(r"subprocess|neuron_parallel_compile|compile_programs|import torch", text)


@pytest.mark.parametrize(
    ("tools", "reason"),
    [((), "this is no Debian or Ubuntu"), (("apt-get", "id"), "which need root")],
)
def test_where_slurm_cannot_be_had_a_line_says_why_and_set_up_goes_on(
    tools: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    for name in tools:
        (tmp_path / name).write_text("#!/bin/sh\necho 1000\n")
        (tmp_path / name).chmod(0o755)
    script = ROOT / "requirements" / "slurm.sh"
    result = subprocess.run(
        ["/bin/sh", script, tmp_path / "slurm"],
        capture_output=True,
        text=True,
        env={"PATH": str(tmp_path)},
    )
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(r"set-up: no Slurm \(.*\); its tests will be skipped\n", result.stdout)
    assert reason in result.stdout
    assert not (tmp_path / "slurm").exists()
