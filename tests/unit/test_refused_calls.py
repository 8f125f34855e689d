"""Each call of each function is refused for good in turn: a right is missing, or a service throttles."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.lambdas.account import Account
from tests.unit.lambdas.fakes import _Service, configuration, refused
from tests.unit.lambdas.models import good_archive, publish

# What the functions call on the road of one model, by the services' own names.
CALLS = (
    *("GetObject", "HeadObject", "PutObject", "Publish", "DescribeAlarms", "DescribeEndpoint"),
    *("DescribeStacks", "DescribeStackEvents", "UpdateStack", "InvokeEndpoint", "PutMetricData"),
    "GetBucketLocation",
)
# Without them the verdict or the message itself fails: the dead-letter queue and its alarm tell.
SILENT = ("Publish", "PutObject")


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    """A model serves, a newer one is published, and updates bake."""
    made = Account(monkeypatch)
    made.platform.ticks, made.platform.bake = 3, 2
    made.run(publish(made.s3).event)
    made.sns.calls.clear()
    return made


def newer(account: Account) -> Any:
    return publish(
        account.s3, good_archive("newer"), sequencer="newer", created="2026-11-30T17:00:00Z"
    )


def test_these_are_all_calls(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    original = _Service._called

    def called(self: _Service, operation: str, request: dict[str, Any]) -> None:
        seen.add(operation)
        original(self, operation, request)

    monkeypatch.setattr(_Service, "_called", called)
    assert account.run(newer(account).event).output["outcome"] == "serving"
    assert seen == set(CALLS)


@pytest.mark.case("L08")
@pytest.mark.parametrize("code", ["AccessDenied", "ThrottlingException"])
@pytest.mark.parametrize("operation", CALLS)
def test_one_model_serves_and_nothing_is_lost(
    account: Account, monkeypatch: pytest.MonkeyPatch, operation: str, code: str
) -> None:
    former, new = account.platform.url, newer(account)
    original = _Service._called

    def called(self: _Service, name: str, request: dict[str, Any]) -> None:
        original(self, name, request)
        if name == operation:
            raise refused(name, code, f"{name} is refused")

    monkeypatch.setattr(_Service, "_called", called)
    run = account.run(new.event)
    for _ in range(account.platform.ticks):
        account.platform.tick()
    platform = account.platform
    assert platform.url in (former, new.url)
    assert platform.serves == configuration(platform.url)
    # A rule of EventBridge puts the input of a failed execution into the dead-letter queue.
    assert run.status == "FAILED"
    assert f"{operation} is refused" in run.cause
    if operation not in SILENT:
        (message,) = account.sns.messages
        assert f"{operation} is refused" in message
        assert "could not be delivered" in message
