"""A cluster of real Slurm daemons: each node has a network, a host name and a disk of its own.

All of it lives in namespaces below one process, which reads a pipe that the test holds open. When
the test ends, however it ends, that process ends too, and the kernel takes every process, link and
mount of the cluster away. So names and addresses are the same in each run, side by side too.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SLURM = ROOT / ".cache" / "slurm"
LIBRARIES = next(iter(SLURM.glob("usr/lib/*/slurm-wlm")), SLURM)
# Generous: only a fault makes a test wait that long.
PATIENCE = 300
HEAD = "10.77.0.1"
PREFIX = "train-dy-trn1-"

# PID 1 of the cluster: lives as long as its standard input, and leaves no zombies.
_INIT = "import signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); sys.stdin.read()"

_CONF = """\
ClusterName=test
SlurmctldHost=head({head})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={run}/munge.sock,cred_expire={expire}
PluginDir={plugins}
StateSaveLocation={run}/state
SlurmdSpoolDir={run}/spool/%n
SlurmctldPidFile={run}/slurmctld.pid
SlurmdPidFile={run}/spool/%n.pid
SlurmctldLogFile={run}/log/slurmctld.log
SlurmdLogFile={run}/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=8
SlurmctldTimeout=10
KillWait=10
MessageTimeout=8
UnkillableStepTimeout=60
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobRequeue=1
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
{more}
NodeName={prefix}[1-{nodes}] NodeAddr=10.77.0.[11-{last}] CPUs=4 RealMemory=1 State={state}
PartitionName=train Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

_CLOUD = """\
SlurmctldParameters=idle_on_node_suspend,power_save_interval=1,power_save_min_interval=0,cloud_dns
ResumeProgram={run}/resume
SuspendProgram={run}/suspend
ResumeTimeout=60
SuspendTimeout=5
SuspendTime=60
ResumeRate=0
SuspendRate=0
PrivateData=cloud
"""

# One node: a network, a name and a disk; then slurmd. Arguments: its number, its name.
_BOOT = """\
#!/bin/bash
set -e
number=$1 name=$2
ip netns add "$name"
ip link add "v$number" type veth peer name eth0 netns "$name"
ip link set "v$number" master nodes up
ip -n "$name" addr add "10.77.0.$((10 + number))/24" dev eth0
ip -n "$name" link set eth0 up
ip -n "$name" link set lo up
mkdir -p {run}/spool/"$name" {run}/disks/"$name"
nsenter --net=/run/netns/"$name" unshare --uts --mount bash -c "
    hostname $name
    mount --bind {run}/disks/$name {run}/scratch
    exec slurmd -d {stepd} $3"
"""

# The end of a node: a network that another node's mounts still hold would keep its link.
_END = """\
#!/bin/bash
ip netns pids "$2" | xargs -r kill -9
ip netns del "$2"
ip link del "v$1" 2>/dev/null || true
"""
# What ParallelCluster's programs do: start instances, or tell Slurm in EC2's words that there are
# none; and end them.
_RESUME = """\
#!/bin/bash
export {environment}
for name in $(scontrol show hostnames "$1"); do
    if [[ -e {run}/refused.$name ]]; then
        scontrol update nodename="$name" state=down \\
            reason="(Code:$(<{run}/refused.$name))Failure when resuming nodes"
    else
        bash {run}/boot "${{name##*-}}" "$name" -b
    fi
done </dev/null >>{run}/log/resume.log 2>&1 # Slurm has closed it, and slurmd needs one
"""
_SUSPEND = """\
#!/bin/bash
export {environment}
for name in $(scontrol show hostnames "$1"); do
    bash {run}/end "${{name##*-}}" "$name"
done >>{run}/log/suspend.log 2>&1
"""


def reason_to_skip() -> str | None:
    """Why no cluster can be made here; None where it can."""
    if not (SLURM / ".ready").is_file():
        return "no Slurm: make .cache/slurm/.ready"
    if os.geteuid() != 0:
        return "Slurm's nodes are network namespaces, which need root"
    made = subprocess.run(
        ["unshare", "--pid", "--net", "--mount", "--uts", "--fork", "--mount-proc", "ip", "link"],
        capture_output=True,
        text=True,
    )
    return f"no namespaces here: {made.stderr.strip()}" if made.returncode else None


