"""Application Auto Scaling types."""

from __future__ import annotations

from typing import Any

from operations.emulator.server.calls import already_gone_is_fine, client, typed
from operations.emulator.server.provisioners.resource_type import (
    Created,
    Properties,
    ResourceType,
)

_SERVICE = "application-autoscaling"
_IDENTITY = ("ResourceId", "ScalableDimension", "ServiceNamespace")


class ScalableTarget(ResourceType):
    """AWS::ApplicationAutoScaling::ScalableTarget; its id is `resource|dimension|namespace`."""

    name = "AWS::ApplicationAutoScaling::ScalableTarget"
    create_only = _IDENTITY

    def create(self, logical_id: str, properties: Properties, stack: str) -> Created:
        """Register the target."""
        return self._register(properties)

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Created:
        """Change the limits."""
        return self._register(new)

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Deregister the target, which deletes its policies."""
        identity = dict(zip(_IDENTITY, physical_id.split("|"), strict=True))
        with already_gone_is_fine("No scalable target"):
            client(_SERVICE).deregister_scalable_target(**identity)

    @staticmethod
    def _register(properties: Properties) -> Created:
        request = typed(_SERVICE, "RegisterScalableTarget", properties)
        client(_SERVICE).register_scalable_target(**request)
        identifier = "|".join(properties[key] for key in _IDENTITY)
        return identifier, {"Id": identifier}


class ScalingPolicy(ResourceType):
    """AWS::ApplicationAutoScaling::ScalingPolicy."""

    name = "AWS::ApplicationAutoScaling::ScalingPolicy"
    create_only = ("PolicyName", *_IDENTITY, "ScalingTargetId")

    def create(self, logical_id: str, properties: Properties, stack: str) -> Created:
        """Attach the policy to its target."""
        return self._put(properties)

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Created:
        """Change what the policy tracks."""
        return self._put(new)

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete the policy."""
        wanted = self._request(properties)
        identity = {key: wanted[key] for key in ("PolicyName", *_IDENTITY)}
        with already_gone_is_fine("No scaling policy"):
            client(_SERVICE).delete_scaling_policy(**identity)

    @classmethod
    def _put(cls, properties: Properties) -> Created:
        request = typed(_SERVICE, "PutScalingPolicy", cls._request(properties))
        answer = client(_SERVICE).put_scaling_policy(**request)
        return answer["PolicyARN"], {"Arn": answer["PolicyARN"]}

    @staticmethod
    def _request(properties: Properties) -> dict[str, Any]:
        request = dict(properties)
        target = request.pop("ScalingTargetId", None)
        if target:
            request.update(zip(_IDENTITY, target.split("|"), strict=True))
        return request
