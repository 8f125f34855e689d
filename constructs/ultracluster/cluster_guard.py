"""What keeps other clusters from harm, and the network in place until the last node has gone."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import CustomResource, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs
from constructs import Construct

from ultracluster.custom_function import PollingFunction
from ultracluster.reasons import accept

_POLL_SECONDS = 20


class ClusterGuard(Construct):
    """A custom resource that the cluster depends on, so it is made before and deleted after it.

    Made: refuses where a stack of the cluster's name exists that is not ours, for the provider
    would answer the roll-back by deleting it. Deleted: waits until instances and network interfaces
    of the cluster are gone.

    Args:
        code: folder of the functions.
        cluster: the cluster's name.
        cluster_resource: logical id of the cluster in this stack.
        security_group: the group that every node is in.
        poll_seconds: pause between two looks.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        code: Path,
        cluster: str,
        cluster_resource: str,
        security_group: ec2.ISecurityGroup,
        log_retention: logs.RetentionDays,
        poll_seconds: int = _POLL_SECONDS,
    ) -> None:
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        function = PollingFunction(
            self,
            "Function",
            code=code,
            handler="cluster_guard.handler.handler",
            poll_seconds=poll_seconds,
            log_retention=log_retention,
        )
        own_name = stack.format_arn(
            service="cloudformation", resource="stack", resource_name=f"{cluster}/*"
        )
        function.allow(["cloudformation:DescribeStacks"], [own_name])
        function.allow(["cloudformation:DescribeStackResource"], [stack.stack_id])
        function.allow(["ec2:DescribeInstances", "ec2:DescribeNetworkInterfaces"], ["*"])
        accept(
            self,
            "AwsSolutions-IAM5",
            "EC2 has no right to describe certain instances alone; CloudFormation makes up the "
            "last part of a stack's ARN",
            "Resource::*",
            f"Resource::...:stack/{cluster}/*",
        )
        self.resource = CustomResource(
            self,
            "Resource",
            resource_type="Custom::ClusterGuard",
            service_token=function.function_arn,
            properties={
                "ClusterName": cluster,
                "ClusterResource": cluster_resource,
                "SecurityGroup": security_group.security_group_id,
            },
        )
        self.resource.node.add_dependency(function.calls)
