"""Where MiniStack does otherwise than AWS; each correction says what AWS does."""

from __future__ import annotations

from operations.emulator.server.corrections import buckets, functions, network, templates
from operations.emulator.server.fsx import FSx


def apply(fsx: FSx) -> None:
    """Apply every correction, once, before the first request."""
    buckets.apply()
    functions.apply()
    network.apply(fsx)
    templates.apply()
