"""A cluster that starts from zero nodes, as ParallelCluster's: power-up, and capacity that lacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster
from tests.slurm.runs import TASK, Run, submit


@pytest.fixture(scope="module")
def cloud(slurm_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Nodes 1 and 2 can be had; EC2 has no third one."""
    with SlurmCluster(tmp_path_factory.mktemp("cloud") / "run", nodes=3, cloud=True) as cluster:
        (cluster.run / f"refused.{cluster.names[2]}").write_text("InsufficientInstanceCapacity")
        yield cluster


def status(run: Run) -> str:
    """What `status` tells a person."""
    result = run.cluster.call(
        "python3", "-m", "training.slurm", "status", str(run.output), check=False
    )
    return result.stdout + result.stderr


@pytest.mark.case("E11")
def test_a_run_starts_from_zero_nodes_and_tells_what_it_waits_for(
    cloud: SlurmCluster, tmp_path: Path
) -> None:
    assert cloud.shell("sinfo -h -o %t").split() == ["idle~"], "powered down"
    assert cloud.shell("ip netns list") == ""
    small = submit(cloud, tmp_path / "small", "--nodes", "2", "--time", "20", TASK, "--steps", "6")
    assert small.ended()["state"] == "done", small.log()

    large = submit(cloud, tmp_path / "large", "--nodes", "3", "--time", "20", TASK, "--steps", "6")
    reason = "waits for capacity: InsufficientInstanceCapacity on 1 nodes"
    cloud.wait(lambda: reason in status(large), "a reason")
    (cloud.run / f"refused.{cloud.names[2]}").unlink()
    # ParallelCluster's daemon does so some minutes later.
    cloud.shell(f"scontrol update nodename={cloud.names[2]} state=power_down_force")
    assert large.ended()["state"] == "done", large.log()
