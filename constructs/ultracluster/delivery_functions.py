"""The Lambda functions of the delivery, each with no more rights than its part needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aws_cdk import ArnFormat, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct

from shared.host import Host
from ultracluster.reasons import accept
from ultracluster.serving_host import host_environment
from ultracluster.serving_metrics import METRICS_NAMESPACE

_NOT_ASSETS = ["**/__pycache__", "**/*.pyc", "**/.*"]


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What a model must meet.

    Args:
        host: what would serve it.
        minimum_macro_f1: on the model's own evaluation set, 0 to 1.
    """

    host: Host
    minimum_macro_f1: float


class DeliveryFunctions(Construct):
    """Judges a model, asks for an update, looks at it, records what came of it.

    Args:
        code: folder of the functions, one asset.
        endpoint_stack_name: stack whose parameter `ModelUrl` says what serves.
        service_role_arn: role that CloudFormation updates that stack with.
        topic: where a person hears of every verdict.
        switch_name: parameter that pauses the delivery.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        code: Path,
        model_bucket: s3.IBucket,
        model_name: str,
        endpoint_name: str,
        endpoint_stack_name: str,
        service_role_arn: str,
        gate: Gate,
        topic: sns.ITopic,
        switch_name: str,
        removal_policy: RemovalPolicy,
        log_retention: logs.RetentionDays,
    ) -> None:
        super().__init__(scope, construct_id)
        self._code = lambda_.Code.from_asset(str(code), exclude=_NOT_ASSETS)
        self._removal_policy = removal_policy
        self._log_retention = log_retention
        self._models = f"models/{model_name}/*"
        self._endpoint = {
            "MODEL_BUCKET": model_bucket.bucket_name,
            "ENDPOINT_STACK": endpoint_stack_name,
        }
        self._endpoint_name = endpoint_name
        stack = Stack.of(self)
        stack_arn = stack.format_arn(
            service="cloudformation", resource="stack", resource_name=f"{endpoint_stack_name}/*"
        )
        endpoint_arn = stack.format_arn(
            service="sagemaker", resource="endpoint", resource_name=endpoint_name
        )
        self.validate = self._validate(model_bucket, model_name, gate, stack_arn)
        self.roll_out = self._roll_out(stack_arn, service_role_arn)
        self.settle = self._settle(model_bucket, stack_arn, endpoint_arn)
        self.record = self._record(model_bucket, model_name, topic, switch_name, stack_arn)
        accept(
            self,
            "AwsSolutions-IAM5",
            "CDK's grants for a bucket and its key, below the prefixes of models and verdicts",
            "Action::s3:GetBucket*",
            "Action::s3:GetObject*",
            "Action::s3:List*",
            "Action::s3:Abort*",
            "Action::kms:GenerateDataKey*",
            "Action::kms:ReEncrypt*",
            f"Resource::.../{self._models}",
            "Resource::.../verdicts/*",
        )
        accept(
            self,
            "AwsSolutions-IAM5",
            "CloudFormation makes up the last part of a stack's ARN",
            f"Resource::...:stack/{endpoint_stack_name}/*",
        )

    def _validate(
        self, bucket: s3.IBucket, model_name: str, gate: Gate, stack_arn: str
    ) -> lambda_.Function:
        # It unpacks archives of up to 5 GB while they stream by, in little memory; docs/package.md
        # says how long that takes.
        function = self._function(
            "Validate",
            "validate.handler.handler",
            memory_mib=512,
            timeout=Duration.minutes(15),
            environment={
                **self._endpoint,
                "MODEL_NAME": model_name,
                "MINIMUM_MACRO_F1": str(gate.minimum_macro_f1),
                **host_environment(gate.host),
            },
        )
        bucket.grant_read(function, self._models)
        bucket.grant_read(function, "verdicts/*")
        _allow(function, ["cloudformation:DescribeStacks"], stack_arn)
        return function

    def _roll_out(self, stack_arn: str, service_role_arn: str) -> lambda_.Function:
        function = self._function(
            "RollOut",
            "roll_out.handler.handler",
            environment={
                "ENDPOINT_STACK": self._endpoint["ENDPOINT_STACK"],
                "SERVICE_ROLE_ARN": service_role_arn,
                "ENDPOINT_NAME": self._endpoint_name,
            },
        )
        _allow(function, ["cloudformation:DescribeStacks"], stack_arn)
        _allow(function, ["cloudformation:DescribeStackEvents"], stack_arn)
        _allow(
            function,
            ["cloudformation:UpdateStack"],
            stack_arn,
            condition={"cloudformation:RoleArn": service_role_arn},
        )
        _allow(
            function,
            ["iam:PassRole"],
            service_role_arn,
            condition={"iam:PassedToService": "cloudformation.amazonaws.com"},
        )
        alarm = Stack.of(self).format_arn(
            service="cloudwatch",
            resource="alarm",
            resource_name=f"{self._endpoint_name}-smoke",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        _allow(function, ["cloudwatch:DescribeAlarms"], alarm)
        return function

    def _settle(self, bucket: s3.IBucket, stack_arn: str, endpoint_arn: str) -> lambda_.Function:
        # Three tries of an invocation that may take 70 s each.
        function = self._function(
            "Settle",
            "settle.handler.handler",
            timeout=Duration.minutes(5),
            environment={**self._endpoint, "ENDPOINT_NAME": self._endpoint_name},
        )
        bucket.grant_read(function, self._models)
        _allow(
            function,
            ["cloudformation:DescribeStacks", "cloudformation:DescribeStackEvents"],
            stack_arn,
        )
        _allow(function, ["sagemaker:DescribeEndpoint", "sagemaker:InvokeEndpoint"], endpoint_arn)
        _allow(
            function,
            ["cloudwatch:PutMetricData"],
            "*",
            condition={"cloudwatch:namespace": METRICS_NAMESPACE},
        )
        return function

    def _record(
        self,
        bucket: s3.IBucket,
        model_name: str,
        topic: sns.ITopic,
        switch_name: str,
        stack_arn: str,
    ) -> lambda_.Function:
        function = self._function(
            "Record",
            "record.handler.handler",
            environment={
                **self._endpoint,
                "ENDPOINT_NAME": self._endpoint_name,
                "MODEL_NAME": model_name,
                "TOPIC_ARN": topic.topic_arn,
                "SWITCH": switch_name,
            },
        )
        bucket.grant_read(function, "verdicts/*")
        bucket.grant_put(function, "verdicts/*")
        _allow(function, ["cloudformation:DescribeStacks"], stack_arn)
        topic.grant_publish(function)
        return function

    def _function(
        self,
        name: str,
        handler: str,
        *,
        environment: dict[str, str],
        memory_mib: int = 256,
        timeout: Duration | None = None,
    ) -> lambda_.Function:
        # Not CDK's own role: its managed policy may write to every log group of the account.
        role = iam.Role(
            self, f"{name}Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com")
        )
        log_group = logs.LogGroup(
            self,
            f"{name}Log",
            retention=self._log_retention,
            removal_policy=self._removal_policy,
        )
        log_group.grant_write(role)
        accept(
            role,
            "AwsSolutions-IAM5",
            "X-Ray takes traces, and CloudWatch metrics, without a resource",
            "Resource::*",
        )
        function = lambda_.Function(
            self,
            name,
            role=role,
            code=self._code,
            handler=handler,
            runtime=lambda_.Runtime.PYTHON_3_12,
            architecture=lambda_.Architecture.ARM_64,
            memory_size=memory_mib,
            timeout=timeout or Duration.minutes(1),
            environment=environment,
            tracing=lambda_.Tracing.ACTIVE,
            log_group=log_group,
        )
        accept(
            function,
            "AwsSolutions-L1",
            "tested with this Python, which Lambda supports for years; the newest brings nothing",
        )
        return function


def _allow(
    function: lambda_.Function,
    allowed: list[str],
    resource: str,
    *,
    condition: dict[str, str] | None = None,
) -> None:
    function.add_to_role_policy(
        iam.PolicyStatement(
            actions=allowed,
            resources=[resource],
            conditions={"StringEquals": condition} if condition else None,
        )
    )
