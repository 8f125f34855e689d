"""`ultracluster predict`, against a server that speaks AWS's protocols."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from operations.cli import main
from operations.endpoint_client import MOST_BYTES, MOST_TEXTS, PredictionError, in_requests
from tests.environments import ROOT

ENDPOINT = "ultracluster-dev"
NOT_FOUND = {
    "__type": "ValidationException",
    "message": 'Could not find endpoint "arn:aws:sagemaker:us-west-2:1:endpoint/ultracluster-dev".',
}
UNKNOWN = {"Message": f"Endpoint {ENDPOINT} of account 1 not found."}


class Aws:
    """What each service answers, and the bodies that the model was asked with."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.invocation: tuple[int, str, Any] | None = None
        self.endpoint: tuple[int, Any] = (400, NOT_FOUND)
        self.stack: str | None = None

    def answer(self, path: str, headers: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
        if path == f"/endpoints/{ENDPOINT}/invocations":
            texts = json.loads(body)["inputs"]
            self.asked.append(texts)
            if self.invocation:
                status, code, content = self.invocation
                said = content if isinstance(content, bytes) else json.dumps(content).encode()
                return status, {"x-amzn-ErrorType": code}, said
            labels = [{"label": "positive", "score": 0.98765} for _ in texts]
            return 200, {}, json.dumps(labels).encode()
        if headers.get("X-Amz-Target") == "SageMaker.DescribeEndpoint":
            return self.endpoint[0], {}, json.dumps(self.endpoint[1]).encode()
        assert b"Action=DescribeStacks" in body
        if self.stack is None:
            missing = "Stack with id ultracluster-dev-endpoint does not exist"
            error = f"<Error><Code>ValidationError</Code><Message>{missing}</Message></Error>"
            return 400, {}, f"<ErrorResponse>{error}</ErrorResponse>".encode()
        member = (
            f"<StackName>s</StackName><CreationTime>2026-11-30T00:00:00Z</CreationTime>"
            f"<StackStatus>{self.stack}</StackStatus>"
        )
        return (
            200,
            {},
            (
                "<DescribeStacksResponse><DescribeStacksResult><Stacks><member>"
                f"{member}</member></Stacks></DescribeStacksResult></DescribeStacksResponse>"
            ).encode(),
        )


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    account = Aws()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, headers, content = account.answer(self.path, self.headers, body)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }.items():
            monkeypatch.setenv(name, value)
        try:
            yield account
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command; its status, output and errors."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)

    def command(*arguments: str, stdin: bytes = b"") -> tuple[Any, str, str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            main(["predict", *arguments])
        output = capsys.readouterr()
        return ended.value.code, output.out, output.err

    return command


def test_texts_of_the_command_line_get_a_line_each(aws: Aws, run: Any) -> None:
    status, output, _ = run("what a\nmorning", "fine")
    assert status == 0
    assert output == "positive    98.8%  what a morning\npositive    98.8%  fine\n"
    assert aws.asked == [["what a\nmorning", "fine"]]


def test_lines_of_the_input_may_be_plain_or_json(aws: Aws, run: Any) -> None:
    lines = ["plain", "", '"a \\"text\\""', '{"text": "of an object", "id": 7}', '"he" said', "{x"]
    status, output, _ = run("--json", stdin="\n".join(lines).encode("utf-8-sig"))
    assert status == 0
    texts = ["plain", 'a "text"', "of an object", '"he" said', "{x"]
    assert aws.asked == [texts]
    rows = [json.loads(line) for line in output.splitlines()]
    assert rows == [{"text": text, "label": "positive", "score": 0.98765} for text in texts]


@pytest.mark.parametrize(
    ("stdin", "said"),
    [
        (b"", "there is no text; give TEXT, or a text a line on standard input"),
        (b"good\n\xff\n", "line 2 of the input is not UTF-8"),
        (b'{"inputs": "x"}\n', 'line 1 of the input is {"inputs": "x"}; allowed: a text, or'),
    ],
)
def test_an_input_without_texts_asks_nothing(aws: Aws, run: Any, stdin: bytes, said: str) -> None:
    status, output, error = run(stdin=stdin)
    assert (status, output) == (1, "")
    assert said in error
    assert aws.asked == []


def model_error(status: int, said: str) -> tuple[int, str, Any]:
    return 424, "ModelError", {"OriginalStatusCode": status, "OriginalMessage": said}


FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "the stack is not deployed": (
        {},
        "there is no stack ultracluster-dev-endpoint in us-west-2; deploy it with",
    ),
    "nothing serves yet": ({"stack": "UPDATE_COMPLETE"}, "nothing serves yet; publish a model"),
    "the first model is on its way": (
        {"stack": "UPDATE_IN_PROGRESS"},
        "nothing serves yet, and stack ultracluster-dev-endpoint is in UPDATE_IN_PROGRESS",
    ),
    "the endpoint is made": (
        {"endpoint": (200, {"EndpointStatus": "Creating"})},
        "the endpoint ultracluster-dev is Creating; try again in some minutes",
    ),
    "the endpoint failed": (
        {"endpoint": (200, {"EndpointStatus": "Failed", "FailureReason": "no ping"})},
        "the endpoint ultracluster-dev is Failed: no ping; publish a model that loads",
    ),
    "its state may not be read": (
        {"endpoint": (400, {"__type": "AccessDeniedException", "message": "no"})},
        f"the endpoint ultracluster-dev does not answer: {UNKNOWN['Message']}",
    ),
    "the text is refused": (
        {"invocation": model_error(422, "inputs must be a text")},
        "the model refuses the request with 422: inputs must be a text\n",
    ),
    "the model fails": (
        {"invocation": model_error(500, "the model failed with OSError")},
        "the model fails with 500: the model failed with OSError; read its log: aws logs tail "
        "/aws/sagemaker/Endpoints/ultracluster-dev --region us-west-2",
    ),
    "the model answers something else": (
        {"invocation": (200, "", b'{"label": "positive"}')},
        'the model answers b\'{"label": "positive"}\'; allowed: a list with the label and the',
    ),
    "the model answers too little": (
        {"invocation": (200, "", b"[]")},
        "the model answers b'[]'; allowed: a list with the label and the score of each text",
    ),
    "a right is missing": (
        {"invocation": (403, "AccessDeniedException", {"Message": "User u is not authorized"})},
        "User u is not authorized; allow it to the role or user that asks",
    ),
    "credentials have expired": (
        {"invocation": (403, "ExpiredTokenException", {"Message": "The security token expired"})},
        "AWS does not know these credentials (ExpiredTokenException: The security token expired)",
    ),
    "requests are throttled": (
        {"invocation": (429, "ThrottlingException", {"Message": "Rate exceeded"})},
        "the endpoint ultracluster-dev does not answer (ThrottlingException): Rate exceeded; try",
    ),
}


