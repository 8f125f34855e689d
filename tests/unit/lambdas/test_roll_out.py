from typing import Any

import pytest
from botocore.exceptions import ClientError

from roll_out.update import Settings, Updater
from shared.stack import StackProblem
from tests.unit.lambdas.fakes import (
    ENDPOINT,
    STACK,
    FakeCloudFormation,
    FakeCloudWatch,
    Platform,
    refused,
)

ROLE = "arn:aws:iam::000000000000:role/endpoint-service"
OLD = f"s3://b/models/sentiment/{'0' * 64}/model.tar.gz"
NEW = f"s3://b/models/sentiment/{'1' * 64}/model.tar.gz"
NEWER = f"s3://b/models/sentiment/{'2' * 64}/model.tar.gz"


@pytest.fixture
def platform() -> Platform:
    return Platform(url=OLD)


@pytest.fixture
def cloudformation(platform: Platform) -> FakeCloudFormation:
    return FakeCloudFormation(platform)


@pytest.fixture
def updater(cloudformation: FakeCloudFormation) -> Updater:
    settings = Settings(endpoint_stack=STACK, service_role_arn=ROLE, endpoint_name=ENDPOINT)
    return Updater(
        settings,
        cloudformation=cloudformation,
        cloudwatch=FakeCloudWatch(cloudformation.platform),
    )


def out(
    updater: Updater, token: str = "run_1-out-0", announcement: str = "11111111-0001"
) -> dict[str, Any]:
    return updater.roll_out(
        model_url=NEW, previous_model_url=OLD, token=token, announcement=announcement
    )


def back(updater: Updater, token: str = "run_1-back-0") -> dict[str, Any]:
    return updater.roll_back(model_url=NEW, previous_model_url=OLD, token=token)


def test_only_the_url_changes(updater: Updater, cloudformation: FakeCloudFormation) -> None:
    assert out(updater)["status"] == "started"
    assert cloudformation.calls[-1] == (
        "UpdateStack",
        {
            "StackName": STACK,
            "UsePreviousTemplate": True,
            "Parameters": [
                {"ParameterKey": "ModelUrl", "ParameterValue": NEW},
                {"ParameterKey": "BootstrapVersion", "UsePreviousValue": True},
            ],
            "Capabilities": ["CAPABILITY_IAM"],
            "RoleARN": ROLE,
            "ClientRequestToken": "d-11111111-0001-run-1-out-0",
        },
    )


@pytest.mark.case("M11")
@pytest.mark.parametrize("act", [out, back])
def test_a_busy_stack_is_left_alone(
    act: Any, updater: Updater, platform: Platform, cloudformation: FakeCloudFormation
) -> None:
    platform.url = OLD if act is out else NEW
    platform.status = "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"
    assert act(updater)["status"] == "busy"
    assert cloudformation.count("UpdateStack") == 0


def test_the_same_url_is_unchanged(
    updater: Updater, platform: Platform, cloudformation: FakeCloudFormation
) -> None:
    platform.url = NEW
    assert out(updater)["status"] == "unchanged"
    assert cloudformation.count("UpdateStack") == 0


def test_a_model_validated_against_another_is_validated_again(
    updater: Updater, platform: Platform, cloudformation: FakeCloudFormation
) -> None:
    platform.url = NEWER
    assert out(updater)["status"] == "busy"
    assert cloudformation.count("UpdateStack") == 0


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("No updates are to be performed.", "unchanged"),
        (f"Stack:{STACK} is in UPDATE_IN_PROGRESS state and can not be updated.", "busy"),
    ],
)
def test_what_cloudformation_refuses_late_is_no_error(
    updater: Updater,
    cloudformation: FakeCloudFormation,
    monkeypatch: pytest.MonkeyPatch,
    message: str,
    status: str,
) -> None:
    def refuse(**_: Any) -> Any:
        raise refused("UpdateStack", "ValidationError", message)

    monkeypatch.setattr(cloudformation, "update_stack", refuse)
    assert out(updater)["status"] == status


def test_other_refusals_pass_through(
    updater: Updater, cloudformation: FakeCloudFormation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> Any:
        raise refused("UpdateStack", "AccessDenied", "not authorized to perform iam:PassRole")

    monkeypatch.setattr(cloudformation, "update_stack", refuse)
    with pytest.raises(ClientError, match="PassRole"):
        out(updater)


@pytest.mark.parametrize("act", [out, back])
def test_the_same_attempt_twice_updates_once(
    act: Any, updater: Updater, platform: Platform, cloudformation: FakeCloudFormation
) -> None:
    platform.url = OLD if act is out else NEW
    first = act(updater)
    assert act(updater) == first
    platform.tick()
    platform.tick()
    assert act(updater) == first
    assert cloudformation.count("UpdateStack") == 1


def test_roll_back_restores_what_served(updater: Updater, platform: Platform) -> None:
    platform.url = NEW
    assert back(updater)["status"] == "started"
    assert platform.url == OLD


def test_a_run_that_was_overtaken_rolls_nothing_back(
    updater: Updater, platform: Platform, cloudformation: FakeCloudFormation
) -> None:
    for status in ("UPDATE_COMPLETE", "UPDATE_IN_PROGRESS"):
        platform.url, platform.status = NEWER, status
        assert back(updater)["status"] == "overtaken"
    assert cloudformation.count("UpdateStack") == 0


@pytest.mark.case("L07")
def test_of_the_runs_of_one_event_only_one_updates(
    updater: Updater, platform: Platform, cloudformation: FakeCloudFormation
) -> None:
    """Also in the moment between a roll-back and its verdict."""
    out(updater, "run_1-out-3")
    platform.url, platform.status = OLD, "UPDATE_ROLLBACK_COMPLETE"
    answer = out(updater, "run_2-out-0")
    assert (answer["status"], answer["reason"]) == (
        "unchanged",
        "another run has tried this announcement",
    )
    assert cloudformation.count("UpdateStack") == 1
    # Another put of the manifest, or a person who starts it, is another wish.
    for number, (token, announcement) in enumerate(
        [("run_1-out-4", "11111111-0001"), ("run_3-out-0", "11111111-0002"), ("run_4-out-0", "")]
    ):
        platform.url, platform.status = OLD, "UPDATE_ROLLBACK_COMPLETE"
        assert out(updater, token, announcement)["status"] == "started", number


def test_a_stuck_stack_needs_a_person(updater: Updater, platform: Platform) -> None:
    platform.status = "UPDATE_ROLLBACK_FAILED"
    with pytest.raises(StackProblem, match="mend it"):
        out(updater)


def test_a_long_execution_name_gives_a_token_that_cloudformation_takes(
    updater: Updater, cloudformation: FakeCloudFormation
) -> None:
    out(updater, token=f"{'x' * 200}-out-7")
    assert cloudformation.calls[-1][1]["ClientRequestToken"].endswith("-out-7")
    assert len(cloudformation.calls[-1][1]["ClientRequestToken"]) == 128


@pytest.mark.parametrize(("act", "url"), [(out, OLD), (back, NEW)])
def test_an_alarm_that_still_rings_is_waited_for(
    act: Any,
    url: str,
    updater: Updater,
    platform: Platform,
    cloudformation: FakeCloudFormation,
) -> None:
    platform.url, platform.alarm = url, "ALARM"
    answer = act(updater)
    assert answer["status"] == "busy"
    assert f"alarm {ENDPOINT}-smoke" in answer["reason"]
    assert cloudformation.count("UpdateStack") == 0
    platform.alarm = "OK"
    assert act(updater)["status"] == "started"
