"""One page that shows training, file system, delivery and endpoint."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from ultracluster.alarms import Watched
from ultracluster.cluster_metrics import NODE_ERRORS, cluster_health, neuron_by_job
from ultracluster.serving_metrics import (
    VARIANT,
    endpoint_metric,
    error_percent,
    smoke_failures,
)

_MINUTE = Duration.minutes(1)
_THIRD = 8
_WHOLE = 24


class Dashboard(Construct):
    """The dashboard of an environment, its alarms on top."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        watched: Watched,
        region: str,
        dead_letters: sqs.IQueue,
        alarms: Sequence[cloudwatch.IAlarm],
    ) -> None:
        super().__init__(scope, construct_id)
        self.name = watched.name
        self._region = region
        self.dashboard = cloudwatch.Dashboard(self, "Dashboard", dashboard_name=watched.name)
        self.dashboard.add_widgets(
            cloudwatch.AlarmStatusWidget(
                title="Alarms", alarms=list(alarms), width=_WHOLE, height=3
            )
        )
        self._add_training(watched)
        self._add_file_system(watched)
        self._add_delivery(watched, dead_letters)
        self._add_endpoint(watched)

    def _add_training(self, watched: Watched) -> None:
        name = watched.name
        console = f"https://{self._region}.console.aws.amazon.com/cloudwatch/home"
        own = f"{console}?region={self._region}#dashboards:name={name}-{self._region}"
        self._row(
            f"## Training\nA line for each Slurm job that runs. The queue: `squeue` on the head "
            f"node. Head node, logs and volumes: [ParallelCluster's own dashboard]({own}).",
            _graph(
                "Use of NeuronCores by job (%)",
                neuron_by_job(name, "NeuronCoreUtilization", "Average"),
            ),
            _graph("Device memory by job (bytes)", neuron_by_job(name, "DeviceMemory", "Maximum")),
            _graph(
                "Errors of devices",
                neuron_by_job(name, "ExecutionErrors", "Sum"),
                neuron_by_job(name, "UncorrectedEcc", "Maximum"),
            ),
            _graph(
                "Longest idle node (s)", cluster_health(name, "MaxDynamicNodeIdleTime", "Maximum")
            ),
            _graph(
                "Nodes that did not start, or broke",
                *(cluster_health(name, metric, "Sum") for metric in NODE_ERRORS),
            ),
        )

    def _add_file_system(self, watched: Watched) -> None:
        def metric(name: str, statistic: str = "Sum") -> cloudwatch.Metric:
            return cloudwatch.Metric(
                namespace="AWS/FSx",
                metric_name=name,
                dimensions_map={"FileSystemId": watched.file_system_id},
                statistic=statistic,
                period=_MINUTE,
            )

        self._row(
            f"## File system\n{watched.capacity_gib} GiB, mounted at /fsx.",
            _graph("Free space (bytes)", metric("FreeDataStorageCapacity")),
            _graph(
                "Read and written (bytes a minute)",
                metric("DataReadBytes"),
                metric("DataWriteBytes"),
            ),
            _graph("Metadata operations a minute", metric("MetadataOperations")),
        )

    def _add_delivery(self, watched: Watched, dead_letters: sqs.IQueue) -> None:
        machine = watched.state_machine
        self._row(
            "## Delivery\nEach execution is one published model; its verdict lies in the model "
            "bucket under `verdicts/`.",
            _graph(
                "Executions",
                machine.metric_started(),
                machine.metric_succeeded(),
                machine.metric_failed(),
                machine.metric_timed_out(),
                machine.metric_aborted(),
            ),
            _graph("Lost events", dead_letters.metric_approximate_number_of_messages_visible()),
            _graph("Smoke texts that a new model failed", smoke_failures(watched.name)),
        )

    def _add_endpoint(self, watched: Watched) -> None:
        name = watched.name
        self._row(
            "## Endpoint",
            _graph(
                "Requests and errors a minute",
                *(
                    endpoint_metric(name, metric, "Sum")
                    for metric in ("Invocations", "Invocation4XXErrors", "Invocation5XXErrors")
                ),
            ),
            _graph(
                "Errors of the container (%)",
                error_percent(name, least_requests=1),
                limit=watched.serving.error_percent,
            ),
            _graph(
                "Latency of the model (microseconds)",
                *(endpoint_metric(name, "ModelLatency", one) for one in ("p50", "p99")),
                limit=watched.serving.latency_ms * 1000,
            ),
            _graph(
                "Load of an instance (requests a minute)",
                endpoint_metric(name, "InvocationsPerInstance", "Sum"),
            ),
            _graph(
                "Processor, memory and disk (%)",
                *(
                    cloudwatch.Metric(
                        namespace="/aws/sagemaker/Endpoints",
                        metric_name=metric,
                        dimensions_map={"EndpointName": name, "VariantName": VARIANT},
                        statistic="Average",
                        period=_MINUTE,
                    )
                    for metric in ("CPUUtilization", "MemoryUtilization", "DiskUtilization")
                ),
            ),
        )

    def _row(self, text: str, *graphs: cloudwatch.GraphWidget) -> None:
        self.dashboard.add_widgets(cloudwatch.TextWidget(markdown=text, width=_WHOLE, height=2))
        self.dashboard.add_widgets(*graphs)


def _graph(
    title: str, *metrics: cloudwatch.IMetric, limit: float | None = None
) -> cloudwatch.GraphWidget:
    lines = [] if limit is None else [cloudwatch.HorizontalAnnotation(value=limit, label="alarm")]
    return cloudwatch.GraphWidget(
        title=title, left=list(metrics), left_annotations=lines, width=_THIRD
    )
