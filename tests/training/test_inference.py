"""The served code, through the toolkit that the serving image runs."""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from sagemaker_inference.transformer import Transformer

from tests.training.bad_requests import random_request
from tests.training.conftest import WORDS
from training.packaging.package import INFERENCE

pytestmark = pytest.mark.training

JSON = "application/json"
TEXT = '{"inputs": "a happy train"}'


class Context:
    """What TorchServe hands to the toolkit: one object, filled anew with each request."""

    def __init__(self, folder: Path) -> None:
        self.model_name = "model"
        self.system_properties = {"model_dir": str(folder)}
        self.request_processor = [self]
        self.begin({})

    def begin(self, headers: dict[str, Any]) -> None:
        self.headers = headers
        self.status = 200
        self.content_type = ""

    def get_request_properties(self) -> dict[str, Any]:
        return self.headers

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        self.status = code

    def set_response_content_type(self, request_id: int, value: str) -> None:
        self.content_type = value


@dataclass(frozen=True)
class Answer:
    """A response: status, content type, and the body, which is the message of an error."""

    status: int
    content_type: str
    body: str


@dataclass(frozen=True)
class Server:
    """A packed model behind the toolkit."""

    transformer: Transformer
    folder: Path
    context: Context

    def post(
        self, body: str | bytes | None, content_type: Any = JSON, accept: Any = None
    ) -> Answer:
        headers = {"Content-Type": content_type, "Accept": accept}
        self.context.begin({name: value for name, value in headers.items() if value is not None})
        raw = body.encode() if isinstance(body, str) else body
        (answer,) = self.transformer.transform([{"body": raw}], self.context)
        return Answer(self.context.status, self.context.content_type, answer)


