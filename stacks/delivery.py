"""What carries a published model to the endpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from shared.host import Host
from stacks.endpoint import EndpointStack
from stacks.storage import StorageStack
from ultracluster.delivery import Delivery
from ultracluster.delivery_functions import Gate
from ultracluster.retention import log_retention, removal_policy
from ultracluster.settings import Settings


class DeliveryStack(Stack):
    """The delivery of one served model name; goes before the Endpoint stack on destroy."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        storage: StorageStack,
        endpoint: EndpointStack,
        host: Host,
        code: Path,
        **kwargs: Any,
    ) -> None:
        super().__init__(scope, construct_id, **kwargs)
        self.add_stack_dependency(endpoint, "a run in flight needs the stack that it updates")
        self.delivery = Delivery(
            self,
            "Delivery",
            code=code,
            model_bucket=storage.models,
            model_name=settings.endpoint.model_name,
            endpoint_name=settings.prefix,
            endpoint_stack_name=endpoint.stack_name,
            service_role_arn=storage.endpoint_role.role_arn,
            gate=Gate(host=host, minimum_macro_f1=settings.delivery.minimum_macro_f1),
            approval_hours=settings.delivery.approval_hours,
            poll_seconds=settings.delivery.poll_seconds,
            removal_policy=removal_policy(settings),
            log_retention=log_retention(settings),
        )
        CfnOutput(self, "StateMachineArn", value=self.delivery.state_machine.state_machine_arn)
        CfnOutput(self, "NoticesTopicArn", value=self.delivery.topic.topic_arn)
        CfnOutput(self, "Switch", value=self.delivery.consent.switch.parameter_name)
        CfnOutput(self, "DeadLetterQueueUrl", value=self.delivery.dead_letters.queue_url)
