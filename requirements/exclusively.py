# ruff: noqa: INP001 - a script beside its data, not a package
"""Run a command while no other does under the same lock file: exclusively.py LOCK COMMAND...

The command and all that it starts hold the lock: what a killed set-up left running is waited for.
"""

import fcntl
import os
import sys


def main() -> None:
    """Take the lock, then become the command."""
    lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("another set-up runs in this checkout; waiting for it to end", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
    os.set_inheritable(lock, True)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606


if __name__ == "__main__":
    main()
