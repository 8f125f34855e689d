"""Child processes that never outlive this one.

Each child runs under a small supervisor (`supervisor.py`) that holds a pipe from this process.
The child and everything it started are ended (SIGTERM, then SIGKILL for the whole process group)
when the child is closed, when the `with` block is left by an exception or Ctrl-C, and also when
this process ends without cleaning up, be it by SIGTERM or by `kill -9`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_MARGIN_SECONDS = 5.0  # what the supervisor may take beyond the child's grace


class Child:
    """A supervised child process, used as a context manager.

    Its standard output and standard error go to `log`, which is appended to, or to `output`.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        grace_seconds: float = 5.0,
    ) -> None:
        """Start the command.

        Args:
            command: The program and its arguments.
            log: File that takes both output streams; its folder is made.
            env: The whole environment of the child; None hands on ours.
            cwd: Folder that the child starts in; None means ours.
            grace_seconds: How long the child may take after SIGTERM before it is killed.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._start(command, output=output, env=env, cwd=cwd, grace_seconds=grace_seconds)

    def _start(
        self,
        command: Sequence[str | Path],
        *,
        output: IO[bytes] | int,
        env: Mapping[str, str] | None,
        cwd: Path | None,
        grace_seconds: float,
    ) -> None:
        self._patience = grace_seconds + _MARGIN_SECONDS
        read_end, self._lifeline = os.pipe()
        self._group, group_end = os.pipe()
        pipes = (read_end, group_end)
        supervised = [sys.executable, "-I", str(_SUPERVISOR), *map(str, pipes), str(grace_seconds)]
        try:
            self._supervisor = subprocess.Popen(
                [*supervised, *(str(part) for part in command)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if env is None else dict(env),
                cwd=cwd,
                pass_fds=pipes,
                start_new_session=True,  # Ctrl-C of the terminal reaches us alone; we end the child
            )
        except BaseException:
            self._cut_lifeline()
            self._read_group()
            raise
        finally:
            for pipe in pipes:
                os.close(pipe)

    @property
    def exit_status(self) -> int | None:
        """Exit status of the child, 128 + n for signal n; None while it runs."""
        return self._supervisor.poll()

    def wait(self) -> int:
        """Wait until the child has ended by itself; return its exit status."""
        return self._supervisor.wait()

    def close(self) -> None:
        """End the child and all that it started; does nothing once they are gone."""
        self._cut_lifeline()
        try:
            self._supervisor.wait(timeout=self._patience)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._supervisor.pid, signal.SIGKILL)
            self._supervisor.wait()
        group = self._read_group()
        if group and self._supervisor.returncode < 0:  # killed, and so could not end the group
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def _read_group(self) -> int | None:
        """Id of the child's process group, told once; None when it was told or never started."""
        pipe, self._group = self._group, -1
        if pipe < 0:
            return None
        with os.fdopen(pipe) as stream:
            return int(stream.read() or 0) or None

    def _cut_lifeline(self) -> None:
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:
            os.close(lifeline)

    def __enter__(self) -> Self:
        """Hand out the running child."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the child, whatever ended the block."""
        self.close()


class _PipedChild(Child):
    """A supervised child whose output this process reads."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None,
        cwd: Path | None,
        grace_seconds: float,
    ) -> None:
        self._start(command, output=subprocess.PIPE, env=env, cwd=cwd, grace_seconds=grace_seconds)

    @property
    def output(self) -> IO[bytes]:
        """Standard output and standard error of the child, in one stream."""
        assert self._supervisor.stdout is not None  # noqa: S101
        return self._supervisor.stdout

    def close(self) -> None:
        """End the child and all that it started, then close the stream."""
        super().close()
        self.output.close()


def run(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    log: Path,
    on_line: Callable[[str], None] | None = None,
    grace_seconds: float = 5.0,
) -> int:
    """Run a command to its end and return its exit status (128 + n for signal n).

    Args:
        command: The program and its arguments; it gets no standard input.
        env: The whole environment of the child; None hands on ours.
        cwd: Folder that the child starts in; None means ours.
        log: File that both output streams are appended to; its folder is made.
        on_line: Called with each line as it comes, without its line end.
        grace_seconds: How long the child may take after SIGTERM before it is killed.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("ab") as record,
        _PipedChild(command, env=env, cwd=cwd, grace_seconds=grace_seconds) as child,
    ):
        for line in child.output:
            record.write(line)
            record.flush()
            if on_line is not None:
                on_line(line.decode(errors="replace").rstrip("\r\n"))
        return child.wait()