@pytest.fixture(scope="module")
def server(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The archive, unpacked and loaded as in a container."""
    folder = tmp_path_factory.mktemp("ml") / "model"
    with tarfile.open(packed / "model.tar.gz") as tar:
        tar.extractall(folder, filter="data")
    sys.path.insert(0, str(folder / "code"))
    transformer = Transformer()
    context = Context(folder)
    transformer.validate_and_initialize(model_dir=str(folder), context=context)
    yield Server(transformer, folder, context)
    sys.path.remove(str(folder / "code"))
    del sys.modules["inference"]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (TEXT, 1),
        ('{"inputs": ["a happy train", "the worst paper", "nine"]}', 3),
        ('"a happy train"', 1),
        ('["good", "bad"]', 2),
        (json.dumps({"inputs": ["good"] * 64}), 64),
        ('{"inputs": "\\u00e9\\ud83d\\ude00 caf\u00e9 \U0001f600 \\u0000"}', 1),
    ],
)
def test_texts_get_one_label_and_score_each(server: Server, body: str, count: int) -> None:
    answer = server.post(body)
    assert (answer.status, answer.content_type) == (200, JSON)
    predictions = json.loads(answer.body)
    assert len(predictions) == count
    for prediction in predictions:
        assert set(prediction) == {"label", "score"}
        assert prediction["label"] in ("negative", "neutral", "positive")
        assert 1 / 3 <= prediction["score"] <= 1


def test_the_answer_is_what_the_model_learned(server: Server) -> None:
    answer = server.post(
        json.dumps(["the worst, awful", "nine at the table today", "great, lovely"])
    )
    labels = [prediction["label"] for prediction in json.loads(answer.body)]
    assert labels == ["negative", "neutral", "positive"]


def test_a_text_is_answered_the_same_alone_and_in_company(server: Server) -> None:
    chance = random.Random(0)
    words = [word for known in WORDS.values() for word in known]
    texts = [" ".join(chance.choices(words, k=chance.randint(1, 80))) for _ in range(64)]
    together = json.loads(server.post(json.dumps(texts)).body)
    for text, prediction in zip(texts, together, strict=True):
        (alone,) = json.loads(server.post(json.dumps(text)).body)
        assert alone["label"] == prediction["label"]
        assert alone["score"] == pytest.approx(prediction["score"], abs=1e-5)


@pytest.mark.parametrize(
    ("body", "content_type", "status", "message"),
    [
        (TEXT, "application/json; charset=utf-8", 200, None),
        (TEXT, 'Application/JSON;charset="UTF-8"', 200, None),
        (TEXT.encode("latin-1"), "application/json; charset=iso-8859-1", 200, None),
        (TEXT.encode("utf-16"), "application/json; charset=utf-16", 200, None),
        (b"\xef\xbb\xbf" + TEXT.encode(), JSON, 200, None),
        ('{"inputs": "café"}'.encode("latin-1"), JSON, 400, "the body is not in utf-8"),
        ('{"inputs": "café"}'.encode("latin-1"), "application/json; charset=utf-8", 400, "not in"),
        (TEXT, "application/json; charset=klingon", 415, "the charset must be one of utf-8, utf"),
        (TEXT, "application/json; charset=zip", 415, "the charset must be one of utf-8, utf-16"),
        (TEXT, "application/json; charset=punycode", 415, "the charset must be one of utf-8, utf"),
        (TEXT, "application/json; charset*=utf-8''utf-8", 200, None),
        (TEXT, "text/plain", 415, "the content type must be application/json"),
        (TEXT, "text/csv", 415, "the content type must be application/json"),
        (b"\xff", "text/csv", 415, "the content type must be application/json"),
        (TEXT, "application/x-www-form-urlencoded", 415, "must be application/json"),
        (TEXT, None, 415, "the content type must be application/json"),
        (TEXT, "nonsense", 415, "the content type must be application/json"),
        (None, {"content-type": None}, 415, "the content type must be application/json"),
        (None, JSON, 400, "the body is not JSON"),
        ("", JSON, 400, "the body is not JSON"),
        ("{", JSON, 400, "the body is not JSON"),
        ("[" * 100_000, JSON, 400, "the body is not JSON"),
        ("9" * 5_000, JSON, 400, "the body is not JSON"),
        ("7", JSON, 422, "inputs must be a text or a list of texts"),
        ("NaN", JSON, 422, "inputs must be a text or a list of texts"),
        ("null", JSON, 422, "inputs must be a text or a list of texts"),
        ('""', JSON, 422, "not empty"),
        ('" \\n"', JSON, 422, "not empty"),
        ("[]", JSON, 422, "not empty"),
        ('["good", ""]', JSON, 422, "not empty"),
        ('["good", 7]', JSON, 422, "inputs must be a text or a list of texts"),
        ('{"inputs": {"text": "good"}}', JSON, 422, "inputs must be a text or a list of texts"),
        ('{"text": "good"}', JSON, 422, 'the object must have the one key "inputs"'),
        ('{"inputs": "good", "top_k": 3}', JSON, 422, 'must have the one key "inputs"'),
        ('{"inputs": "half \\ud83d"}', JSON, 422, "in valid Unicode"),
        (json.dumps(["good"] * 65), JSON, 413, "65 texts; at most 64 a request"),
    ],
)
def test_bodies_and_content_types(
    server: Server, body: str | bytes | None, content_type: Any, status: int, message: str | None
) -> None:
    answer = server.post(body, content_type)
    assert answer.status == status
    if message is not None:
        assert message in answer.body
        assert answer.content_type == "text/plain"


def test_no_request_whatever_its_bytes_is_the_models_fault(server: Server) -> None:
    """500 would feed the alarm that rolls a good model back."""
    chance = random.Random(20261130)
    seen = Counter(server.post(*random_request(chance)).status for _ in range(5000))
    assert set(seen) == {200, 400, 406, 413, 415, 422}
    assert min(seen.values()) >= 10, "the requests must reach every answer"
    assert server.post(TEXT).status == 200


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        (None, 200),
        ("*/*", 200),
        (JSON, 200),
        ("application/json; charset=utf-8", 200),
        ("application/*", 200),
        ("text/html, application/json;q=0.9", 200),
        ("text/html,*/*;q=0.1", 200),
        ("Application/JSON", 200),
        ("", 200),
        ("application/json;q=0", 406),
        ("application/json; q=0.000, text/html", 406),
        (";;,,=", 406),
        ("text/csv", 406),
        ("application/x-npy", 406),
    ],
)
def test_accept(server: Server, accept: str | None, status: int) -> None:
    answer = server.post(TEXT, accept=accept)
    assert answer.status == status
    if status == 406:
        assert answer.body == "the answer can only be application/json"


@pytest.mark.case("M20")
def test_a_body_of_one_byte_too_many_is_413_and_the_next_request_is_served(
    server: Server,
) -> None:
    served = sys.modules["inference"]
    assert served.MAX_BYTES == 6_291_456
    fitting = json.dumps("good " * 1_258_289 + "fit")
    assert len(fitting) == served.MAX_BYTES - 6
    assert server.post(fitting + " " * 6).status == 200
    answer = server.post(fitting + " " * 7)
    assert (answer.status, answer.body) == (
        413,
        "6291457 bytes; at most 6291456 are allowed",
    )
    assert server.post(TEXT).status == 200


@pytest.mark.case("M20")
def test_the_limit_is_the_one_that_the_server_has(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TS_MAX_REQUEST_SIZE", "20")
    monkeypatch.setattr(sys.modules["inference"], "MAX_BYTES", fresh_module().MAX_BYTES)
    assert server.post('"good"').status == 200
    assert server.post('"good, better, best"').status == 200
    assert server.post('"good, better, best!"').status == 413


def fresh_module() -> Any:
    """The served code, imported anew."""
    spec = importlib.util.spec_from_file_location("fresh", INFERENCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_text_over_the_models_limit_is_cut(server: Server) -> None:
    long = json.dumps("happy " * 20_000)
    cut = json.dumps("happy " * 64)
    assert server.post(long).status == 200
    assert server.post(long).body == server.post(cut).body


@pytest.mark.parametrize(
    ("body", "content_type"), [("{", JSON), (TEXT, "text/plain"), ("[" * 99_999, JSON), ("7", JSON)]
)
def test_no_answer_tells_a_path_or_a_traceback(
    server: Server, body: str, content_type: str
) -> None:
    said = server.post(body, content_type).body
    assert len(said.splitlines()) == 1
    assert not re.search(r"Traceback|[/\\]\w+[/\\]", said)


def test_what_the_model_fails_with_stays_in_the_log(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(texts: list[str], loaded: object) -> None:
        raise OSError(f"cannot read {server.folder}/secret with token abc")

    monkeypatch.setattr(sys.modules["inference"], "predict", fail)
    answer = server.post(TEXT)
    assert (answer.status, answer.content_type) == (500, "text/plain")
    assert answer.body == "the model failed with OSError; the endpoint's log says why"
    assert "token abc" in caplog.text


def test_threads_come_from_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        fresh_module().model_fn(str(server.folder))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_model_runs_in_float32(server: Server) -> None:
    _, model = sys.modules["inference"].model_fn(str(server.folder))
    assert {tensor.dtype for tensor in model.parameters()} == {torch.float32}
    assert not model.training


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_max_length": 10**30}, "the model has 66 positions; set model_max_length"),
        ({"model_max_length": 66}, "out of bounds"),
    ],
)
def test_a_model_that_would_fail_on_long_texts_does_not_load(
    server: Server, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    for path in server.folder.iterdir():
        if path.is_file():
            os.link(path, tmp_path / path.name)
    path = tmp_path / "tokenizer_config.json"
    configuration = json.loads(path.read_text(encoding="utf-8")) | change
    path.unlink()
    path.write_text(json.dumps(configuration), encoding="utf-8")
    with pytest.raises((ValueError, RuntimeError), match=message):
        sys.modules["inference"].model_fn(str(tmp_path))


def test_vendored_packages_are_used_only_by_the_interpreter_they_are_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    tag = fresh_module().TAG
    code = tmp_path / "inference.py"
    code.write_bytes(INFERENCE.read_bytes())
    for name in (tag, "cp312-aarch64"):
        (tmp_path / "vendor" / name).mkdir(parents=True)
    monkeypatch.setitem(globals(), "INFERENCE", code)
    fresh_module()
    vendored = [path for path in sys.path if path.startswith(str(tmp_path))]
    assert vendored == [str(tmp_path / "vendor" / tag)] == sys.path[:1]
