"""The same requests to TorchServe and to the rehearsal's own server get the same answers.

TorchServe 0.12 with AWS's toolkit is what runs in the serving image. It needs Java and
`make test-torchserve`; without them its half is skipped.
"""

from __future__ import annotations

import json
import random
import shutil
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.training.bad_requests import random_request
from tests.training.servers import PATIENCE_SECONDS, Reply, Server, missing, own, torchserve

pytestmark = pytest.mark.training

Start = Callable[[Path, Path], AbstractContextManager[Server]]
KINDS: dict[str, Start] = {"own": own, "torchserve": torchserve}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module", params=KINDS)
def start(request: pytest.FixtureRequest) -> Start:
    if request.param == "torchserve" and (why := missing()):
        pytest.skip(why)
    return KINDS[request.param]


@pytest.fixture(scope="module")
def server(
    start: Start, packed: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server of each kind with the packed model."""
    with start(packed / "model.tar.gz", tmp_path_factory.mktemp("server")) as running:
        yield running.until_healthy()


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One request, and the one answer to it: an error's text, or labels."""

    method: str = "POST"
    path: str = "/invocations"
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=lambda: JSON)
    status: int = 200
    content_type: str | None = "text/plain"
    said: str | None = None
    labels: list[str] | None = None


def good(count: int = 1) -> bytes:
    return json.dumps({"inputs": ["good, lovely"] * count}).encode()


def refused(body: bytes | None, status: int, said: str, **headers: str) -> Exchange:
    given = {name.replace("_", "-"): value for name, value in headers.items()} or JSON
    return Exchange(body=body, headers=given, status=status, said=said)


def answered(body: bytes, *labels: str, **headers: str) -> Exchange:
    given = JSON | {name.replace("_", "-"): value for name, value in headers.items()}
    return Exchange(body=body, headers=given, content_type="application/json", labels=list(labels))


HEALTHY = '{\n  "status": "Healthy"\n}\n'
NO_TYPE = "the content type must be application/json"
NOT_JSON = "the answer can only be application/json"
EXCHANGES = {
    "one text": answered(b'"the worst, awful"', "negative"),
    "three texts": answered(
        b'{"inputs": ["the worst, awful", "nine at the table today", "great, lovely"]}',
        *("negative", "neutral", "positive"),
    ),
    "as many texts as may be": answered(good(64), *["positive"] * 64),
    "a text over the model's limit": answered(json.dumps("happy " * 20_000).encode(), "positive"),
    "a charset": answered(good(), "positive", Content_Type="application/json; charset=UTF-8"),
    "utf-16": answered(
        good().decode().encode("utf-16"),
        "positive",
        Content_Type="application/json;charset=utf-16",
    ),
    "another Accept": answered(good(), "positive", Accept="text/html, */*;q=0.1"),
    "a header in small letters": answered(good(), "positive", accept="application/json"),
    "no body": refused(b"", 400, "the body is not JSON"),
    "half a body": refused(b'{"inputs": "goo', 400, "the body is not JSON"),
    "not UTF-8": refused(b'{"inputs": "\xff"}', 400, "the body is not in utf-8"),
    "another Accept than JSON": refused(good(), 406, NOT_JSON, Accept="text/csv", **JSON),
    "JSON not wanted": refused(good(), 406, NOT_JSON, Accept="application/json;q=0", **JSON),
    "a text too many": refused(good(65), 413, "65 texts; at most 64 a request"),
    "a byte too many": refused(b" " * 6_291_457, 413, "6291457 bytes; at most 6291456 are allowed"),
    "more than the server takes": Exchange(
        body=b" " * 6_553_501, status=413, content_type=None, said=""
    ),
    "no content type": Exchange(body=good(), headers={}, status=415, said=NO_TYPE),
    "a plain text": refused(b"good", 415, NO_TYPE, Content_Type="text/plain"),
    "a table that is not UTF-8": refused(b"\xff", 415, NO_TYPE, Content_Type="text/csv"),
    "curl's own content type": refused(
        good(), 415, NO_TYPE, Content_Type="application/x-www-form-urlencoded"
    ),
    "an unknown charset": refused(
        good(),
        415,
        "the charset must be one of utf-8, utf-16, utf-32, us-ascii, iso-8859-1, windows-1252",
        Content_Type="application/json; charset=punycode",
    ),
    "JSON without texts": refused(
        b'{"text": "a"}', 422, 'the object must have the one key "inputs"'
    ),
    "an empty text": refused(
        b'["good", " "]',
        422,
        "inputs must be a text or a list of texts, in valid Unicode and not empty",
    ),
    "a request without a body": Exchange(method="GET", headers={}, status=415, said=NO_TYPE),
    "a ping": Exchange(
        method="GET", path="/ping", content_type="application/json", said=HEALTHY, headers={}
    ),
    "a ping by POST": Exchange(
        path="/ping", body=b"", content_type="application/json", said=HEALTHY, headers={}
    ),
    "another path": Exchange(
        method="GET",
        path="/nope",
        headers={},
        status=404,
        content_type="application/json",
        said='{\n  "code": 404,\n  "type": "ResourceNotFoundException",\n  "message": '
        '"Requested resource is not found, please refer to API document."\n}\n',
    ),
}


@pytest.mark.case("M20")
@pytest.mark.parametrize("title", EXCHANGES)
def test_a_request_gets_its_answer_and_the_next_one_is_served(server: Server, title: str) -> None:
    exchange = EXCHANGES[title]
    reply = server.ask(exchange.method, exchange.path, exchange.body, exchange.headers)
    if exchange.labels is None:
        assert exchange.said is not None
        assert reply == Reply(
            status=exchange.status,
            content_type=exchange.content_type,
            body=exchange.said.encode(),
        )
    else:
        assert (reply.status, reply.content_type) == (200, exchange.content_type), reply.body
        answers = json.loads(reply.body)
        assert [answer["label"] for answer in answers] == exchange.labels
        assert all(1 / 3 <= answer["score"] <= 1 for answer in answers)
    assert server.ask("POST", "/invocations", good(), JSON).status == 200


def test_no_request_whatever_its_bytes_is_the_models_fault(server: Server) -> None:
    chance = random.Random(20261130)
    seen: Counter[int] = Counter()
    for _ in range(200):
        body, content_type, accept = random_request(chance)
        given = {"Content-Type": content_type, "Accept": accept}
        headers = {name: value for name, value in given.items() if value is not None}
        seen[server.ask("POST", "/invocations", body, headers).status] += 1
    assert set(seen) <= {200, 400, 406, 413, 415, 422}
    assert server.ping() == 200


BROKEN = {
    "weights are missing": lambda model: (model / "model.safetensors").unlink(),
    "a library is missing": lambda model: (model / "code" / "transformers.py").write_text(
        "raise ImportError('no such library')\n", encoding="utf-8"
    ),
}


@pytest.mark.case("M08")
@pytest.mark.parametrize("title", BROKEN)
def test_a_model_that_cannot_be_loaded_ends_its_server(
    start: Start, packed: Path, tmp_path: Path, title: str
) -> None:
    model, folder = tmp_path / "broken", tmp_path / "server"
    shutil.unpack_archive(packed / "model.tar.gz", model, "gztar")
    BROKEN[title](model)
    with tarfile.open(tmp_path / "broken.tar.gz", "w:gz") as archive:
        for path in model.iterdir():
            archive.add(path, path.name)
    folder.mkdir()
    with start(tmp_path / "broken.tar.gz", folder) as server:
        server.process.wait(timeout=PATIENCE_SECONDS)
        assert server.ping() is None
