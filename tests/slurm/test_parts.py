"""Parts that need no Slurm: times, addresses, ports, files on their way, the shared cache."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.slurm.cluster import ROOT
from tests.slurm.fakes import Trainium
from training.command import InputError
from training.core.stop import STOPPED
from training.slurm import compile_cache, scheduler, staging, supervise
from training.slurm.job import Job, Signals
from training.slurm.node import look, problems_of
from training.slurm.plan import Plan, folder_of, minutes_of
from training.slurm.plan import problems_of as problems_of_plan
from training.slurm.show import waiting_for
from training.slurm.status import Status, newest_step, read_jobs, read_status
from training.slurm.submit import Request, submit
from training.slurm.supervise import Start

PLAN = Plan(
    output="/tmp/out",
    module=["m"],
    python=sys.executable,
    nodes=2,
    ranks_per_node=None,
    network="auto",
    retries=3,
    back_off=0,
    stuck_after=1.0,
    cache="/tmp/cache",
    scratch="/tmp",
    stage=[],
)


def stub(folder: Path, name: str, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that does this."""
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90", 90),
        ("10:30", 11),
        ("1:00:00", 60),
        ("2-0", 2880),
        ("1-12:30", 2190),
        ("1-00:00:01", 1441),
        ("0", 0),
        ("", None),
        ("1h", None),
        ("-5", None),
        ("1:2:3:4", None),
    ],
)
def test_times_in_the_forms_of_sbatch(text: str, minutes: int | None) -> None:
    assert minutes_of(text) == minutes


@pytest.mark.case("T08")
def test_the_first_node_is_found_by_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = """\
if [[ $2 == hostnames ]]; then printf 'q-st-trn-%d\\n' 1 2 3 7
else echo "NodeName=$4 NodeAddr=$(cat "${0%/*}/address") NodeHostName=$4"; fi"""
    stub(tmp_path, "scontrol", body, monkeypatch)
    (tmp_path / "bin" / "address").write_text("10.0.3.7")
    names = scheduler.host_names("q-st-trn-[1-3,7]")
    assert names == ["q-st-trn-1", "q-st-trn-2", "q-st-trn-3", "q-st-trn-7"]
    assert scheduler.address_of(names[0]) == "10.0.3.7"
    (tmp_path / "bin" / "address").write_text("localhost")
    assert scheduler.address_of(names[0]) == "127.0.0.1"
    monkeypatch.setattr(scheduler, "TRIES", (0, 0))
    (tmp_path / "bin" / "address").write_text("q-st-trn-1.invalid")
    with pytest.raises(InputError, match=r"address of the first node, q-st-trn-1: q-st-trn-1.inv"):
        scheduler.address_of(names[0])


