"""A function that answers CloudFormation for a resource of ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from ultracluster.reasons import accept

_NOT_ASSETS = ["**/__pycache__", "**/*.pyc", "**/.*"]


class CustomFunction(lambda_.Function):
    """A Lambda function with a role and a log group that go with it, outside any VPC.

    In a VPC it could not reach CloudFormation's answer address without a route that a deletion may
    have taken away already, and its interfaces would hold the subnets.

    Args:
        code: folder of all functions, one asset.
        handler: `folder.module.function` below it.
        recursive_loop: whether it may call itself.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        code: Path,
        handler: str,
        timeout: Duration,
        log_retention: logs.RetentionDays,
        environment: Mapping[str, str] | None = None,
        recursive_loop: lambda_.RecursiveLoop | None = None,
    ) -> None:
        # Not CDK's own role: its managed policy may write to every log group of the account.
        role = iam.Role(
            scope, f"{construct_id}Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com")
        )
        log_group = logs.LogGroup(
            scope,
            f"{construct_id}Log",
            retention=log_retention,
            removal_policy=RemovalPolicy.DESTROY,
        )
        log_group.grant_write(role)
        super().__init__(
            scope,
            construct_id,
            role=role,
            code=lambda_.Code.from_asset(str(code), exclude=_NOT_ASSETS),
            handler=handler,
            runtime=lambda_.Runtime.PYTHON_3_12,
            architecture=lambda_.Architecture.ARM_64,
            memory_size=256,
            timeout=timeout,
            environment=environment,
            recursive_loop=recursive_loop,
            log_group=log_group,
        )
        accept(
            self,
            "AwsSolutions-L1",
            "tested with this Python, which Lambda supports for years; the newest brings nothing",
        )

    def allow(self, actions: list[str], resources: list[str]) -> None:
        """Give the function a right."""
        self.add_to_role_policy(iam.PolicyStatement(actions=actions, resources=resources))


class PollingFunction(CustomFunction):
    """A function that calls itself for the next look while a deletion waits.

    Args:
        poll_seconds: pause between two looks.

    Attributes:
        calls: its right to call itself, on which its resource must depend. Apart from the other
            rights, on which the function depends: no circle.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        code: Path,
        handler: str,
        poll_seconds: int,
        log_retention: logs.RetentionDays,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            code=code,
            handler=handler,
            timeout=Duration.seconds(poll_seconds + 60),
            log_retention=log_retention,
            environment={"POLL_SECONDS": str(poll_seconds)},
            # It ends by its own deadline.
            recursive_loop=lambda_.RecursiveLoop.ALLOW,
        )
        self.calls = iam.Policy(
            scope,
            "CallsItself",
            roles=[self.role] if self.role else [],
            statements=[
                iam.PolicyStatement(
                    actions=["lambda:InvokeFunction"], resources=[self.function_arn]
                )
            ],
        )
