"""SageMaker hosting: the states of an endpoint, and the processes behind it."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from operations.emulator import Emulator, sagemaker_fleet
from operations.emulator.sagemaker import ApiError, InvokeResult
from tests.support.hosting import (
    PROGRAM,
    ROOT,
    SERVER_PYTHON,
    Hosting,
    make_packages,
    packed,
    processes_of,
)

pytestmark = pytest.mark.emulator

PING_FAILED = (
    "The primary container for production variant main did not pass the ping health check. "
    "Please check CloudWatch logs for this endpoint."
)
NOT_FOUND = (400, "ValidationError", "Endpoint endpoint of account 000000000000 not found.")


@pytest.fixture
def hosting(tmp_path: Path) -> Iterator[Hosting]:
    made = Hosting(tmp_path)
    yield made
    made.service.close()
    assert made.servers() == []


@pytest.fixture
def serving(hosting: Hosting) -> Hosting:
    """An endpoint in service that answers `first`."""
    hosting.release("first")
    hosting.create("first")
    assert hosting.passes() == ["Creating", "InService"]
    return hosting


def logs(hosting: Hosting) -> str:
    return "\n".join(path.read_text() for path in sorted((hosting.folder / "logs").iterdir()))


def error_of(result: InvokeResult) -> tuple[int, str, str]:
    return result.status, result.headers["x-amzn-ErrorType"], json.loads(result.body)["Message"]


def test_a_roll_out_switches_real_models_without_a_failed_request(
    hosting: Hosting, tmp_path: Path
) -> None:
    labels = ("positive", "negative")
    for label, archive in zip(labels, make_packages(tmp_path, *labels), strict=True):
        hosting.objects[f"s3://models/{label}"] = archive
        hosting.release(label, url=f"s3://models/{label}")
    hosting.create("positive")
    hosting.passes()
    answers: list[tuple[int, str]] = []
    enough = threading.Event()

    def ask() -> None:
        while not enough.is_set():
            result = hosting.invoke(b'{"inputs": "a good film"}', "application/json")
            answers.append((result.status, json.loads(result.body)[0]["label"]))
            time.sleep(0.01)

    asking = threading.Thread(target=ask)
    asking.start()
    hosting.update("negative")
    pending = hosting.describe()
    assert pending["EndpointConfigName"] == "positive"
    assert pending["PendingDeploymentSummary"]["EndpointConfigName"] == "negative"
    assert hosting.passes() == ["Updating", "InService"]
    enough.set()
    asking.join()

    assert {status for status, _ in answers} == {200}
    said = [label for _, label in answers]
    assert said == sorted(said, reverse=True)  # first only positive, then only negative
    assert (
        json.loads(hosting.invoke(b'{"inputs": ["x", "y"]}', "application/json").body)[1]["label"]
        == "negative"
    )
    after = hosting.describe()
    assert after["EndpointConfigName"] == "negative"
    assert "PendingDeploymentSummary" not in after
    assert len(hosting.servers()) == 1


def guarded(*, minutes: int = 2) -> dict[str, Any]:
    """A deployment whose old fleet stays for so long, and that two alarms roll back."""
    return {
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0},
            "TerminationWaitInSeconds": minutes * 60,
        },
        "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "texts"}, {"AlarmName": "errors"}]},
    }


def stages(hosting: Hosting) -> list[str]:
    (variant,) = hosting.describe()["PendingDeploymentSummary"]["ProductionVariants"]
    return [status["Status"] for status in variant["VariantStatus"]]


def until_it_bakes(hosting: Hosting) -> None:
    assert stages(hosting) == ["Creating"]
    while stages(hosting) != ["Baking"]:
        time.sleep(0.02)


def test_a_new_fleet_bakes_while_the_old_one_is_warm(serving: Hosting) -> None:
    serving.release("second")
    serving.ringing = ["somebody-elses"]
    serving.update("second", DeploymentConfig=guarded())
    until_it_bakes(serving)
    assert serving.invoke().body == b"second"
    assert serving.describe()["EndpointConfigName"] == "first"
    assert len(serving.servers()) == 2
    assert serving.passes() == ["Updating", "InService"]
    assert serving.describe()["EndpointConfigName"] == "second"
    assert "FailureReason" not in serving.describe()
    assert len(serving.servers()) == 1


def test_an_alarm_in_the_bake_gives_the_traffic_back(serving: Hosting) -> None:
    serving.release("second")
    serving.update("second", DeploymentConfig=guarded(minutes=60))
    until_it_bakes(serving)
    serving.ringing = ["texts"]
    assert serving.passes() == ["Updating", "RollingBack", "InService"]
    assert serving.invoke().body == b"first"
    after = serving.describe()
    assert after["EndpointConfigName"] == "first"
    assert "texts" in after["FailureReason"]
    assert "PendingDeploymentSummary" not in after
    assert len(serving.servers()) == 1
    serving.ringing = []
    serving.release("third")
    serving.update("third", DeploymentConfig=guarded(minutes=0))
    assert serving.passes() == ["Updating", "InService"]
    assert serving.invoke().body == b"third"


def test_without_alarms_nothing_bakes(serving: Hosting) -> None:
    serving.release("second")
    without = {"BlueGreenUpdatePolicy": guarded(minutes=60)["BlueGreenUpdatePolicy"]}
    serving.update("second", DeploymentConfig=without)
    assert serving.passes() == ["Updating", "InService"]
    assert serving.invoke().body == b"second"


def test_a_container_that_ends_fails_the_creation_and_says_why_in_its_log(
    hosting: Hosting,
) -> None:
    hosting.release("torn", FAIL="1")
    hosting.create("torn")
    assert hosting.passes() == ["Creating", "Failed"]
    assert hosting.describe()["FailureReason"] == PING_FAILED
    assert "cannot load the model: RuntimeError: the weights are torn\n" in logs(hosting)
    assert "Traceback" not in logs(hosting)
    assert error_of(hosting.invoke()) == NOT_FOUND
    with pytest.raises(ApiError, match="Cannot update failed endpoint"):
        hosting.update("torn")
    hosting.call("DeleteEndpoint", EndpointName="endpoint")
    wait_until_gone(hosting)


def test_a_container_that_loads_too_long_fails_the_creation(tmp_path: Path) -> None:
    hosting = Hosting(tmp_path, startup_seconds=4)
    hosting.release("slow", LOAD_SECONDS="600")
    hosting.create("slow")
    assert hosting.passes() == ["Creating", "Failed"]
    assert hosting.describe()["FailureReason"] == PING_FAILED
    assert hosting.servers() == []
    hosting.service.close()


@pytest.mark.case("M13")
def test_a_failed_roll_out_leaves_the_old_model_serving(serving: Hosting) -> None:
    before = serving.servers()
    serving.release("torn", FAIL="1")
    serving.update("torn")
    with pytest.raises(ApiError, match=r"Cannot delete endpoint configuration .*/torn"):
        serving.call("DeleteEndpointConfig", EndpointConfigName="torn")
    with pytest.raises(ApiError, match=r"Cannot delete endpoint configuration .*/first"):
        serving.call("DeleteEndpointConfig", EndpointConfigName="first")
    seen: list[str] = []
    while not seen or seen[-1] != "InService":
        assert serving.invoke().body == b"first"
        status = serving.describe()["EndpointStatus"]
        if status not in seen:
            seen.append(status)
    assert seen == ["Updating", "RollingBack", "InService"]
    after = serving.describe()
    assert (after["EndpointConfigName"], after["FailureReason"]) == ("first", PING_FAILED)
    assert serving.servers() == before

    serving.release("second")
    serving.update("second")
    serving.passes()
    assert serving.invoke().body == b"second"
    assert "FailureReason" not in serving.describe()
    serving.call("DeleteEndpointConfig", EndpointConfigName="torn")


@pytest.mark.case("M08")
@pytest.mark.case("M11")
def test_an_endpoint_in_progress_refuses_every_change(hosting: Hosting) -> None:
    hosting.release("first", LOAD_SECONDS="1")
    hosting.create("first")
    with pytest.raises(ApiError, match="Cannot create already existing endpoint"):
        hosting.call("CreateEndpoint", EndpointName="ENDPOINT", EndpointConfigName="first")
    for change in (
        lambda: hosting.update("first"),
        lambda: hosting.call("DeleteEndpoint", EndpointName="endpoint"),
    ):
        with pytest.raises(ApiError) as refused:
            change()
        assert refused.value.code == "ValidationException"
        assert refused.value.message == (
            "Cannot update in-progress endpoint "
            '"arn:aws:sagemaker:us-west-2:000000000000:endpoint/endpoint".'
        )
    assert error_of(hosting.invoke()) == NOT_FOUND
    assert hosting.passes() == ["Creating", "InService"]

    hosting.call("DeleteEndpoint", EndpointName="endpoint")
    assert hosting.describe()["EndpointStatus"] == "Deleting"
    with pytest.raises(ApiError, match="Cannot update in-progress endpoint"):
        hosting.update("first")
    wait_until_gone(hosting)
    assert hosting.servers() == []
    hosting.create("first")
    hosting.passes()


@pytest.mark.case("M14")
def test_counts_and_weights_are_kept_only_where_asked_for(serving: Hosting) -> None:
    def counts() -> tuple[int, int, float]:
        variant = serving.describe()["ProductionVariants"][0]
        return (
            variant["CurrentInstanceCount"],
            variant["DesiredInstanceCount"],
            variant["CurrentWeight"],
        )

    desired = {"VariantName": "main", "DesiredInstanceCount": 5, "DesiredWeight": 0.5}
    serving.call(
        "UpdateEndpointWeightsAndCapacities",
        EndpointName="endpoint",
        DesiredWeightsAndCapacities=[desired],
    )
    assert counts() == (1, 5, 1.0)
    assert serving.passes() == ["Updating", "InService"]
    assert counts() == (5, 5, 0.5)

    serving.release("second", count=2)
    excluded = [{"VariantPropertyType": "DesiredWeight"}]
    serving.update(
        "second", RetainAllVariantProperties=True, ExcludeRetainedVariantProperties=excluded
    )
    serving.passes()
    assert counts() == (5, 5, 1.0)
    serving.update("second")
    serving.passes()
    assert counts() == (2, 2, 1.0)
    with pytest.raises(ApiError, match="not present within endpoint configuration"):
        serving.call(
            "UpdateEndpointWeightsAndCapacities",
            EndpointName="endpoint",
            DesiredWeightsAndCapacities=[{"VariantName": "other", "DesiredInstanceCount": 1}],
        )


@pytest.mark.case("M15")
def test_another_instance_type_is_refused_while_scaling_is_registered(serving: Hosting) -> None:
    serving.release("second")
    serving.release("larger", instance_type="ml.c8g.4xlarge")
    serving.scaled.add("endpoint/endpoint/variant/main")
    with pytest.raises(ApiError, match="must be deregistered as a scalable target"):
        serving.update("larger")
    assert serving.describe()["EndpointStatus"] == "InService"
    serving.update("second")  # another model alone needs no such thing
    serving.passes()
    assert serving.invoke().body == b"second"
    serving.scaled.clear()
    serving.update("larger")
    serving.passes()
    assert serving.invoke().body == b"larger"


def test_a_share_of_the_answers_is_captured(hosting: Hosting) -> None:
    capture = {
        "InitialSamplingPercentage": 50,
        "DestinationS3Uri": "s3://kept/here",
        "CaptureOptions": [{"CaptureMode": "Output"}],
    }
    hosting.release("first", capture=capture)
    hosting.create("first")
    hosting.passes()
    before = set(hosting.objects)
    for body in (b"x", b"fail", b"x", b"x", b"x"):
        hosting.invoke(body)
    kept = set(hosting.objects) - before
    assert len(kept) == 2  # of four good answers
    for url in kept:
        assert url.startswith("s3://kept/here/endpoint/main/")
        line = json.loads(bytes(hosting.objects[url]))
        assert set(line["captureData"]) == {"endpointOutput"}
        output = line["captureData"]["endpointOutput"]
        assert (output["encoding"], base64.b64decode(output["data"])) == ("BASE64", b"first")


@pytest.mark.case("M20")
def test_invocations_get_the_answers_of_the_runtime_api(
    serving: Hosting, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = serving.invoke(b"x")
    assert (good.status, good.body) == (200, b"first")
    assert good.headers == {
        "Content-Type": "text/plain",
        "x-Amzn-Invoked-Production-Variant": "main",
    }
    failed = serving.invoke(b"fail")
    error = json.loads(failed.body)
    assert (failed.status, failed.headers["x-amzn-ErrorType"]) == (424, "ModelError")
    assert error["OriginalStatusCode"] == 500
    assert error["OriginalMessage"].startswith("no such thing\nTraceback")
    assert error["Message"].startswith("Received server error (500) from primary with message")

    assert serving.invoke(bytes(6_291_456)).status == 200
    assert error_of(serving.invoke(bytes(6_291_457))) == (
        413,
        "413",
        "HTTP content length exceeded 6291456 bytes.",
    )
    other_case = serving.service.invoke("Endpoint", b"", None, None)
    assert error_of(other_case)[:2] == (400, "ValidationError")

    monkeypatch.setattr(sagemaker_fleet, "ANSWER_SECONDS", 0.3)
    late = json.loads(serving.invoke(b"wait for /no/such/file").body)
    assert late["OriginalStatusCode"] == 0
    assert "timed out while waiting for a response from container primary" in late["Message"]


def test_a_request_under_way_is_answered_although_its_fleet_is_replaced(
    serving: Hosting, tmp_path: Path
) -> None:
    signal_file = tmp_path / "go on"
    answers: list[bytes] = []

    def ask() -> None:
        answers.append(serving.invoke(b"wait for " + bytes(signal_file)).body)

    asking = threading.Thread(target=ask)
    asking.start()
    serving.release("second")
    serving.update("second")
    while serving.describe()["EndpointConfigName"] == "first":
        time.sleep(0.02)
    assert serving.invoke().body == b"second"
    assert serving.describe()["EndpointStatus"] == "Updating"
    assert len(serving.servers()) == 2
    signal_file.touch()
    asking.join()
    assert answers == [b"first"]
    serving.passes()
    assert len(serving.servers()) == 1


@pytest.mark.case("M19")
def test_a_container_that_ended_is_named_with_its_log(serving: Hosting) -> None:
    for body in (b"end yourself", b"x"):
        status, code, message = error_of(serving.invoke(body))
        assert (status, code) == (503, "ServiceUnavailable")
        assert str(serving.folder / "logs") in message


@pytest.mark.case("M06")
@pytest.mark.parametrize("kind", ["not an archive", "truncated", "leads out"])
def test_a_bad_archive_is_refused_by_name(hosting: Hosting, kind: str) -> None:
    whole = packed({"code/inference.py": "x = 1\n" * 5000})
    hosting.objects["s3://models/bad"] = {
        "not an archive": b"hello",
        "truncated": whole[: len(whole) // 2],
        "leads out": packed({"../outside.py": "x = 1"}),
    }[kind]
    hosting.release("bad", url="s3://models/bad")
    hosting.create("bad")
    hosting.passes()
    assert hosting.describe()["FailureReason"] == (
        'Failed to extract model data archive for container "container_1" from URL '
        '"s3://models/bad". Please ensure that the object located at the URL is a valid '
        "tar.gz archive."
    )
    assert not list(hosting.folder.rglob("outside.py"))


def test_model_data_that_is_gone_fails_the_endpoint(hosting: Hosting) -> None:
    hosting.release("first")
    hosting.objects.clear()
    hosting.create("first")
    hosting.passes()
    assert "Failed to download model data" in hosting.describe()["FailureReason"]


def test_a_server_that_cannot_be_started_fails_the_endpoint(tmp_path: Path) -> None:
    hosting = Hosting(tmp_path, server_python=tmp_path / "no-python")
    hosting.release("first")
    hosting.create("first")
    assert hosting.passes() == ["Creating", "Failed"]
    reason = hosting.describe()["FailureReason"]
    assert reason.startswith("Request to service failed: ")
    assert "no-python" in reason


def test_close_ends_servers_that_still_load(tmp_path: Path) -> None:
    hosting = Hosting(tmp_path)
    hosting.release("slow", LOAD_SECONDS="600")
    hosting.create("slow")
    while not hosting.servers():
        time.sleep(0.02)
    hosting.service.close()
    assert hosting.servers() == []
    assert not list((tmp_path / "containers").iterdir())


def test_no_server_outlives_a_killed_owner(tmp_path: Path) -> None:
    archive = tmp_path / "model.tar.gz"
    archive.write_bytes(packed({"code/inference.py": "def model_fn(folder):\n    return 1\n"}))
    owner = subprocess.Popen(
        [sys.executable, ROOT / "tests/support/own_sagemaker.py", tmp_path, archive, SERVER_PYTHON],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    with owner.stdout:
        assert owner.stdout.readline() == "InService\n"
        assert len(processes_of(tmp_path)) == 1
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
    deadline = time.monotonic() + 30
    while processes_of(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_of(tmp_path) == []


def test_boto3_meets_the_answers_and_errors_of_the_service(emulator: Emulator) -> None:
    store, control = emulator.client("s3"), emulator.client("sagemaker")
    runtime = emulator.client("sagemaker-runtime")
    store.create_bucket(
        Bucket="hosted-models", CreateBucketConfiguration={"LocationConstraint": emulator.region}
    )
    archive = packed({"code/inference.py": PROGRAM})
    store.put_object(Bucket="hosted-models", Key="model.tar.gz", Body=archive)
    control.create_model(
        ModelName="hosted",
        PrimaryContainer={
            "Image": "image",
            "ModelDataUrl": "s3://hosted-models/model.tar.gz",
            "Environment": {"WORD": "hello"},
        },
    )
    variant = {
        "VariantName": "main",
        "ModelName": "hosted",
        "InstanceType": "ml.c8g.large",
        "InitialInstanceCount": 1,
    }
    control.create_endpoint_config(EndpointConfigName="hosted", ProductionVariants=[variant])
    control.create_endpoint(EndpointName="hosted", EndpointConfigName="hosted")
    with pytest.raises(control.exceptions.ClientError, match="Cannot update in-progress endpoint"):
        control.delete_endpoint(EndpointName="hosted")
    control.get_waiter("endpoint_in_service").wait(EndpointName="hosted", WaiterConfig={"Delay": 1})
    answer = runtime.invoke_endpoint(EndpointName="hosted", Body=b"x")
    assert (answer["Body"].read(), answer["InvokedProductionVariant"]) == (b"hello", "main")
    with pytest.raises(runtime.exceptions.ModelError) as failed:
        runtime.invoke_endpoint(EndpointName="hosted", Body=b"fail")
    assert failed.value.response["OriginalStatusCode"] == 500
    with pytest.raises(runtime.exceptions.ValidationError, match="Endpoint gone of account"):
        runtime.invoke_endpoint(EndpointName="gone", Body=b"x")
    control.delete_endpoint(EndpointName="hosted")
    control.get_waiter("endpoint_deleted").wait(EndpointName="hosted", WaiterConfig={"Delay": 1})


def wait_until_gone(hosting: Hosting) -> None:
    while True:
        try:
            hosting.describe()
        except ApiError as error:
            assert error.message.startswith("Could not find endpoint")
            return
        time.sleep(0.02)
