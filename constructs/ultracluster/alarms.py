"""What tells a person that something is wrong, or dear."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ultracluster.cluster_metrics import cluster_health
from ultracluster.serving_metrics import error_percent, latency_ms
from ultracluster.settings import Alarms as Limits

GIB = 1024**3
FULL = 0.1
ENVIRONMENT_TAG = "ultracluster:environment"
# Slurm ends idle nodes by itself; this much later something holds them.
IDLE_RESERVE_MINUTES = 20
_FIVE_MINUTES = Duration.minutes(5)
_ABOVE = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
_BELOW = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What the alarms of an environment look at.

    Attributes:
        name: of the cluster and the endpoint.
        file_system_id: of the Lustre file system.
        capacity_gib: of the file system; less than a tenth of it free is an alarm.
        scaledown_minutes: after which the cluster ends idle nodes.
        state_machine: of the delivery.
        serving: limits of the endpoint's errors and latency.
    """

    name: str
    file_system_id: str
    capacity_gib: int
    scaledown_minutes: int
    state_machine: sfn.IStateMachine
    serving: Limits


class Alarms(Construct):
    """Alarms of training, delivery, endpoint and file system, all sent to one topic.

    Each says what it means and what to do. Nothing is delivered, asked or mounted for hours: that
    is no trouble, so missing data never rings. What a delivery loses rings in the delivery itself.

    Attributes:
        alarms: in the order of the dashboard.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, watched: Watched, topic: sns.ITopic
    ) -> None:
        super().__init__(scope, construct_id)
        self._action = actions.SnsAction(topic)
        self._told = f"Goes to the topic of the stack {watched.name}-delivery."
        self.alarms = [
            *self._training(watched),
            *self._delivery(watched),
            *self._endpoint(watched),
        ]

    def _training(self, watched: Watched) -> list[cloudwatch.Alarm]:
        minutes = watched.scaledown_minutes + IDLE_RESERVE_MINUTES
        return [
            self._alarm(
                "IdleAccelerators",
                cluster_health(watched.name, "MaxDynamicNodeIdleTime", "Maximum"),
                f"A node has been idle for {minutes} minutes and is paid for, although Slurm ends "
                f"idle nodes after {watched.scaledown_minutes}. Look at `sinfo -R` on the head "
                "node: a drained node waits for a person. End it with `scontrol update "
                "nodename=NODE state=power_down_force reason=idle`.",
                threshold=minutes * 60,
                periods=2,
            ),
            self._alarm(
                "FileSystemFull",
                cloudwatch.Metric(
                    namespace="AWS/FSx",
                    metric_name="FreeDataStorageCapacity",
                    dimensions_map={"FileSystemId": watched.file_system_id},
                    statistic="Sum",
                    period=Duration.minutes(1),
                ),
                f"Less than a tenth of the file system's {watched.capacity_gib} GiB is free; at "
                "none, checkpoints fail. Remove old checkpoints and caches below /fsx, or raise "
                "lustre.capacity_gib where its type grows.",
                threshold=int(watched.capacity_gib * GIB * FULL),
                comparison=_BELOW,
                periods=5,
            ),
        ]

    def _delivery(self, watched: Watched) -> list[cloudwatch.Alarm]:
        machine = watched.state_machine
        what_to_do = (
            "Its event lies in the dead-letter queue; read the execution's log and the verdict in "
            "the model bucket, then start the execution again with the same input."
        )
        return [
            self._alarm(construct_id, metric, f"{meaning} {what_to_do}", threshold=1)
            for construct_id, metric, meaning in (
                (
                    "FailedDeliveries",
                    machine.metric_failed(statistic="Sum", period=_FIVE_MINUTES),
                    "A delivery broke: a model was not judged or not rolled out.",
                ),
                (
                    "TimedOutDeliveries",
                    machine.metric_timed_out(statistic="Sum", period=_FIVE_MINUTES),
                    "A delivery ran into its time limit: the Endpoint stack may still change.",
                ),
                (
                    "AbortedDeliveries",
                    machine.metric_aborted(statistic="Sum", period=_FIVE_MINUTES),
                    "A delivery was stopped by a person or a deploy: nobody looks after its model.",
                ),
            )
        ]

    def _endpoint(self, watched: Watched) -> list[cloudwatch.Alarm]:
        limits, name = watched.serving, watched.name
        least = 5 * limits.least_requests
        return [
            self._alarm(
                "EndpointErrors",
                error_percent(name, least_requests=least, period=_FIVE_MINUTES),
                f"For 15 minutes {limits.error_percent:g} % or more of the requests failed in the "
                f"container (5xx). Read the log group /aws/sagemaker/Endpoints/{name}; roll an "
                "earlier model back where it began with a new one.",
                threshold=limits.error_percent,
                periods=3,
            ),
            self._alarm(
                "EndpointLatency",
                latency_ms(name, least_requests=least, period=_FIVE_MINUTES),
                f"For 15 minutes the model's p99 answer time was {limits.latency_ms} ms or more. "
                "Compare requests and CPU on the dashboard: give the endpoint more instances, or "
                "[endpoint.scaling].",
                threshold=limits.latency_ms,
                periods=3,
            ),
        ]

    def _alarm(
        self,
        construct_id: str,
        metric: cloudwatch.IMetric,
        description: str,
        *,
        threshold: float,
        comparison: cloudwatch.ComparisonOperator = _ABOVE,
        periods: int = 1,
    ) -> cloudwatch.Alarm:
        alarm = cloudwatch.Alarm(
            self,
            construct_id,
            metric=metric,
            alarm_description=f"{description} {self._told}",
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=periods,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        alarm.add_alarm_action(self._action)
        return alarm


class MonthlyBudget(Construct):
    """A monthly budget of one environment, told of at 80 % spent and at 100 % forecast.

    It counts what carries the environment's tag, once that is activated as a cost allocation tag.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, environment: str, usd: int, email: str
    ) -> None:
        super().__init__(scope, construct_id)
        budgets.CfnBudget(
            self,
            "Budget",
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_name=f"{environment}-monthly",
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=usd, unit="USD"),
                cost_filters={"TagKeyValue": [f"user:{ENVIRONMENT_TAG}${environment}"]},
            ),
            notifications_with_subscribers=[
                budgets.CfnBudget.NotificationWithSubscribersProperty(
                    notification=budgets.CfnBudget.NotificationProperty(
                        notification_type=kind,
                        comparison_operator="GREATER_THAN",
                        threshold=percent,
                        threshold_type="PERCENTAGE",
                    ),
                    subscribers=[
                        budgets.CfnBudget.SubscriberProperty(
                            subscription_type="EMAIL", address=email
                        )
                    ],
                )
                for kind, percent in (("ACTUAL", 80), ("FORECASTED", 100))
            ],
        )
