"""The serving examples on the emulated account: roll-outs, scaling, capture, VPC, and destroy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from operations import commands
from operations.emulator import Emulator
from tests.emulator.conftest import model_archive
from tests.emulator.test_examples import STAGING, adapted, reasons, settled, staged, upload
from tests.support.synth import ROOT, ClusterApp, synthesize

__all__ = ["staged"]

pytestmark = pytest.mark.emulator

BUCKET = "served-by-examples"
STACKS = ("network", "storage", "endpoint")
NAME = "ultracluster-serving"


class Deployed:
    """One example's stacks, without its cluster."""

    def __init__(self, emulator: Emulator, example: str, folder: Path) -> None:
        self.emulator = emulator
        self.api = emulator.client("cloudformation")
        self.sagemaker = emulator.client("sagemaker")
        text = (ROOT / "config" / "examples" / f"{example}.toml").read_text(encoding="utf-8")
        self.text = adapted(emulator, text)
        self.folder = folder
        self.example = example
        self.made: list[str] = []
        self._apps: dict[str, ClusterApp] = {}

    def synthesized(self, text: str, name: str) -> ClusterApp:
        if text not in self._apps:
            self._apps[text] = self._synthesized(text, name)
        return self._apps[text]

    def _synthesized(self, text: str, name: str) -> ClusterApp:
        settings = self.folder / name / f"{self.example}.toml"
        settings.parent.mkdir()
        settings.write_text(text, encoding="utf-8")
        return synthesize(settings, self.folder / name / "out")

    def create(self) -> None:
        app = self.synthesized(self.text, "first")
        for short in STACKS:
            stack = f"ultracluster-{self.example}-{short}"
            upload(self.emulator, self.folder / "first" / "out", stack)
            made = self.api.create_stack(
                StackName=stack,
                TemplateURL=self.template(stack, app.templates[short]),
                Capabilities=["CAPABILITY_NAMED_IAM"],
            )
            self.made.append(made["StackId"])
            assert settled(self.api, stack) == "CREATE_COMPLETE", reasons(self.api, stack)

    def template(self, stack: str, template: dict[str, Any]) -> str:
        key = f"{stack}.json"
        body = json.dumps(template)
        self.emulator.client("s3").put_object(Bucket=STAGING, Key=key, Body=body)
        return f"https://s3.us-west-2.amazonaws.com/{STAGING}/{key}"

    def serve(self, url: str) -> str:
        """Roll a model out as the delivery does; how it ended."""
        stack = f"ultracluster-{self.example}-endpoint"
        self.api.update_stack(
            StackName=stack,
            UsePreviousTemplate=True,
            Parameters=[
                {"ParameterKey": "ModelUrl", "ParameterValue": url},
                {"ParameterKey": "BootstrapVersion", "UsePreviousValue": True},
            ],
            Capabilities=["CAPABILITY_NAMED_IAM"],
        )
        return settled(self.api, stack)

    def deploy(self, text: str, name: str) -> tuple[str, str]:
        """Deploy the Endpoint stack with other settings, its model kept; how it ended, and why."""
        stack = f"ultracluster-{self.example}-endpoint"
        template = self.synthesized(text, name).templates["endpoint"]
        self.api.update_stack(
            StackName=stack,
            TemplateURL=self.template(stack, template),
            Parameters=[
                {"ParameterKey": key, "UsePreviousValue": True} for key in template["Parameters"]
            ],
            Capabilities=["CAPABILITY_NAMED_IAM"],
        )
        return settled(self.api, stack), reasons(self.api, stack)

    def changes(self, text: str, name: str) -> tuple[int, list[str]]:
        """What `ultracluster changes` says of settings, and how it ends."""
        settings = self.folder / name / f"{self.example}.toml"
        settings.parent.mkdir()
        settings.write_text(text, encoding="utf-8")
        lines: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in self.emulator.environment().items():
                patch.setenv(variable, value)
            status = commands.changes(str(settings), show=lines.append)
        return status, lines

    def ask(self) -> str:
        answer = self.emulator.client("sagemaker-runtime").invoke_endpoint(
            EndpointName=f"ultracluster-{self.example}",
            Body=b'"a text"',
            ContentType="application/json",
        )
        text: str = answer["Body"].read().decode()
        return text

    def variant(self) -> dict[str, Any]:
        endpoint = self.sagemaker.describe_endpoint(EndpointName=f"ultracluster-{self.example}")
        (found,) = endpoint["ProductionVariants"]
        return dict(found)

    def targets(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.emulator.client(
            "application-autoscaling"
        ).describe_scalable_targets(
            ServiceNamespace="sagemaker",
            ResourceIds=[f"endpoint/ultracluster-{self.example}/variant/main"],
        )["ScalableTargets"]
        return found

    def destroy(self) -> None:
        for stack in reversed(self.made):
            self.api.delete_stack(StackName=stack)
            assert settled(self.api, stack) == "DELETE_COMPLETE", reasons(self.api, stack)
        self.made = []


@pytest.fixture
def urls(staged: Emulator) -> Iterator[dict[str, str]]:
    s3 = staged.client("s3")
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": staged.region})
    for word in ("one", "two"):
        s3.put_object(Bucket=BUCKET, Key=f"{word}/model.tar.gz", Body=model_archive(word))
    yield {word: f"s3://{BUCKET}/{word}/model.tar.gz" for word in ("one", "two")}
    for word in ("one", "two"):
        s3.delete_object(Bucket=BUCKET, Key=f"{word}/model.tar.gz")
    s3.delete_bucket(Bucket=BUCKET)


@pytest.mark.case("M14")
@pytest.mark.case("M15")
@pytest.mark.case("M17")
def test_serving_under_load_from_the_first_model_to_the_last(
    staged: Emulator, urls: dict[str, str], tmp_path: Path
) -> None:
    deployed = Deployed(staged, "serving", tmp_path)
    deployed.create()
    assert deployed.targets() == []
    other = other_endpoint(staged, urls["one"])

    assert deployed.serve(urls["one"]) == "UPDATE_COMPLETE"
    assert deployed.ask() == "one"
    ((target),) = deployed.targets()
    assert (target["MinCapacity"], target["MaxCapacity"]) == (2, 8)
    (policy,) = staged.client("application-autoscaling").describe_scaling_policies(
        ServiceNamespace="sagemaker"
    )["ScalingPolicies"]
    assert policy["TargetTrackingScalingPolicyConfiguration"]["TargetValue"] == 600.0

    # What auto scaling does under load; a roll-out then keeps it.
    deployed.sagemaker.update_endpoint_weights_and_capacities(
        EndpointName=NAME,
        DesiredWeightsAndCapacities=[{"VariantName": "main", "DesiredInstanceCount": 5}],
    )
    deployed.sagemaker.get_waiter("endpoint_in_service").wait(
        EndpointName=NAME, WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )
    assert deployed.serve(urls["two"]) == "UPDATE_COMPLETE"
    assert deployed.ask() == "two"
    assert deployed.variant()["CurrentInstanceCount"] == 5
    assert len(deployed.targets()) == 1

    a_tenth_is_captured(deployed)
    another_type_takes_two_deploys(deployed)

    deployed.destroy()
    api = deployed.sagemaker
    assert api.list_endpoints(NameContains=NAME)["Endpoints"] == []
    assert api.list_endpoint_configs(NameContains=NAME)["EndpointConfigs"] == []
    assert api.list_models(NameContains=NAME)["Models"] == []
    assert deployed.targets() == []
    assert api.describe_endpoint(EndpointName=other)["EndpointStatus"] == "InService"
    delete_other(staged, other)


def a_tenth_is_captured(deployed: Deployed) -> None:
    s3 = deployed.emulator.client("s3")
    config = deployed.sagemaker.describe_endpoint(EndpointName=NAME)["EndpointConfigName"]
    capture = deployed.sagemaker.describe_endpoint_config(EndpointConfigName=config)
    bucket, _, prefix = (
        capture["DataCaptureConfig"]["DestinationS3Uri"].removeprefix("s3://").partition("/")
    )
    before = s3.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/")["KeyCount"]
    for _ in range(20):
        deployed.ask()
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/")
    assert listed["KeyCount"] - before == 2
    key = listed["Contents"][-1]["Key"]
    assert key.startswith(f"captured/{NAME}/main/2")
    line = json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    assert line["captureData"]["endpointInput"]["data"] == '"a text"'
    assert line["captureData"]["endpointInput"]["encoding"] == "JSON"


def another_type_takes_two_deploys(deployed: Deployed) -> None:
    larger = deployed.text.replace("[endpoint]\n", '[endpoint]\ninstance_type = "ml.c8g.4xlarge"\n')
    code, (told,) = deployed.changes(larger, "told")
    assert (code, "takes two deploys" in told) == (1, True)
    status, why = deployed.deploy(larger, "at-once")
    assert status == "UPDATE_ROLLBACK_COMPLETE"
    assert "must be deregistered as a scalable target" in why
    assert deployed.ask() == "two"
    assert len(deployed.targets()) == 1

    head, _, tail = deployed.text.partition("[endpoint.scaling]")
    without = head + "[endpoint.capture]" + tail.partition("[endpoint.capture]")[2]
    assert deployed.deploy(without, "without-scaling")[0] == "UPDATE_COMPLETE"
    assert deployed.targets() == []
    assert deployed.changes(larger, "told-again") == (
        0,
        ["3 of 6 stacks are deployed; one deploy does it"],
    )
    assert deployed.deploy(larger, "larger")[0] == "UPDATE_COMPLETE"
    assert deployed.ask() == "two"
    assert len(deployed.targets()) == 1
    config = deployed.sagemaker.describe_endpoint(EndpointName=NAME)["EndpointConfigName"]
    (variant,) = deployed.sagemaker.describe_endpoint_config(EndpointConfigName=config)[
        "ProductionVariants"
    ]
    assert variant["InstanceType"] == "ml.c8g.4xlarge"


def other_endpoint(emulator: Emulator, url: str) -> str:
    """An endpoint of somebody else, which a destroy must leave alone."""
    api = emulator.client("sagemaker")
    api.create_model(
        ModelName="somebodys", PrimaryContainer={"Image": "image", "ModelDataUrl": url}
    )
    api.create_endpoint_config(
        EndpointConfigName="somebodys",
        ProductionVariants=[
            {
                "VariantName": "main",
                "ModelName": "somebodys",
                "InstanceType": "ml.c7g.large",
                "InitialInstanceCount": 1,
            }
        ],
    )
    api.create_endpoint(EndpointName="somebodys", EndpointConfigName="somebodys")
    api.get_waiter("endpoint_in_service").wait(
        EndpointName="somebodys", WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )
    return "somebodys"


def delete_other(emulator: Emulator, name: str) -> None:
    api = emulator.client("sagemaker")
    api.delete_endpoint(EndpointName=name)
    api.get_waiter("endpoint_deleted").wait(
        EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )
    api.delete_endpoint_config(EndpointConfigName=name)
    api.delete_model(ModelName=name)


def test_an_own_image_moves_in_steps(
    staged: Emulator, urls: dict[str, str], tmp_path: Path
) -> None:
    deployed = Deployed(staged, "serving-linear", tmp_path)
    deployed.create()
    assert deployed.serve(urls["one"]) == "UPDATE_COMPLETE"
    assert deployed.ask() == "one"
    described = deployed.sagemaker.describe_endpoint(EndpointName="ultracluster-serving-linear")
    policy = described["LastDeploymentConfig"]["BlueGreenUpdatePolicy"]
    assert policy["TrafficRoutingConfiguration"]["Type"] == "LINEAR"
    (image,) = deployed.variant()["DeployedImages"]
    assert image["SpecifiedImage"].endswith("/serving:2.8.0-cpu-py312")
    alarms = staged.client("cloudwatch").describe_alarms(
        AlarmNamePrefix="ultracluster-serving-linear-"
    )["MetricAlarms"]
    named = {
        one["AlarmName"]
        for one in described["LastDeploymentConfig"]["AutoRollbackConfiguration"]["Alarms"]
    }
    assert {one["AlarmName"] for one in alarms} == named
    assert deployed.serve("none") == "UPDATE_COMPLETE"
    with pytest.raises(ClientError, match="ValidationError"):
        deployed.ask()
    deployed.destroy()
