import json
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from settle.bake import Bake
from settle.fault import Fault
from settle.observation import Observer, Settings
from tests.unit.lambdas.fakes import (
    ENDPOINT,
    STACK,
    UNHEALTHY,
    FakeCloudFormation,
    FakeCloudWatch,
    FakeRuntime,
    FakeS3,
    FakeSageMaker,
    Platform,
    configuration,
    labels_of,
    refused,
)
from tests.unit.lambdas.models import BUCKET, publish

OLD = f"s3://{BUCKET}/models/sentiment/{'0' * 64}/model.tar.gz"
NO_FAULT = {"reason": "", "of_model": False}
NOT_THE_MODELS = [
    'Could not find endpoint "arn:aws:sagemaker:us-west-2:000000000000:endpoint/ultracluster-test".',
    "Cannot update in-progress endpoint",
    "Unable to provision requested ML compute capacity due to InsufficientInstanceCapacity error.",
    "The account-level service limit 'ml.c7g.4xlarge for endpoint usage' is 0 Instances",
    "User is not authorized to perform: sagemaker:UpdateEndpoint",
    "",
]


class World:
    def __init__(self) -> None:
        self.s3 = FakeS3()
        self.model = publish(self.s3)
        self.platform = Platform(url=OLD)
        self.runtime = FakeRuntime(labels_of)
        self.cloudwatch = FakeCloudWatch(self.platform)
        sagemaker = FakeSageMaker(self.platform)
        self.observer = Observer(
            Settings(model_bucket=BUCKET, endpoint_stack=STACK, endpoint_name=ENDPOINT),
            s3=self.s3,
            cloudformation=FakeCloudFormation(self.platform),
            sagemaker=sagemaker,
            runtime=self.runtime,
            bake=Bake(ENDPOINT, sagemaker=sagemaker, cloudwatch=self.cloudwatch),
        )

    def begin(self, ending: str = "complete") -> None:
        self.platform.endings[self.model.url] = ending
        self.platform.begin(self.model.url, "d-1")

    def finish(self, ending: str = "complete") -> None:
        self.begin(ending)
        for _ in range(self.platform.ticks):
            self.platform.tick()

    def look(self, manifest: bool = True, fault: Fault | None = None) -> dict[str, Any]:
        return self.observer.look(
            token="d-1",
            target=self.model.url,
            manifest_key=self.model.manifest_key if manifest else None,
            former_model=True,
            fault=fault,
        )


@pytest.fixture
def world() -> World:
    return World()


def test_it_waits_while_the_stack_is_updated(world: World) -> None:
    world.begin()
    assert world.look()["status"] == "waiting"
    assert world.runtime.calls == []


def test_it_settles_once_the_endpoint_answers_as_packed(world: World) -> None:
    world.finish()
    assert world.look() == {
        "status": "settled",
        "reason": "",
        "undone": False,
        "final": False,
        "fault": NO_FAULT,
    }
    ((_, request),) = world.runtime.calls
    assert request["EndpointName"] == ENDPOINT
    assert json.loads(request["Body"]) == {"inputs": ["a fine day"]}


def test_a_roll_back_is_not_asked_for_this_models_labels(world: World) -> None:
    world.finish()
    assert world.look(manifest=False)["status"] == "settled"
    assert world.runtime.calls == []


def test_a_failed_update_is_told_by_the_first_resource_that_failed(world: World) -> None:
    world.finish("failed")
    answer = world.look()
    assert answer["status"] == "failed"
    assert answer["undone"]
    assert answer["reason"] == f"Endpoint (AWS::SageMaker::Endpoint): {UNHEALTHY}"
    assert answer["final"]


@pytest.mark.parametrize("failure", NOT_THE_MODELS)
def test_an_update_that_failed_around_the_model_bans_no_model(world: World, failure: str) -> None:
    world.platform.failure = failure
    world.finish("failed")
    answer = world.look()
    assert (answer["status"], answer["undone"], answer["final"]) == ("failed", True, False)
    assert failure in answer["reason"]


def test_a_manifest_that_vanished_bans_no_model(world: World) -> None:
    world.finish()
    del world.s3.objects[BUCKET, world.model.manifest_key]
    answer = world.look()
    assert (answer["status"], answer["final"]) == ("failed", False)
    assert f"{world.model.manifest_key} is gone" in answer["reason"]


