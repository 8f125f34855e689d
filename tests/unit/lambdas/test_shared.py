import io
import json
import logging
from dataclasses import dataclass

import pytest

from shared.environment import EnvironmentProblem, from_environment
from shared.log import JsonLines, logger
from shared.places import from_manifest_key, from_model_url


@dataclass(frozen=True, kw_only=True)
class Settings:
    model_bucket: str
    minimum_macro_f1: float
    workers: int = 0
    bf16: bool = False


def test_settings_come_from_the_environment() -> None:
    given = {"MODEL_BUCKET": "b", "MINIMUM_MACRO_F1": "0.6", "WORKERS": "4", "BF16": "true"}
    wanted = Settings(model_bucket="b", minimum_macro_f1=0.6, workers=4, bf16=True)
    assert from_environment(Settings, {**given, "OTHER": "x"}) == wanted
    prefixed = {f"X_{name}": value for name, value in given.items()}
    assert from_environment(Settings, prefixed, prefix="X_") == wanted


def test_every_variable_at_fault_is_named() -> None:
    with pytest.raises(EnvironmentProblem) as caught:
        from_environment(
            Settings,
            {"MODEL_BUCKET": " ", "MINIMUM_MACRO_F1": "much", "WORKERS": "1.5", "BF16": "yes"},
        )
    for said in (
        "MODEL_BUCKET is not set; MINIMUM_MACRO_F1 is 'much', allowed: a number",
        "WORKERS is '1.5', allowed: a whole number; BF16 is 'yes', allowed: true, false",
    ):
        assert said in str(caught.value)


def test_a_log_line_is_one_json_object_with_the_digest() -> None:
    stream = io.StringIO()
    log = logger("test_shared")
    log.handlers[0] = logging.StreamHandler(stream)
    log.handlers[0].setFormatter(JsonLines())
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("it %s", "broke", extra={"digest": "ab"})
    (line,) = stream.getvalue().splitlines()
    value = json.loads(line)
    assert (value["message"], value["digest"], value["level"]) == ("it broke", "ab", "ERROR")
    assert "ValueError: no" in value["error"]
    assert logger("test_shared") is log
    assert len(log.handlers) == 1


def test_places_lead_to_each_other() -> None:
    place = from_manifest_key("b", f"models/sentiment/{'a' * 64}/manifest.json")
    assert place is not None
    assert from_model_url(place.model_url) == place
    assert from_model_url("none") is None
    assert from_model_url("s3://b/other.tar.gz") is None
    assert from_manifest_key("b", "verdicts/x.json") is None
