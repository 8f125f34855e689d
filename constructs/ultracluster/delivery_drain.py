"""What lets deliveries end before `cdk destroy` takes away what they need."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import ArnFormat, CustomResource, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ultracluster.custom_function import PollingFunction
from ultracluster.reasons import accept


class DeliveryDrain(Construct):
    """A custom resource that is deleted first, and whose deletion waits for running deliveries.

    Made or updated: manifests start deliveries. Deleted: none starts one any more, and what waits
    for a person is stopped; it waits until no execution runs and the Endpoint stack has settled.

    Args:
        code: folder of the functions.
        rule: starts deliveries.
        endpoint_stack_name: stack that deliveries update.
        poll_seconds: pause between two looks.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        code: Path,
        rule: events.Rule,
        state_machine: sfn.StateMachine,
        endpoint_stack_name: str,
        poll_seconds: int,
        log_retention: logs.RetentionDays,
    ) -> None:
        super().__init__(scope, construct_id)
        function = PollingFunction(
            self,
            "Function",
            code=code,
            handler="drain.handler.handler",
            poll_seconds=poll_seconds,
            log_retention=log_retention,
        )
        stack_arn = Stack.of(self).format_arn(
            service="cloudformation", resource="stack", resource_name=f"{endpoint_stack_name}/*"
        )
        function.allow(["events:EnableRule", "events:DisableRule"], [rule.rule_arn])
        function.allow(["states:ListExecutions"], [state_machine.state_machine_arn])
        executions = Stack.of(self).format_arn(
            service="states",
            resource="execution",
            resource_name=f"{state_machine.state_machine_name}:*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        function.allow(["states:GetExecutionHistory", "states:StopExecution"], [executions])
        function.allow(["cloudformation:DescribeStacks"], [stack_arn])
        accept(
            self,
            "AwsSolutions-IAM5",
            "CloudFormation makes up the last part of a stack's ARN, Step Functions that of an "
            "execution's",
            f"Resource::...:stack/{endpoint_stack_name}/*",
            "Resource::...:execution:...:*",
        )
        self.resource = CustomResource(
            self,
            "Resource",
            resource_type="Custom::DeliveryDrain",
            service_token=function.function_arn,
            properties={
                "Rule": rule.rule_name,
                "StateMachine": state_machine.state_machine_arn,
                "EndpointStack": endpoint_stack_name,
            },
        )
        self.resource.node.add_dependency(function.calls)
