"""What stands in the way of a set-up is named before anything is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PREFLIGHT = ROOT / "requirements" / "preflight.sh"
EXCLUSIVELY = ROOT / "requirements" / "exclusively.py"
OLD_PYTHON = '#!/bin/sh\n[ "$1" = -V ] && echo Python 3.9.2\n[ "$1" != -c ]\n'


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH with the ordinary tools, a good node and npm, and the python that runs this."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "cat", "rm", "df", "awk", "pwd"):
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    script(folder / "node", '#!/bin/sh\n[ "$1" = --version ] && echo v22.0.0\nexit 0\n')
    script(folder / "npm", "#!/bin/sh\n")
    return folder


def script(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def preflight(tools: Path, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    (tools.parent / "checkout").mkdir(exist_ok=True)
    return subprocess.run(
        [PREFLIGHT, python],
        env={"PATH": str(tools)},
        cwd=tools.parent / "checkout",
        capture_output=True,
        text=True,
    )


def test_a_machine_with_everything_passes(tools: Path) -> None:
    result = preflight(tools)
    assert (result.returncode, result.stderr) == (0, "")


def test_all_that_is_missing_is_named_at_once(tools: Path) -> None:
    for name in ("node", "npm"):
        (tools / name).unlink()
    result = preflight(tools, "python3")
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 4
    for told in ("python3 is not found", "node is not found", "npm is not found"):
        assert told in result.stderr


@pytest.mark.parametrize(
    ("tool", "text", "told"),
    [
        ("python3", OLD_PYTHON, "python3 is Python 3.9.2: install Python 3.11 or newer"),
        (
            "node",
            '#!/bin/sh\n[ "$1" = --version ] && echo v16.1.0\n[ "$1" = --version ]\n',
            "node is v16.1.0",
        ),
        ("node", "#!/bin/sh\nexit 127\n", "node does not run"),
    ],
)
def test_what_is_too_old_or_broken_is_named(tools: Path, tool: str, text: str, told: str) -> None:
    script(tools / tool, text)
    result = preflight(tools, str(tools / tool) if tool == "python3" else sys.executable)
    assert result.returncode == 1
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_environments_of_a_moved_checkout_are_made_anew(tools: Path) -> None:
    checkout = tools.parent / "checkout"
    for name, place in (("here", checkout), ("moved", Path("/elsewhere")), ("dead", checkout)):
        (checkout / f".venv-{name}" / "bin").mkdir(parents=True)
        (checkout / f".venv-{name}" / ".ready").write_text(f"{place}\n")
    for name in ("here", "moved"):
        (checkout / f".venv-{name}" / "bin" / "python").symlink_to(sys.executable)
    assert preflight(tools).returncode == 0
    assert sorted(stamp.parent.name for stamp in checkout.glob(".venv*/.ready")) == [".venv-here"]


def test_a_second_set_up_waits_for_what_a_killed_one_left_running(tmp_path: Path) -> None:
    lock, told = tmp_path / "lock", tmp_path / "told"
    nap = f"sleep 1.5; echo first >>{told}"
    # The set-up is killed, what it had started runs on.
    first = subprocess.Popen(
        [sys.executable, EXCLUSIVELY, lock, "sh", "-c", f"({nap}) & echo started >>{told}; wait"]
    )
    while not told.exists():
        time.sleep(0.02)
    first.kill()
    first.wait()
    second = subprocess.run(
        [sys.executable, EXCLUSIVELY, lock, "sh", "-c", f"echo second >>{told}"],
        env=os.environ,
        capture_output=True,
        text=True,
    )
    assert "another set-up runs in this checkout" in second.stdout
    assert told.read_text().split() == ["started", "first", "second"]
