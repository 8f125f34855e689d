"""The KMS key of an environment's data."""

from __future__ import annotations

from aws_cdk import ArnFormat, Aws, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

FSX_ROLE = "aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/AWSServiceRoleForFSxS3Access_*"


class DataKey(kms.Key):
    """A rotated key for buckets and file system; whoever is granted those is granted it.

    Args:
        removal_policy: DESTROY makes it unusable at once and deletes it after 7 days.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, removal_policy: RemovalPolicy
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            description="Data of this environment",
            enable_key_rotation=True,
            removal_policy=removal_policy,
            pending_window=Duration.days(7),
        )

    def grant_lustre_links(self) -> None:
        """Let FSx read and write objects of linked buckets.

        FSx makes a role for each file system that links a bucket; it does not exist when the key
        does, so that it is named by a condition.
        """
        role = Stack.of(self).format_arn(
            service="iam",
            region="",
            resource="role",
            resource_name=FSX_ROLE,
            arn_format=ArnFormat.SLASH_RESOURCE_NAME,
        )
        self.add_to_resource_policy(
            iam.PolicyStatement(
                sid="LustreLinks",
                principals=[iam.AnyPrincipal()],
                actions=[
                    "kms:Decrypt",
                    "kms:DescribeKey",
                    "kms:Encrypt",
                    "kms:GenerateDataKey*",
                    "kms:ReEncrypt*",
                ],
                resources=["*"],
                conditions={
                    "ArnLike": {"aws:PrincipalArn": role},
                    "StringEquals": {
                        "kms:CallerAccount": Aws.ACCOUNT_ID,
                        "kms:ViaService": f"s3.{Stack.of(self).region}.{Aws.URL_SUFFIX}",
                    },
                },
            )
        )
