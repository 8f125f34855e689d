"""The functions' requests under the oldest boto3 that they are said to run with.

Every fake of `tests/unit/lambdas` checks its requests against botocore's own models, so these
tests are run again with the older models.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.environments import ROOT

OLDEST = ROOT / ".venv-oracle" / "oldest"
PROBE = "import sys, botocore, pytest; print(botocore.__version__, flush=True); "


@pytest.mark.case("L05")
def test_every_request_is_valid_under_the_oldest_boto3() -> None:
    lock = (ROOT / "requirements" / "oldest-boto3.txt").read_text(encoding="utf-8")
    wanted = re.findall(r"^botocore==(\S+)$", lock, re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-c", f"{PROBE} sys.exit(pytest.main(['-q', 'tests/unit/lambdas']))"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(OLDEST)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[:1] == wanted
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
