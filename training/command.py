"""What every command of this folder shares: one-line errors and exit codes."""

import argparse
import io
import sys
from collections.abc import Callable
from typing import NoReturn


class InputError(Exception):
    """Something the caller gave cannot be used; the message says what, and what to do."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, like every other error of a command."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2 and one line on stderr."""
        self.exit(2, f"error: {message}; see {self.prog} --help\n")


def run(action: Callable[[], None], *, stopped: str = "stopped by Ctrl-C") -> int:
    """Run a command and return its exit code: 0, 2 for bad input, 130 for Ctrl-C.

    `stopped` is the line that Ctrl-C ends with.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # a path may hold bytes that are no text
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        action()
    except (InputError, OSError) as error:  # OSError: a full disk, a folder that went away
        sys.stdout.flush()
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        told = _told(error)
        if told is None:
            raise
        sys.stdout.flush()
        print(f"error: {told}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        sys.stdout.flush()
        print(stopped, file=sys.stderr)
        return 130
    return 0


def first_line(error: BaseException) -> str:
    """The first line of an error that a library raised, or its type where it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__


def _told(error: Exception) -> str | None:
    """What to say of an error whose cause is known; None of any other."""
    if str(error).startswith("Symlink loop"):  # as pathlib has it, until Python 3.13
        return str(error)
    words = ("can't allocate memory", "out of memory", "Storage size calculation overflowed")
    if isinstance(error, MemoryError) or any(word in str(error) for word in words):
        return f"out of memory: {first_line(error)}; take a smaller batch, micro-batch or model"
    return None