@pytest.mark.case("T08")
def test_ports_differ_between_jobs_and_between_starts() -> None:
    pairs = [scheduler.ports_of(job, restart) for job in range(40, 48) for restart in range(8)]
    ports = [port for pair in pairs for port in pair]
    assert len(set(ports)) == len(ports)
    far = [scheduler.ports_of(job, 0) for job in (1, 9_999, 123_456, 67_000_000)]
    assert all(1024 < port < 32768 for pair in far for port in pair)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trainium:
    """This machine, made to look like a Trn1 node."""
    (tmp_path / "bin").mkdir()
    made = Trainium(tmp_path, tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("ULTRACLUSTER_ROOT", str(made.root))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages"), *sys.path])
    return made


def plan_in(folder: Path, **changes: object) -> Plan:
    return replace(PLAN, output=f"{folder}/out", cache=f"{folder}/cache", **changes)  # type: ignore[arg-type]


@pytest.mark.case("T08")
def test_there_is_a_rank_on_each_core_of_the_instance(node: Trainium, tmp_path: Path) -> None:
    node.set("devices", "16")
    assert look().cores == 32
    node.set("devices", "1")
    assert look().cores == 2
    assert problems_of(plan_in(tmp_path), look()) == []


@pytest.mark.case("T07")
@pytest.mark.case("T09")
def test_each_thing_that_a_node_lacks_is_told(node: Trainium, tmp_path: Path) -> None:
    def told(**changes: object) -> str:
        return " ".join(problems_of(plan_in(tmp_path, **changes), look()))

    node.set("efa", "1")
    assert "fi_info sees 1 of 2 EFA interfaces" in told()
    assert told(network="tcp") == ""
    assert told(nodes=1) == "", "one node talks inside itself"
    assert "fi_info sees 1 of 2" in told(nodes=1, network="efa")
    node.set("efa", "2")
    assert "1 ranks a node: several nodes need one on each core" in told(ranks_per_node=1)
    assert "3 ranks a node: a Trn1 takes 1, 2, 8 or 32" in told(ranks_per_node=3, nodes=1)
    node.write("etc/ultracluster/efa", "no-efa")
    assert "several Trainium nodes need EFA" in told()
    (node.tools / "neuron-ls").unlink()
    assert "neuron-ls sees 0 of 1 devices" in told(nodes=1, ranks_per_node=2)
    node.write("sys/module/neuron/version", "")
    assert "driver is missing, Neuron 2.31.1 has 2.29.0" in told(nodes=1)


@pytest.mark.case("T12")
def test_a_small_hard_limit_of_open_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out.slurm").mkdir()
    plan_in(tmp_path).save()
    result = subprocess.run(
        [
            *("prlimit", "--nofile=256:256", "--", sys.executable, "-m", "training.slurm"),
            *("node", "check", str(tmp_path / "out.slurm")),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert "a process may open 256 files, and each of 2 ranks needs 4096" in result.stdout


@pytest.mark.case("T03")
def test_programs_are_shared_whole_or_not_at_all_and_once(tmp_path: Path) -> None:
    shared = compile_cache.shared_folder(tmp_path, {"neuronx-cc": "2.26"})
    private = [tmp_path / f"job-{number}" for number in range(4)]
    for place in private:
        for name in range(20):
            folder = place / "neuronxcc-2.26" / f"MODULE_{name}+a"
            folder.mkdir(parents=True)
            (folder / "model.neff").write_bytes(bytes([name]) * 50_000)
            if name != 7:  # the one that a kill has cut off
                (folder / "model.done").touch()
    counts: list[int] = []
    torn: list[str] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            for name, folder in compile_cache.modules(shared).items():
                if (folder / "model.neff").stat().st_size != 50_000:
                    torn.append(name)

    def share(place: Path) -> None:
        counts.append(compile_cache.publish(place, shared, patience=60))

    reader = threading.Thread(target=read)
    reader.start()
    writers = [threading.Thread(target=share, args=(place,)) for place in private]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    stop.set()
    reader.join()
    assert torn == []
    assert sorted(counts) == [0, 0, 0, 19]
    assert compile_cache.fetch(shared, tmp_path / "new") == 19
    assert len(compile_cache.modules(tmp_path / "new")) == 19
    assert not [path for path in shared.rglob(".MODULE*")]


def test_a_lock_that_another_job_holds_is_waited_for_and_then_told(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with (
        compile_cache.waiting_lock(lock, 1),
        pytest.raises(InputError, match=f"another job has held {lock} for 0"),
        compile_cache.waiting_lock(lock, 0),
    ):
        pass


@pytest.mark.case("F15")
def test_hydration_waits_until_the_last_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for number in range(450):
        (data / f"{number:03}").write_text("x")
    asked = tmp_path / "asked"
    asked.mkdir()
    # Each look finds a hundred more files that have come in.
    body = f"""\
case $1 in
hsm_restore) for file in "${{@:2}}"; do touch {asked}/"${{file##*/}}"; done ;;
hsm_state) looks=$(($(cat {tmp_path}/looks 2>/dev/null || echo 0) + 1)); echo $looks >{tmp_path}/looks
    for file in "${{@:2}}"; do
        name=${{file##*/}}
        if [[ -e {asked}/$name ]] && ((10#$name < looks * 60)); then state=; else state=released; fi
        echo "$file: (0x0000000d) $state exists archived, archive_id:1"; done ;;
esac"""
    stub(tmp_path, "lfs", body, monkeypatch)
    assert staging.hydrate([data], patience=60, poll=0.01) == 450
    assert len(list(asked.iterdir())) == 450
    assert staging.hydrate([data], patience=60, poll=0.01) == 0, "nothing is left to fetch"


@pytest.mark.case("F15")
def test_hydration_that_stalls_or_is_refused_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").touch()
    stub(tmp_path, "lfs", 'echo "$2: (0x0000000d) released exists archived"', monkeypatch)
    with pytest.raises(InputError, match="1 of 1 files are still only names after 0 s"):
        staging.hydrate([tmp_path / "a"], patience=0, poll=0.01)
    stub(tmp_path, "lfs", "echo not permitted >&2; exit 1", monkeypatch)
    with pytest.raises(InputError, match="not permitted"):
        staging.hydrate([tmp_path / "a"], patience=0)
    with pytest.raises(InputError, match="does not exist"):
        staging.hydrate([tmp_path / "b"], patience=0)
    monkeypatch.setenv("PATH", "/nowhere")
    assert staging.hydrate([tmp_path / "a"], patience=0) == 0, "no Lustre, nothing to fetch"


def test_what_is_staged_is_copied_once_and_again_when_it_has_changed(tmp_path: Path) -> None:
    data, scratch = tmp_path / "data", tmp_path / "scratch"
    (data / "deep").mkdir(parents=True)
    (data / "a").write_text("one")
    (data / "deep" / "b").write_text("two")
    copy = staging.stage(data, scratch)
    assert (copy / "deep" / "b").read_text() == "two"
    first = (copy / "a").stat().st_ino
    staging.stage(data, scratch)
    assert (copy / "a").stat().st_ino == first
    (data / "a").write_text("more")
    staging.stage(data, scratch)
    assert (copy / "a").read_text() == "more"
    assert staging.stage(data / "a", scratch).read_text() == "more"
    with pytest.raises(InputError, match=f"cannot stage {data} to {data}/a"):
        staging.stage(data, data / "a")


@pytest.mark.case("E11")
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InsufficientInstanceCapacity", "capacity"),
        ("VcpuLimitExceeded", "quota"),
        ("UnauthorizedOperation", "permission"),
    ],
)
def test_what_keeps_nodes_away_is_told_in_a_word(
    code: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = f"(Code:{code})Failure when resuming nodes [root@2026-08-01T10:00:00]"
    stub(
        tmp_path,
        "sinfo",
        f'echo "trn1-dy-1 {reason}"; echo "trn1-dy-2 Kill task failed"',
        monkeypatch,
    )
    assert waiting_for().startswith(f"waits for {kind}: {code} on 1 nodes")


def test_the_newest_step_of_a_file_that_is_being_written(tmp_path: Path) -> None:
    assert newest_step(tmp_path) == 0
    path = tmp_path / "steps.csv"
    path.write_text("step,epoch,loss\r\n")
    assert newest_step(tmp_path) == 0
    path.write_text("step,epoch,loss\r\n" + "".join(f"{n},1,0.5\r\n" for n in range(1, 2000)))
    assert newest_step(tmp_path) == 1999
    with path.open("a") as file:
        file.write("20")
    assert newest_step(tmp_path) == 1999
    os.truncate(path, 17)
    assert newest_step(tmp_path) == 0


@pytest.mark.parametrize("said", ["garbage", "two words here", "-4"])
def test_what_no_slurm_says_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    for name in ("sinfo", "squeue"):
        stub(tmp_path, name, f"echo '{said}'", monkeypatch)
    with pytest.raises(InputError, match="no Slurm that is known does"):
        scheduler.nodes_of("train")
    with pytest.raises(InputError, match="no Slurm that is known does"):
        scheduler.in_queue([1])


@pytest.mark.parametrize("content", ["{", "[]", '{"other": 1}', "\xff"])
def test_damaged_files_of_a_run_are_told(tmp_path: Path, content: str) -> None:
    for name, read in (("status.json", read_status), ("jobs", read_jobs)):
        (tmp_path / name).write_text(content, encoding="latin-1")
        with pytest.raises(InputError, match=f"cannot read .*/{name}: "):
            read(tmp_path)


def test_a_run_cannot_make_the_root() -> None:
    with pytest.raises(InputError, match="/ is no folder that a run can make"):
        folder_of(Path("/"))


def test_names_that_mean_something_else_to_slurm_are_told() -> None:
    found = problems_of_plan(replace(PLAN, output="/fsx/50%/a\\b"), time="20", notice=300)
    assert len(found) == 1
    assert "has '%' '\\\\', which means something else in Slurm's names of logs" in found[0]
    assert not problems_of_plan(replace(PLAN, output='/fsx/it\'s "it"'), time="20", notice=300)


def test_of_a_submit_that_is_broken_off_no_job_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, or sbatch's odd words, after the first of two jobs."""
    count, calls = tmp_path / "count", tmp_path / "calls"
    stub(tmp_path, "sinfo", "echo 'train* 4'", monkeypatch)
    stub(tmp_path, "squeue", "", monkeypatch)
    stub(tmp_path, "scancel", f'echo "$@" > {calls}', monkeypatch)
    request = Request(
        plan=replace(PLAN, output=str(tmp_path / "out"), module=["training.bert_pretraining"]),
        time="20",
        notice=300,
        partition=None,
        helper_partition=None,
        hydrate=[],
        compile=True,
        publish=False,
        platform="",
    )
    for second, error in (("echo what", InputError), ("kill -INT $PPID; sleep 9", BaseException)):
        stub(
            tmp_path,
            "sbatch",
            f"[[ -e {count} ]] || {{ echo 17 | tee {count}; exit; }}; {second}",
            monkeypatch,
        )
        with pytest.raises(error):
            submit(request)
        assert calls.read_text().split() == ["17"]
        assert read_jobs(request.plan.folder) == {}
        count.unlink()
        calls.unlink()


def test_a_controller_that_is_away_for_a_while_loses_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = a_start(tmp_path, monkeypatch)
    tried = tmp_path / "tried"
    away = f"[[ $(wc -l < {tried}) -gt 2 ]] || {{ echo 'Unable to contact' >&2; exit 1; }}"
    stub(tmp_path, "scontrol", f'echo "$@" >> {tried}; {away}', monkeypatch)
    monkeypatch.setattr(supervise, "REQUEUE_TRIES", (0, 0, None))
    assert start._again("a node was lost") == STOPPED
    assert [line.split()[0] for line in tried.read_text().splitlines()] == [
        *("requeue", "requeue", "requeue", "update"),
    ]
    assert told(start).state == "waiting"
    stub(tmp_path, "scontrol", "echo 'Unable to contact' >&2; exit 1", monkeypatch)
    assert start._again("a node was lost") == 1
    assert told(start).state == "failed"
    assert "a node was lost; scontrol requeue 7: Unable to contact; submit" in told(start).reason


def test_a_status_that_cannot_be_written_does_not_end_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(folder: Path, status: Status) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    start = a_start(tmp_path, monkeypatch)
    monkeypatch.setattr(supervise, "write_status", full)
    assert start._finish("done", "", 0) == 0
    assert "cannot write the status: [Errno 28]" in capsys.readouterr().out


def a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """A start of a run in job 7 on one node."""
    stub(tmp_path, "scontrol", "echo node-1", monkeypatch)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node-1")
    monkeypatch.setenv("ULTRACLUSTER_ROOT", str(tmp_path))
    plan = replace(PLAN, output=str(tmp_path / "out"))
    before = [(number, signal.getsignal(number)) for number in (signal.SIGUSR1, signal.SIGTERM)]
    start = Start(plan, Job(plan), Signals())
    for number, handler in before:
        signal.signal(number, handler)
    return start


def told(start: Start) -> Status:
    """What its status file says."""
    status = read_status(start._plan.folder)
    assert status is not None
    return status
