"""The buckets of an environment."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_s3 as s3
from constructs import Construct


class PrivateBucket(s3.Bucket):
    """A versioned bucket that only TLS reaches, with no public access.

    Args:
        removal_policy: DESTROY also empties it.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, removal_policy: RemovalPolicy
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            versioned=True,
            enforce_ssl=True,
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            removal_policy=removal_policy,
            auto_delete_objects=removal_policy == RemovalPolicy.DESTROY,
            lifecycle_rules=[
                s3.LifecycleRule(
                    abort_incomplete_multipart_upload_after=Duration.days(1),
                    noncurrent_version_expiration=Duration.days(30),
                )
            ],
        )


class ModelBucket(PrivateBucket):
    """The bucket of published models, which tells EventBridge of every new object."""

    def __init__(
        self, scope: Construct, construct_id: str, *, removal_policy: RemovalPolicy
    ) -> None:
        super().__init__(scope, construct_id, removal_policy=removal_policy)
        resource = self.node.default_child
        if not isinstance(resource, s3.CfnBucket):
            raise TypeError(f"{self.node.path} holds no AWS::S3::Bucket")
        # The property, not the custom resource that CDK would add: one Lambda less to keep.
        resource.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
            event_bridge_configuration=s3.CfnBucket.EventBridgeConfigurationProperty(
                event_bridge_enabled=True
            )
        )
