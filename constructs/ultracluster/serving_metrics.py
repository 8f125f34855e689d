"""What SageMaker measures of the endpoint, as shares and times that few requests do not distort."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

VARIANT = "main"
METRICS_NAMESPACE = "UltraCluster"
SMOKE_FAILURES = "SmokeFailures"
_MINUTE = Duration.minutes(1)


def endpoint_metric(
    endpoint_name: str, metric: str, statistic: str, *, period: Duration = _MINUTE
) -> cloudwatch.Metric:
    """One of SageMaker's own metrics of the variant."""
    return cloudwatch.Metric(
        namespace="AWS/SageMaker",
        metric_name=metric,
        dimensions_map={"EndpointName": endpoint_name, "VariantName": VARIANT},
        statistic=statistic,
        period=period,
    )


def error_percent(
    endpoint_name: str, *, least_requests: int, period: Duration = _MINUTE
) -> cloudwatch.MathExpression:
    """Share of requests that the container failed; 0 in a period with too few of them."""
    return cloudwatch.MathExpression(
        expression=f"IF(requests >= {least_requests}, 100 * errors / requests, 0)",
        using_metrics={
            "requests": endpoint_metric(endpoint_name, "Invocations", "Sum", period=period),
            "errors": endpoint_metric(endpoint_name, "Invocation5XXErrors", "Sum", period=period),
        },
        label="errors (%)",
        period=period,
    )


def latency_ms(
    endpoint_name: str, *, least_requests: int, period: Duration = _MINUTE
) -> cloudwatch.MathExpression:
    """The model's p99 answer time in milliseconds; 0 in a period with too few requests."""
    return cloudwatch.MathExpression(
        expression=f"IF(requests >= {least_requests}, latency / 1000, 0)",
        using_metrics={
            "requests": endpoint_metric(endpoint_name, "Invocations", "Sum", period=period),
            "latency": endpoint_metric(endpoint_name, "ModelLatency", "p99", period=period),
        },
        label="p99 (ms)",
        period=period,
    )


def smoke_failures(endpoint_name: str) -> cloudwatch.Metric:
    """1 for each smoke text that a new model answered wrongly while it baked."""
    return cloudwatch.Metric(
        namespace=METRICS_NAMESPACE,
        metric_name=SMOKE_FAILURES,
        dimensions_map={"EndpointName": endpoint_name},
        statistic="Sum",
        period=_MINUTE,
    )
