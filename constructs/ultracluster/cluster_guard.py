"""What keeps other clusters from harm, and the network in place until the last node has gone."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import CustomResource, Duration, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from ultracluster.custom_function import CustomFunction
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
        function = CustomFunction(
            self,
            "Function",
            code=code,
            handler="cluster_guard.handler.handler",
            timeout=Duration.seconds(poll_seconds + 60),
            log_retention=log_retention,
            environment={"POLL_SECONDS": str(poll_seconds)},
            # It calls itself for the next look, and ends by its own deadline.
            recursive_loop=lambda_.RecursiveLoop.ALLOW,
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
        # Apart from the role's other rights, on which the function depends: no circle.
        calls = iam.Policy(
            self,
            "CallsItself",
            roles=[function.role] if function.role else [],
            statements=[
                iam.PolicyStatement(
                    actions=["lambda:InvokeFunction"], resources=[function.function_arn]
                )
            ],
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
        self.resource.node.add_dependency(calls)
