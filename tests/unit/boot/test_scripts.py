"""What holds for every boot script as a text."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.boot.node import SCRIPTS

SHELL = sorted(SCRIPTS.glob("*.sh"))


def test_shellcheck_finds_nothing() -> None:
    shellcheck = Path(sys.executable).parent / "shellcheck"
    result = subprocess.run(
        [shellcheck, "--external-sources", "--source-path", SCRIPTS, *SHELL],
        capture_output=True,
        text=True,
    )
    assert len(SHELL) > 5
    assert result.returncode == 0, result.stdout


@pytest.mark.case("P05")
@pytest.mark.parametrize("script", sorted(SCRIPTS.iterdir()), ids=lambda path: path.name)
def test_nothing_moving_is_fetched(script: Path) -> None:
    if script.is_dir():
        return
    text = script.read_text()
    assert not re.search(r"raw\.githubusercontent\.com|/(main|master)/", text)
    assert "apt-key" not in text
    for line in text.splitlines():
        if "latest" in line:
            assert "169.254.169.254/latest" in line