def test_a_failed_update_is_told_even_after_another_began(world: World) -> None:
    world.finish("failed")
    world.platform.begin("s3://other", "d-2")
    answer = world.look()
    assert (answer["status"], answer["undone"]) == ("failed", True)


def test_an_update_that_was_cancelled_is_undone(world: World) -> None:
    world.begin()
    world.platform.url, world.platform.status = OLD, "UPDATE_ROLLBACK_COMPLETE"
    answer = world.look()
    assert (answer["status"], answer["undone"], answer["final"]) == ("failed", True, False)


def test_another_model_since_is_overtaken(world: World) -> None:
    world.finish()
    world.platform.begin(OLD, "d-2")
    assert world.look()["status"] == "overtaken"
    assert world.runtime.calls == []


def test_another_deploy_that_keeps_the_model_is_waited_for(world: World) -> None:
    world.finish()
    world.platform.status = "UPDATE_IN_PROGRESS"
    assert world.look()["status"] == "waiting"


@pytest.mark.parametrize(("said", "final"), [("alarm 5xx", False), (UNHEALTHY, True)])
def test_a_silent_roll_back_of_sagemaker_is_seen(world: World, said: str, final: bool) -> None:
    world.finish("silent")
    world.platform.failure_reason = said
    answer = world.look()
    assert (answer["status"], answer["undone"], answer["final"]) == ("failed", False, final)
    for part in (configuration(OLD), configuration(world.model.url), said):
        assert part in answer["reason"]
    assert world.runtime.calls == []


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        ("Updating", "waiting"),
        ("SystemUpdating", "waiting"),
        ("RollingBack", "waiting"),
        ("Failed", "failed"),
        ("UpdateRollbackFailed", "failed"),
    ],
)
def test_the_endpoint_itself_must_be_in_service(world: World, status: str, answer: str) -> None:
    world.finish()
    world.platform.endpoint_status = status
    assert world.look()["status"] == answer
    assert not world.look()["final"]
    world.platform.failure_reason = UNHEALTHY
    assert world.look()["final"] is (answer == "failed")


def raising(error: Exception) -> Any:
    def answer(texts: list[str]) -> bytes:
        raise error

    return answer


def model_error(status: int, said: str) -> Any:
    return raising(
        refused(
            "InvokeEndpoint", "ModelError", "m", OriginalStatusCode=status, OriginalMessage=said
        )
    )


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            lambda texts: labels_of(texts, "negative"),
            "got 'negative', the manifest says 'positive'",
        ),
        (lambda texts: b"[]", "0 labels for 1 texts"),
        (lambda texts: b"not json", "no list of labels"),
        (lambda texts: b'{"label": "positive"}', "no list of labels"),
        (lambda texts: b"[1]", "no list of labels"),
        (lambda texts: b"\xff", "no list of labels"),
        (lambda texts: b"[" * 100_000, "no list of labels"),
        (lambda texts: labels_of(texts, "n" * 1_000_000), "got 'nnn"),
        (model_error(500, "no such weight"), "500: no such weight"),
        (model_error(400, "no such key"), "400: no such key"),
    ],
)
def test_a_model_that_answers_otherwise_failed(world: World, answer: Any, said: str) -> None:
    world.finish()
    world.runtime.answer = answer
    result = world.look()
    assert (result["status"], result["undone"], result["final"]) == ("failed", False, True)
    assert said in result["reason"]
    assert len(result["reason"]) < 1000  # a state machine ends without a word on 256 KiB


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (model_error(503, "no worker is free"), "503: no worker is free"),
        (model_error(0, "timed out while waiting"), "0: timed out while waiting"),
        (raising(refused("InvokeEndpoint", "ModelNotReadyException", "soon")), "no status: soon"),
        (raising(ReadTimeoutError(endpoint_url="https://runtime")), "gave no answer"),
    ],
)
def test_a_model_that_gave_no_answer_failed_but_is_not_banned(
    world: World, answer: Any, said: str
) -> None:
    world.finish()
    world.runtime.answer = answer
    result = world.look()
    assert (result["status"], result["undone"], result["final"]) == ("failed", False, False)
    assert said in result["reason"]


