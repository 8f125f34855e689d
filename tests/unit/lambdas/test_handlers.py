import importlib
import io
import json
from typing import Any

import pytest
from botocore.exceptions import ParamValidationError

from shared.environment import EnvironmentProblem
from tests.unit.lambdas.fakes import FakeS3

VARIABLES = {
    "MODEL_BUCKET": "b",
    "MODEL_NAME": "sentiment",
    "ENDPOINT_STACK": "x-endpoint",
    "ENDPOINT_NAME": "x",
    "AWS_REGION": "us-west-2",
    "SERVING_INSTANCE": "ml.c7g.4xlarge",
    "SERVING_TORCH": "2.6.0",
    "SERVING_PYTHON": "3.12",
    "SERVING_MEMORY_GIB": "32",
    "SERVING_DISK_GIB": "30",
    "SERVING_PACKAGE_MIB": "4096",
    "SERVING_WORKERS": "4",
    "SERVING_BF16": "true",
    "MINIMUM_MACRO_F1": "0.6",
    "SERVICE_ROLE_ARN": "arn:aws:iam::000000000000:role/r",
    "SWITCH": "/x/delivery",
    "TOPIC_ARN": "arn:aws:sns:eu-central-1:000000000000:t",
}
MAKERS = {
    "validate": ("_judge", {"s3", "cloudformation"}),
    "roll_out": ("_updater", {"cloudformation", "cloudwatch"}),
    "settle": (
        "_observer",
        {"s3", "cloudformation", "sagemaker", "sagemaker-runtime", "cloudwatch"},
    ),
    "record": ("_reporter", {"s3", "sns", "cloudformation"}),
}


def make(function: str) -> Any:
    """What the first invocation of a fresh function makes."""
    module = importlib.import_module(f"{function}.handler")
    return getattr(module, MAKERS[function][0]).__wrapped__()


@pytest.mark.case("L11")
@pytest.mark.parametrize("function", MAKERS)
def test_clients_are_made_for_the_functions_own_region(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def client(service: str, **rest: Any) -> object:
        made.append(service)
        assert set(rest) <= {"config"}, "region and endpoint come from the environment"
        return object()

    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("boto3.client", client)
    make(function)
    assert set(made) == MAKERS[function][1]


@pytest.mark.parametrize("function", MAKERS)
def test_a_function_without_its_variables_says_which(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(EnvironmentProblem, match="ENDPOINT_STACK is not set"):
        make(function)


RUN = {
    "digest": "ab" * 32,
    "model_url": "s3://b/m",
    "previous_model_url": "none",
    "announcement": "",
    "manifest_key": f"models/sentiment/{'ab' * 32}/manifest.json",
}
EVENTS: dict[str, dict[str, Any]] = {
    "validate": {"bucket": "b", "key": RUN["manifest_key"]},
    "roll_out": {"run": RUN, "token": "t", "action": "roll-out"},
    "settle": {
        "run": RUN,
        "operation": {"token": "t", "target": "s3://b/m"},
        "fault": {"reason": ""},
        "action": "roll-out",
    },
    "record": {
        "outcome": "serving",
        "reason": "",
        "final": False,
        "execution": "arn",
        "input": {"bucket": "b", "key": RUN["manifest_key"]},
        "run": RUN,
    },
}


class Broken:
    """Stands for the part of a function that does its work."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no such luck")


@pytest.mark.parametrize("function", MAKERS)
def test_what_breaks_a_function_is_logged_with_the_digest(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(f"{function}.handler")
    monkeypatch.setattr(module, MAKERS[function][0], Broken)
    stream = io.StringIO()
    monkeypatch.setattr(module.log.handlers[0], "stream", stream)
    with pytest.raises(RuntimeError):
        module.handler(EVENTS[function], None)
    (line,) = stream.getvalue().splitlines()
    told = json.loads(line)
    assert told["level"] == "ERROR"
    assert "RuntimeError: no such luck" in told["error"]
    assert RUN["digest"] in line


@pytest.mark.case("L05")
def test_the_fakes_take_no_request_that_botocore_does_not_know() -> None:
    """So these tests say something when they run under the oldest boto3: tests/oracle."""
    with pytest.raises(ParamValidationError, match="Colour"):
        FakeS3().get_object(Bucket="b", Key="k", Colour="red")
