"""The bake of an update: all traffic is on the new fleet, and the old one is still warm."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

METRIC = {"Namespace": "UltraCluster", "MetricName": "SmokeFailures"}
"""The endpoint's smoke alarm watches it, and SageMaker rolls back by that alarm."""

_NOT_THERE = "Could not find endpoint"


class Bake:
    """Sees whether an endpoint bakes, and gives SageMaker the reason to roll it back."""

    def __init__(self, endpoint_name: str, *, sagemaker: Any, cloudwatch: Any) -> None:
        self._endpoint_name = endpoint_name
        self._sagemaker = sagemaker
        self._cloudwatch = cloudwatch

    def under_way(self) -> bool:
        """Whether every answer comes from the new fleet, and the old one could still take over.

        While traffic moves in steps, a text may reach either fleet, and its answer says nothing.
        https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ProductionVariantStatus.html
        """
        try:
            endpoint = self._sagemaker.describe_endpoint(EndpointName=self._endpoint_name)
        except ClientError as error:
            if _NOT_THERE in error.response["Error"].get("Message", ""):
                return False
            raise
        policy = endpoint.get("LastDeploymentConfig", {}).get("BlueGreenUpdatePolicy", {})
        if policy.get("TrafficRoutingConfiguration", {}).get("Type") in ("CANARY", "LINEAR"):
            return False
        pending = endpoint.get("PendingDeploymentSummary", {}).get("ProductionVariants", [])
        stages = [
            status["Status"] for variant in pending for status in variant.get("VariantStatus", [])
        ]
        return bool(stages) and set(stages) == {"Baking"}

    def tell(self, *, failed: bool) -> None:
        """Put the outcome of the texts where the alarm sees it."""
        self._cloudwatch.put_metric_data(
            Namespace=METRIC["Namespace"],
            MetricData=[
                {
                    "MetricName": METRIC["MetricName"],
                    "Dimensions": [{"Name": "EndpointName", "Value": self._endpoint_name}],
                    "Value": float(failed),
                    "Unit": "Count",
                }
            ],
        )
