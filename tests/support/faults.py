"""A stage for faults: the two stacks in an emulated account, one model after another, one row each."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operations.emulator import Emulator
from operations.endpoint_client import EndpointClient, PredictionError
from tests.emulator.test_delivery import BUCKET, PATIENCE_SECONDS, Account, archive
from tests.support.middleman import Middleman

NOBODY = "no model"


@dataclass(frozen=True, kw_only=True)
class Model:
    """A published model, which gives every text its own word."""

    word: str
    digest: str

    @property
    def manifest(self) -> dict[str, str]:
        """What a person starts the state machine with."""
        return {"bucket": BUCKET, "key": f"models/sentiment/{self.digest}/manifest.json"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a fault came to."""

    title: str
    happens: str
    serves: str
    told: str

    def __str__(self) -> str:
        return f"| {self.title} | {self.happens} | {self.serves} | {self.told} |"


class Stage:
    """Plays faults; what a case leaves serving is the former model of the next."""

    def __init__(self, account: Account, middleman: Middleman, emulator: Emulator) -> None:
        self.account = account
        self.middleman = middleman
        self.stacks = account.stacks
        self.inbox = account.inbox()
        self._client = EndpointClient(
            endpoint=account.endpoint_name, stack="endpoint", region=emulator.region
        )
        self._numbers = itertools.count(1)
        self._ended: set[str] = set()
        self._models: dict[str, Model] = {}
        self._told: set[str] = set()
        self.former = NOBODY

    def begin(self) -> None:
        """Look back no further than this, whatever a case before left."""
        self._ended = {item["executionArn"] for item in self.account.executions()}
        self._told = set(self._models)
        self.middleman.forget()
        for queue in (self.inbox, self.account.queue):
            self.messages(queue)

    def publish(self, **faults: Any) -> Model:
        """A newer model than all before, with the faults that `archive` knows."""
        number = next(self._numbers)
        word = f"model-{number}"
        created = f"2026-11-01T00:{number:02}:00Z"
        digest = self.account.publish(archive(word, **faults), created, label=word)
        self._models[word] = Model(word=word, digest=digest)
        return self._models[word]

    @property
    def newest(self) -> str:
        """The word of the newest model."""
        return max(self._models, key=lambda word: int(word.partition("-")[2]))

    def model(self, word: str) -> Model:
        """The model with this word."""
        return self._models[word]

    def untold(self, messages: list[str]) -> list[str]:
        """The models of this case that no message is about."""
        new = [one for word, one in self._models.items() if word not in self._told]
        return [one.word for one in new if not any(one.digest[:12] in text for text in messages)]

    @property
    def published(self) -> int:
        """How many models this case has published."""
        return len(self._models) - len(self._told)

    def set_model(self, url: str) -> None:
        """Set the stack's parameter, as a person does."""
        self.stacks.update_stack(
            StackName="endpoint",
            UsePreviousTemplate=True,
            Parameters=[{"ParameterKey": "ModelUrl", "ParameterValue": url}],
            Capabilities=["CAPABILITY_IAM"],
        )
        for _ in self.patiently("the parameter was not set"):
            if not self.busy:
                return

    def start(self, given: dict[str, Any]) -> str:
        """Start an execution as a person or EventBridge does."""
        answer = self.account.states.start_execution(
            stateMachineArn=self.account.machine, input=json.dumps(given)
        )
        return str(answer["executionArn"])

    def event_of(self, model: Model) -> dict[str, Any]:
        """The event that announced a model."""
        for _ in self.patiently(f"no execution was started for {model.word}"):
            for item in self.account.executions():
                described = self.account.states.describe_execution(
                    executionArn=item["executionArn"]
                )
                if model.digest in described["input"]:
                    event: dict[str, Any] = json.loads(described["input"])
                    return event
        raise AssertionError

    def until_under_way(self, model: Model) -> None:
        """Wait until CloudFormation rolls a model out."""
        for _ in self.patiently(f"{model.word} was not rolled out"):
            stack = self.account.stack("endpoint")
            if model.digest in str(stack["Parameters"]) and self.busy:
                return

    @property
    def busy(self) -> bool:
        """Whether CloudFormation changes the endpoint's stack."""
        return str(self.account.stack("endpoint")["StackStatus"]).endswith("_IN_PROGRESS")

    @property
    def url(self) -> str:
        """What the parameter names."""
        parameters = self.account.stack("endpoint")["Parameters"]
        (url,) = [
            str(item["ParameterValue"]) for item in parameters if item["ParameterKey"] == "ModelUrl"
        ]
        return url

    def serving(self) -> str:
        """The word of the model that answers, by the client that people use."""
        try:
            (answer,) = self._client.predict(["a fine day"])
        except PredictionError as error:
            assert "nothing serves yet" in str(error)
            return NOBODY
        return answer.label

    def named(self) -> str:
        """The word of the model that the parameter names."""
        url = self.url
        return next((word for word, one in self._models.items() if one.digest in url), NOBODY)

    def ended(self, count: int) -> list[str]:
        """Wait until the case's executions have ended; how each did."""
        for _ in self.patiently(f"{count} executions did not end"):
            found = {
                item["executionArn"]: item["status"]
                for item in self.account.executions()
                if item["executionArn"] not in self._ended
            }
            if len(found) >= count and "RUNNING" not in found.values() and not self.busy:
                assert len(found) == count
                return sorted(found.values())
        raise AssertionError

    def messages(self, queue: str, *, wait: int = 0) -> list[Any]:
        """All that a queue holds by now; `wait` is for the first, in seconds."""
        found: list[Any] = []
        while batch := self.account.sqs.receive_message(
            QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=0 if found else wait
        ).get("Messages"):
            for message in batch:
                self.account.sqs.delete_message(
                    QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"]
                )
                found.append(json.loads(message["Body"]))
        return found

    def deploy(self, **changes: Any) -> None:
        """`cdk deploy` of the endpoint's stack with other settings; does not wait."""
        template = self.stacks.get_template(StackName="endpoint")["TemplateBody"]
        for resource in template["Resources"].values():
            if resource["Type"] == "AWS::SageMaker::EndpointConfig":
                resource["Properties"]["ProductionVariants"][0] |= changes
        self.stacks.update_stack(
            StackName="endpoint",
            TemplateBody=json.dumps(template),
            Parameters=[{"ParameterKey": "ModelUrl", "UsePreviousValue": True}],
            Capabilities=["CAPABILITY_IAM"],
        )

    def patiently(self, otherwise: str) -> Iterator[None]:
        """Look again and again, for a while."""
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            yield
            time.sleep(0.1)
        raise AssertionError(otherwise)


