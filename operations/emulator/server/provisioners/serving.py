"""SageMaker types, replaced and updated as CloudFormation does it."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from botocore.exceptions import ClientError

from operations.emulator.server.calls import already_gone_is_fine, client, typed
from operations.emulator.server.provisioners.resource_type import (
    Created,
    Properties,
    ResourceType,
    physical_name,
)

_POLL_SECONDS = 0.2
_LONGEST_NAME = 63


class _Named(ResourceType):
    """A SageMaker resource; its physical id is its ARN, as `Ref` gives it."""

    kind: ClassVar[str]
    method: ClassVar[str]

    def create(self, logical_id: str, properties: Properties, stack: str) -> Created:
        """Make the resource under its own or a generated name."""
        key = f"{self.kind}Name"
        name = properties.get(key) or physical_name(stack, logical_id, longest=_LONGEST_NAME)
        request = typed("sagemaker", f"Create{self.kind}", {**properties, key: name})
        answer = getattr(client("sagemaker"), f"create_{self.method}")(**request)
        return answer[f"{self.kind}Arn"], self._attributes(answer[f"{self.kind}Arn"], name)

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Created:
        """Change the tags, the only change in place of a model or an endpoint configuration."""
        _retag(physical_id, old, new)
        return physical_id, self._attributes(physical_id, self._described(physical_id))

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete the resource."""
        with already_gone_is_fine():
            name = _name(physical_id)
            getattr(client("sagemaker"), f"delete_{self.method}")(**{f"{self.kind}Name": name})

    def _described(self, arn: str) -> str:
        describe = getattr(client("sagemaker"), f"describe_{self.method}")
        name: str = describe(**{f"{self.kind}Name": _name(arn)})[f"{self.kind}Name"]
        return name

    def _attributes(self, arn: str, name: str) -> dict[str, Any]:
        return {f"{self.kind}Arn": arn, f"{self.kind}Name": name}


class Model(_Named):
    """AWS::SageMaker::Model."""

    name = "AWS::SageMaker::Model"
    kind = "Model"
    method = "model"
    custom_name = "ModelName"
    create_only = (
        "ExecutionRoleArn",
        "EnableNetworkIsolation",
        "InferenceExecutionConfig",
        "PrimaryContainer",
        "ModelName",
        "VpcConfig",
        "Containers",
    )


class EndpointConfig(_Named):
    """AWS::SageMaker::EndpointConfig."""

    name = "AWS::SageMaker::EndpointConfig"
    kind = "EndpointConfig"
    method = "endpoint_config"
    custom_name = "EndpointConfigName"
    create_only = (
        "KmsKeyId",
        "AsyncInferenceConfig",
        "ExecutionRoleArn",
        "ShadowProductionVariants",
        "EnableNetworkIsolation",
        "ProductionVariants",
        "DataCaptureConfig",
        "ExplainerConfig",
        "MetricsConfig",
        "EndpointConfigName",
        "VpcConfig",
    )


class Endpoint(_Named):
    """AWS::SageMaker::Endpoint; CloudFormation waits until it has settled."""

    name = "AWS::SageMaker::Endpoint"
    kind = "Endpoint"
    method = "endpoint"
    custom_name = "EndpointName"
    create_only = ("EndpointName",)

    # Properties that only an update reads.
    _UPDATE_ONLY = (
        "ExcludeRetainedVariantProperties",
        "RetainAllVariantProperties",
        "RetainDeploymentConfig",
    )

    def create(self, logical_id: str, properties: Properties, stack: str) -> Created:
        """Make the endpoint; fails with SageMaker's reason when it does not come up."""
        wanted = {k: v for k, v in properties.items() if k not in self._UPDATE_ONLY}
        arn, attributes = super().create(logical_id, wanted, stack)
        endpoint = _settled(attributes["EndpointName"])
        if endpoint["EndpointStatus"] != "InService":
            # A failed creation has no physical id yet, so the roll-back would not find it.
            self.delete(arn, properties)
            raise ValueError(_reason(endpoint))
        return arn, attributes

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Created:
        """Roll out another configuration; fails when SageMaker went back to the old one."""
        name = self._described(physical_id)
        _retag(physical_id, old, new)
        if {**old, "Tags": None} != {**new, "Tags": None}:
            wanted = {key: value for key, value in new.items() if key != "Tags"}
            request = typed("sagemaker", "UpdateEndpoint", {**wanted, "EndpointName": name})
            client("sagemaker").update_endpoint(**request)
            endpoint = _settled(name)
            arrived = endpoint["EndpointConfigName"] == request["EndpointConfigName"]
            if endpoint["EndpointStatus"] != "InService" or not arrived:
                raise ValueError(_reason(endpoint))
        return physical_id, self._attributes(physical_id, name)

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete the endpoint and wait until it is gone; refused while it changes, as on AWS."""
        name = _name(physical_id)
        with already_gone_is_fine():
            client("sagemaker").delete_endpoint(EndpointName=name)
            while True:
                client("sagemaker").describe_endpoint(EndpointName=name)
                time.sleep(_POLL_SECONDS)


def _name(arn: str) -> str:
    return arn.rpartition("/")[2]


def _settled(name: str) -> dict[str, Any]:
    while True:
        endpoint: dict[str, Any] = client("sagemaker").describe_endpoint(EndpointName=name)
        if endpoint["EndpointStatus"] in ("InService", "Failed", "UpdateRollbackFailed"):
            return endpoint
        time.sleep(_POLL_SECONDS)


def _reason(endpoint: dict[str, Any]) -> str:
    reason = endpoint.get(
        "FailureReason",
        f"it is {endpoint['EndpointStatus']} with the "
        f"configuration {endpoint['EndpointConfigName']}",
    )
    return f"Endpoint {endpoint['EndpointName']} failed: {reason}"


def _retag(arn: str, old: Properties, new: Properties) -> None:
    before = {tag["Key"] for tag in old.get("Tags") or []}
    after = {tag["Key"] for tag in new.get("Tags") or []}
    calls = client("sagemaker")
    try:
        if before - after:
            calls.delete_tags(ResourceArn=arn, TagKeys=sorted(before - after))
        if new.get("Tags"):
            calls.add_tags(ResourceArn=arn, Tags=new["Tags"])
    except ClientError as error:
        raise ValueError(f"the tags of {arn} cannot be changed: {error}") from error