@pytest.mark.parametrize("title", FAILURES)
def test_each_failure_says_what_to_do(aws: Aws, run: Any, title: str) -> None:
    states, said = FAILURES[title]
    aws.invocation = (400, "ValidationError", UNKNOWN)
    for name, value in states.items():
        setattr(aws, name, value)
    status, output, error = run("fine")
    assert (status, output) == (1, "")
    assert said in error
    assert error.count("\n") == 1


CLIENT = re.search(
    r"^```python\n(.*?)^```$",
    (ROOT / "docs" / "predict.md").read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)


def test_the_client_of_the_documentation_runs(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps the credentials of this test
    assert CLIENT
    program = compile(CLIENT[1], "docs/predict.md", "exec")
    exec(program, {})
    assert capsys.readouterr().out == "positive 0.99 What a beautiful morning :)\n"
    aws.invocation = model_error(422, "inputs must be a text")
    with pytest.raises(SystemExit, match="the model said 422: inputs must be a text"):
        exec(program, {})
    aws.asked.clear()
    aws.invocation = (503, "ServiceUnavailable", {"Message": "no worker is free"})
    with pytest.raises(ClientError, match="no worker is free"):
        exec(program, {})
    assert len(aws.asked) == 4


def test_a_busy_endpoint_is_asked_again(aws: Aws, run: Any) -> None:
    aws.invocation = (429, "ThrottlingException", {"Message": "Rate exceeded"})
    run("fine")
    assert aws.asked == [["fine"]] * 3


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
            "unable to locate credentials; log in (`aws configure`, `aws sso login`)",
        ),
        ({"AWS_PROFILE": "nobody"}, "the config profile (nobody) could not be found"),
        (
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"},
            f'could not connect to the endpoint URL: "http://127.0.0.1:1/endpoints/{ENDPOINT}/'
            'invocations"; check the network and the region',
        ),
    ],
)
def test_a_machine_that_is_not_set_up(
    aws: Aws, run: Any, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name, value in variables.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    status, _, error = run("fine")
    assert status == 1
    assert said in error


def test_an_unknown_environment_is_named(run: Any) -> None:
    status, _, error = run("-c", "nowhere", "fine")
    assert status == 1
    assert "nowhere" in error


@pytest.mark.case("M20")
def test_texts_are_asked_for_in_requests_that_the_model_takes() -> None:
    texts = [f"text {number}" for number in range(2 * MOST_TEXTS + 1)]
    assert list(in_requests(texts)) == [texts[:64], texts[64:128], texts[128:]]
    large = "x" * (MOST_BYTES // 2)
    assert list(in_requests(["a", large, large, "b"])) == [["a", large], [large, "b"]]
    longest = "x" * (MOST_BYTES - len('{"inputs": [""]}'))
    assert list(in_requests([longest, "b"])) == [[longest], ["b"]]
    # Judged as it goes over the wire, where this letter takes six bytes.
    with pytest.raises(PredictionError, match="text 2 takes 6600004 bytes of a request"):
        list(in_requests(["a", "é" * 1_100_000]))