class SlurmCluster:
    """slurmctld and some slurmd.

    Args:
        folder: of the run; takes logs, spool and the nodes' disks.
        nodes: how many.
        cloud: whether they start from zero, by power saving, as ParallelCluster's do.
    """

    def __init__(self, folder: Path, *, nodes: int = 4, cloud: bool = False) -> None:
        self.run = folder
        self.names = [f"{PREFIX}{number}" for number in range(1, nodes + 1)]
        self.stepd = SLURM / "usr" / "sbin" / "slurmstepd"
        self._cloud = cloud
        self.environment = dict(os.environ) | {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{folder}/bin:{SLURM}/usr/bin:{SLURM}/usr/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LD_LIBRARY_PATH": f"{LIBRARIES}:{LIBRARIES.parent}",
        }

    def __enter__(self) -> SlurmCluster:
        for name in ("state", "log", "spool", "munge", "disks", "scratch", "bin"):
            (self.run / name).mkdir(parents=True)
        (self.run / "munge").chmod(0o700)
        (self.run / "munge" / "key").write_bytes(os.urandom(128))
        (self.run / "munge" / "key").chmod(0o600)
        self._write_files()
        self._init = subprocess.Popen(
            [
                *("unshare", "--pid", "--net", "--mount", "--uts", "--fork", "--mount-proc"),
                *("--kill-child", "python3", "-c", _INIT),
            ],
            stdin=subprocess.PIPE,
        )
        self._pid = self._first_child()
        self.shell(
            f"""
            set -e
            hostname head
            mount --bind {self.run}/hosts /etc/hosts
            mkdir -p /run/netns
            mount -t tmpfs tmpfs /run/netns
            ip link set lo up
            ip link add nodes type bridge
            ip addr add {HEAD}/24 dev nodes
            ip link set nodes up
            munged --force --key-file={self.run}/munge/key --socket={self.run}/munge.sock \
                --pid-file={self.run}/munge/pid --log-file={self.run}/munge/log \
                --seed-file={self.run}/munge/seed --num-threads=2
            slurmctld -c
            """
        )
        if not self._cloud:
            self._boot_all()
            self.wait(lambda: self.idle() == set(self.names), "all nodes idle")
        else:
            self.wait(lambda: self.call("scontrol", "ping", check=False).returncode == 0, "ping")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._init.stdin
        self._init.stdin.close()
        self._init.wait(PATIENCE)

    def _boot_all(self) -> None:
        for name in self.names:
            self.boot(name)

    def boot(self, name: str) -> None:
        """Bring a node up."""
        self.call("bash", str(self.run / "boot"), name.rpartition("-")[2], name)

    def cut(self, name: str) -> None:
        """Take a node's network away."""
        self.call("ip", "link", "set", f"v{name.rpartition('-')[2]}", "down")

    def end(self, name: str) -> None:
        """End a node as a terminated instance ends: every process, then its network."""
        self.call("bash", str(self.run / "end"), name.rpartition("-")[2], name)

    def call(
        self, *command: str, check: bool = True, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the head node."""
        result = subprocess.run(
            [*self._enter(), *command],
            env=self.environment | variables,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert not check or result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
        return result

    def shell(self, script: str) -> str:
        """Run a script on the head node; what it prints."""
        return self.call("bash", "-c", script).stdout

    def idle(self) -> set[str]:
        """The nodes that wait for work."""
        return set(self.shell("sinfo -h -N -t idle -o %N").split())

    def job(self, number: int) -> Mapping[str, str]:
        """What scontrol tells of a job; empty once it is forgotten."""
        result = self.call("scontrol", "show", "job", "-o", str(number), check=False)
        words = (word.partition("=") for word in result.stdout.split())
        return {name: value for name, _, value in words}

    def state(self, number: int) -> str:
        """A job's state, such as RUNNING."""
        return self.job(number).get("JobState", "")

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait until a condition holds; what it gave."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if value := condition():
                return value
            time.sleep(0.2)
        raise AssertionError(f"waited {PATIENCE} s for: {what}\n{self.tell()}")

    def tell(self) -> str:
        """The cluster's view of itself, and its newest log lines, for a failing test."""
        parts = [self.call(*words, check=False).stdout for words in (("squeue",), ("sinfo",))]
        for log in sorted((self.run / "log").iterdir()):
            parts.append(f"--- {log.name}\n" + "\n".join(log.read_text().splitlines()[-15:]))
        return "\n".join(parts)

    def _enter(self) -> list[str]:
        namespaces = ("--pid", "--net", "--mount", "--uts")
        return ["nsenter", f"--target={self._pid}", *namespaces, "env", f"--chdir={ROOT}"]

    def _first_child(self) -> int:
        children = Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children")
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if found := children.read_text().split():
                return int(found[0])
            assert self._init.poll() is None, "unshare has ended"
            time.sleep(0.01)
        raise AssertionError("unshare has no child")

    def _write_files(self) -> None:
        run = self.run
        conf = _CONF.format(
            head=HEAD,
            run=run,
            plugins=LIBRARIES,
            prefix=PREFIX,
            nodes=len(self.names),
            last=10 + len(self.names),
            # A requeued job waits as long as a credential lives, and one must outlive a power-up,
            # which Slurm's controller only looks at twice a minute.
            expire=45 if self._cloud else 5,
            state="CLOUD" if self._cloud else "UNKNOWN",
            more=_CLOUD.format(run=run) if self._cloud else "",
        )
        (run / "slurm.conf").write_text(conf)
        hosts = [f"10.77.0.{10 + number} {name}" for number, name in enumerate(self.names, 1)]
        (run / "hosts").write_text(
            "\n".join(["127.0.0.1 localhost", f"{HEAD} head", *hosts]) + "\n"
        )
        (run / "boot").write_text(_BOOT.format(run=run, stepd=self.stepd))
        (run / "end").write_text(_END)
        kept = ("SLURM_CONF", "PATH", "LD_LIBRARY_PATH")
        environment = " ".join(f"{name}={self.environment[name]}" for name in kept)
        for name, text in (("resume", _RESUME), ("suspend", _SUSPEND)):
            (run / name).write_text(text.format(run=run, environment=environment))
            (run / name).chmod(0o755)
