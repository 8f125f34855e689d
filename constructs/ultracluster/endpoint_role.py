"""The service role with which a roll-out updates the Endpoint stack."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from ultracluster.reasons import accept


class EndpointServiceRole(iam.Role):
    """What CloudFormation may do while it changes `ModelUrl`, and no more.

    Args:
        execution_role_path: IAM path of the role that the endpoint's container runs with.
        named_stacks: whose outputs the Endpoint stack's template names.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        endpoint_name: str,
        execution_role_path: str,
        named_stacks: Sequence[str],
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            assumed_by=iam.ServicePrincipal("cloudformation.amazonaws.com"),
            description="Lets CloudFormation change the model that the endpoint serves",
        )
        stack = Stack.of(self)

        def arns(service: str, *names: str, region: str | None = None) -> list[str]:
            return [
                stack.format_arn(
                    service=service,
                    region=region,
                    resource=name.split("/")[0],
                    resource_name=name.split("/", 1)[1],
                    arn_format=ArnFormat.SLASH_RESOURCE_NAME,
                )
                for name in names
            ]

        self.add_to_policy(
            iam.PolicyStatement(
                actions=[
                    f"sagemaker:{verb}{kind}"
                    for kind in ("Model", "EndpointConfig", "Endpoint")
                    for verb in ("Create", "Describe", "Delete")
                ]
                + ["sagemaker:UpdateEndpoint", "sagemaker:AddTags", "sagemaker:ListTags"],
                # SageMaker writes names in lower case into its ARNs.
                resources=arns(
                    "sagemaker",
                    "model/*",
                    "endpoint-config/*",
                    f"endpoint/{endpoint_name}",
                ),
            )
        )
        self.add_to_policy(
            iam.PolicyStatement(
                actions=["iam:PassRole"],
                resources=arns("iam", f"role{execution_role_path}*", region=""),
                conditions={"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
            )
        )
        accept(
            self,
            "AwsSolutions-IAM5",
            "CloudFormation makes up names of models, configurations, roles and stacks; each ARN "
            "ends where that begins",
            "Resource::...:model/*",
            "Resource::...:endpoint-config/*",
            f"Resource::...:role{execution_role_path}*",
            *(f"Resource::...:stack/{name}/*" for name in named_stacks),
            "Resource::...:parameter/cdk-bootstrap/*",
        )
        # Stack references and the bootstrap check are resolved with this role as well.
        self.add_to_policy(
            iam.PolicyStatement(
                actions=["cloudformation:DescribeStacks"],
                resources=arns("cloudformation", *(f"stack/{name}/*" for name in named_stacks)),
            )
        )
        self.add_to_policy(
            iam.PolicyStatement(
                actions=["ssm:GetParameters"],
                resources=arns("ssm", "parameter/cdk-bootstrap/*"),
            )
        )
