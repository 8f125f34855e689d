"""What a person looks at."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ultracluster.monitoring import Dashboard
from ultracluster.settings import Settings


class MonitoringStack(Stack):
    """The dashboard."""

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
        CfnOutput(
            self,
            "DashboardUrl",
            value=(
                f"https://{self.region}.console.aws.amazon.com/cloudwatch/home"
                f"?region={self.region}#dashboards:name={dashboard.name}"
            ),
        )
