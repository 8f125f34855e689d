"""What keeps a security group in place until the last network interface has left it."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import CustomResource
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs
from constructs import Construct

from ultracluster.custom_function import PollingFunction
from ultracluster.reasons import accept

_POLL_SECONDS = 20


class InterfaceGuard(Construct):
    """A custom resource for whoever puts interfaces into a group to depend on.

    So it is deleted after them and before the group, and its deletion waits until the group is
    empty; the subnets go later still.

    Args:
        code: folder of the functions.
        security_group: what is kept.
        poll_seconds: pause between two looks.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        code: Path,
        security_group: ec2.ISecurityGroup,
        log_retention: logs.RetentionDays,
        poll_seconds: int = _POLL_SECONDS,
    ) -> None:
        super().__init__(scope, construct_id)
        function = PollingFunction(
            self,
            "Function",
            code=code,
            handler="interface_guard.handler.handler",
            poll_seconds=poll_seconds,
            log_retention=log_retention,
        )
        function.allow(["ec2:DescribeNetworkInterfaces"], ["*"])
        accept(
            self,
            "AwsSolutions-IAM5",
            "EC2 has no right to describe the interfaces of one group alone",
            "Resource::*",
        )
        self.resource = CustomResource(
            self,
            "Resource",
            resource_type="Custom::InterfaceGuard",
            service_token=function.function_arn,
            properties={"SecurityGroup": security_group.security_group_id},
        )
        self.resource.node.add_dependency(function.calls)
