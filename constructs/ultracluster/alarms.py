"""What tells a person that something is wrong, or dear."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ultracluster.serving_metrics import VARIANT

GIB = 1024**3
FULL = 0.1
ENVIRONMENT_TAG = "ultracluster:environment"


class Alarms(Construct):
    """Alarms of delivery, endpoint and file system, sent to one address.

    Args:
        email: must confirm its subscription once.
        capacity_gib: of the file system; less than a tenth of it free is an alarm.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        email: str,
        endpoint_name: str,
        file_system_id: str,
        capacity_gib: int,
        state_machine: sfn.IStateMachine,
        dead_letters: sqs.IQueue,
    ) -> None:
        super().__init__(scope, construct_id)
        self.topic = sns.Topic(self, "Topic", enforce_ssl=True)
        self.topic.add_subscription(subscriptions.EmailSubscription(email))
        self._alarm(
            "LostEvents",
            dead_letters.metric_approximate_number_of_messages_visible(statistic="Maximum"),
            "a published model was lost on its way: read the dead-letter queue",
        )
        self._alarm(
            "FailedRollOuts",
            state_machine.metric_failed(statistic="Sum"),
            "a roll-out failed: read the verdict and the execution",
        )
        self._alarm(
            "EndpointErrors",
            cloudwatch.Metric(
                namespace="AWS/SageMaker",
                metric_name="Invocation5XXErrors",
                dimensions_map={"EndpointName": endpoint_name, "VariantName": VARIANT},
                statistic="Sum",
                period=Duration.minutes(5),
            ),
            "the endpoint answers with errors of its own",
        )
        self._alarm(
            "FileSystemFull",
            cloudwatch.Metric(
                namespace="AWS/FSx",
                metric_name="FreeDataStorageCapacity",
                dimensions_map={"FileSystemId": file_system_id},
                statistic="Sum",
                period=Duration.minutes(1),
            ),
            "less than a tenth of the file system is free",
            threshold=int(capacity_gib * GIB * FULL),
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            periods=5,
        )

    def _alarm(
        self,
        construct_id: str,
        metric: cloudwatch.Metric,
        description: str,
        *,
        threshold: float = 0,
        comparison: cloudwatch.ComparisonOperator = (
            cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
        ),
        periods: int = 1,
    ) -> None:
        alarm = metric.create_alarm(
            self,
            construct_id,
            alarm_description=description,
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=periods,
            # Nothing is delivered, asked or mounted for hours: that is no trouble.
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        alarm.add_alarm_action(actions.SnsAction(self.topic))


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
