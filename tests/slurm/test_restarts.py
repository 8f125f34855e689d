"""What ends a start, on real Slurm, and how the run goes on: to the same losses as without it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster
from tests.slurm.runs import TASK, Run, submit

NODES = ("--nodes", "3", "--time", "20", "--back-off", "0")
STEPS = ("--steps", "30")


@pytest.fixture(scope="module")
def other_runs(
    slurm_here: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Run]]:
    """Runs that wait most of their time, each on a cluster of its own, beside the other tests."""
    folder = tmp_path_factory.mktemp("others")
    with (
        SlurmCluster(folder / "a", nodes=1) as limited,
        SlurmCluster(folder / "b", nodes=3) as hanging,
    ):
        limit = ("--nodes", "1", "--time", "2", "--notice", "60", TASK, "--steps", "120")
        stuck = (*NODES, "--stuck-after", "0.7", TASK, *STEPS, "--hang-at", "12")
        yield {
            "limit": submit(limited, folder / "limit", *limit, "--pause", "0.7", "--every", "1000"),
            "stuck": submit(hanging, folder / "stuck", *stuck),
        }


@pytest.fixture(scope="module")
def undisturbed(
    shared_cluster: SlurmCluster,
    other_runs: dict[str, Run],
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    """A run that nothing happens to."""
    run = submit(shared_cluster, tmp_path_factory.mktemp("runs") / "whole", *NODES, TASK, *STEPS)
    assert run.ended()["state"] == "done", run.log()
    return run


def kill_a_rank(cluster: SlurmCluster) -> None:
    """As the system does where memory runs out."""
    cluster.shell(f"pgrep --full '^{sys.executable} -m {TASK}' | tail -n 1 | xargs kill -9")


def test_ranks_on_several_nodes_train_one_model(undisturbed: Run) -> None:
    status = undisturbed.status()
    assert (status["ranks"], status["failures"], len(status["starts"])) == (3, 0, 1)
    assert {undisturbed.facts(rank)["host"] for rank in range(3)} == set(
        undisturbed.cluster.names[:3]
    )
    assert len(undisturbed.curve()) == 30
    assert undisturbed.curve()[-1] < undisturbed.curve()[0]


@pytest.mark.case("T06")
def test_a_lost_node_costs_the_steps_since_the_checkpoint_and_no_more(
    cluster: SlurmCluster, undisturbed: Run, tmp_path: Path
) -> None:
    run = submit(cluster, tmp_path / "out", *NODES, TASK, *STEPS, "--pause", "0.3")
    run.at_step(7)
    lost = cluster.names[0]  # the one with the batch script and the first rank
    cluster.cut(lost)
    cluster.wait(lambda: cluster.job(run.jobs["train"]).get("Restarts") == "1", "requeued by Slurm")
    cluster.end(lost)
    status = run.ended()
    cluster.boot(lost)
    assert status["state"] == "done", run.log()
    assert lost not in cluster.shell(f"scontrol show hostnames {status['nodes']}").split()
    assert len(status["starts"]) == 2
    assert run.curve() == pytest.approx(undisturbed.curve(), rel=1e-5)
    first, second = status["starts"]
    assert (first["ended"] <= second["begun"], second["end"]) == (True, "done")


@pytest.mark.case("T06")
def test_a_killed_rank_ends_the_others_and_the_run_starts_again(
    cluster: SlurmCluster, undisturbed: Run, tmp_path: Path
) -> None:
    run = submit(cluster, tmp_path / "out", *NODES, TASK, *STEPS, "--pause", "0.2")
    run.at_step(7)
    kill_a_rank(cluster)
    status = run.ended()
    assert status["state"] == "done", run.log()
    assert re.search(r"starting again: exit code \d+, see ", run.log())
    assert status["failures"] == 0, "it got further, so that nothing counts against it"
    assert run.curve() == pytest.approx(undisturbed.curve(), rel=1e-5)


@pytest.mark.case("T06")
def test_a_run_that_gets_no_further_fails_when_its_budget_is_spent(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    options = ("--nodes", "2", "--time", "20", "--retries", "1", "--back-off", "8")
    run = submit(cluster, tmp_path / "out", *options, "tests.slurm.fails")
    status = run.ended()
    assert (status["state"], status["failures"]) == ("failed", 2)
    # Of two ranks that fail at once, one may be ended for the other one's failure.
    assert re.search(r"failed: 2 starts in a row: exit code (1|143), see ", run.log())
    assert len(status["starts"]) >= 3, "a start before the back-off has passed only waits"
    cluster.wait(lambda: cluster.state(run.jobs["train"]) == "FAILED", "a job that has failed")


def test_a_stop_that_a_person_asks_for_is_no_failure_and_publishes_nothing(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    (tmp_path / "platform.json").write_text("{}")
    publish = ("--publish", "--platform", str(tmp_path / "platform.json"))
    options = ("--nodes", "1", "--time", "20", *publish, TASK)
    run = submit(cluster, tmp_path / "out", *options, "--steps", "500", "--pause", "0.2")
    run.at_step(6)
    (run.work / "stop").touch()
    assert run.ended()["state"] == "stopped"
    cluster.wait(lambda: cluster.state(run.jobs["publish"]) == "CANCELLED", "no publishing")
    again = submit(cluster, tmp_path / "out", "--nodes", "2", "--time", "20", TASK, "--steps", "20")
    assert again.ended()["state"] == "done", "more nodes, fewer steps"
    assert again.status()["starts"][0]["end"].startswith("asked for")


def test_ranks_that_hang_are_ended_with_the_place_where_they_hang(
    undisturbed: Run, other_runs: dict[str, Run]
) -> None:
    run = other_runs["stuck"]
    status = run.ended()
    assert status["state"] == "done", run.log()
    assert "starting again: no step for 0.7 minutes" in run.log()
    hung = next(
        number
        for number, start in enumerate(status["starts"])
        if "in report" in run.words(2, number)
    )
    assert "in reduce" in run.words(0, hung), "a rank that waits for the one that sleeps"
    assert run.curve() == pytest.approx(undisturbed.curve(), rel=1e-5)


@pytest.mark.case("T06")
def test_a_time_limit_ends_in_a_checkpoint_and_the_next_start(other_runs: dict[str, Run]) -> None:
    run = other_runs["limit"]
    status = run.ended()
    assert (status["state"], status["failures"]) == ("done", 0), run.log()
    assert "starting again: the time limit was near" in run.log()
    first, second, *_ = status["starts"]
    assert f"going on after step {first['step']}" in run.words(0, 1), "where the stop was"
    assert second["step"] > first["step"]
    assert len(run.curve()) == 120
