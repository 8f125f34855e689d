"""The delivery's real functions in its real state machine, over in-memory services."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import record.handler
import roll_out.handler
import settle.handler
import validate.handler
from record.report import Reporter
from record.report import Settings as RecordSettings
from roll_out.update import Settings as RollOutSettings
from roll_out.update import Updater
from settle.bake import Bake
from settle.observation import Observer
from settle.observation import Settings as SettleSettings
from shared.places import verdict_key
from tests.unit.delivery_stack import ROLE, definition
from tests.unit.lambdas.asl import Execution, TaskError
from tests.unit.lambdas.fakes import (
    ENDPOINT,
    STACK,
    FakeCloudFormation,
    FakeCloudWatch,
    FakeRuntime,
    FakeS3,
    FakeSageMaker,
    FakeSns,
    Platform,
    labels_of,
)
from tests.unit.lambdas.models import BUCKET, HOST, NAME, Published
from validate.judgement import Judge
from validate.judgement import Settings as ValidateSettings

SWITCH = f"/{ENDPOINT}/delivery"


class Person:
    """Answers requests for approval: `answer` gets the message; None lets the time run out."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.answer: Callable[[str], dict[str, str] | None] = lambda message: {}

    def __call__(self, arguments: Any) -> Any:
        self.messages.append(arguments["Message"])
        answered = self.answer(arguments["Message"])
        if answered is None:
            raise TaskError("States.Timeout", "")
        if "error" in answered:
            raise TaskError(answered["error"], answered["cause"])
        return answered


def _same(part: Any) -> Any:
    return part


def _call(module: Any, event: Any) -> Any:
    return module.handler(event, None)


class Account:
    """One emulated account with the four functions in it."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, approval_hours: int | None = None
    ) -> None:
        self.started = 0
        self._approval_hours = approval_hours
        self.s3 = FakeS3()
        self.sns = FakeSns()
        self.platform = Platform()
        self.cloudformation = FakeCloudFormation(self.platform)
        self.cloudwatch = FakeCloudWatch(self.platform)
        self.switch = "on"
        sagemaker = FakeSageMaker(self.platform)
        self.runtime = FakeRuntime(labels_of)
        parts: dict[Any, tuple[str, Any]] = {
            validate.handler: (
                "_judge",
                Judge(
                    ValidateSettings(
                        aws_region="us-west-2",
                        model_bucket=BUCKET,
                        model_name=NAME,
                        endpoint_stack=STACK,
                        minimum_macro_f1=0.6,
                    ),
                    HOST,
                    s3=self.s3,
                    cloudformation=self.cloudformation,
                ),
            ),
            roll_out.handler: (
                "_updater",
                Updater(
                    RollOutSettings(
                        endpoint_stack=STACK, service_role_arn=ROLE, endpoint_name=ENDPOINT
                    ),
                    cloudformation=self.cloudformation,
                    cloudwatch=self.cloudwatch,
                ),
            ),
            settle.handler: (
                "_observer",
                Observer(
                    SettleSettings(
                        model_bucket=BUCKET, endpoint_stack=STACK, endpoint_name=ENDPOINT
                    ),
                    s3=self.s3,
                    cloudformation=self.cloudformation,
                    sagemaker=sagemaker,
                    runtime=self.runtime,
                    bake=Bake(ENDPOINT, sagemaker=sagemaker, cloudwatch=self.cloudwatch),
                ),
            ),
            record.handler: (
                "_reporter",
                Reporter(
                    RecordSettings(
                        model_bucket=BUCKET,
                        model_name=NAME,
                        endpoint_stack=STACK,
                        endpoint_name=ENDPOINT,
                        topic_arn="arn:aws:sns:us-west-2:000000000000:notices",
                        switch=SWITCH,
                    ),
                    s3=self.s3,
                    sns=self.sns,
                    cloudformation=self.cloudformation,
                ),
            ),
        }
        self.tasks: dict[str, Callable[[Any], Any]] = {}
        for module, (maker, part) in parts.items():
            monkeypatch.setattr(module, maker, functools.partial(_same, part))
            name = module.__name__.split(".")[0]
            self.tasks[name] = functools.partial(_call, module)
        self.person = Person()
        self.tasks["sns:publish.waitForTaskToken"] = self.person
        self.tasks["aws-sdk:ssm:getParameter"] = lambda _: {"Parameter": {"Value": self.switch}}

    def execution(self, event: dict[str, Any]) -> Execution:
        self.started += 1
        return Execution(
            definition(self._approval_hours), self.tasks, event, name=f"run_{self.started}"
        )

    def run(self, event: dict[str, Any]) -> Execution:
        return self.execution(event).run(self.platform.tick)

    def together(self, *events: dict[str, Any]) -> list[Execution]:
        """Run executions side by side, each until its next wait in turn."""
        runs = [self.execution(event) for event in events]
        going: list[Iterator[str]] = [iter(run) for run in runs]
        for _ in range(1000):
            going = [run for run in going if next(run, None) is not None]
            if not going:
                return runs
            self.platform.tick()
        raise AssertionError("the executions wait without end")

    def verdict(self, model: Published) -> dict[str, Any]:
        verdict: dict[str, Any] = self.s3.json(BUCKET, verdict_key(model.digest))
        return verdict

    @property
    def updates(self) -> list[str]:
        """The URLs that CloudFormation accepted."""
        return [
            request["Parameters"][0]["ParameterValue"]
            for name, request in self.cloudformation.calls
            if name == "UpdateStack"
        ]
