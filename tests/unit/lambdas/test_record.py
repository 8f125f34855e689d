import json
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from record.report import Reporter, Settings
from shared.places import verdict_key
from tests.unit.lambdas.fakes import (
    STACK,
    FakeCloudFormation,
    FakeS3,
    FakeSns,
    Platform,
    refused,
)
from tests.unit.lambdas.models import BUCKET

DIGEST = "ab" * 32
URL = f"s3://{BUCKET}/models/sentiment/{DIGEST}/model.tar.gz"
RUN = {
    "digest": DIGEST,
    "model_name": "sentiment",
    "reason": "accepted",
    "problems": [],
    "model_url": URL,
    "previous_model_url": "none",
    "announcement": "0001",
    "bucket": BUCKET,
    "manifest_key": f"models/sentiment/{DIGEST}/manifest.json",
}
REFUSED = {**RUN, "reason": "archive-not-gzip", "problems": ["archive-not-gzip: no gzip"]}
OLDER = {**RUN, "problems": ["older-than-served: created then, what serves later"]}
AGAIN = {"bucket": BUCKET, "key": RUN["manifest_key"]}


class World:
    def __init__(self) -> None:
        self.s3 = FakeS3()
        self.sns = FakeSns()
        self.platform = Platform()
        self.cloudformation = FakeCloudFormation(self.platform)
        self.reporter = Reporter(
            Settings(
                model_bucket=BUCKET,
                model_name="sentiment",
                endpoint_stack=STACK,
                endpoint_name="ultracluster-test",
                topic_arn="arn:aws:sns:us-west-2:000000000000:notices",
            ),
            s3=self.s3,
            sns=self.sns,
            cloudformation=self.cloudformation,
        )

    def record(
        self,
        outcome: Any,
        run: dict[str, Any] = RUN,
        reason: str = "because",
        *,
        final: bool = False,
        execution: str = "arn:execution",
        **intent: str,
    ) -> str:
        self.reporter.record(
            outcome=outcome,
            reason=reason,
            final=final,
            run=run,
            announced={"bucket": BUCKET, "key": "k", **intent},
            execution=execution,
            now=datetime(2026, 12, 1, tzinfo=UTC),
        )
        return self.sns.messages[-1]

    @property
    def verdict(self) -> dict[str, Any]:
        verdict: dict[str, Any] = self.s3.json(BUCKET, verdict_key(DIGEST))
        return verdict


@pytest.fixture
def world() -> World:
    return World()


def test_a_model_that_serves(world: World) -> None:
    world.platform.url = URL
    message = world.record("serving")
    assert message.splitlines() == [
        f"model sentiment {DIGEST[:12]}: serves",
        "why: it passed every check",
        f"serves now: {URL}",
        "next: nothing. to go back later, start the state machine with the manifest of the "
        'earlier model and "intent": "roll-back"',
        "execution: arn:execution",
    ]
    assert world.verdict == {
        "schema_version": 1,
        "digest": DIGEST,
        "model_name": "sentiment",
        "outcome": "serving",
        "final": False,
        "reason": "because",
        "problems": [],
        "model_url": URL,
        "previous_model_url": "none",
        "announcement": "0001",
        "execution": "arn:execution",
        "recorded": "2026-12-01T00:00:00Z",
    }


def test_a_final_refusal_says_how_to_try_the_same_bytes_again(world: World) -> None:
    message = world.record("refused", REFUSED, final=True)
    assert "archive-not-gzip: no gzip" in message
    assert "serves now: no model" in message
    assert f"s3://{BUCKET}/verdicts/{DIGEST}.json was deleted" in message
    assert (world.verdict["outcome"], world.verdict["final"]) == ("refused", True)
    assert world.verdict["reason"] == "archive-not-gzip"


def test_a_refusal_that_is_not_final_asks_to_publish_again(world: World) -> None:
    assert "publish again" in world.record("refused", REFUSED)
    assert world.verdict["final"] is False


def test_a_model_that_failed_by_its_own_fault_is_not_tried_again(world: World) -> None:
    message = world.record("rolled-back", reason="smoke[0]: got 'negative'", final=True)
    assert "smoke[0]: got 'negative'" in message
    assert "/aws/sagemaker/Endpoints/ultracluster-test" in message
    assert world.verdict["final"] is True
    assert f"s3://{BUCKET}/verdicts/{DIGEST}.json was deleted" in message


