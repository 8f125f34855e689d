"""What the benchmarks measure is what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import delivery
from benchmarks.synth import EMPTY, cases, rules_ms, settings
from ultracluster.environment import load_environment


@pytest.mark.parametrize(("title", "text"), [case for case in cases() if case[0] != EMPTY])
def test_every_measured_app_is_a_right_one(title: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "bench.toml").write_text(text, encoding="utf-8")
    loaded = load_environment("bench", tmp_path).settings.cluster
    queues, nodes = {"50": (50, 16), "10": (10, 16), "1 ": (1, None)}[title[:2]]
    assert len(loaded.queues) == queues
    assert nodes is None or loaded.queues[0].max_count == nodes


def test_settings_and_rules_are_timed(tmp_path: Path) -> None:
    (tmp_path / "bench.toml").write_text(settings(queues=2, nodes=1), encoding="utf-8")
    assert rules_ms("bench", tmp_path) > 0


def test_every_function_is_timed_cold_and_the_deliverys_warm() -> None:
    folders = {path.parent.name for path in delivery.LAMBDAS.glob("*/handler.py")}
    cold = delivery.cold(turns=1)
    assert set(cold) == {delivery.BASELINE, *folders}
    assert min(cold.values()) > 0
    warm = delivery.warm(roll_outs=2)
    assert set(warm) <= folders
    assert {"validate", "roll_out", "settle", "record"} <= set(warm)
