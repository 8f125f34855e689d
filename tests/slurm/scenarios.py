"""Runs that wait most of their time, each on a cluster of its own, beside the other tests."""

from __future__ import annotations

import sys
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path

from tests.slurm.cluster import ROOT, SlurmCluster
from tests.slurm.runs import TASK, Run, submit

NODES = ("--nodes", "3", "--time", "20", "--back-off", "0")
STEPS = ("--steps", "30")
SHORT = ("--time", "20", TASK, "--steps", "6")


@dataclass(frozen=True, kw_only=True)
class Scenarios:
    """The run of each, once it has ended."""

    time_limit: Future[Run]
    hanging: Future[Run]
    lost_node: Future[Run]
    zero_nodes: Future[Run]
    no_capacity: Future[Run]


def begin(pool: Executor, folder: Path) -> Scenarios:
    """Start them all."""
    return Scenarios(
        no_capacity=pool.submit(_no_capacity, folder / "capacity"),
        lost_node=pool.submit(_lost_node, folder / "lost"),
        time_limit=pool.submit(_time_limit, folder / "limit"),
        hanging=pool.submit(_hanging, folder / "hanging"),
        zero_nodes=pool.submit(_zero_nodes, folder / "zero"),
    )


def _time_limit(folder: Path) -> Run:
    with SlurmCluster(folder / "run", nodes=1) as cluster:
        limit = ("--nodes", "1", "--time", "2", "--notice", "60", TASK, "--steps", "120")
        run = submit(cluster, folder / "out", *limit, "--pause", "0.7", "--every", "1000")
        run.ended()
    return run


def _hanging(folder: Path) -> Run:
    with SlurmCluster(folder / "run", nodes=3) as cluster:
        options = (*NODES, "--stuck-after", "0.7", TASK, *STEPS, "--hang-at", "12")
        run = submit(cluster, folder / "out", *options)
        run.ended()
    return run


def _lost_node(folder: Path) -> Run:
    """The node with the batch script and the first rank; one is left over to take its place."""
    with SlurmCluster(folder / "run") as cluster:
        run = submit(cluster, folder / "out", *NODES, TASK, *STEPS, "--pause", "0.3")
        run.at_step(7)
        cluster.cut(cluster.names[0])
        job = run.jobs["train"]
        cluster.wait(lambda: cluster.job(job).get("Restarts") == "1", "requeued by Slurm")
        cluster.end(cluster.names[0])  # which ParallelCluster does with what does not answer
        run.ended()
    return run


def _zero_nodes(folder: Path) -> Run:
    with SlurmCluster(folder / "run", nodes=2, cloud=True) as cluster:
        assert cluster.shell("sinfo -h -o %t").split() == ["idle~"], "powered down"
        assert cluster.shell("ip netns list") == ""
        run = submit(cluster, folder / "out", "--nodes", "2", *SHORT)
        run.ended()
    return run


def _no_capacity(folder: Path) -> Run:
    """EC2 has no third node at first."""
    with SlurmCluster(folder / "run", nodes=3, cloud=True) as cluster:
        third = cluster.names[2]
        refusal = cluster.run / f"refused.{third}"
        refusal.write_text("InsufficientInstanceCapacity")
        run = submit(cluster, folder / "out", "--nodes", "3", *SHORT)
        reason = "waits for capacity: InsufficientInstanceCapacity on 1 nodes"
        command = (sys.executable, "-m", "training.slurm", "status", str(run.output))
        cluster.wait(
            lambda: reason in cluster.call(*command, PYTHONPATH=str(ROOT)).stdout, "a reason"
        )
        refusal.unlink()
        # ParallelCluster's daemon does so some minutes later.
        cluster.shell(f"scontrol update nodename={third} state=power_down_force")
        run.ended()
    return run
