"""Runs on nodes that look like Trn1's: what is checked, what ranks are told, what is shared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster
from tests.slurm.fakes import VERSIONS, Trainium, trainium_nodes
from tests.slurm.runs import TASK, Run, submit

TWO = ("--nodes", "2", "--time", "20", "--back-off", "0")
LFS = """\
case $1 in
hsm_state) for file in "${@:2}"; do
    state=$([[ -e $file.released ]] && echo released)
    echo "$file: (0x0000000d) $state exists archived, archive_id:1"; done ;;
hsm_restore) [[ $(told restore) == works ]] || { echo "cannot restore ${*:2}: no agent" >&2; exit 1; }
    for file in "${@:2}"; do rm "$file.released"; done ;;
esac
"""


@pytest.fixture
def nodes(cluster: SlurmCluster, tmp_path: Path) -> Iterator[Trainium]:
    made = trainium_nodes(cluster, tmp_path)
    made.set("restore", "works")
    made.tool("lfs", LFS)
    yield made
    for name in ("fi_info", "neuron-ls", "lfs"):
        (made.tools / name).unlink()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of which one file is in S3 still."""
    folder = tmp_path / "shards"
    folder.mkdir()
    (folder / "a.txt").write_text("texts")
    (folder / "a.txt.released").touch()
    return folder


@pytest.mark.case("F15")
@pytest.mark.case("T03")
@pytest.mark.case("T07")
@pytest.mark.case("T08")
@pytest.mark.case("T10")
@pytest.mark.case("T12")
def test_the_whole_chain(
    cluster: SlurmCluster, nodes: Trainium, data: Path, tmp_path: Path
) -> None:
    compiled = tmp_path / "compiled.txt"
    run = submit(
        cluster,
        tmp_path / "out",
        *(*TWO, "--hydrate", str(data), "--stage", str(data), "--compile"),
        *(TASK, "--steps", "8", "--graphs", "3", "--data", str(data / "a.txt")),
        variables=nodes.variables,
    )
    assert list(run.jobs) == ["hydrate", "compile", "train"]
    for before, after in zip(run.jobs, [*run.jobs][1:], strict=False):
        dependency = cluster.job(run.jobs[after])["Dependency"]
        assert dependency in (f"afterok:{run.jobs[before]}(unfulfilled)", "(null)")
    status = run.ended()
    assert status["state"] == "done", run.log()
    assert (status["ranks"], status["usd"]) == (4, round(status["node_hours"] * 21.5, 2))

    assert not (data / "a.txt.released").exists()
    assert "fetched 1 files from S3" in run.log()

    # No graph is compiled on the head node, and none of the training's: the cache had them.
    places = [line.split() for line in compiled.read_text().splitlines()]
    assert {name for name, _ in places} == {f"MODULE_{number}+abc" for number in range(3)}
    assert {node for _, node in places} == set(cluster.names[:2])
    assert status["compile_cache"] == {"hits": 3, "misses": 0, "shared": 0}
    shared = next((tmp_path / "cache").iterdir())
    assert shared.name == "_".join(
        f"{name.replace('_', '-')}-{number}" for name, number in VERSIONS.items()
    )
    assert len(list(shared.glob("neuronxcc-2.0/MODULE_*/model.neff"))) == 3

    facts = [run.facts(rank) for rank in range(4)]
    told = [one["environment"] for one in facts]
    for rank, one in enumerate(told):
        assert (one["FI_PROVIDER"], one["FI_EFA_USE_DEVICE_RDMA"], one["FI_EFA_FORK_SAFE"]) == (
            "efa",
            "1",
            "1",
        )
        assert (one["RANK"], one["WORLD_SIZE"], one["LOCAL_WORLD_SIZE"]) == (str(rank), "4", "2")
        assert one["LOCAL_RANK"] == str(rank % 2)
        assert one["MASTER_ADDR"] == "10.77.0.11"
        assert one["NEURON_RT_ROOT_COMM_ID"].startswith("10.77.0.11:")
        assert "--retry_failed_compilation" in one["NEURON_CC_FLAGS"]
        assert one["NEURON_COMPILE_CACHE_URL"].startswith(f"{cluster.run}/scratch/")
    assert len({one["MASTER_PORT"] for one in told}) == 1
    local, text = facts[0]["data"]
    assert text == "texts"
    assert local.startswith(f"{cluster.run}/scratch/")
    assert (
        (cluster.run / "disks" / cluster.names[1])
        .joinpath(*Path(local).parts[len((cluster.run / "scratch").parts) :])
        .is_file()
    )


