"""Faults, each brought about on the stage of an emulated account."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

from tests.support.faults import Stage
from tests.support.middleman import Call, Reply, refusal


def torn(stage: Stage) -> None:
    stage.publish(torn=True)


def five_times(stage: Stage) -> None:
    event = stage.event_of(stage.publish())
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(stage.start, [event] * 4))


def in_mid_update(stage: Stage) -> None:
    stage.until_under_way(stage.publish())
    stage.publish()


def two_at_once(stage: Stage) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: stage.publish(), range(2)))


def deploy_before(stage: Stage) -> None:
    stage.deploy(ContainerStartupHealthCheckTimeoutInSeconds=600)
    assert stage.busy
    stage.publish()


def deploy_during(stage: Stage) -> None:
    stage.until_under_way(stage.publish())
    with pytest.raises(ClientError, match="IN_PROGRESS state and can not be updated"):
        stage.deploy(ContainerStartupHealthCheckTimeoutInSeconds=700)


def killed_before(stage: Stage) -> None:
    stage.middleman.at("UpdateStack", lambda call: call.kill())
    stage.publish()


def killed_after(stage: Stage) -> None:
    def kill(call: Call) -> None:
        call.forward()
        call.kill()

    stage.middleman.at("UpdateStack", kill)
    stage.publish()


def refused(call: Call) -> Reply:
    return refusal("AccessDenied", "User is not authorized to perform: iam:PassRole")


def cloudformation_refuses(stage: Stage) -> None:
    stage.middleman.at("UpdateStack", refused, times=3)
    stage.publish()


def throttled(stage: Stage) -> None:
    for operation in ("DescribeStacks", "DescribeStackEvents", "UpdateStack"):
        stage.middleman.at(operation, lambda call: refusal("Throttling", "Rate exceeded"))
    stage.publish()


def lying_ping(stage: Stage) -> None:
    program = "def predict_fn(texts, model):\n    raise KeyError('no such layer')\n"
    stage.publish(more=program)


def rolls_back_silently(stage: Stage, *, deletes: bool) -> Callable[[Call], None]:
    """SageMaker goes back to what served, once CloudFormation has called the update complete.

    `deletes`: CloudFormation has deleted that configuration by then, which bars every update.
    """
    sagemaker = stage.account.sagemaker
    endpoint = stage.account.endpoint_name
    config = sagemaker.describe_endpoint_config(
        EndpointConfigName=sagemaker.describe_endpoint(EndpointName=endpoint)["EndpointConfigName"]
    )
    variant = config["ProductionVariants"][0]
    model = sagemaker.describe_model(ModelName=variant["ModelName"])
    name = f"before-{model['ModelName']}"[:63].rstrip("-")
    sagemaker.create_model(
        ModelName=name,
        PrimaryContainer=model["PrimaryContainer"],
        ExecutionRoleArn=model["ExecutionRoleArn"],
    )
    sagemaker.create_endpoint_config(
        EndpointConfigName=name, ProductionVariants=[variant | {"ModelName": name}]
    )

    def trouble(call: Call) -> None:
        if stage.busy:
            stage.middleman.at("DescribeEndpoint", trouble)
            return
        sagemaker.update_endpoint(EndpointName=endpoint, EndpointConfigName=name)
        for _ in stage.patiently("the endpoint did not go back"):
            if sagemaker.describe_endpoint(EndpointName=endpoint)["EndpointStatus"] == "InService":
                break
        if deletes:
            sagemaker.delete_endpoint_config(EndpointConfigName=name)

    return trouble


def silent(stage: Stage) -> None:
    stage.middleman.at("DescribeEndpoint", rolls_back_silently(stage, deletes=False))
    stage.publish()


def roll_back_fails(stage: Stage) -> None:
    stage.middleman.at("DescribeEndpoint", rolls_back_silently(stage, deletes=True))
    stage.publish()


def mended(stage: Stage) -> None:
    """As docs/delivery.md says it."""
    stage.set_model("none")
    stage.start({**stage.model(stage.former).manifest, "intent": "roll-back"})
