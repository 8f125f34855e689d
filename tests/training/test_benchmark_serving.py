"""The benchmark of serving measures what it says, on a tiny model."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import serving
from benchmarks.serving import BASE, Times

pytestmark = pytest.mark.training


def test_the_variants_differ_and_are_python() -> None:
    codes = {title: variant.code for title, variant in serving.variants().items()}
    for code in codes.values():
        compile(code, "inference.py", "exec")
    assert len(set(codes.values())) == len(codes) - 1  # one has the same code and more threads


def test_two_served_variants_are_held_against_each_other(
    encoder: Path, tweets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = {title: serving.variants()[title] for title in (BASE, "ours")}
    monkeypatch.setattr(serving, "variants", lambda: two)
    lines = serving.measure(str(encoder), tweets, 1).splitlines()
    assert "40 requests of one client, 80 of 4, 1 with 64 texts" in lines[0]
    base, ours = (line.split(" | ") for line in lines[4:])
    assert base[0] == f"| {BASE}"
    assert base[-2:] == ["1.00", "1.00 |"]
    assert all(float(ratio.rstrip(" |")) > 0 for ratio in ours[-2:])


def test_ratios_are_those_of_the_times() -> None:
    slow = Times(alone=[0.2] * 100, together=[0.4] * 100, many=[3.0, 2.0])
    fast = Times(alone=[0.1] * 100, together=[0.2] * 100, many=[1.0, 0.5])
    _, _, base, ours = serving._rows({BASE: slow, "ours": fast})
    assert base.endswith("| 1.00 | 1.00 |")
    assert ours == ("| ours | 100.0 ms | 100 ms | 200 ms | 200 ms | 500 ms | 2.00 | 4.00 |")