def test_a_model_that_failed_by_anothers_fault_may_be_announced_again(world: World) -> None:
    message = world.record("rolled-back", reason="Could not find endpoint")
    assert world.verdict["final"] is False
    assert "Could not find endpoint" in message
    assert (
        f"announce it again: publish it again, or start the state machine with {json.dumps(AGAIN)}"
        in message
    )
    asked = world.record("rolled-back", intent="roll-back")
    assert json.dumps({**AGAIN, "intent": "roll-back"}) in asked


def test_a_model_with_nothing_to_do_is_recorded_and_told_once(world: World) -> None:
    message = world.record("nothing-to-do", OLDER, "older-than-served")
    assert message.startswith(f"model sentiment {DIGEST[:12]}: was left out\n")
    assert "why: older-than-served: created then, what serves later\n" in message
    assert json.dumps({**AGAIN, "intent": "roll-back"}) in message
    told = world.verdict
    assert (told["outcome"], told["reason"]) == ("nothing-to-do", "older-than-served")
    assert told["problems"] == OLDER["problems"]
    assert told["final"] is False
    world.record("nothing-to-do", OLDER, "another", execution="arn:duplicate")
    assert world.verdict == told
    assert len(world.sns.messages) == 1


def test_the_message_is_sent_again_when_its_own_execution_asks_again(world: World) -> None:
    for _ in range(2):
        world.record("nothing-to-do", OLDER, "older-than-served")
    assert len(world.sns.messages) == 2


def test_nothing_to_do_leaves_every_earlier_verdict_alone(world: World) -> None:
    for outcome in ("serving", "refused", "rolled-back", "failed"):
        world.s3.objects.clear()
        world.record(outcome, REFUSED)
        told = len(world.sns.messages)
        world.record("nothing-to-do", OLDER, execution="arn:later")
        assert world.verdict["outcome"] == outcome
        assert len(world.sns.messages) == told


def test_a_verdict_that_cannot_be_written_is_an_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(**request: Any) -> Any:
        raise refused("PutObject", "AccessDenied", "no")

    monkeypatch.setattr(world.s3, "put_object", denied)
    with pytest.raises(ClientError, match="AccessDenied"):
        world.record("nothing-to-do", OLDER)


def test_a_failure_tells_how_to_start_again(world: World) -> None:
    cause = json.dumps({"errorMessage": "stack x does not exist", "errorType": "StackProblem"})
    message = world.record("failed", reason=f"StackProblem: {cause}", final=True)
    assert "why: StackProblem: stack x does not exist\n" in message
    assert json.dumps({"bucket": BUCKET, "key": "k"}) in message
    assert world.verdict["final"] is False


def test_a_failure_before_any_digest_writes_no_verdict(world: World) -> None:
    assert "(no digest)" in world.record("failed", {})
    assert world.s3.objects == {}


def test_a_failure_keeps_an_earlier_verdict(world: World) -> None:
    world.record("refused", REFUSED, final=True)
    world.record("failed")
    assert world.verdict["outcome"] == "refused"
    world.s3.objects.clear()
    world.record("failed", reason="one")
    world.record("failed", reason="two")
    assert world.verdict["reason"] == "two"


def test_the_message_goes_out_even_if_the_stack_cannot_be_read(world: World) -> None:
    world.cloudformation.exists = False
    assert "serves now: unknown: stack" in world.record("failed", {})


def test_the_subject_is_what_sns_takes(world: World) -> None:
    world.record("refused", REFUSED)
    subject = world.sns.calls[0][1]["Subject"]
    assert len(subject) < 100
    assert subject.isascii()
    assert "\n" not in subject


@pytest.mark.case("S06")
def test_everything_that_is_written_lies_outside_the_trigger(world: World) -> None:
    for outcome in ("serving", "refused", "rolled-back", "nothing-to-do", "failed"):
        world.s3.objects.clear()
        world.record(outcome)
    keys = {request["Key"] for name, request in world.s3.calls if name == "PutObject"}
    assert keys == {f"verdicts/{DIGEST}.json"}
