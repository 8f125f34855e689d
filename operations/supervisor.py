"""Run one command and end its whole process group when the starter is gone.

A script, run by path with nothing but the standard library. It is told of its starter's end by a
pipe: the starter holds the write end, so the read end reaches end of file when the starter closes
it, ends, or is killed with SIGKILL. POSIX only, and nothing of it is peculiar to Linux.

    python supervisor.py READ_FD WRITE_FD GRACE_SECONDS COMMAND [ARGUMENT ...]

The id of the command's process group is written to the second pipe, for a starter that must end it
without this supervisor.

The exit status is the command's own; 128 + n when signal n ended it; 127 when it cannot be started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

_POLL_SECONDS = 0.05


def _alive(group: int) -> bool:
    """Whether a process of the group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS says so of a group that holds only zombies
        return False
    return True


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def end(group: int, grace_seconds: float) -> None:
    """Ask every process of the group to end, then kill those that did not."""
    _signal(group, signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while _alive(group) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    _signal(group, signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """Start the command in a group of its own; return its exit status."""
    starter, group = int(arguments[0]), int(arguments[1])
    grace_seconds, command = float(arguments[2]), arguments[3:]
    os.set_inheritable(starter, False)
    os.set_inheritable(group, False)
    try:
        child = subprocess.Popen(command, start_new_session=True)
    except OSError as problem:
        print(f"cannot start {command[0]}: {problem.strerror}", file=sys.stderr, flush=True)
        return 127
    os.write(group, str(child.pid).encode())
    os.close(group)

    def end_child(*_: object) -> None:
        end(child.pid, grace_seconds)

    def watch_starter() -> None:
        while os.read(starter, 1024):
            pass
        end_child()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end_child)
    threading.Thread(target=watch_starter, daemon=True).start()
    status = child.wait()
    end_child()  # what the command started and left behind
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
