import json
import shlex
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from botocore.exceptions import ClientError

from record.report import Outcome, Reporter, Settings
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
EXECUTION = "arn:aws:states:us-west-2:000000000000:execution:delivery:run-1"
START = (
    "aws stepfunctions start-execution --state-machine-arn "
    "arn:aws:states:us-west-2:000000000000:stateMachine:delivery --input"
)
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
                switch="/ultracluster-test/delivery",
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
        execution: str = EXECUTION,
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
        "next: nothing",
        f"execution: {EXECUTION}",
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
        "execution": EXECUTION,
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
    assert f"announce it again: {START} '{json.dumps(AGAIN)}'" in message
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


def test_a_model_in_place_of_another_says_how_to_go_back(world: World) -> None:
    former = f"models/sentiment/{'cd' * 32}"
    message = world.record(
        "serving", {**RUN, "previous_model_url": f"s3://{BUCKET}/{former}/model.tar.gz"}
    )
    asked = {"bucket": BUCKET, "key": f"{former}/manifest.json", "intent": "roll-back"}
    assert f"to go back to the former model: {START} '{json.dumps(asked)}'" in message


def test_a_model_that_was_put_off_says_how_to_go_on(world: World) -> None:
    message = world.record("paused", reason="the delivery is paused: parameter p is off")
    assert "why: the delivery is paused: parameter p is off\n" in message
    assert "ssm put-parameter --overwrite --value on --name /ultracluster-test/delivery" in message
    assert f"{START} '{json.dumps(AGAIN)}'" in message
    assert (world.verdict["outcome"], world.verdict["final"]) == ("paused", False)


@pytest.mark.parametrize("outcome", ["serving", "failed", "nothing-to-do", "rolled-back"])
def test_what_becomes_of_a_model_that_was_put_off_is_written_over_it(
    world: World, outcome: Any
) -> None:
    world.record("paused")
    world.record(outcome, {**RUN, "announcement": ""}, execution="arn:later")
    assert world.verdict["outcome"] == outcome
    assert len(world.sns.messages) == 2


@pytest.mark.case("L07")
@pytest.mark.parametrize("outcome", ["paused", "declined"])
@pytest.mark.parametrize("earlier", ["serving", "rolled-back", "paused", "declined"])
def test_a_duplicate_that_waited_does_not_stand_over_what_another_found_out(
    world: World, outcome: Any, earlier: Any
) -> None:
    world.record(earlier, final=True)
    told = world.verdict
    world.record(outcome, execution="arn:duplicate")
    assert world.verdict == told
    assert len(world.sns.messages) == 1
    world.record(outcome, {**RUN, "announcement": "0002"}, execution="arn:another")
    assert world.verdict["outcome"] == outcome


@pytest.mark.parametrize(
    ("outcome", "given", "why", "then"),
    [
        ("serving", RUN, "it passed every check", "nothing"),
        ("refused", REFUSED, "archive-not-gzip: no gzip", "mend what is named above"),
        ("rolled-back", RUN, "because", "announce it again: aws stepfunctions"),
        ("nothing-to-do", OLDER, "older-than-served: created then", "aws stepfunctions"),
        ("paused", RUN, "because", "aws ssm put-parameter"),
        ("declined", RUN, "because", "ask for approval again: aws stepfunctions"),
        ("failed", RUN, "because", "start it again: aws stepfunctions"),
    ],
)
def test_every_message_says_what_why_what_serves_and_what_to_do(
    world: World, outcome: Any, given: dict[str, Any], why: str, then: str
) -> None:
    world.platform.url = URL
    lines = world.record(outcome, given).splitlines()
    assert lines[0].startswith(f"model sentiment {DIGEST[:12]}: ")
    assert lines[0].removeprefix(f"model sentiment {DIGEST[:12]}: ") in _subject(world)
    assert lines[1].startswith(f"why: {why}")
    assert lines[2] == f"serves now: {URL}"
    assert lines[3].startswith("next: ")
    assert then in lines[3]
    assert lines[4] == f"execution: {EXECUTION}"
    # A command is one that a shell takes as it stands.
    for command in lines[3].split("aws stepfunctions ")[1:]:
        words = shlex.split(command)
        assert words[:2] == ["start-execution", "--state-machine-arn"]
        assert json.loads(words[words.index("--input") + 1])["bucket"] == BUCKET


def test_every_outcome_has_its_message() -> None:
    tested = test_every_message_says_what_why_what_serves_and_what_to_do.pytestmark
    (cases,) = [mark.args[1] for mark in tested if mark.name == "parametrize"]
    assert {case[0] for case in cases} == set(get_args(Outcome))


def _subject(world: World) -> str:
    subject: str = world.sns.calls[-1][1]["Subject"]
    return subject


def test_an_input_too_long_for_a_message_is_named_instead(world: World) -> None:
    message = world.record("failed", {}, intent="x" * 2000)
    assert "--input file://INPUT, which the dead-letter queue holds" in message


@pytest.mark.case("S06")
def test_everything_that_is_written_lies_outside_the_trigger(world: World) -> None:
    for outcome in get_args(Outcome):
        world.s3.objects.clear()
        world.record(outcome)
    keys = {request["Key"] for name, request in world.s3.calls if name == "PutObject"}
    assert keys == {f"verdicts/{DIGEST}.json"}
