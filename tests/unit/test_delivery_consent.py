"""What people have a say in: the bake's alarm acts, the switch pauses, a person approves."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from tests.unit.delivery_stack import definition, resources, text
from tests.unit.lambdas.account import SWITCH, Account
from tests.unit.lambdas.fakes import ENDPOINT
from tests.unit.lambdas.models import BUCKET, publish
from tests.unit.test_delivery_workflow import newer, wrong_for

HOURS = 24


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    return Account(monkeypatch)


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Account:
    """An account whose deliveries ask for approval."""
    return Account(monkeypatch, approval_hours=HOURS)


def test_a_model_that_fails_in_the_bake_is_rolled_back_by_sagemaker(account: Account) -> None:
    good, bad = publish(account.s3), newer(account, "bad")
    account.run(good.event)
    account.platform.ticks, account.platform.bake = 4, 3
    account.runtime.answer = wrong_for(account, bad.url)
    run = account.run(bad.event)
    assert (run.status, run.output["outcome"]) == ("SUCCEEDED", "rolled-back")
    assert account.updates == [good.url, bad.url]  # nobody asked CloudFormation to go back
    verdict = account.verdict(bad)
    assert verdict["final"]
    assert "got 'negative'" in verdict["reason"]
    assert "alarm ultracluster-test-smoke is in ALARM" in verdict["reason"]
    assert f"serves now: {good.url}" in account.sns.messages[-1]


def test_the_next_model_waits_until_the_alarm_is_quiet(account: Account) -> None:
    good, bad = publish(account.s3), newer(account, "bad")
    account.run(good.event)
    account.platform.ticks, account.platform.bake = 4, 3
    account.runtime.answer = wrong_for(account, bad.url)
    account.run(bad.event)
    better = newer(account, "better", 19)
    execution = account.execution(better.event)
    waits = iter(execution)
    assert [next(waits) for _ in range(3)] == ["WaitForTurn"] * 3
    assert account.updates[-1] == bad.url
    account.platform.alarm = "OK"
    for _ in waits:
        account.platform.tick()
    assert execution.output["outcome"] == "serving"


def test_a_paused_delivery_puts_a_model_off_and_says_how_to_go_on(account: Account) -> None:
    model = publish(account.s3)
    account.switch = "maintenance"
    runs = [*account.together(model.event, model.event), account.run(model.event)]
    assert [run.status for run in runs] == ["SUCCEEDED"] * 3
    assert account.updates == []
    (message,) = account.sns.messages
    assert f"why: the delivery is paused: parameter {SWITCH} is maintenance\n" in message
    assert account.verdict(model)["outcome"] == "paused"
    resume, again = (shlex.split(part.split("; ")[0]) for part in message.split("aws ")[1:])
    assert resume == ["ssm", "put-parameter", "--overwrite", "--value", "on", "--name", SWITCH]
    account.switch = resume[resume.index("--value") + 1]
    asked = json.loads(again[again.index("--input") + 1])
    assert account.run(asked).output["outcome"] == "serving"
    assert account.verdict(model)["outcome"] == "serving"


def test_a_paused_delivery_still_refuses_and_still_goes_back(account: Account) -> None:
    first, second = publish(account.s3), newer(account, "second")
    account.run(first.event)
    account.run(second.event)
    account.switch = "off"
    metrics = {"evaluation_set": "tweets", "accuracy": 0.8, "macro_f1": 0.1}
    assert account.run(newer(account, "weak", 18, metrics=metrics).event).output["outcome"] == (
        "refused"
    )
    asked = {"bucket": BUCKET, "key": first.manifest_key, "intent": "roll-back"}
    assert account.run(asked).output["outcome"] == "serving"
    assert account.platform.url == first.url


def test_a_switch_that_cannot_be_read_rolls_nothing_out(account: Account) -> None:
    def denied(arguments: Any) -> Any:
        raise PermissionError("not authorized to perform: ssm:GetParameter")

    account.tasks["aws-sdk:ssm:getParameter"] = denied
    run = account.run(publish(account.s3).event)
    assert run.status == "FAILED"
    assert "ssm:GetParameter" in run.cause
    assert account.updates == []


def test_a_model_that_a_person_approves_is_rolled_out(asking: Account) -> None:
    model = publish(asking.s3)
    run = asking.run(model.event)
    assert run.output["outcome"] == "serving"
    assert run.visited.count("Approve") == 1
    # What serves may have changed while the model waited.
    assert run.visited.index("Approve") < max(
        number for number, name in enumerate(run.visited) if name == "Validate"
    )
    what, why, serves, then, approve, other, decline, execution = asking.person.messages[
        0
    ].splitlines()
    assert what == f"model sentiment {model.digest[:12]}: waits for an approval"
    assert (why, serves) == ("why: it passed every check", "serves now: no model")
    assert then == f"next: within {HOURS} hours, approve it:"
    assert other == "or decline it:"
    assert execution.endswith(":execution:delivery:run_1")
    region = ["aws", "stepfunctions", "--region", "us-west-2"]
    assert shlex.split(approve) == [
        *region, "send-task-success", "--task-output", "{}", "--task-token", "token-of-run_1",
    ]  # fmt: skip
    assert shlex.split(decline) == [
        *region, "send-task-failure", "--error", "Declined", "--cause", "REASON",
        "--task-token", "token-of-run_1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"error": "Declined", "cause": "too many pronouns"}, "declined: too many pronouns"),
        (None, f"nobody approved it within {HOURS} hours"),
    ],
)
def test_a_model_that_nobody_approves_changes_nothing_and_may_come_again(
    asking: Account, answer: dict[str, str] | None, reason: str
) -> None:
    model = publish(asking.s3)
    asking.person.answer = lambda message: answer
    run = asking.run(model.event)
    assert (run.status, run.output["outcome"]) == ("SUCCEEDED", "declined")
    assert asking.updates == []
    verdict = asking.verdict(model)
    assert (verdict["outcome"], verdict["final"], verdict["reason"]) == ("declined", False, reason)
    assert f"why: {reason}\n" in asking.sns.messages[-1]
    asking.person.answer = lambda message: {}
    asked = {"bucket": BUCKET, "key": model.manifest_key}
    assert asking.run(asked).output["outcome"] == "serving"


def test_a_person_who_cannot_be_asked_ends_in_a_failed_execution(asking: Account) -> None:
    asking.person.answer = lambda message: {"error": "SNS.KmsAccessDenied", "cause": "no key"}
    run = asking.run(publish(asking.s3).event)
    assert (run.status, "no key" in run.cause) == ("FAILED", True)


def test_an_older_model_that_is_approved_after_a_newer_one_stays_out(asking: Account) -> None:
    old, new = publish(asking.s3), newer(asking, "new")

    def newer_first(message: str) -> dict[str, str]:
        if old.digest[:12] in message:
            asking.run(new.event)
        return {}

    asking.person.answer = newer_first
    assert asking.run(old.event).output["outcome"] == "nothing-to-do"
    assert asking.updates == [new.url]


def test_a_delivery_paused_after_the_approval_rolls_nothing_out(asking: Account) -> None:
    model = publish(asking.s3)

    def approve_and_pause(message: str) -> dict[str, str]:
        asking.switch = "off"
        return {}

    asking.person.answer = approve_and_pause
    assert asking.run(model.event).output["outcome"] == "paused"
    assert asking.updates == []


def test_a_roll_back_by_hand_needs_no_approval(asking: Account) -> None:
    first, second = publish(asking.s3), newer(asking, "second")
    asking.run(first.event)
    asking.run(second.event)
    asking.person.messages.clear()
    asked = {"bucket": BUCKET, "key": first.manifest_key, "intent": "roll-back"}
    assert asking.run(asked).output["outcome"] == "serving"
    assert asking.person.messages == []


def test_nobody_is_asked_unless_it_is_wanted(account: Account) -> None:
    assert "Approve" not in definition()["States"]
    account.run(publish(account.s3).event)
    assert account.person.messages == []


def test_the_switch_is_a_parameter_that_a_deploy_leaves_alone() -> None:
    ((name, switch),) = resources("AWS::SSM::Parameter").items()
    assert (switch["Name"], switch["Value"]) == (f"/{ENDPOINT}/delivery", "on")
    look = definition()["States"]["ReadSwitch"]
    assert look["Arguments"] == {"Name": f"<{name}>"}


def test_the_state_machine_may_ask_under_the_topics_key() -> None:
    ((topic, _),) = resources("AWS::SNS::Topic", HOURS).items()
    ((key, _),) = resources("AWS::KMS::Key", HOURS).items()
    granted = {
        (action, text(resource))
        for name, policy in resources("AWS::IAM::Policy", HOURS).items()
        if "StateMachineRole" in name
        for statement in policy["PolicyDocument"]["Statement"]
        for action in _listed(statement["Action"])
        for resource in _listed(statement["Resource"])
    }
    assert {
        ("sns:Publish", f"<{topic}>"),
        ("kms:GenerateDataKey*", f"<{key}>"),
        ("kms:Decrypt", f"<{key}>"),
    } <= granted


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
