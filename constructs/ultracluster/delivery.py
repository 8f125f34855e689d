"""The road of a published model to the endpoint."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import Duration, Fn, RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ultracluster.delivery_consent import Consent
from ultracluster.delivery_drain import DeliveryDrain
from ultracluster.delivery_functions import DeliveryFunctions, Gate
from ultracluster.delivery_workflow import PATIENCE_SECONDS, DeliveryWorkflow
from ultracluster.reasons import accept

_WAITS = 4


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
        approval_hours: how long a person has to approve an accepted model; None asks nobody.
        poll_seconds: pause between two looks at a roll-out.
        removal_policy: of the log groups and the topic's key.
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
        approval_hours: int | None,
        poll_seconds: int,
        removal_policy: RemovalPolicy,
        log_retention: logs.RetentionDays = logs.RetentionDays.THREE_MONTHS,
    ) -> None:
        super().__init__(scope, construct_id)
        self._removal_policy = removal_policy
        self.topic = self._notices()
        self.dead_letters = sqs.Queue(
            self,
            "DeadLetters",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(14),
        )
        accept(self.dead_letters, "AwsSolutions-SQS3", "it is the dead-letter queue of the rule")
        self.consent = Consent(
            self,
            "Consent",
            name=f"/{endpoint_name}/delivery",
            approval_hours=approval_hours,
            topic=self.topic,
            model_name=model_name,
        )
        functions = DeliveryFunctions(
            self,
            "Functions",
            code=code,
            model_bucket=model_bucket,
            model_name=model_name,
            endpoint_name=endpoint_name,
            endpoint_stack_name=endpoint_stack_name,
            service_role_arn=service_role_arn,
            gate=gate,
            topic=self.topic,
            switch_name=self.consent.switch.parameter_name,
            removal_policy=removal_policy,
            log_retention=log_retention,
        )
        workflow = DeliveryWorkflow(
            self,
            "Workflow",
            validate=functions.validate,
            roll_out=functions.roll_out,
            settle=functions.settle,
            record=functions.record,
            consent=self.consent,
            poll_seconds=poll_seconds,
        )
        self.state_machine = sfn.StateMachine(
            self,
            "StateMachine",
            definition_body=sfn.DefinitionBody.from_chainable(workflow.start),
            query_language=sfn.QueryLanguage.JSONATA,
            timeout=Duration.seconds((_WAITS + 1) * PATIENCE_SECONDS).plus(self.consent.longest),
            tracing_enabled=True,
            logs=sfn.LogOptions(
                destination=logs.LogGroup(
                    self,
                    "StateMachineLog",
                    log_group_name=self._vended_log_name(),
                    retention=log_retention,
                    removal_policy=removal_policy,
                ),
                level=sfn.LogLevel.ALL,
                include_execution_data=True,
            ),
        )
        accept(
            self.state_machine,
            "AwsSolutions-IAM5",
            "CDK's grant covers versions of each function; log delivery and X-Ray have no resource",
            "Resource::<DeliveryFunctions....Arn>:*",
            "Resource::*",
        )
        if self.consent.needed:
            # The task's own grant leaves out the topic's key.
            self.topic.grant_publish(self.state_machine)
        rule = self._start_on_manifests(model_bucket, model_name)
        self._keep_failures()
        others = list(self.node.children)
        drain = DeliveryDrain(
            self,
            "Drain",
            code=code,
            rule=rule,
            state_machine=self.state_machine,
            endpoint_stack_name=endpoint_stack_name,
            poll_seconds=poll_seconds,
            log_retention=log_retention,
        )
        # Deleted before anything that a delivery needs.
        drain.resource.node.add_dependency(*others)

    def _vended_log_name(self) -> str:
        """A prefix that keeps the account's one log resource policy from filling up.

        The end tells this stack from an earlier one of its name, whose log may have been kept.
        """
        stack = Stack.of(self)
        stack_uuid = Fn.select(2, Fn.split("/", stack.stack_id))
        number = Fn.select(0, Fn.split("-", stack_uuid))
        return f"/aws/vendedlogs/states/{stack.stack_name}-{number}"

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

    def _start_on_manifests(self, bucket: s3.IBucket, model_name: str) -> events.Rule:
        return events.Rule(
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
