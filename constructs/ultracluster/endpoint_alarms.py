"""The alarms that take a new model back while the old fleet is still warm."""

from __future__ import annotations

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from ultracluster.serving_metrics import error_percent, latency_ms, smoke_failures
from ultracluster.settings import Alarms


class RollBackAlarms(Construct):
    """Errors and latency as shares of the traffic, and the smoke test's own verdict.

    They have no action: SageMaker watches them in a roll-out. A person is told by the Monitoring
    stack, which looks longer.

    Attributes:
        alarms: what the endpoint's automatic roll-back names.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, endpoint_name: str, settings: Alarms
    ) -> None:
        super().__init__(scope, construct_id)
        told = f"Endpoint {endpoint_name}:"
        least = settings.least_requests
        back = "In a roll-out SageMaker brings the former model back by itself."
        self.alarms = [
            self._alarm(
                "Errors",
                f"{endpoint_name}-errors",
                error_percent(endpoint_name, least_requests=least),
                f"{told} {settings.error_percent:g} % or more of at least {least} requests a "
                f"minute failed in the container (5xx). {back} Otherwise read the log group "
                f"/aws/sagemaker/Endpoints/{endpoint_name}.",
                threshold=settings.error_percent,
                minutes=2,
            ),
            self._alarm(
                "Latency",
                f"{endpoint_name}-latency",
                latency_ms(endpoint_name, least_requests=least),
                f"{told} the model's p99 answer time was {settings.latency_ms} ms or more for "
                f"at least {least} requests a minute. {back} Otherwise give it more instances.",
                threshold=settings.latency_ms,
                minutes=3,
            ),
            self._alarm(
                "Smoke",
                f"{endpoint_name}-smoke",
                smoke_failures(endpoint_name),
                f"{told} a new model answered its own smoke texts wrongly. {back} Its verdict in "
                "the model bucket names the texts.",
                threshold=1,
                minutes=1,
            ),
        ]

    def _alarm(
        self,
        construct_id: str,
        name: str,
        metric: cloudwatch.IMetric,
        description: str,
        *,
        threshold: float,
        minutes: int,
    ) -> cloudwatch.Alarm:
        return cloudwatch.Alarm(
            self,
            construct_id,
            alarm_name=name,
            alarm_description=f"{description} It goes to SageMaker alone.",
            metric=metric,
            threshold=threshold,
            comparison_operator=(cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD),
            evaluation_periods=minutes,
            # Nobody asks: that is no trouble.
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
