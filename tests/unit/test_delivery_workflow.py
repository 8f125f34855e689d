"""The real functions in the real state machine, over in-memory services."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.lambdas.account import Account
from tests.unit.lambdas.fakes import UNHEALTHY, configuration, labels_of
from tests.unit.lambdas.models import BUCKET, Published, good_archive, pack, publish

START = (
    "aws stepfunctions start-execution --state-machine-arn "
    "arn:aws:states:us-west-2:000000000000:stateMachine:delivery"
)


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    return Account(monkeypatch)


def newer(account: Account, seed: str, hour: int = 17, **changes: Any) -> Published:
    return publish(
        account.s3,
        good_archive(seed),
        sequencer=f"{seed}-{hour}",
        created=f"2026-11-30T{hour}:00:00Z",
        **changes,
    )


def wrong_for(account: Account, url: str) -> Callable[[list[str]], bytes]:
    """Answers that are wrong while that model serves."""

    def answer(texts: list[str]) -> bytes:
        serves_it = account.platform.answers == configuration(url)
        return labels_of(texts, "negative" if serves_it else "positive")

    return answer


def test_a_first_model_and_a_second_one_serve(account: Account) -> None:
    first = publish(account.s3)
    run = account.run(first.event)
    assert (run.status, run.output["outcome"]) == ("SUCCEEDED", "serving")
    second = newer(account, "second")
    assert account.run(second.event).output["outcome"] == "serving"
    assert account.updates == [first.url, second.url]
    assert account.verdict(second)["previous_model_url"] == first.url
    assert len(account.sns.messages) == 2


@pytest.mark.case("M08")
def test_a_refused_model_changes_nothing_and_is_told_once(account: Account) -> None:
    model = publish(account.s3, pack({"config.json": b""}))
    assert account.run(model.event).output["outcome"] == "refused"
    assert account.run(model.event).output["outcome"] == "nothing-to-do"
    assert account.updates == []
    assert len(account.sns.messages) == 1
    assert "archive-missing-file" in account.sns.messages[0]


@pytest.mark.case("L07")
def test_the_same_event_five_times_at_once_is_one_roll_out(account: Account) -> None:
    model = publish(account.s3)
    runs = account.together(*[model.event] * 5)
    assert sorted(run.output["outcome"] for run in runs) == ["nothing-to-do"] * 4 + ["serving"]
    assert account.updates == [model.url]
    assert len(account.sns.messages) == 1


@pytest.mark.case("L07")
def test_a_broken_model_announced_twice_at_once_is_tried_once(account: Account) -> None:
    good, bad = publish(account.s3), newer(account, "bad")
    account.run(good.event)
    account.runtime.answer = wrong_for(account, bad.url)
    runs = account.together(bad.event, bad.event)
    assert sorted(run.output["outcome"] for run in runs) == ["nothing-to-do", "rolled-back"]
    assert account.updates == [good.url, bad.url, good.url]


@pytest.mark.case("L07")
def test_a_newer_event_and_then_an_older_one(account: Account) -> None:
    old, new = publish(account.s3), newer(account, "new")
    account.run(new.event)
    assert account.run(old.event).output["outcome"] == "nothing-to-do"
    assert account.updates == [new.url]
    assert account.verdict(old)["outcome"] == "nothing-to-do"
    assert account.verdict(old)["reason"] == "older-than-served"
    assert "why: older-than-served: created" in account.sns.messages[-1]
    assert f"serves now: {new.url}" in account.sns.messages[-1]


def test_an_older_model_that_is_announced_often_is_told_once(account: Account) -> None:
    old, new = publish(account.s3), newer(account, "new")
    account.run(new.event)
    runs = [*account.together(old.event, old.event), account.run(old.event)]
    asked = {"bucket": BUCKET, "key": old.manifest_key}
    runs.append(account.run(asked))
    assert [run.output["outcome"] for run in runs] == ["nothing-to-do"] * 4
    assert len(account.sns.messages) == 2


def test_a_model_that_serves_is_not_told_again(account: Account) -> None:
    model = publish(account.s3)
    account.platform.url, account.platform.serves = model.url, configuration(model.url)
    assert account.run(model.event).output["outcome"] == "nothing-to-do"
    assert account.sns.messages == []
    with pytest.raises(KeyError):
        account.verdict(model)


def test_a_model_that_another_deploy_overtook_is_told(account: Account) -> None:
    model, other = publish(account.s3), newer(account, "other")
    look = account.tasks["settle"]

    def overtaken(event: dict[str, Any]) -> Any:
        account.platform.url, account.platform.serves = other.url, configuration(other.url)
        account.platform.status = "UPDATE_COMPLETE"
        return look(event)

    account.tasks["settle"] = overtaken
    account.platform.ticks = 1
    run = account.run(model.event)
    assert (run.status, run.output["outcome"]) == ("SUCCEEDED", "nothing-to-do")
    told = account.verdict(model)
    assert (told["outcome"], told["reason"], told["final"]) == ("nothing-to-do", "overtaken", False)
    assert told["problems"] == [f"overtaken: the stack has {other.url} by now"]
    assert f"why: overtaken: the stack has {other.url} by now" in account.sns.messages[-1]
    assert account.updates == [model.url]


def test_a_manifest_that_vanished_before_it_was_read_is_told(account: Account) -> None:
    model = publish(account.s3)
    del account.s3.objects[BUCKET, model.manifest_key]
    assert account.run(model.event).output["outcome"] == "nothing-to-do"
    assert account.verdict(model)["reason"] == "manifest-gone"
    assert len(account.sns.messages) == 1


@pytest.mark.case("M11")
def test_two_models_at_once_are_rolled_out_one_after_the_other(account: Account) -> None:
    first, second = publish(account.s3), newer(account, "second")
    runs = account.together(first.event, second.event)
    assert [run.output["outcome"] for run in runs] == ["serving", "serving"]
    assert account.updates == [first.url, second.url]


def test_an_older_model_that_waited_behind_a_newer_one_stays_out(account: Account) -> None:
    first, second = publish(account.s3), newer(account, "second")
    runs = account.together(second.event, first.event)
    assert [run.output["outcome"] for run in runs] == ["serving", "nothing-to-do"]
    assert account.updates == [second.url]


def test_an_older_model_that_waited_behind_a_broken_one_serves(account: Account) -> None:
    first, broken = publish(account.s3), newer(account, "broken")
    account.platform.endings[broken.url] = "failed"
    runs = account.together(broken.event, first.event)
    assert [run.output["outcome"] for run in runs] == ["rolled-back", "serving"]
    assert account.platform.url == first.url


@pytest.mark.case("M23")
def test_what_cloudformation_rolls_back_is_recorded_and_not_tried_again(account: Account) -> None:
    good, broken = publish(account.s3), newer(account, "broken")
    account.run(good.event)
    account.platform.endings[broken.url] = "failed"
    run = account.run(broken.event)
    assert (run.status, run.output["outcome"]) == ("SUCCEEDED", "rolled-back")
    assert account.updates == [good.url, broken.url]
    assert UNHEALTHY in account.sns.messages[-1]
    assert f"serves now: {good.url}" in account.sns.messages[-1]
    assert account.verdict(broken)["final"]
    told = len(account.sns.messages)
    again = newer(account, "broken", 18)
    assert again.digest == broken.digest
    assert account.run(again.event).output["outcome"] == "nothing-to-do"
    assert len(account.sns.messages) == told


def test_a_model_that_failed_by_anothers_fault_serves_when_announced_again(
    account: Account,
) -> None:
    good, model = publish(account.s3), newer(account, "unlucky")
    account.run(good.event)
    account.platform.endings[model.url] = "failed"
    account.platform.failure = "Could not find endpoint"
    runs = account.together(model.event, model.event)
    assert sorted(run.output["outcome"] for run in runs) == ["nothing-to-do", "rolled-back"]
    assert not account.verdict(model)["final"]
    asked = {"bucket": BUCKET, "key": model.manifest_key}
    assert f"announce it again: {START} --input '{json.dumps(asked)}'" in account.sns.messages[-1]
    assert len(account.sns.messages) == 2
    account.platform.endings.clear()
    assert account.run(asked).output["outcome"] == "serving"
    assert account.verdict(model)["outcome"] == "serving"


def test_a_refused_model_is_judged_anew_once_the_gate_may_have_moved(account: Account) -> None:
    metrics = {"evaluation_set": "tweets", "accuracy": 0.8, "macro_f1": 0.1}
    account.run(publish(account.s3, metrics=metrics).event)
    better = publish(account.s3, sequencer="later", metrics={**metrics, "macro_f1": 0.8})
    assert not account.verdict(better)["final"]
    assert account.run(better.event).output["outcome"] == "serving"


@pytest.mark.parametrize("ending", ["silent", "complete"])
def test_what_does_not_answer_as_packed_is_rolled_back(account: Account, ending: str) -> None:
    good, bad = publish(account.s3), newer(account, "bad")
    account.run(good.event)
    account.platform.endings[bad.url] = ending
    account.runtime.answer = wrong_for(account, bad.url)
    run = account.run(bad.event)
    assert (run.status, run.output["outcome"]) == ("SUCCEEDED", "rolled-back")
    assert account.updates == [good.url, bad.url, good.url]
    assert account.platform.serves == configuration(good.url)
    said = "the stack says" if ending == "silent" else "got 'negative'"
    assert said in account.sns.messages[-1]


def test_a_first_model_that_fails_its_texts_leaves_no_endpoint(account: Account) -> None:
    model = publish(account.s3)
    account.runtime.answer = wrong_for(account, model.url)
    assert account.run(model.event).output["outcome"] == "rolled-back"
    assert account.platform.url == "none"
    assert "serves now: no model" in account.sns.messages[-1]


def test_a_model_that_cannot_be_looked_at_does_not_stay(account: Account) -> None:
    good, model = publish(account.s3), newer(account, "unseen")
    account.run(good.event)
    look = account.tasks["settle"]

    def denied(event: dict[str, Any]) -> Any:
        if event["action"] == "roll-out":
            raise PermissionError("not authorized to perform sagemaker:InvokeEndpoint")
        return look(event)

    account.tasks["settle"] = denied
    run = account.run(model.event)
    assert (run.status, run.error) == ("FAILED", "DeliveryFailed")
    assert "InvokeEndpoint" in run.cause
    assert account.platform.url == good.url
    assert account.verdict(model)["outcome"] == "failed"
    assert not account.verdict(model)["final"]
    account.tasks["settle"] = look
    assert account.run(model.event).output["outcome"] == "serving"


def test_one_lost_connection_undoes_nothing(account: Account) -> None:
    model = publish(account.s3)
    for name in ("validate", "roll_out", "settle", "record"):
        account.tasks[name] = failing_once(account.tasks[name])
    assert account.run(model.event).output["outcome"] == "serving"
    assert account.updates == [model.url]


def failing_once(task: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Does the work of the first call, and then loses the answer."""
    calls = 0

    def run(event: Any) -> Any:
        nonlocal calls
        calls += 1
        answer = task(event)
        if calls == 1:
            raise ConnectionError("connection reset")
        return answer

    return run


