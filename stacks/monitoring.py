"""What a person looks at, and is told."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ultracluster.alarms import Alarms, MonthlyBudget
from ultracluster.monitoring import Dashboard
from ultracluster.settings import Settings


class MonitoringStack(Stack):
    """The dashboard, and alarms and a budget where someone is to be told."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        file_system_id: str,
        state_machine: sfn.IStateMachine,
        dead_letters: sqs.IQueue,
        **kwargs: Any,
    ) -> None:
        super().__init__(scope, construct_id, **kwargs)
        dashboard = Dashboard(
            self,
            "Dashboard",
            name=settings.prefix,
            endpoint_name=settings.prefix,
            file_system_id=file_system_id,
            state_machine=state_machine,
            dead_letters=dead_letters,
        )
        told = settings.monitoring
        if told.email is not None:
            Alarms(
                self,
                "Alarms",
                email=told.email,
                endpoint_name=settings.prefix,
                file_system_id=file_system_id,
                capacity_gib=settings.lustre.capacity_gib,
                state_machine=state_machine,
                dead_letters=dead_letters,
            )
            if told.monthly_budget_usd is not None:
                MonthlyBudget(
                    self,
                    "MonthlyBudget",
                    environment=settings.prefix,
                    usd=told.monthly_budget_usd,
                    email=told.email,
                )
        CfnOutput(
            self,
            "DashboardUrl",
            value=(
                f"https://{self.region}.console.aws.amazon.com/cloudwatch/home"
                f"?region={self.region}#dashboards:name={dashboard.name}"
            ),
        )