@pytest.fixture
def baking(world: World) -> World:
    """All traffic is on the new model, and the old fleet is still there."""
    world.platform.bake = world.platform.ticks
    world.begin()
    return world


def test_in_the_bake_the_texts_are_tried_and_the_outcome_is_told(baking: World) -> None:
    answer = baking.look()
    assert (answer["status"], answer["fault"]) == ("waiting", NO_FAULT)
    assert len(baking.runtime.calls) == 1
    assert baking.cloudwatch.told == [0.0]


@pytest.mark.parametrize(
    ("answer", "final"),
    [(lambda texts: labels_of(texts, "negative"), True), (model_error(503, "busy"), False)],
)
def test_a_model_that_fails_in_the_bake_is_rolled_back_by_the_alarm(
    baking: World, answer: Any, final: bool
) -> None:
    baking.runtime.answer = answer
    first = baking.look()
    assert (first["status"], first["fault"]["of_model"]) == ("waiting", final)
    assert baking.cloudwatch.told == [1.0]
    fault = Fault(**first["fault"])
    baking.runtime.answer = labels_of
    assert baking.look(fault=fault)["fault"] == first["fault"]
    baking.platform.tick()
    ended = baking.look(fault=fault)
    assert (ended["status"], ended["undone"], ended["final"]) == ("failed", True, final)
    assert ended["reason"].startswith(f"{fault.reason}; then: Endpoint")
    assert "alarm ultracluster-test-smoke is in ALARM" in ended["reason"]


def test_what_failed_in_the_bake_and_serves_in_the_end_serves(world: World) -> None:
    world.finish()
    answer = world.look(fault=Fault(reason="no worker was free", of_model=False))
    assert answer["status"] == "settled"


def test_a_roll_back_in_its_bake_is_not_asked_for_this_models_labels(baking: World) -> None:
    assert baking.look(manifest=False)["status"] == "waiting"
    baking.platform.status = "UPDATE_ROLLBACK_IN_PROGRESS"
    assert baking.look()["status"] == "waiting"
    assert (baking.runtime.calls, baking.cloudwatch.told) == ([], [])


@pytest.mark.parametrize("traffic", ["CANARY", "LINEAR"])
def test_while_the_old_fleet_may_answer_no_text_is_tried(baking: World, traffic: str) -> None:
    baking.platform.traffic = traffic
    assert baking.look()["status"] == "waiting"
    assert (baking.runtime.calls, baking.cloudwatch.told) == ([], [])


def test_before_the_traffic_shifts_and_for_a_first_model_no_text_is_tried(world: World) -> None:
    world.platform.bake = 1
    world.begin()
    assert world.look()["status"] == "waiting"
    world.platform.serves = None
    world.platform.tick()
    assert world.look()["status"] == "waiting"
    assert (world.runtime.calls, world.cloudwatch.told) == ([], [])


def test_the_last_try_leaves_the_alarm_alone(world: World) -> None:
    """It would hold up the roll-back that follows."""
    world.finish()
    world.runtime.answer = lambda texts: labels_of(texts, "negative")
    assert world.look()["status"] == "failed"
    assert world.cloudwatch.told == []


def test_a_missing_right_says_nothing_about_the_model(world: World) -> None:
    world.finish()
    world.runtime.answer = raising(refused("InvokeEndpoint", "AccessDeniedException", "no"))
    with pytest.raises(ClientError):
        world.look()


def test_a_wrong_answer_of_a_model_that_came_since_is_not_this_models(world: World) -> None:
    world.finish()

    def overtake(texts: list[str]) -> bytes:
        world.platform.begin(OLD, "d-2")
        return labels_of(texts, "negative")

    world.runtime.answer = overtake
    assert world.look()["status"] == "overtaken"


def test_back_to_no_model_needs_no_endpoint(world: World) -> None:
    world.platform.begin("none", "d-1")
    for _ in range(world.platform.ticks):
        world.platform.tick()
    answer = world.observer.look(
        token="d-1", target="none", manifest_key=None, former_model=True, fault=None
    )
    assert answer["status"] == "settled"
