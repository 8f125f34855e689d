"""One page that shows delivery, endpoint and file system."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ultracluster.serving_metrics import VARIANT


class Dashboard(Construct):
    """The dashboard of an environment."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        endpoint_name: str,
        file_system_id: str,
        state_machine: sfn.IStateMachine,
        dead_letters: sqs.IQueue,
    ) -> None:
        super().__init__(scope, construct_id)
        self.name = name
        self.dashboard = cloudwatch.Dashboard(self, "Dashboard", dashboard_name=name)
        self.dashboard.add_widgets(
            cloudwatch.GraphWidget(
                title="Roll-outs",
                left=[
                    state_machine.metric_succeeded(),
                    state_machine.metric_failed(),
                    state_machine.metric_timed_out(),
                ],
            ),
            cloudwatch.GraphWidget(
                title="Lost events",
                left=[dead_letters.metric_approximate_number_of_messages_visible()],
            ),
            cloudwatch.GraphWidget(
                title="Lustre free space",
                left=[
                    cloudwatch.Metric(
                        namespace="AWS/FSx",
                        metric_name="FreeDataStorageCapacity",
                        dimensions_map={"FileSystemId": file_system_id},
                        statistic="Sum",
                    )
                ],
            ),
        )
        self.dashboard.add_widgets(
            cloudwatch.GraphWidget(
                title="Requests and errors",
                left=[
                    _endpoint_metric(endpoint_name, metric, "Sum")
                    for metric in ("Invocations", "Invocation4XXErrors", "Invocation5XXErrors")
                ],
            ),
            cloudwatch.GraphWidget(
                title="Latency of the model (microseconds)",
                left=[
                    _endpoint_metric(endpoint_name, "ModelLatency", statistic)
                    for statistic in ("p50", "p99")
                ],
            ),
        )


def _endpoint_metric(endpoint_name: str, metric: str, statistic: str) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace="AWS/SageMaker",
        metric_name=metric,
        dimensions_map={"EndpointName": endpoint_name, "VariantName": VARIANT},
        statistic=statistic,
        period=Duration.minutes(1),
    )
