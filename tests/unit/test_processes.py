"""Child processes end with their starter, however it ends. Real processes, no stand-ins."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from operations.processes import Child, run

ROOT = Path(__file__).parents[2]

# A child that starts a grandchild, both deaf to SIGTERM, and tells both process ids.
FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
grandchild = subprocess.Popen([sys.executable, "-c", deaf])
with open(sys.argv[1] + ".part", "w") as file:
    file.write(f"{os.getpid()} {grandchild.pid}")
os.replace(sys.argv[1] + ".part", sys.argv[1])
if "leave" not in sys.argv:
    time.sleep(600)
"""

# A starter: keeps a child until it is killed itself.
STARTER = """
import sys, time
from pathlib import Path
from operations.processes import Child, run
command = [sys.executable, "-c", sys.argv[1], sys.argv[2]]
log = Path(sys.argv[2] + ".log")
if sys.argv[3] == "run":
    run(command, log=log, grace_seconds=0.2)
else:
    with Child(command, log=log, grace_seconds=0.2):
        time.sleep(600)
"""


def gone(process: int) -> bool:
    """Whether a process has ended; a zombie that nobody has collected yet has."""
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return not state or state.startswith("Z")


def eventually(true: Callable[[], bool]) -> None:
    """Wait until something holds; the limit only keeps a failing test from hanging."""
    limit = time.monotonic() + 60
    while not true():
        assert time.monotonic() < limit, "it never came true"
        time.sleep(0.05)


def family(told: Path) -> list[int]:
    eventually(told.exists)
    return [int(number) for number in told.read_text().split()]


def command(told: Path, *more: str) -> list[str]:
    return [sys.executable, "-c", FAMILY, str(told), *more]


def test_closing_a_child_ends_it_and_its_own_children(tmp_path: Path) -> None:
    with Child(command(tmp_path / "told"), log=tmp_path / "log", grace_seconds=0.2) as child:
        members = family(tmp_path / "told")
        assert child.exit_status is None
    assert all(gone(member) for member in members)
    assert child.exit_status == 128 + signal.SIGKILL


def test_a_killed_supervisor_does_not_save_its_child(tmp_path: Path) -> None:
    child = Child(command(tmp_path / "told"), log=tmp_path / "log", grace_seconds=0.2)
    members = family(tmp_path / "told")
    os.kill(child._supervisor.pid, signal.SIGKILL)
    child.wait()
    assert not any(gone(member) for member in members)
    child.close()
    eventually(lambda: all(gone(member) for member in members))


def test_an_exception_in_the_block_ends_the_child(tmp_path: Path) -> None:
    child = Child(command(tmp_path / "told"), log=tmp_path / "log", grace_seconds=0.2)
    with pytest.raises(KeyboardInterrupt), child:
        members = family(tmp_path / "told")
        raise KeyboardInterrupt
    assert all(gone(member) for member in members)


def test_what_a_child_leaves_behind_is_ended_when_it_ends_by_itself(tmp_path: Path) -> None:
    with Child(
        command(tmp_path / "told", "leave"), log=tmp_path / "log", grace_seconds=0.2
    ) as child:
        assert child.wait() == 0
    assert all(gone(member) for member in family(tmp_path / "told"))


@pytest.mark.parametrize("way", ["child", "run"])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_child_does_not_outlive_its_starter(
    tmp_path: Path, end: signal.Signals, way: str
) -> None:
    told = tmp_path / "told"
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, FAMILY, str(told), way],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )
    try:
        members = family(told)
        assert not any(gone(member) for member in members)
        os.kill(starter.pid, end)
    finally:
        if not told.exists():
            starter.kill()
        starter.wait()
    eventually(lambda: all(gone(member) for member in members))


def test_ctrl_c_in_the_terminal_reaches_the_starter_only(tmp_path: Path) -> None:
    """The child is in another session, so that we end it in our own way."""
    with Child(command(tmp_path / "told"), log=tmp_path / "log", grace_seconds=0.2):
        members = family(tmp_path / "told")
        assert os.getsid(members[0]) != os.getsid(0)


def test_the_log_holds_both_streams_and_is_appended_to(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "log"
    talk = "import sys; print('out', flush=True); print('err', file=sys.stderr)"
    for _ in range(2):
        with Child([sys.executable, "-c", talk], log=log) as child:
            assert child.wait() == 0
    assert log.read_text().splitlines() == ["out", "err", "out", "err"]


def test_run_hands_out_lines_and_keeps_them(tmp_path: Path) -> None:
    lines: list[str] = []
    talk = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    status = run([sys.executable, "-u", "-c", talk], log=tmp_path / "log", on_line=lines.append)
    assert status == 3
    assert lines == ["one", "two"]
    assert (tmp_path / "log").read_text() == "one\ntwo\n"


def test_run_gives_folder_environment_and_no_input(tmp_path: Path) -> None:
    lines: list[str] = []
    tell = "import os, sys; print(os.getcwd(), sorted(os.environ)[0], repr(sys.stdin.read()))"
    run(
        [sys.executable, "-c", tell],
        cwd=tmp_path,
        env={"AAA": "1"},
        log=tmp_path / "log",
        on_line=lines.append,
    )
    assert lines == [f"{tmp_path} AAA ''"]


def test_run_survives_output_that_is_not_text(tmp_path: Path) -> None:
    lines: list[str] = []
    talk = r"import sys; sys.stdout.buffer.write(b'\xff\xfe\n')"
    assert run([sys.executable, "-c", talk], log=tmp_path / "log", on_line=lines.append) == 0
    assert (tmp_path / "log").read_bytes() == b"\xff\xfe\n"
    assert len(lines) == 1


def test_an_error_in_the_line_handler_ends_the_child(tmp_path: Path) -> None:
    told = tmp_path / "told"
    talk = f"import os, time; open({str(told)!r}, 'w').write(str(os.getpid())); print('x', flush=True); time.sleep(600)"

    def refuse(line: str) -> None:
        raise ValueError(line)

    with pytest.raises(ValueError, match="x"):
        run([sys.executable, "-c", talk], log=tmp_path / "log", on_line=refuse, grace_seconds=0.2)
    assert gone(int(told.read_text()))


def test_a_command_that_cannot_be_started_says_so(tmp_path: Path) -> None:
    assert run([tmp_path / "no-such-program"], log=tmp_path / "log") == 127
    assert "no-such-program: No such file or directory" in (tmp_path / "log").read_text()


def test_a_signal_that_ends_the_command_shows_in_its_status(tmp_path: Path) -> None:
    end = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    assert run([sys.executable, "-c", end], log=tmp_path / "log") == 128 + signal.SIGSEGV
