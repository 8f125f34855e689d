"""Nodes on one machine whose links have a known speed: network namespaces around a bridge.

Linux and root only. Nothing of it touches the machine's own network, and everything is removed when
the block ends; processes that still run in a namespace keep it alive until they end.
"""

import contextlib
import ctypes
import multiprocessing
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.command import InputError
from training.core.backend import open_backend, stop_hard

INTERFACE = "link0"
PORT = 29500
LIMIT = 120
CLONE_NEWNET = 0x40000000
_CONTEXT = multiprocessing.get_context("forkserver")


@dataclass(frozen=True, kw_only=True)
class Node:
    """A network namespace with one interface."""

    namespace: str
    address: str


def why_not() -> str | None:
    """What this machine lacks for such nodes; None where it has all."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := [tool for tool in ("ip", "tc") if shutil.which(tool) is None]:
        return f"not installed: {', '.join(missing)} (Debian: iproute2)"
    try:
        with linked_nodes(1, bits_per_second=None):
            return None
    except InputError as error:
        return str(error)


@contextlib.contextmanager
def linked_nodes(count: int, *, bits_per_second: int | None) -> Iterator[list[Node]]:
    """Nodes in one subnet; what each sends is shaped, or not where no speed is given.

    Raises:
        InputError: the system refuses to make them.
    """
    name = f"uc-{os.getpid()}-{secrets.token_hex(3)}"
    switch = f"{name}-switch"
    nodes = [
        Node(namespace=f"{name}-{number}", address=f"10.99.0.{number + 1}")
        for number in range(count)
    ]
    made = []
    try:
        for namespace in (switch, *(node.namespace for node in nodes)):
            made.append(namespace)
            _ip("netns", "add", namespace)
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for number, node in enumerate(nodes):
            inside, port = ("-n", node.namespace), f"port{number}"
            # Both ends are made where they belong: none is ever seen outside.
            pair = ("type", "veth", "peer", "name", port, "netns", switch)
            _ip(*inside, "link", "add", INTERFACE, *pair)
            _ip("-n", switch, "link", "set", port, "master", "bridge", "up")
            _ip(*inside, "address", "add", f"{node.address}/24", "dev", INTERFACE)
            _ip(*inside, "link", "set", "lo", "up")
            _ip(*inside, "link", "set", INTERFACE, "up")
            if bits_per_second is not None:
                shaping = ("tbf", "rate", f"{bits_per_second}bit", "burst", "128kb")
                where = ("qdisc", "add", "dev", INTERFACE, "root")
                _run("tc", *inside, *where, *shaping, "latency", "100ms")
        yield nodes
    finally:
        for namespace in made:
            # One that could not be made may have left a file.
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)


def run_on(nodes: Sequence[Node], work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `work(*arguments)` returns on each node, one worker a node.

    Raises:
        InputError: a worker gave no answer.
    """
    pipes, processes = [], []
    for rank in range(len(nodes)):
        receiver, sender = _CONTEXT.Pipe(duplex=False)
        process = _CONTEXT.Process(
            target=_worker, args=(sender, rank, nodes, work, arguments), daemon=True
        )
        process.start()
        sender.close()
        pipes.append(receiver)
        processes.append(process)
    try:
        results = []
        for rank, receiver in enumerate(pipes):
            try:
                results.append(receiver.recv() if receiver.poll(LIMIT) else None)
            except EOFError:
                results.append(None)
            if results[-1] is None:
                raise InputError(f"no answer from worker {rank} of {len(nodes)}")
        return results
    finally:
        for process in processes:
            process.join(5)
            process.kill()
            process.join()


def stream(*, payload: int, times: int) -> list[float]:
    """Seconds in which the first of two nodes sends `payload` bytes to the second, over TCP."""
    rank, first = int(os.environ["RANK"]), os.environ["MASTER_ADDR"]
    seconds = []
    if rank == 0:
        with socket.create_server((first, PORT)) as server, server.accept()[0] as link:
            for _ in range(times):
                start = time.perf_counter()
                link.sendall(bytes(payload))
                link.recv(1)
                seconds.append(time.perf_counter() - start)
        return seconds
    with _connect(first) as link:
        for _ in range(times):
            left = payload
            while left:
                left -= len(link.recv(left))
            link.sendall(b"!")
    return seconds


def _connect(address: str) -> socket.socket:
    """A connection to a server that may not be there yet."""
    until = time.monotonic() + LIMIT
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=LIMIT)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def steps(
    *, accumulate: int, micro_seconds: float, payload: int, times: int
) -> tuple[list[float], int]:
    """Steps of one worker: it sleeps for each micro-batch, then sums `payload` bytes over all.

    Returns:
        The seconds of each step, and the bytes that this node has sent in all of them.
    """
    import torch

    backend = open_backend("cpu", "fp32")
    seconds = []
    backend.reduce([torch.ones(payload // 4)])  # opens every connection
    backend.barrier()
    before = sent_bytes()
    for _ in range(times):
        gradient = torch.ones(payload // 4)
        start = time.perf_counter()
        time.sleep(accumulate * micro_seconds)
        backend.reduce([gradient])
        seconds.append(time.perf_counter() - start)
        if not bool((gradient == backend.workers.world).all()):
            raise InputError("the sum over the nodes is wrong")
    backend.barrier()  # until then, some of it may still wait for its turn on the link
    return seconds, sent_bytes() - before


def sent_bytes() -> int:
    """Bytes that the interface of this process's namespace has sent."""
    for line in Path("/proc/self/net/dev").read_text(encoding="ascii").splitlines():
        name, _, figures = line.partition(":")
        if name.strip() == INTERFACE:
            return int(figures.split()[8])
    raise InputError(f"no interface {INTERFACE} in this namespace")


def _worker(
    sender: Any, rank: int, nodes: Sequence[Node], work: Callable[..., Any], arguments: Any
) -> None:
    _enter(nodes[rank].namespace)
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(nodes)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": nodes[0].address,
        "MASTER_PORT": str(PORT),
        "GLOO_SOCKET_IFNAME": INTERFACE,
        "OMP_NUM_THREADS": "1",
    }
    sender.send(work(*arguments))
    stop_hard(0)


def _enter(namespace: str) -> None:
    """Move this thread, and those it starts, to a network namespace."""
    descriptor = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot enter {namespace}: {os.strerror(code)}")
    os.close(descriptor)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise InputError(f"{' '.join(command)}: {done.stderr.strip()}")