@contextlib.contextmanager
def staged(emulator: Emulator, folder: Path) -> Iterator[Stage]:
    """Deploy the stacks, and lead the functions' calls past the middleman."""
    account = Account(emulator, folder)
    with Middleman(emulator.url).listening() as middleman:
        functions = emulator.client("lambda")
        for function in functions.list_functions()["Functions"]:
            variables = function.get("Environment", {}).get("Variables", {})
            if "ENDPOINT_STACK" in variables:
                functions.update_function_configuration(
                    FunctionName=function["FunctionName"],
                    Environment={"Variables": variables | {"AWS_ENDPOINT_URL": middleman.url}},
                )
        yield Stage(account, middleman, emulator)


def plain(text: str) -> str:
    """A message without what differs from run to run."""
    for pattern, word in (
        (r"s3://\S+/[0-9a-f]{64}/\S+", "(URL)"),
        (r"\b[0-9a-f]{12,64}\b", "(digest)"),
        (r"endpoint-Graviton\w+-\w+", "(configuration)"),
        (r"model-\d+", "(label)"),
        (r"\d{4}-\d\d-\d\d[ T][\d:+Z]+", "(time)"),
        (r"arn:aws:\S+", "(ARN)"),
        (r"\w+[0-9A-F]{8} \(AWS", "(resource) (AWS"),
    ):
        text = re.sub(pattern, word, text)
    return text.replace("|", "/")
