"""How a run is asked to stop: a signal to any worker, or a file that the first one looks for."""

import os
import signal
from pathlib import Path
from types import FrameType, TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
STOPPED = 75  # EX_TEMPFAIL of sysexits.h: the same command goes on
STOPPED_TWICE = 130


class Stop:
    """Remembers that someone asked to stop. A second Ctrl-C ends the process at once.

    torchrun passes SIGTERM on and dies of SIGUSR1, hence the file: it reaches every launcher.
    """

    def __init__(self) -> None:
        self._file: Path | None = None
        self._signalled = False

    def watch(self, file: Path) -> None:
        """Look for this file too."""
        self._file = file

    @property
    def asked(self) -> bool:
        """Whether this worker knows of a wish to stop."""
        return self._signalled or (self._file is not None and self._file.exists())

    def granted(self) -> None:
        """Take the file away, so that the next start does not stop too."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def __enter__(self) -> "Stop":
        """Take the signals over."""
        self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give them back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._signalled and number == signal.SIGINT:
            os._exit(STOPPED_TWICE)
        self._signalled = True