@pytest.mark.case("T12")
def test_a_small_limit_of_open_files_at_the_submitting_shell_is_not_handed_on(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    limit = ("prlimit", "--nofile=256:", "--")
    run = submit(
        cluster,
        tmp_path / "out",
        "--nodes",
        "1",
        "--time",
        "20",
        TASK,
        "--steps",
        "6",
        through=limit,
    )
    assert run.ended()["state"] == "done", run.log()
    assert run.facts(0)["open_files"] >= 4096


@pytest.mark.case("F15")
def test_no_training_without_its_data(
    cluster: SlurmCluster, nodes: Trainium, data: Path, tmp_path: Path
) -> None:
    nodes.set("restore", "fails")
    run = submit(
        cluster, tmp_path / "out", *TWO, "--hydrate", str(data), TASK, variables=nodes.variables
    )
    cluster.wait(lambda: cluster.state(run.jobs["train"]) == "CANCELLED", "no training")
    assert cluster.state(run.jobs["hydrate"]) == "FAILED"
    assert f"cannot restore {data / 'a.txt'}: no agent" in run.log()
    assert not run.work.exists()


@pytest.mark.case("T07")
def test_ranks_do_not_start_without_the_efa_that_was_asked_for(
    cluster: SlurmCluster, nodes: Trainium, tmp_path: Path
) -> None:
    nodes.set("efa", "0")
    run = submit(cluster, tmp_path / "out", *TWO, TASK, variables=nodes.variables)
    status = run.ended()
    assert status["state"] == "failed"
    assert "fi_info sees 0 of 2 EFA interfaces" in status["reason"]
    assert not run.work.exists()
    cluster.wait(lambda: cluster.state(run.jobs["train"]) == "FAILED", "a job that has failed")


def test_a_bad_node_is_left_out_of_the_next_start(
    cluster: SlurmCluster, nodes: Trainium, tmp_path: Path
) -> None:
    bad = cluster.names[0]
    nodes.set("devices", "0", node=bad)
    run = submit(
        cluster,
        tmp_path / "out",
        *TWO,
        "--ranks-per-node",
        "2",
        TASK,
        "--steps",
        "6",
        variables=nodes.variables,
    )
    status = run.ended()
    assert status["state"] == "done", run.log()
    assert list(status["excluded"]) == [bad]
    assert bad not in cluster.shell(f"scontrol show hostnames {status['nodes']}").split()
    assert f"{bad}: neuron-ls sees 0 of 1 devices" in status["starts"][0]["end"]


@pytest.mark.case("T09")
def test_a_mixed_set_of_neuron_versions_is_refused(
    cluster: SlurmCluster, nodes: Trainium, tmp_path: Path
) -> None:
    nodes.package("neuronx_cc", "2.23.6484.0")
    nodes.write("sys/module/neuron/version", "2.26.10.0")
    run = submit(cluster, tmp_path / "out", *TWO, TASK, variables=nodes.variables)
    reason = run.ended()["reason"]
    assert "driver is 2.26.10.0, Neuron 2.31.1 has 2.29.0" in reason
    assert "neuronx-cc is 2.23.6484.0, Neuron 2.31.1 has 2.26.6360" in reason


@pytest.mark.case("T03")
def test_two_compile_jobs_at_once_compile_each_program_once(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    compiled = tmp_path / "compiled.txt"
    options = ("--nodes", "1", "--time", "20", "--compile", TASK, "--steps", "6", "--graphs", "4")
    runs = [submit(cluster, tmp_path / name, *options) for name in ("one", "two")]
    seen: set[Path] = set()

    def all_done() -> bool:
        whole = set((tmp_path / "cache").glob("*/neuronxcc-2.0/MODULE_*"))
        assert all((path / "model.neff").stat().st_size == 1 << 16 for path in whole)
        seen.update(whole)
        return all(run.status().get("state") == "done" for run in runs)

    cluster.wait(all_done, "both done")
    assert len(seen) == 4
    assert len(compiled.read_text().splitlines()) == 4
    reports = re.findall(r"(\d) hits, (\d) misses, (\d) shared", runs[0].log() + runs[1].log())
    assert sorted(reports) == [("0", "4", "4"), ("4", "0", "0"), ("4", "0", "0"), ("4", "0", "0")]


@pytest.mark.case("T03")
def test_a_compile_cache_that_cannot_be_written_ends_the_run_before_training(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    place = ("--cache", str(tmp_path / "file" / "cache"))
    run: Run = submit(cluster, tmp_path / "out", "--nodes", "1", "--time", "20", *place, TASK)
    status = run.ended()
    assert status["state"] == "failed"
    assert (
        f"cannot write the compile cache to {tmp_path}/file/cache: Not a directory"
        in status["reason"]
    )
