"""The job that this process is the batch script of: its nodes, and steps on them."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from training.command import InputError
from training.slurm.compile_cache import hits, modules, publish, shared_folder
from training.slurm.node import Node, look, neuron_packages
from training.slurm.plan import Plan
from training.slurm.scheduler import address_of, ask, host_names, ports_of
from training.slurm.staging import local_path, own_folder

RANK = Path(__file__).with_name("rank.sh")
NO_ANSWER = "gives no answer"
CHECK_LIMIT = 300
PREPARE_LIMIT = 3600
LOCK_PATIENCE = 600
# What ranks get to write down where they hang, and then to end.
LAST_WORDS = 30


class Signals:
    """Remembers what Slurm has told this process, from the moment it is made."""

    def __init__(self) -> None:
        self.time_is_up = False
        self.ending = False
        signal.signal(signal.SIGUSR1, self._note)
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            self.time_is_up = True
        else:
            self.ending = True


class Job:
    """The nodes of this job, and what runs on them.

    Raises:
        InputError: this is no job, or Slurm does not tell of its nodes.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        try:
            self.number = int(os.environ["SLURM_JOB_ID"])
            self.node_list = os.environ["SLURM_JOB_NODELIST"]
        except KeyError as error:
            raise InputError(f"{error.args[0]} is not set: Slurm starts this, in a job") from None
        self.restart = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        self.nodes = host_names(self.node_list)
        self.node: Node = look()
        self.logs = plan.folder / "logs" / f"{self.number}.{self.restart}"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.per_node = plan.ranks_per_node or self.node.cores
        self.cache = cache_folder(plan, self.number)

    @property
    def ranks(self) -> int:
        """Ranks on all nodes."""
        return len(self.nodes) * self.per_node

    def check(self) -> dict[str, list[str]]:
        """What is wrong with each node that is not fit."""
        return self._on_each("check", CHECK_LIMIT)

    def prepare(self) -> dict[str, list[str]]:
        """Bring compiled programs and data to the nodes; what went wrong on which."""
        return self._on_each("prepare", PREPARE_LIMIT)

    def launch(self, output: Path) -> subprocess.Popen[bytes]:
        """Start the ranks, which write to `logs`."""
        first = address_of(self.nodes[0])
        port, neuron_port = ports_of(self.number, self.restart)
        cores = int(os.environ.get("SLURM_CPUS_ON_NODE", "1"))
        environment = {
            "MASTER_ADDR": first,
            "MASTER_PORT": str(port),
            "NEURON_PORT": str(neuron_port),
            "LOCAL_WORLD_SIZE": str(self.per_node),
            "NETWORK": self.node.network(self.plan),
            "KIND": self.node.kind,
            "CACHE": str(self.cache),
        }
        command = [
            *self._srun(self.per_node),
            f"--cpus-per-task={max(1, cores // self.per_node)}",
            "--kill-on-bad-exit=1",
            f"--output={self.logs}/rank-%t.txt",
            *("bash", str(RANK), self.plan.python, "-m"),
            *(self._staged(word) for word in self.plan.module),
            *("--output", str(output)),
        ]
        return subprocess.Popen(command, env=os.environ | environment)

    def end_ranks(self, process: subprocess.Popen[bytes]) -> None:
        """Have each rank write where it is, then end all."""
        for name in ("ABRT", "KILL"):
            for step in self._steps():
                try:
                    ask("scancel", f"--signal={name}", step)
                except InputError as problem:  # it has just ended
                    print(problem, flush=True)
            try:
                process.wait(LAST_WORDS)
                return
            except subprocess.TimeoutExpired:
                continue
        process.kill()
        process.wait()

    def share_programs(self) -> dict[str, int]:
        """Share what was compiled on this node; the report of hits and misses."""
        shared = shared_folder(Path(self.plan.cache), neuron_packages())
        found = hits(self.logs, self.per_node)
        known = {name.rpartition("/")[2] for name in modules(shared)}
        compiled = {name.rpartition("/")[2] for name in modules(self.cache)} - known
        report = {
            "hits": len(found - compiled),
            "misses": len(compiled),
            "shared": publish(self.cache, shared, patience=LOCK_PATIENCE),
        }
        print(
            f"compile cache {shared}: {report['hits']} hits, {report['misses']} misses, "
            f"{report['shared']} shared from here",
            flush=True,
        )
        return report

    def _on_each(self, action: str, limit: float) -> dict[str, list[str]]:
        """Run `training.slurm node ACTION` on every node; the problems of those that have any."""
        command = [
            *self._srun(1),
            "--overlap",  # what hangs on a node must not hide it from a look
            *(self.plan.python, "-m", "training.slurm", "node", action, str(self.plan.folder)),
        ]
        log = self.logs / f"{action}.txt"
        with log.open("ab") as errors, tempfile.TemporaryFile() as answers:
            process = subprocess.Popen(command, stdout=answers, stderr=errors)
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            answers.seek(0)
            lines = answers.read().decode("utf-8", "replace").splitlines()
        told = {}
        for line in lines:
            if line.startswith('{"node"'):
                answer = json.loads(line)
                told[answer["node"]] = answer["problems"]
        found = {node: told.get(node, [NO_ANSWER]) for node in self.nodes}
        return {node: problems for node, problems in found.items() if problems}

    def _srun(self, per_node: int) -> list[str]:
        count = len(self.nodes)
        return [
            *("srun", f"--nodes={count}", f"--ntasks={count * per_node}"),
            f"--ntasks-per-node={per_node}",
        ]

    def _steps(self) -> list[str]:
        """The steps of this job that run, without the batch script itself."""
        told = ask("squeue", "--noheader", "--steps", f"--jobs={self.number}", "--format=%i")
        return [step for step in told.split() if step.rpartition(".")[2].isdecimal()]

    def _staged(self, word: str) -> str:
        """An argument, or in it the copy on the node's own disk of what was staged."""
        for path in self.plan.stage:
            name, equals, value = word.rpartition("=")
            if value == path or value.startswith(f"{path}/"):
                copy = local_path(Path(path), Path(self.plan.scratch))
                return f"{name}{equals}{copy}{value[len(path) :]}"
        return word


def cache_folder(plan: Plan, job: int) -> Path:
    """Where a job keeps compiled programs on each node's own disk."""
    scratch = Path(plan.scratch)
    base = scratch if scratch.is_dir() else Path(tempfile.gettempdir())
    return own_folder(base) / f"cache-{job}"


def describe(problems: Mapping[str, Sequence[str]]) -> str:
    """Problems of nodes in one line; those that many have, once."""
    by_problem: dict[str, list[str]] = {}
    for node, found in problems.items():
        by_problem.setdefault("; ".join(found), []).append(node)
    parts = []
    for problem, nodes in by_problem.items():
        names = ", ".join(nodes[:4]) + (f" and {len(nodes) - 4} more" if len(nodes) > 4 else "")
        parts.append(f"{names}: {problem}")
    return " | ".join(parts)
