"""Put the whole emulated account together; the one place that knows every part."""

from __future__ import annotations

from operations.emulator.server import corrections, moto_backend
from operations.emulator.server.calls import record_calls
from operations.emulator.server.fsx import FSx
from operations.emulator.server.gateway import add_service
from operations.emulator.server.provisioners import budget, network, scaling, serving, storage
from operations.emulator.server.provisioners.resource_type import register
from operations.emulator.server.sagemaker_gateway import SageMakerGateway
from operations.emulator.server.settings import Settings


def assemble(settings: Settings) -> SageMakerGateway:
    """Add to MiniStack what it lacks; the result is to be closed when the server ends."""
    record_calls(settings.work_directory / "cloudformation-calls.jsonl")
    sagemaker = SageMakerGateway(settings)
    fsx = FSx(settle_seconds=settings.settle_seconds)
    add_service("sagemaker", target_prefix="SageMaker.", answer=sagemaker.answer)
    add_service("fsx", target_prefix="AWSSimbaAPIService_v20180301.", answer=fsx.answer())
    add_service(
        "application-autoscaling",
        target_prefix="AnyScaleFrontendService.",
        answer=moto_backend.answer,
    )
    for tagged in (
        network.ElasticIp(),
        network.NatGateway(),
        network.FlowLog(),
        storage.FileSystem(),
        storage.DataRepositoryAssociation(),
        serving.Model(),
        serving.EndpointConfig(),
        serving.Endpoint(),
    ):
        register(tagged, tagged=True)
    for untagged in (
        network.SecurityGroupIngress(),
        network.SecurityGroupEgress(),
        scaling.ScalableTarget(),
        scaling.ScalingPolicy(),
        budget.Budget(),
    ):
        register(untagged)
    corrections.apply(fsx)
    return sagemaker
