import json
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from settle.observation import Observer, Settings
from tests.unit.lambdas.fakes import (
    ENDPOINT,
    STACK,
    UNHEALTHY,
    FakeCloudFormation,
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
        self.observer = Observer(
            Settings(model_bucket=BUCKET, endpoint_stack=STACK, endpoint_name=ENDPOINT),
            s3=self.s3,
            cloudformation=FakeCloudFormation(self.platform),
            sagemaker=FakeSageMaker(self.platform),
            runtime=self.runtime,
        )

    def begin(self, ending: str = "complete") -> None:
        self.platform.endings[self.model.url] = ending
        self.platform.begin(self.model.url, "d-1")

    def finish(self, ending: str = "complete") -> None:
        self.begin(ending)
        for _ in range(self.platform.ticks):
            self.platform.tick()

    def look(self, manifest: bool = True) -> dict[str, Any]:
        key = self.model.manifest_key if manifest else None
        return self.observer.look(token="d-1", target=self.model.url, manifest_key=key)


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
    answer = world.observer.look(token="d-1", target="none", manifest_key=None)
    assert answer["status"] == "settled"
