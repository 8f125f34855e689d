"""What `submit` accepts and refuses, asked of a real Slurm; and how a run is told of afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.slurm.cluster import ROOT, SlurmCluster
from tests.slurm.runs import TASK, ask, submit

GOOD = ("--nodes", "1", "--time", "20")


def test_every_mistake_is_told_at_once_and_nothing_is_submitted(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    (tmp_path / "broken.toml").write_text("[train")
    code, _, complaint = ask(
        cluster,
        tmp_path / "out",
        *("--nodes", "0", "--time", "soon", "--notice", "5", "--retries", "-1"),
        *("--back-off", "-1", "--stuck-after", "0", "--ranks-per-node", "0"),
        *("--partition", "gpu", "--stage", str(tmp_path / "nothing"), "--publish"),
        *("--platform", str(tmp_path / "none.json"), "--hydrate", str(tmp_path / "nowhere")),
        *("training.no_such_thing", "--settings", str(tmp_path / "broken.toml"), "--set", "x"),
    )
    assert code == 2
    assert complaint.count("\n") == 1
    for part in (
        "--nodes is 0, needs to be 1 to 10000",
        "--time is 'soon', needs to be minutes, hours:minutes:seconds",
        "--notice is 5, needs to be 60 or more",
        "--retries is -1",
        "--back-off is -1",
        "--stuck-after is 0.0",
        "--ranks-per-node is 0",
        "no partition gpu; see sinfo",
        f"--stage {tmp_path}/nothing does not exist",
        f"--hydrate {tmp_path}/nowhere does not exist",
        f"--platform {tmp_path}/none.json does not exist",
        "no module training.no_such_thing",
        f"{tmp_path}/broken.toml is not TOML",
        "--set 'x' is not name=value",
    ):
        assert part in complaint
    assert cluster.shell("squeue --noheader") == ""
    assert not (tmp_path / "out.slurm").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--nodes", "9", "--time", "20", TASK), "partition train has 4 nodes, --nodes is 9"),
        (("--nodes", "1", "--time", "5", TASK), "leaves no time to train before the 300 s"),
        (("--nodes", "1", "--time", "0", TASK), "above 0"),
        ((*GOOD, "--settings", "no.toml", TASK), "unrecognized arguments"),
        ((*GOOD, TASK, "--settings", "no.toml"), "cannot read the settings no.toml"),
        (
            (*GOOD, "training.bert_pretraining", "pretrain", "--settings", "bert-huge"),
            "no recipe 'bert-huge'; known: bert-large-phase1-adamw",
        ),
        ((*GOOD, TASK, "--output", "here"), "--output stands before the module"),
        (GOOD, "give a module to run"),
        (("--nodes", "one", "--time", "20", TASK), "invalid int value"),
        ((*GOOD, "--network", "wifi", TASK), "invalid choice"),
    ],
)
def test_a_mistake_is_one_line(
    cluster: SlurmCluster, tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    code, _, told = ask(cluster, tmp_path / "out", *arguments)
    assert (code, told.count("\n")) == (2, 1)
    assert complaint in told


def test_an_output_is_written_by_one_run_at_a_time(cluster: SlurmCluster, tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "model").touch()
    assert "holds something already" in ask(cluster, tmp_path / "used", *GOOD, TASK)[2]
    (tmp_path / "file").touch()
    assert "cannot write to" in ask(cluster, tmp_path / "file" / "out", *GOOD, TASK)[2]

    run = submit(cluster, tmp_path / "out", *GOOD, TASK, "--steps", "500", "--pause", "0.2")
    refusal = f"{tmp_path}/out has jobs in the queue: {run.jobs['train']} ("
    assert refusal in ask(cluster, tmp_path / "out", *GOOD, TASK)[2]
    cluster.call("scancel", str(run.jobs["train"]))
    cluster.wait(lambda: not cluster.shell("squeue --noheader"), "an empty queue")
    submit(cluster, tmp_path / "out", *GOOD, TASK)


def test_of_two_submits_at_once_one_wins(cluster: SlurmCluster, tmp_path: Path) -> None:
    cluster.shell("scontrol update partitionname=train state=down")  # jobs wait
    command = (
        f"cd {ROOT}; for one in 1 2 3; do {sys.executable} -m training.slurm submit"
        f" --output {tmp_path}/out --cache {tmp_path} --nodes 1 --time 20 {TASK}"
        " & done; wait"
    )
    result = cluster.call("bash", "-c", f"({command}) 2>&1")
    waiting = cluster.shell("squeue --noheader").splitlines()
    cluster.shell("scontrol update partitionname=train state=up")
    assert len(waiting) == 1, result.stdout
    assert result.stdout.count("error: ") == 2


def test_what_slurm_refuses_is_told_and_takes_the_other_jobs_back(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    cluster.shell("scontrol create partition=closed nodes=ALL state=drain")
    places = ("--partition", "closed", "--helper-partition", "train")
    code, _, told = ask(cluster, tmp_path / "out", *GOOD, *places, "--hydrate", str(tmp_path), TASK)
    cluster.shell("scontrol delete partition=closed")
    assert code == 2
    assert "Required partition not available" in told
    cluster.wait(lambda: not cluster.shell("squeue --noheader"), "an empty queue")
    assert not (tmp_path / "out.slurm" / "jobs").exists()


def test_where_there_is_no_slurm_one_line_says_so(tmp_path: Path) -> None:
    result = subprocess.run(
        [
            *(sys.executable, "-m", "training.slurm", "submit", "--output", str(tmp_path / "out")),
            *(*GOOD, TASK),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PATH": "/nowhere"},
    )
    assert result.returncode == 2
    assert result.stderr == "error: no sinfo here: run this on a node of a Slurm cluster\n"


def test_the_status_of_no_run(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "training.slurm", "status", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert result.returncode == 2
    assert result.stderr == f"error: no run was submitted for {tmp_path}/out\n"
