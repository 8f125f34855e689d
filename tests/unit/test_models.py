"""`ultracluster models` and `models roll-back`, over in-memory services."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError, ProfileNotFound

from operations.models import models, roll_back
from shared.places import verdict_key
from tests.unit.lambdas.fakes import FakeCloudFormation, FakeS3, Platform, refused
from tests.unit.lambdas.models import BUCKET, Published, good_archive, publish

START = datetime(2026, 11, 1, tzinfo=UTC)
MACHINE = "arn:aws:states:us-west-2:000000000000:stateMachine:delivery"


class Bucket(FakeS3):
    """Lists its objects as well, one a page, each put an hour after the one before."""

    def get_paginator(self, operation: str) -> Bucket:
        assert operation == "list_objects_v2"
        return self

    def paginate(self, **request: Any) -> Iterator[dict[str, Any]]:
        self._called("ListObjectsV2", request)
        yield {}
        for hours, (_, key) in enumerate(self.objects):
            if key.startswith(request["Prefix"]):
                put = START + timedelta(hours=hours)
                yield {"Contents": [{"Key": key, "LastModified": put}]}


class Stacks(FakeCloudFormation):
    """The environment's three stacks that matter here."""

    def describe_stacks(self, **request: Any) -> dict[str, Any]:
        answer = super().describe_stacks(**request)
        outputs = {"ModelBucket": BUCKET, "StateMachineArn": MACHINE}
        answer["Stacks"][0]["Outputs"] = [
            {"OutputKey": key, "OutputValue": value} for key, value in outputs.items()
        ]
        return answer


class States:
    """Step Functions; an execution ends at the second look."""

    def __init__(self) -> None:
        self.started: list[dict[str, Any]] = []
        self.ending: dict[str, Any] = {
            "status": "SUCCEEDED",
            "output": json.dumps({"outcome": "serving", "reason": "roll-back-asked-for"}),
        }
        self._looks = 0

    def start_execution(self, **request: Any) -> dict[str, str]:
        assert request["stateMachineArn"] == MACHINE
        self.started.append(json.loads(request["input"]))
        return {"executionArn": f"{MACHINE}:1"}

    def describe_execution(self, **request: Any) -> dict[str, Any]:
        self._looks += 1
        return self.ending if self._looks > 1 else {"status": "RUNNING"}


class Cloud:
    def __init__(self) -> None:
        self.s3 = Bucket()
        self.platform = Platform()
        self.cloudformation = Stacks(self.platform)
        self.states = States()
        self.lines: list[str] = []

    def client(self, service: str) -> Any:
        return {
            "s3": self.s3,
            "cloudformation": self.cloudformation,
            "stepfunctions": self.states,
        }[service]

    def publish(self, seed: str, **changes: Any) -> Published:
        return publish(self.s3, good_archive(seed), **changes)

    def judge(self, model: Published, outcome: str, **more: Any) -> None:
        verdict = {"outcome": outcome, "final": False, "problems": [], "reason": outcome}
        verdict |= {"announcement": "", "execution": "", "previous_model_url": "none"}
        body = {**verdict, "recorded": "2026-11-02T03:04:05Z", **more}
        self.s3.store(BUCKET, verdict_key(model.digest), json.dumps(body).encode())

    def serve(self, model: Published, **more: Any) -> None:
        self.judge(model, "serving", **more)
        self.platform.url = model.url

    def models(self) -> int:
        return models("dev", client=self.client, show=self.lines.append)

    def back(self, digest: str | None = None, *, yes: bool = True, wait: bool = False) -> int:
        return roll_back(
            "dev",
            digest,
            yes=yes,
            wait_for_end=wait,
            client=self.client,
            show=self.lines.append,
            poll_seconds=0,
        )

    @property
    def said(self) -> str:
        return "\n".join(self.lines)


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


def test_what_is_no_verdict_keeps_no_other_model_from_the_list(cloud: Cloud) -> None:
    good, bad = cloud.publish("good"), cloud.publish("bad")
    cloud.serve(good)
    cloud.s3.store(BUCKET, verdict_key(bad.digest), b"by hand")
    assert cloud.models() == 0
    assert f"{verdict_key(bad.digest)} is no verdict; delete it" in cloud.said
    assert "serving" in cloud.said


def test_every_model_is_listed_with_what_became_of_it(cloud: Cloud) -> None:
    first, second = cloud.publish("first"), cloud.publish("second")
    cloud.judge(first, "serving")
    cloud.serve(second, previous_model_url=first.url)
    bad = cloud.publish("bad")
    cloud.judge(bad, "refused", problems=["below-gate: 0.1", "archive-link: x"], final=True)
    fresh = cloud.publish("fresh", metrics=None)
    assert cloud.models() == 0
    serves, head, *rows = cloud.lines
    assert serves == f"serves now: {second.digest[:12]}"
    assert head.split("  ")[0] == "digest"
    cells = [[cell.strip() for cell in row.split("  ") if cell.strip()] for row in rows]
    assert [row[0] for row in cells] == [model.digest[:12] for model in (fresh, bad, second, first)]
    assert cells[0][2:] == ["no verdict yet", "no readable manifest"]
    assert cells[1][2:] == [
        "refused",
        "2026-11-02 03:04:05",
        "0.7800, 0.8300 on vader-tweets/test",
        "below-gate: 0.1; archive-link: x",
    ]
    assert [row[2] for row in cells[2:]] == ["serving", "served"]