@pytest.mark.parametrize("name", ["validate", "roll_out", "settle", "record"])
def test_every_broken_function_ends_in_a_failed_execution(account: Account, name: str) -> None:
    model = publish(account.s3)

    def broken(event: Any) -> Any:
        raise RuntimeError(f"{name} broke")

    account.tasks[name] = broken
    run = account.run(model.event)
    assert (run.status, run.error) == ("FAILED", "DeliveryFailed")
    assert f"{name} broke" in run.cause
    if name != "record":
        assert f"{name} broke" in account.sns.messages[-1]


@pytest.mark.parametrize("event", [{}, {"detail": {}}, {"bucket": BUCKET, "key": 3}])
def test_a_poisoned_event_is_not_swallowed(account: Account, event: dict[str, Any]) -> None:
    run = account.run(event)
    assert run.status == "FAILED"
    assert len(account.sns.messages) == 1


@pytest.mark.case("M10")
def test_a_stack_that_never_settles_ends_in_a_failure(account: Account) -> None:
    model = publish(account.s3)
    account.platform.ticks = 10**9
    run = account.run(model.event)
    assert run.status == "FAILED"
    assert "gave up waiting: the stack is in UPDATE_IN_PROGRESS" in run.cause
    assert "not rolled back" in run.cause
    waits = [name for name in run.visited if name.startswith("Wait")]
    assert len(waits) == 2 * 240  # two waits of two hours, a look each 30 s


