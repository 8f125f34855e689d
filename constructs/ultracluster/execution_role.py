"""The role that SageMaker runs the serving container with."""

from __future__ import annotations

from aws_cdk import Aws
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from constructs import Construct

from ultracluster.images import EcrImage
from ultracluster.reasons import accept


def execution_role_path(endpoint_name: str) -> str:
    """IAM path of the role: generated role names are cut short, paths are not."""
    return f"/{endpoint_name}/"


class ExecutionRole(iam.Role):
    """Reads the served model and its image, writes logs, metrics and what is captured.

    Attributes:
        needed: grants that must be there before SageMaker is told of the role.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        endpoint_name: str,
        image: EcrImage,
        models: s3.IBucket,
        model_name: str,
        log_group: logs.ILogGroup,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"),
            path=execution_role_path(endpoint_name),
            description="What the serving container may do",
        )
        repository = ecr.Repository.from_repository_attributes(
            self,
            "Image",
            repository_name=image.repository,
            repository_arn=(
                f"arn:{Aws.PARTITION}:ecr:{image.region}:{image.account}:repository/"
                f"{image.repository}"
            ),
        )
        self.needed = [
            models.grant_read(self, f"models/{model_name}/*"),
            repository.grant_pull(self),
            # What the guide asks for but CreateLogGroup: a late line would bring the group back,
            # without its retention.
            # https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-roles.html
            log_group.grant(
                self, "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"
            ),
            self._allow("cloudwatch:PutMetricData"),
        ]
        accept(
            self,
            "AwsSolutions-IAM5",
            "CDK's grants to read a bucket; objects below the served model's own prefix",
            "Action::s3:GetBucket*",
            "Action::s3:GetObject*",
            "Action::s3:List*",
            f"Resource::.../models/{model_name}/*",
        )
        accept(
            self,
            "AwsSolutions-IAM5",
            "the token of a registry, metrics and network interfaces have no resource of their own",
            "Resource::*",
        )

    def allow_capture(self, bucket: s3.IBucket, prefix: str, key: kms.IKey | None) -> None:
        """Let SageMaker write requests and answers below a prefix, under a key."""
        self.needed.append(bucket.grant_put(self, f"{prefix}/*"))
        if key is not None:
            self.needed.append(key.grant_encrypt(self))
        accept(
            self,
            "AwsSolutions-IAM5",
            "CDK's grants to write objects below one prefix, and to use the bucket's key",
            "Action::s3:Abort*",
            f"Resource::.../{prefix}/*",
        )

    def allow_network_interfaces(self) -> None:
        """Let SageMaker put the container into subnets; EC2 has no narrower resource for it."""
        self.needed.append(
            self._allow(
                "ec2:CreateNetworkInterface",
                "ec2:CreateNetworkInterfacePermission",
                "ec2:DeleteNetworkInterface",
                "ec2:DeleteNetworkInterfacePermission",
                "ec2:DescribeDhcpOptions",
                "ec2:DescribeNetworkInterfaces",
                "ec2:DescribeSecurityGroups",
                "ec2:DescribeSubnets",
                "ec2:DescribeVpcs",
            )
        )

    def _allow(self, *actions: str) -> iam.Grant:
        return iam.Grant.add_to_principal(grantee=self, actions=list(actions), resource_arns=["*"])


def endpoint_log_group_name(endpoint_name: str) -> str:
    """Where SageMaker writes what the containers of an endpoint say."""
    return f"/aws/sagemaker/Endpoints/{endpoint_name}"
