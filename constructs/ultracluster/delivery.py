"""The road of a published model to the endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ultracluster.delivery_workflow import PATIENCE_SECONDS, DeliveryWorkflow

_WAITS = 4
_NOT_ASSETS = ["**/__pycache__", "**/*.pyc", "**/.*"]


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What a model must meet.

    Args:
        serving_torch: PyTorch version of the serving image.
        serving_python: Python version of the serving image.
        minimum_macro_f1: on the model's own evaluation set, 0 to 1.
    """

    serving_torch: str
    serving_python: str
    minimum_macro_f1: float


class Delivery(Construct):
    """Judges each announced model and has CloudFormation roll it out, and back if it must.

    A manifest that appears under `models/<model_name>/` starts the state machine. The Endpoint
    stack's update is the only thing that changes what serves. Whatever goes wrong ends in the
    topic, and what could not even be told ends in the dead-letter queue, which has an alarm.

    Args:
        code: folder of the Lambda functions, one asset.
        endpoint_name: literal, lower case.
        endpoint_stack_name: stack whose parameter `ModelUrl` says what serves.
        service_role_arn: role that CloudFormation updates that stack with.
        poll_seconds: pause between two looks at a roll-out.
        log_retention: of every log group.
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
        poll_seconds: int,
        removal_policy: RemovalPolicy,
        log_retention: logs.RetentionDays = logs.RetentionDays.THREE_MONTHS,
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
        stack = Stack.of(self)
        stack_arn = stack.format_arn(
            service="cloudformation", resource="stack", resource_name=f"{endpoint_stack_name}/*"
        )
        endpoint_arn = stack.format_arn(
            service="sagemaker", resource="endpoint", resource_name=endpoint_name
        )
        self.topic = self._notices()
        self.dead_letters = sqs.Queue(
            self,
            "DeadLetters",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(14),
            removal_policy=removal_policy,
        )
        validate = self._validate(model_bucket, model_name, gate, stack_arn)
        roll_out = self._roll_out(stack_arn, service_role_arn)
        settle = self._settle(model_bucket, endpoint_name, stack_arn, endpoint_arn)
        record = self._record(model_bucket, model_name, endpoint_name, stack_arn)
        self.functions = (validate, roll_out, settle, record)
        workflow = DeliveryWorkflow(
            self,
            "Workflow",
            validate=validate,
            roll_out=roll_out,
            settle=settle,
            record=record,
            poll_seconds=poll_seconds,
        )
        self.state_machine = sfn.StateMachine(
            self,
            "StateMachine",
            definition_body=sfn.DefinitionBody.from_chainable(workflow.start),
            query_language=sfn.QueryLanguage.JSONATA,
            timeout=Duration.seconds((_WAITS + 1) * PATIENCE_SECONDS),
            tracing_enabled=True,
            removal_policy=removal_policy,
            logs=sfn.LogOptions(
                # The prefix keeps the account's one log resource policy from filling up.
                destination=self._log_group(
                    "StateMachineLog", f"/aws/vendedlogs/states/{stack.stack_name}"
                ),
                level=sfn.LogLevel.ALL,
                include_execution_data=True,
            ),
        )
        self._start_on_manifests(model_bucket, model_name)
        self._keep_failures()

    def _validate(
        self, bucket: s3.IBucket, model_name: str, gate: Gate, stack_arn: str
    ) -> lambda_.Function:
        # A vCPU of its own: it unpacks archives of up to 5 GB while they stream by.
        function = self._function(
            "Validate",
            "validate.handler.handler",
            memory_mib=1769,
            timeout=Duration.minutes(15),
            environment={
                **self._endpoint,
                "MODEL_NAME": model_name,
                "SERVING_TORCH": gate.serving_torch,
                "SERVING_PYTHON": gate.serving_python,
                "MINIMUM_MACRO_F1": str(gate.minimum_macro_f1),
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
        return function

    def _settle(
        self, bucket: s3.IBucket, endpoint_name: str, stack_arn: str, endpoint_arn: str
    ) -> lambda_.Function:
        # Three tries of an invocation that may take 70 s each.
        function = self._function(
            "Settle",
            "settle.handler.handler",
            timeout=Duration.minutes(5),
            environment={**self._endpoint, "ENDPOINT_NAME": endpoint_name},
        )
        bucket.grant_read(function, self._models)
        _allow(
            function,
            ["cloudformation:DescribeStacks", "cloudformation:DescribeStackEvents"],
            stack_arn,
        )
        _allow(function, ["sagemaker:DescribeEndpoint", "sagemaker:InvokeEndpoint"], endpoint_arn)
        return function

    def _record(
        self, bucket: s3.IBucket, model_name: str, endpoint_name: str, stack_arn: str
    ) -> lambda_.Function:
        function = self._function(
            "Record",
            "record.handler.handler",
            environment={
                **self._endpoint,
                "ENDPOINT_NAME": endpoint_name,
                "MODEL_NAME": model_name,
                "TOPIC_ARN": self.topic.topic_arn,
            },
        )
        bucket.grant_read(function, "verdicts/*")
        bucket.grant_put(function, "verdicts/*")
        _allow(function, ["cloudformation:DescribeStacks"], stack_arn)
        self.topic.grant_publish(function)
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
        log_group = self._log_group(f"{name}Log")
        log_group.grant_write(role)
        return lambda_.Function(
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

    def _log_group(self, construct_id: str, name: str | None = None) -> logs.LogGroup:
        return logs.LogGroup(
            self,
            construct_id,
            log_group_name=name,
            retention=self._log_retention,
            removal_policy=self._removal_policy,
        )

    def _notices(self) -> sns.Topic:
        """A topic under a key of its own: alarms cannot publish under AWS's `alias/aws/sns`."""
        alarms = iam.ServicePrincipal(
            "cloudwatch.amazonaws.com",
            conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
        )
        key = kms.Key(
            self,
            "NoticesKey",
            description="Encrypts delivery notices",
            enable_key_rotation=True,
            pending_window=Duration.days(7),
            removal_policy=self._removal_policy,
        )
        topic = sns.Topic(self, "Notices", master_key=key, enforce_ssl=True)
        topic.grant_publish(alarms)
        return topic

    def _start_on_manifests(self, bucket: s3.IBucket, model_name: str) -> None:
        events.Rule(
            self,
            "OnManifest",
            description=f"A model named {model_name} was published",
            event_pattern=events.EventPattern(
                source=["aws.s3"],
                detail_type=["Object Created"],
                detail={
                    "bucket": {"name": [bucket.bucket_name]},
                    "object": {"key": [{"wildcard": f"models/{model_name}/*/manifest.json"}]},
                },
            ),
            targets=[
                targets.SfnStateMachine(
                    self.state_machine,
                    dead_letter_queue=self.dead_letters,
                    max_event_age=Duration.hours(24),
                    retry_attempts=185,
                )
            ],
        )

    def _keep_failures(self) -> None:
        """Put the event of every broken execution into the queue, and raise the alarm."""
        events.Rule(
            self,
            "OnFailure",
            description="A delivery ended without a verdict",
            event_pattern=events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={
                    "stateMachineArn": [self.state_machine.state_machine_arn],
                    "status": ["FAILED", "TIMED_OUT", "ABORTED"],
                },
            ),
            targets=[targets.SqsQueue(self.dead_letters)],
        )
        alarm = self.dead_letters.metric_approximate_number_of_messages_visible(
            period=Duration.minutes(5), statistic="Maximum"
        ).create_alarm(
            self,
            "DeadLettersAlarm",
            alarm_description=(
                "A model announcement was not delivered. Read the messages of the dead-letter "
                "queue; each holds the input to start the state machine with again."
            ),
            threshold=1,
            evaluation_periods=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        alarm.add_alarm_action(actions.SnsAction(self.topic))


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
