"""Several workers in as many processes, forked from one that has imported torch already."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable
from typing import Any

from training.core.backend import stop_hard

LIMIT = 120
_CONTEXT = multiprocessing.get_context("forkserver")
# All that a worker would spend its first seconds on importing.
_CONTEXT.set_forkserver_preload(
    [
        "pytest",
        "torch._dynamo",
        "tests.training.tiny",
        "training.roberta_sentiment.fine_tune",
        "transformers.models.roberta.modeling_roberta",
    ]
)


def start(world: int, work: Callable[..., Any], *arguments: Any) -> list[Worker]:
    """Start `work(*arguments)` in every worker."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return [Worker(rank, world, port, work, arguments) for rank in range(world)]


def run(world: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `work(*arguments)` returns in every worker."""
    return [worker.result() for worker in start(world, work, *arguments)]


class Worker:
    """One process of a run."""

    def __init__(
        self, rank: int, world: int, port: int, work: Callable[..., Any], arguments: Any
    ) -> None:
        self._receiver, sender = _CONTEXT.Pipe(duplex=False)
        self.process = _CONTEXT.Process(
            target=_child, args=(sender, rank, world, port, work, arguments), daemon=True
        )
        self.process.start()
        sender.close()

    def result(self) -> Any:
        """What the work returned; fails where it did not."""
        assert self._receiver.poll(LIMIT), "no answer from a worker"
        value = self._receiver.recv()
        assert self.code() == 0
        return value

    def code(self) -> int | None:
        """The exit code; negative after a signal."""
        self.process.join(LIMIT)
        code = self.process.exitcode
        if code is None:
            self.process.kill()
        return code


def _child(
    sender: Any, rank: int, world: int, port: int, work: Callable[..., Any], arguments: Any
) -> None:
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    sender.send(work(*arguments))
    stop_hard(0)
