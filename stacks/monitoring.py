"""What a person looks at, and is told."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_sns as sns
from constructs import Construct

from ultracluster.alarms import Alarms, MonthlyBudget, Watched
from ultracluster.delivery import Delivery
from ultracluster.monitoring import Dashboard
from ultracluster.settings import Settings


class MonitoringStack(Stack):
    """The dashboard and the alarms, told to the delivery's topic; a budget where one is set.

    Args:
        delivery: what is watched, and whose topic every alarm goes to.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        file_system_id: str,
        delivery: Delivery,
        **kwargs: Any,
    ) -> None:
        super().__init__(scope, construct_id, **kwargs)
        watched = Watched(
            name=settings.prefix,
            file_system_id=file_system_id,
            capacity_gib=settings.lustre.capacity_gib,
            scaledown_minutes=settings.cluster.scaledown_minutes,
            state_machine=delivery.state_machine,
            serving=settings.endpoint.alarms,
        )
        alarms = Alarms(self, "Alarms", watched=watched, topic=delivery.topic)
        dashboard = Dashboard(
            self,
            "Dashboard",
            watched=watched,
            region=self.region,
            dead_letters=delivery.dead_letters,
            alarms=alarms.alarms,
        )
        told = settings.monitoring
        if told.email is not None:
            sns.Subscription(
                self,
                "Email",
                topic=delivery.topic,
                protocol=sns.SubscriptionProtocol.EMAIL,
                endpoint=told.email,
            )
            if told.monthly_budget_usd is not None:
                MonthlyBudget(
                    self,
                    "MonthlyBudget",
                    environment=settings.prefix,
                    usd=told.monthly_budget_usd,
                    email=told.email,
                )
        CfnOutput(self, "AlarmsTopicArn", value=delivery.topic.topic_arn)
        CfnOutput(
            self,
            "DashboardUrl",
            value=(
                f"https://{self.region}.console.aws.amazon.com/cloudwatch/home"
                f"?region={self.region}#dashboards:name={dashboard.name}"
            ),
        )
