"""The buckets of an environment."""

from __future__ import annotations

from aws_cdk import CfnResource, Duration, RemovalPolicy, Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from constructs import Construct

from ultracluster.reasons import accept

NONCURRENT_DAYS = 30
# CDK's name of what empties the buckets of a stack.
EMPTYING = "Custom::S3AutoDeleteObjectsCustomResourceProvider"
EMPTYING_LOG = "EmptyingLog"


class PrivateBucket(s3.Bucket):
    """A versioned bucket that only TLS reaches, with no public access.

    Args:
        removal_policy: DESTROY also empties it.
        noncurrent_days: days that an overwritten or deleted version stays.
        key: encrypts it, and whoever is granted the bucket is granted the key; None is S3's own.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        removal_policy: RemovalPolicy,
        noncurrent_days: int = NONCURRENT_DAYS,
        key: kms.IKey | None = None,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            versioned=True,
            enforce_ssl=True,
            encryption=s3.BucketEncryption.KMS if key else s3.BucketEncryption.S3_MANAGED,
            encryption_key=key,
            # One call to KMS for many objects instead of one each.
            bucket_key_enabled=True if key else None,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            removal_policy=removal_policy,
            auto_delete_objects=removal_policy == RemovalPolicy.DESTROY,
            lifecycle_rules=[
                s3.LifecycleRule(
                    abort_incomplete_multipart_upload_after=Duration.days(1),
                    noncurrent_version_expiration=Duration.days(noncurrent_days),
                )
            ],
        )
        if removal_policy == RemovalPolicy.DESTROY:
            _end_the_log_of_emptying(Stack.of(self))
        accept(
            self,
            "AwsSolutions-S1",
            "access logs would be written on while the bucket is emptied; CloudTrail data events "
            "record the same without a bucket of their own",
        )


def _end_the_log_of_emptying(stack: Stack) -> None:
    """Give CDK's function that empties buckets a log group that ends; Lambda's own never does."""
    function = stack.node.find_child(EMPTYING).node.find_child("Handler")
    if not isinstance(function, CfnResource) or stack.node.try_find_child(EMPTYING_LOG):
        return
    log_group = logs.LogGroup(
        stack,
        EMPTYING_LOG,
        retention=logs.RetentionDays.ONE_WEEK,
        removal_policy=RemovalPolicy.DESTROY,
    )
    function.add_property_override("LoggingConfig", {"LogGroup": log_group.log_group_name})


class ModelBucket(PrivateBucket):
    """The bucket of published models, which tells EventBridge of every new object."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        removal_policy: RemovalPolicy,
        noncurrent_days: int = NONCURRENT_DAYS,
        key: kms.IKey | None = None,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            removal_policy=removal_policy,
            noncurrent_days=noncurrent_days,
            key=key,
        )
        resource = self.node.default_child
        if not isinstance(resource, s3.CfnBucket):
            raise TypeError(f"{self.node.path} holds no AWS::S3::Bucket")
        # The property, not the custom resource that CDK would add: one Lambda less to keep.
        resource.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
            event_bridge_configuration=s3.CfnBucket.EventBridgeConfigurationProperty(
                event_bridge_enabled=True
            )
        )
