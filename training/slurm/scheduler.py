"""Slurm's own commands, and what is asked of them."""

import ipaddress
import socket
import subprocess
import time
from collections.abc import Iterable

from training.command import InputError

LIMIT = 60
# A node's name may become known to others seconds after the node is.
TRIES = (1, 2, 4, 8, 15, 0)


def ask(*command: str, limit: float = LIMIT) -> str:
    """What a command prints.

    Raises:
        InputError: it is not there, takes longer than `limit` seconds, or fails; with its words.
    """
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=limit
        )
    except FileNotFoundError:
        raise InputError(f"no {command[0]} here: run this on a node of a Slurm cluster") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"{' '.join(command)} gave no answer for {limit:g} s") from None
    if result.returncode != 0:
        words = " ".join((result.stderr or result.stdout).split())
        raise InputError(f"{' '.join(command)}: {words or f'exit code {result.returncode}'}")
    return result.stdout


def host_names(nodes: str) -> list[str]:
    """The names in a node list such as `train-st-trn1-[1-3,7]`, in Slurm's order."""
    return ask("scontrol", "show", "hostnames", nodes).split()


def address_of(node: str) -> str:
    """The IPv4 address by which Slurm itself reaches a node.

    A node with eight network cards has as many names and addresses; others may not reach all.

    Raises:
        InputError: it has none, or only a name that cannot be resolved, for half a minute.
    """
    problem = ""
    for delay in TRIES:
        words = ask("scontrol", "show", "node", "-o", node).split()
        given = next((word[9:] for word in words if word.startswith("NodeAddr=")), "")
        try:
            return str(ipaddress.IPv4Address(given))
        except ValueError:
            pass
        try:
            return socket.gethostbyname(given or node)
        except OSError as error:
            problem = f"{given or node}: {error.strerror or error}"
        time.sleep(delay)
    raise InputError(f"cannot find the address of the first node, {node}: {problem}")


def ports_of(job: int, restart: int) -> tuple[int, int]:
    """Two ports that no other job, and no start before this one, has used lately.

    The first is torch's, the second Neuron's. Both are below those that systems give out by
    themselves (32768 and up).
    """
    number = (job * 8 + restart % 8) % 10_000
    return 10_000 + number, 20_000 + number


def in_queue(jobs: Iterable[int]) -> dict[int, str]:
    """The state of those of the jobs that wait or run."""
    wanted = set(jobs)
    rows = _rows("squeue", "--noheader", "--all", "--format=%T %A")
    return {number: state for state, number in rows if number in wanted}


def nodes_of(partition: str | None) -> tuple[str, int] | None:
    """Name and number of nodes of a partition, or of the default one; None where it is unknown."""
    for name, number in _rows("sinfo", "--noheader", "--format=%P %D"):
        if name.rstrip("*") == partition or (partition is None and name.endswith("*")):
            return name.rstrip("*"), number
    return None


def _rows(*command: str) -> list[tuple[str, int]]:
    """Lines of a word and a number.

    Raises:
        InputError: the command says something else.
    """
    rows = []
    for line in ask(*command).splitlines():
        word, _, number = line.strip().rpartition(" ")
        if not number.isdecimal():
            raise InputError(f"{' '.join(command)} says {line!r}, and no Slurm that is known does")
        rows.append((word, int(number)))
    return rows
