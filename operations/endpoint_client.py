"""A client of the served model: labels for texts, and a reason for each failure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from operations.aws_errors import BAD_CREDENTIALS, told

# As the served code and SageMaker have them: texts and bytes of one request.
MOST_TEXTS = 64
MOST_BYTES = 6_291_456
# SageMaker gives a model 60 s to answer.
_CONFIG = Config(
    read_timeout=70, connect_timeout=10, retries={"mode": "standard", "total_max_attempts": 3}
)


class PredictionError(Exception):
    """Why there is no prediction, and what to do about it."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What the model says of a text; the score is its probability, 0 to 1."""

    text: str
    label: str
    score: float


class EndpointClient:
    """Asks the endpoint of one environment.

    Args:
        endpoint: its name.
        stack: the stack that makes it.
        region: where both are.

    Raises:
        PredictionError: the machine has no usable AWS configuration.
    """

    def __init__(self, *, endpoint: str, stack: str, region: str) -> None:
        self._endpoint, self._stack, self._region = endpoint, stack, region
        try:
            self._session = boto3.Session(region_name=region)
            self._runtime = self._session.client("sagemaker-runtime", config=_CONFIG)
        except BotoCoreError as error:  # such as a profile that does not exist
            raise PredictionError(told(error)) from error

    def predict(self, texts: Sequence[str]) -> Iterator[Prediction]:
        """Labels in the order of the texts, in as many requests as they need.

        Raises:
            PredictionError: at the first request that is not answered.
        """
        for group in in_requests(texts):
            yield from self._ask(group)

    def _ask(self, texts: Sequence[str]) -> list[Prediction]:
        try:
            answer = self._runtime.invoke_endpoint(
                EndpointName=self._endpoint,
                ContentType="application/json",
                Accept="application/json",
                Body=_body(texts),
            )
            content = answer["Body"].read()
        except ClientError as error:
            raise PredictionError(self._why(error)) from error
        except BotoCoreError as error:
            raise PredictionError(told(error)) from error
        try:
            answers = [(item["label"], float(item["score"])) for item in json.loads(content)]
            return [
                Prediction(text=text, label=label, score=score)
                for text, (label, score) in zip(texts, answers, strict=True)
            ]
        except (ValueError, TypeError, LookupError):
            raise PredictionError(
                f"the model answers {content[:200]!r}; allowed: a list with the label and the "
                "score of each text. serve code that answers so, or ask the endpoint yourself"
            ) from None

    def _why(self, error: ClientError) -> str:
        response: Any = error.response
        code = response["Error"]["Code"]
        message = response["Error"].get("Message", "")
        if code == "ModelError":
            status = response.get("OriginalStatusCode", 0)
            said = f"{status}: {response.get('OriginalMessage') or message}"
            if 400 <= status < 500:
                return f"the model refuses the request with {said}"
            return (
                f"the model fails with {said}; read its log: aws logs tail "
                f"/aws/sagemaker/Endpoints/{self._endpoint} --region {self._region}"
            )
        if code in BAD_CREDENTIALS:
            return f"AWS does not know these credentials ({code}: {message}); renew them"
        if code.startswith("AccessDenied"):
            return f"{message}; allow it to the role or user that asks"
        if code in ("ValidationError", "ValidationException"):
            return self._state() or f"the endpoint {self._endpoint} does not answer: {message}"
        return f"the endpoint {self._endpoint} does not answer ({code}): {message}; try again later"

    def _state(self) -> str | None:
        """What keeps the endpoint from serving; None where nothing does, or it cannot be read."""
        try:
            sagemaker = self._session.client("sagemaker", config=_CONFIG)
            endpoint = sagemaker.describe_endpoint(EndpointName=self._endpoint)
        except ClientError as error:
            missing = "Could not find endpoint" in error.response["Error"].get("Message", "")
            return self._without_endpoint() if missing else None
        except BotoCoreError:
            return None
        status: str = endpoint["EndpointStatus"]
        reason = endpoint.get("FailureReason", "")
        if status == "InService":
            return None
        if status in ("Creating", "Updating", "SystemUpdating", "RollingBack"):
            return f"the endpoint {self._endpoint} is {status}; try again in some minutes"
        return (
            f"the endpoint {self._endpoint} is {status}: {reason or 'sagemaker gives no reason'}; "
            "publish a model that loads, or deploy the endpoint stack again"
        )

    def _without_endpoint(self) -> str | None:
        try:
            cloudformation = self._session.client("cloudformation", config=_CONFIG)
            stack = cloudformation.describe_stacks(StackName=self._stack)["Stacks"][0]
        except ClientError as error:
            if "does not exist" not in error.response["Error"].get("Message", ""):
                return None
            return (
                f"there is no stack {self._stack} in {self._region}; deploy it with "
                "`npx cdk deploy --all`, or name another environment with -c"
            )
        except BotoCoreError:
            return None
        status = stack["StackStatus"]
        if status.endswith("_IN_PROGRESS"):
            return f"nothing serves yet, and stack {self._stack} is in {status}; try again later"
        return "nothing serves yet; publish a model (docs/publish.md), then ask again"


def in_requests(texts: Sequence[str]) -> Iterator[list[str]]:
    """Texts in groups that one request holds.

    Raises:
        PredictionError: one text alone is too large.
    """
    group: list[str] = []
    whole = MOST_BYTES - len(_body([])) + len(", ")
    room = whole
    for number, text in enumerate(texts, start=1):
        size = len(json.dumps(text)) + len(", ")
        if size > whole:
            raise PredictionError(
                f"text {number} takes {size} bytes of a request; at most {whole} are allowed"
            )
        if len(group) == MOST_TEXTS or size > room:
            yield group
            group, room = [], whole
        room -= size
        group.append(text)
    if group:
        yield group


def _body(texts: Sequence[str]) -> bytes:
    return json.dumps({"inputs": list(texts)}).encode()