def test_a_stack_that_stays_busy_ends_in_a_failure(account: Account) -> None:
    model = publish(account.s3)
    account.platform.begin("s3://other", "d-0")
    account.platform.ticks = account.platform._left = 10**9
    run = account.run(model.event)
    assert run.status == "FAILED"
    assert "gave up waiting" in run.cause
    assert account.updates == []


def test_a_roll_back_that_fails_is_loud(account: Account) -> None:
    good, bad = publish(account.s3), newer(account, "bad")
    account.run(good.event)
    account.runtime.answer = wrong_for(account, bad.url)
    account.platform.endings[good.url] = "failed"
    run = account.run(bad.event)
    assert run.status == "FAILED"
    assert re.search("got 'negative'.*it was not rolled back.*health check", run.cause)
    assert not account.verdict(bad)["final"]
    assert f"serves now: {bad.url}" in account.sns.messages[-1]


def test_a_run_that_was_overtaken_does_not_roll_back_the_other(account: Account) -> None:
    good, bad, other = publish(account.s3), newer(account, "bad"), newer(account, "other", 18)
    account.run(good.event)
    smoke = wrong_for(account, bad.url)

    def overtaken(event: dict[str, Any]) -> Any:
        # Between the look that failed and the roll-back, somebody deploys another model.
        account.platform.url, account.platform.serves = other.url, configuration(other.url)
        return ask(event)

    account.runtime.answer = smoke
    ask = account.tasks["roll_out"]
    account.tasks["roll_out"] = lambda event: (
        overtaken(event) if event["action"] == "roll-back" else ask(event)
    )
    run = account.run(bad.event)
    assert run.output["outcome"] == "rolled-back"
    assert account.platform.url == other.url
    assert account.updates == [good.url, bad.url]
    assert f"serves now: {other.url}" in account.sns.messages[-1]


def test_a_person_goes_back_to_an_earlier_model(account: Account) -> None:
    first, second = publish(account.s3), newer(account, "second")
    account.run(first.event)
    account.run(second.event)
    asked = {"bucket": BUCKET, "key": first.manifest_key, "intent": "roll-back"}
    assert account.run(asked).output["outcome"] == "serving"
    assert account.platform.url == first.url


@pytest.mark.case("S06")
def test_what_the_delivery_writes_starts_no_delivery(account: Account) -> None:
    account.run(publish(account.s3).event)
    for request in [request for name, request in account.s3.calls if name == "PutObject"]:
        run = account.run({"bucket": BUCKET, "key": request["Key"]})
        assert run.output["outcome"] == "refused"
    assert len(account.updates) == 1


@pytest.mark.case("M10")
def test_archives_are_read_once_however_long_the_turn_takes(account: Account) -> None:
    first, second = publish(account.s3), newer(account, "second")
    account.platform.ticks = 30
    account.together(first.event, second.event)
    archives = [
        request["Key"]
        for name, request in account.s3.calls
        if name == "GetObject" and request["Key"].endswith("model.tar.gz")
    ]
    assert len(archives) == 2
