"""What ParallelCluster and the nodes' own scripts measure of a cluster."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

NEURON_NAMESPACE = "UltraCluster/Neuron"
# Of ParallelCluster's cluster health metrics, those that cost nodes.
NODE_ERRORS = (
    "InsufficientCapacityErrors",
    "VcpuLimitErrors",
    "OtherInstanceLaunchFailures",
    "InstanceBootstrapTimeoutErrors",
    "EC2HealthCheckErrors",
    "ScheduledEventHealthCheckErrors",
    "NoCorrespondingInstanceErrors",
    "SlurmNodeNotRespondingErrors",
    "OnNodeStartRunErrors",
    "OnNodeConfiguredRunErrors",
)
_FIVE_MINUTES = Duration.minutes(5)


def cluster_health(cluster: str, metric: str, statistic: str) -> cloudwatch.Metric:
    """One of ParallelCluster's cluster health metrics.

    Source: ParallelCluster User Guide, "Amazon CloudWatch cluster health metrics".
    """
    return cloudwatch.Metric(
        namespace="ParallelCluster",
        metric_name=metric,
        dimensions_map={"ClusterName": cluster},
        statistic=statistic,
        period=_FIVE_MINUTES,
    )


def neuron_by_job(cluster: str, metric: str, statistic: str) -> cloudwatch.MathExpression:
    """What neuron-monitor reports, a line for each Slurm job.

    Metrics: NeuronCoreUtilization, DeviceMemory, ExecutionErrors; UncorrectedEcc has no job.
    """
    dimensions = f"{{{NEURON_NAMESPACE},Cluster,JobId}}"
    return cloudwatch.MathExpression(
        expression=(
            f'SEARCH(\'{dimensions} MetricName="{metric}" Cluster="{cluster}"\', '
            f"'{statistic}', 300)"
        ),
        using_metrics={},
        label="",
        period=_FIVE_MINUTES,
    )
