"""The cluster of these tests itself: it leaves nothing behind, however it ends."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.slurm.cluster import PATIENCE, ROOT

HOLD = """
import sys, time
from pathlib import Path
from tests.slurm.cluster import SlurmCluster
with SlurmCluster(Path(sys.argv[1]), nodes=2):
    print("up", flush=True)
    time.sleep(3600)
"""


def processes(folder: Path) -> list[str]:
    """What runs with this folder in its environment: all of a cluster's daemons do."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"SLURM_CONF={folder}".encode() in (path / "environ").read_bytes():
                found.append((path / "comm").read_text().strip())
        except OSError:
            continue
    return sorted(found)


def test_a_killed_test_takes_its_cluster_along(slurm_here: None, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert holder.stdout
    assert holder.stdout.readline() == "up\n"
    assert len(processes(folder)) > 3
    holder.kill()
    holder.wait()
    deadline = time.monotonic() + PATIENCE
    while (left := processes(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
    links = subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    assert "nodes" not in links, "the bridge was in the cluster's own network"
