"""What ends a start, on real Slurm, and how the run goes on: to the same losses as without it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster
from tests.slurm.runs import TASK, Run, submit
from tests.slurm.scenarios import NODES, STEPS, Scenarios


@pytest.fixture(scope="module")
def undisturbed(
    shared_cluster: SlurmCluster, scenarios: Scenarios, tmp_path_factory: pytest.TempPathFactory
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
    options = ("--nodes", "2", "--time", "20", "--retries", "1", "--back-off", "15")
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
    undisturbed: Run, scenarios: Scenarios
) -> None:
    run = scenarios.hanging.result()
    status = run.status()
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
def test_a_lost_node_costs_the_steps_since_the_checkpoint_and_no_more(
    undisturbed: Run, scenarios: Scenarios
) -> None:
    run = scenarios.lost_node.result()
    status = run.status()
    assert status["state"] == "done", run.log()
    assert len(status["starts"]) == 2
    first, second = status["starts"]
    assert (first["nodes"], second["nodes"]) == ("train-dy-trn1-[1-3]", "train-dy-trn1-[2-4]")
    assert "going on after step" in run.words(0, 1)
    assert run.curve() == pytest.approx(undisturbed.curve(), rel=1e-5)


@pytest.mark.case("T06")
def test_a_time_limit_ends_in_a_checkpoint_and_the_next_start(scenarios: Scenarios) -> None:
    run = scenarios.time_limit.result()
    status = run.status()
    assert (status["state"], status["failures"]) == ("done", 0), run.log()
    assert "starting again: the time limit was near" in run.log()
    first, second, *_ = status["starts"]
    assert f"going on after step {first['step']}" in run.words(0, 1), "where the stop was"
    assert second["step"] > first["step"]
    assert len(run.curve()) == 120


@pytest.mark.case("T06")
def test_a_run_starts_from_zero_nodes(scenarios: Scenarios) -> None:
    run = scenarios.zero_nodes.result()
    assert run.status()["state"] == "done", run.log()


@pytest.mark.case("E11")
def test_a_run_that_lacks_capacity_says_so_and_starts_when_there_is_some(
    scenarios: Scenarios,
) -> None:
    run = scenarios.no_capacity.result()
    assert run.status()["state"] == "done", run.log()
    assert run.status()["ranks"] == 3