def test_nothing_yet_is_said(cloud: Cloud) -> None:
    assert cloud.models() == 0
    assert cloud.lines == ["serves now: no model", "no model was published yet"]


def test_the_model_before_is_put_back_without_a_digest(cloud: Cloud) -> None:
    first, second = cloud.publish("first"), cloud.publish("second")
    cloud.judge(first, "serving")
    cloud.serve(second, previous_model_url=first.url)
    assert cloud.back() == 0
    assert cloud.states.started == [
        {"bucket": BUCKET, "key": first.manifest_key, "intent": "roll-back"}
    ]
    assert f"serves now:  {second.digest[:12]}  published" in cloud.said
    assert f"would serve: {first.digest[:12]}  published" in cloud.said


@pytest.mark.parametrize(
    ("ending", "status", "said"),
    [
        (None, 0, "outcome: serving; roll-back-asked-for"),
        (
            {"status": "SUCCEEDED", "output": '{"outcome": "rolled-back", "reason": "no ping"}'},
            1,
            "outcome: rolled-back; no ping",
        ),
        ({"status": "FAILED", "cause": "AccessDenied"}, 1, "is FAILED: AccessDenied"),
        ({"status": "ABORTED"}, 1, "is ABORTED: no cause is given"),
    ],
)
def test_waiting_tells_the_end(
    cloud: Cloud, ending: dict[str, Any] | None, status: int, said: str
) -> None:
    model = cloud.publish("one")
    cloud.states.ending = ending or cloud.states.ending
    assert cloud.back(model.digest[:5].upper(), wait=True) == status
    assert said in cloud.said


def test_nothing_is_started_where_there_is_no_such_model(cloud: Cloud) -> None:
    served, other = cloud.publish("one"), cloud.publish("two")
    refused_one = cloud.publish("three")
    cloud.judge(refused_one, "refused", final=True, problems=["archive-link: x"])
    for digest, said in (
        (None, "nothing serves, so none is known to have served before"),
        ("zz", "no published model starts with 'zz'"),
        ("", "nothing serves"),
        (refused_one.digest, "cannot serve: archive-link: x; to have the same bytes tried"),
    ):
        assert cloud.back(digest) == 1
        assert said in cloud.lines[-1]
    cloud.serve(served)
    assert cloud.back() == 1
    assert "it is not known what served before" in cloud.lines[-1]
    assert cloud.back(served.digest) == 1
    assert "serves already" in cloud.lines[-1]
    assert cloud.states.started == []
    assert other.digest[:12] not in cloud.said


def test_an_ambiguous_digest_names_what_it_fits(cloud: Cloud) -> None:
    seeds: dict[str, list[Published]] = {}
    number = 0
    while not any(len(found) > 1 for found in seeds.values()):
        model = cloud.publish(str(number := number + 1))
        seeds.setdefault(model.digest[0], []).append(model)
    (digit, found) = next(item for item in seeds.items() if len(item[1]) > 1)
    assert cloud.back(digit) == 1
    assert f"'{digit}' fits 2 models" in cloud.said
    assert all(model.digest[:12] in cloud.said for model in found)
    assert cloud.states.started == []


def test_nothing_is_done_without_a_yes(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    model = cloud.publish("one")
    assert cloud.back(model.digest, yes=False) == 1
    assert "nobody can be asked, this is no terminal; give --yes" in cloud.said
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda _: "n")
    assert cloud.back(model.digest, yes=False) == 1
    assert cloud.lines[-1] == "nothing was changed"
    assert cloud.states.started == []
    monkeypatch.setattr("builtins.input", lambda _: "y")
    assert cloud.back(model.digest, yes=False) == 0
    assert len(cloud.states.started) == 1


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NoCredentialsError(), "unable to locate credentials; log in (`aws configure`"),
        (
            EndpointConnectionError(endpoint_url="https://s3"),
            "could not connect to the endpoint URL",
        ),
        (
            refused("ListObjectsV2", "AccessDenied", "not authorized"),
            "AWS refuses ListObjectsV2: AccessDenied: not authorized",
        ),
        (ProfileNotFound(profile="no"), "set AWS_PROFILE to a profile of ~/.aws/config"),
        (
            refused("ListObjectsV2", "ExpiredToken", "the token has expired"),
            "AWS refuses ListObjectsV2: ExpiredToken: the token has expired; renew the credentials",
        ),
        (KeyboardInterrupt(), "a roll-back that was started goes on"),
    ],
)
def test_what_aws_refuses_is_one_line(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, error: BaseException, said: str
) -> None:
    def fail(**_: Any) -> None:
        raise error

    monkeypatch.setattr(cloud.s3, "paginate", fail)
    assert cloud.models() == (130 if isinstance(error, KeyboardInterrupt) else 1)
    assert said in cloud.said


def test_an_environment_that_is_not_deployed_is_named(cloud: Cloud) -> None:
    cloud.cloudformation.exists = False
    assert cloud.models() == 1
    assert "stack ultracluster-dev-storage does not exist in us-west-2; deploy" in cloud.said
    assert models("nowhere", client=cloud.client, show=cloud.lines.append) == 1
    assert "nowhere" in cloud.lines[-1]
