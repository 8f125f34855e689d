"""One JSON object a log line, each with the digest of the model it is about."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """Formats a record, and what was passed as `extra`, as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        line = {"level": record.levelname, "logger": record.name, "message": record.getMessage()}
        line |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def logger(name: str) -> logging.Logger:
    """A logger that writes JSON lines to standard error and nowhere else."""
    log = logging.getLogger(name)
    if not log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonLines())
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        # The Lambda runtime's own handler on the root logger would write every line twice.
        log.propagate = False
    return log


@contextmanager
def telling(log: logging.Logger, **about: Any) -> Iterator[None]:
    """Log what breaks inside with what it is about: the runtime's own line says the error alone."""
    try:
        yield
    except Exception:
        log.exception("broke", extra=about)
        raise
