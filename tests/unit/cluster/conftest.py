"""Applications that tests of the cluster synthesize."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.synth import BASE, QUEUE, ClusterApp, of_text, synthesize

Make = Callable[..., ClusterApp]


@pytest.fixture(scope="session")
def dev(tmp_path_factory: pytest.TempPathFactory) -> ClusterApp:
    return synthesize("dev", tmp_path_factory.mktemp("dev"))


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Synthesize settings: the base, further text, and one queue where the text names none."""
    numbers = itertools.count()

    def synthesized(text: str = "", *, name: str = "dev") -> ClusterApp:
        queue = "" if "[[cluster.queues]]" in text else QUEUE
        return of_text(f"{BASE}{text}{queue}", tmp_path / str(next(numbers)), name=name)

    return synthesized
