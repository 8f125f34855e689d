"""Where MiniStack does otherwise than AWS; each correction says what AWS does."""

from __future__ import annotations

from operations.emulator.server.corrections import (
    alarms,
    buckets,
    events,
    functions,
    nested,
    network,
    stacks,
    templates,
)
from operations.emulator.server.fsx import FSx


def apply(fsx: FSx) -> None:
    """Apply every correction, once, before the first request."""
    alarms.apply()
    buckets.apply()
    events.apply()
    functions.apply()
    nested.apply()
    network.apply(fsx)
    stacks.apply()
    templates.apply()
