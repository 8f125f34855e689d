import json
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from settle.observation import Observer, Settings
from tests.unit.lambdas.fakes import (
    ENDPOINT,
    STACK,
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
    assert world.look() == {"status": "settled", "reason": "", "undone": False}
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
    expected = "Endpoint (AWS::SageMaker::Endpoint): did not pass the health check"
    assert answer["reason"] == expected


def test_a_failed_update_is_told_even_after_another_began(world: World) -> None:
    world.finish("failed")
    world.platform.begin("s3://other", "d-2")
    answer = world.look()
    assert (answer["status"], answer["undone"]) == ("failed", True)


def test_an_update_that_was_cancelled_is_undone(world: World) -> None:
    world.begin()
    world.platform.url, world.platform.status = OLD, "UPDATE_ROLLBACK_COMPLETE"
    answer = world.look()
    assert (answer["status"], answer["undone"]) == ("failed", True)


def test_another_model_since_is_overtaken(world: World) -> None:
    world.finish()
    world.platform.begin(OLD, "d-2")
    assert world.look()["status"] == "overtaken"
    assert world.runtime.calls == []


def test_another_deploy_that_keeps_the_model_is_waited_for(world: World) -> None:
    world.finish()
    world.platform.status = "UPDATE_IN_PROGRESS"
    assert world.look()["status"] == "waiting"


def test_a_silent_roll_back_of_sagemaker_is_seen(world: World) -> None:
    world.finish("silent")
    world.platform.failure_reason = "alarm 5xx"
    answer = world.look()
    assert (answer["status"], answer["undone"]) == ("failed", False)
    for part in (configuration(OLD), configuration(world.model.url), "alarm 5xx"):
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


def raising(error: Exception) -> Any:
    def answer(texts: list[str]) -> bytes:
        raise error

    return answer


MODEL_ERROR = refused(
    "InvokeEndpoint", "ModelError", "m", OriginalStatusCode=500, OriginalMessage="no such weight"
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
        (raising(MODEL_ERROR), "500: no such weight"),
        (raising(ReadTimeoutError(endpoint_url="https://runtime")), "gave no answer"),
    ],
)
def test_a_model_that_answers_otherwise_failed(world: World, answer: Any, said: str) -> None:
    world.finish()
    world.runtime.answer = answer
    result = world.look()
    assert (result["status"], result["undone"]) == ("failed", False)
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
