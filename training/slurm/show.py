"""How a run stands, for a person: its file, Slurm's queue, and why a job waits."""

import re
from datetime import datetime
from pathlib import Path

from training.command import InputError
from training.slurm.scheduler import ask, in_queue
from training.slurm.status import Status, read_jobs, read_status

# What EC2 answers a cluster that asks for nodes, as ParallelCluster writes it on them.
CODES = {
    "capacity": (
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientCapacity",
        "MaxSpotInstanceCountExceeded",
        "LimitedInstanceCapacity",
        "SpotMaxPriceTooLow",
        "Unsupported",
    ),
    "quota": ("VcpuLimitExceeded", "InstanceLimitExceeded", "VolumeLimitExceeded"),
    "permission": ("UnauthorizedOperation", "AccessDeniedException"),
}
ADVICE = {
    "capacity": "EC2 has no such instances here now; Slurm asks again, another zone or a "
    "reservation may have them",
    "quota": "the account may run no more of them; ask for a higher quota",
    "permission": "the head node may not start them; see its role",
}


def show(folder: Path) -> str:
    """Lines about a run.

    Raises:
        InputError: there is no such run, or Slurm gives no answer.
    """
    numbers = {job: name for name, job in read_jobs(folder).items()}
    if not numbers:
        raise InputError(f"no run was submitted for {folder.with_suffix('')}")
    lines = []
    status = read_status(folder)
    if status is not None:
        if status.job not in numbers:
            lines.append("of the job before this one:")
        lines += _of_run(status)
    queued = in_queue(numbers)
    for number, name in numbers.items():
        lines.append(f"{name:<8} job {number}  {queued.get(number, 'not in the queue')}")
    if "PENDING" in queued.values() and (why := waiting_for()):
        lines.append(why)
    return "\n".join(lines) + "\n"


def waiting_for() -> str:
    """What keeps nodes from starting, in one line; empty where EC2 has refused nothing."""
    told = ask("sinfo", "--noheader", "--list-reasons", "--format=%n %E")
    for kind, codes in CODES.items():
        for code in codes:
            nodes = re.findall(rf"^(\S+) .*\b{code}\b", told, re.M)
            if nodes:
                return f"waits for {kind}: {code} on {len(nodes)} nodes; {ADVICE[kind]}"
    return ""


def _of_run(status: Status) -> list[str]:
    lines = [f"{status.state}{': ' if status.reason else ''}{status.reason}"]
    lines.append(f"step {status.step}, {status.ranks} ranks on {status.nodes}")
    cost = "" if status.usd is None else f", {status.usd:.2f} USD by list price"
    lines.append(f"{len(status.starts)} starts, {status.node_hours:.2f} node hours{cost}")
    if len(status.starts) > 1:
        lines.append(f"between starts: {_idle(status):.0f} s")
    if status.excluded:
        lines.append(f"left out: {', '.join(status.excluded)}")
    if status.compile_cache:
        lines.append(
            "compile cache: " + ", ".join(f"{n} {k}" for k, n in status.compile_cache.items())
        )
    lines.append(f"as of {status.updated}")
    return lines


def _idle(status: Status) -> float:
    """Seconds between the end of each start and the next one's begin."""
    return sum(
        (
            datetime.fromisoformat(after["begun"]) - datetime.fromisoformat(before["ended"])
        ).total_seconds()
        for before, after in zip(status.starts, status.starts[1:], strict=False)
    )
