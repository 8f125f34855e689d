"""One endpoint of the emulated SageMaker, and how DescribeEndpoint shows it."""

from __future__ import annotations

from dataclasses import dataclass

from operations.emulator.sagemaker_fleet import Fleet
from operations.emulator.sagemaker_records import Record
from operations.emulator.sagemaker_requests import Json


@dataclass(frozen=True)
class Release:
    """An endpoint configuration together with the model it names, as they are at one moment."""

    config: Record
    model: Record

    @property
    def variant(self) -> Json:
        """The one production variant."""
        return self.config.settings["ProductionVariants"][0]  # type: ignore[no-any-return]

    @property
    def container(self) -> Json:
        """The model's container."""
        return self.model.settings["PrimaryContainer"]  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Capacity:
    """How much of a variant there shall be."""

    instances: int
    weight: float

    @classmethod
    def of(cls, release: Release) -> Capacity:
        """The capacity that the configuration starts with."""
        variant = release.variant
        return cls(variant["InitialInstanceCount"], variant.get("InitialVariantWeight", 1.0))

    def changed(self, desired: Json) -> Capacity:
        """This capacity with ``DesiredInstanceCount`` and ``DesiredWeight`` where given."""
        return Capacity(
            desired.get("DesiredInstanceCount", self.instances),
            desired.get("DesiredWeight", self.weight),
        )


@dataclass
class Endpoint:
    """The state of one endpoint; times are seconds since the epoch."""

    name: str
    arn: str
    release: Release
    desired: Capacity
    created: float
    modified: float
    status: str = "Creating"
    current: Capacity | None = None
    fleet: Fleet | None = None
    pending: Release | None = None
    failure_reason: str | None = None
    deployment: Json | None = None
    bakes: bool = False

    @property
    def alarms(self) -> list[str]:
        """Names of the alarms that roll a deployment back; without one nothing bakes."""
        configured = (self.deployment or {}).get("AutoRollbackConfiguration", {})
        return [alarm["AlarmName"] for alarm in configured.get("Alarms", [])]

    @property
    def bake_seconds(self) -> float:
        """How long both fleets stay once the traffic has moved, in the service's own time."""
        policy = (self.deployment or {}).get("BlueGreenUpdatePolicy", {})
        return float(policy.get("TerminationWaitInSeconds", 0)) if self.alarms else 0.0

    def uses(self, config: str) -> bool:
        """Whether it serves this endpoint configuration or is on its way to it."""
        releases = (self.release, self.pending)
        return any(release is not None and release.config.name == config for release in releases)

    def description(self) -> Json:
        """What DescribeEndpoint answers."""
        answer: Json = {
            "EndpointName": self.name,
            "EndpointArn": self.arn,
            "EndpointConfigName": self.release.config.name,
            "EndpointStatus": self.status,
            "CreationTime": self.created,
            "LastModifiedTime": self.modified,
        }
        if self.current:
            answer["ProductionVariants"] = [
                {
                    **_variant(self.release),
                    "CurrentWeight": self.current.weight,
                    "DesiredWeight": self.desired.weight,
                    "CurrentInstanceCount": self.current.instances,
                    "DesiredInstanceCount": self.desired.instances,
                }
            ]
        if self.pending:
            coming = Capacity.of(self.pending)
            answer["PendingDeploymentSummary"] = {
                "EndpointConfigName": self.pending.config.name,
                "StartTime": self.modified,
                "ProductionVariants": [
                    {
                        **_variant(self.pending),
                        "DesiredWeight": coming.weight,
                        "DesiredInstanceCount": coming.instances,
                        "VariantStatus": [{"Status": "Baking" if self.bakes else "Creating"}],
                        "InstanceType": self.pending.variant["InstanceType"],
                    }
                ],
            }
        if self.failure_reason:
            answer["FailureReason"] = self.failure_reason
        if self.deployment:
            answer["LastDeploymentConfig"] = self.deployment
        return answer

    def summary(self) -> Json:
        """What ListEndpoints shows."""
        return {
            "EndpointName": self.name,
            "EndpointArn": self.arn,
            "EndpointStatus": self.status,
            "CreationTime": self.created,
            "LastModifiedTime": self.modified,
        }


def _variant(release: Release) -> Json:
    image = release.container["Image"]
    return {
        "VariantName": release.variant["VariantName"],
        "DeployedImages": [{"SpecifiedImage": image, "ResolvedImage": image}],
    }
