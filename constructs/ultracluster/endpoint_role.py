"""The service role with which a roll-out updates the Endpoint stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from ultracluster.reasons import accept

_SCALING_SERVICE = "sagemaker.application-autoscaling.amazonaws.com"
_SCALING_ROLE = "AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint"


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
        # SageMaker writes names in lower case into its ARNs.
        serving = ("model/*", "endpoint-config/*", f"endpoint/{endpoint_name}")
        self._allow(
            [
                f"sagemaker:{verb}{kind}"
                for kind in ("Model", "EndpointConfig", "Endpoint")
                for verb in ("Create", "Describe", "Delete")
            ]
            + ["sagemaker:UpdateEndpoint", "sagemaker:AddTags", "sagemaker:ListTags"],
            self._arns("sagemaker", *serving),
        )
        self._allow(
            ["iam:PassRole"],
            self._arns("iam", f"role{execution_role_path}*", region=""),
            {"iam:PassedToService": "sagemaker.amazonaws.com"},
        )
        self._allow_scaling(endpoint_name)
        # Stack references and the bootstrap check are resolved with this role as well.
        self._allow(
            ["cloudformation:DescribeStacks"],
            self._arns("cloudformation", *(f"stack/{name}/*" for name in named_stacks)),
        )
        self._allow(["ssm:GetParameters"], self._arns("ssm", "parameter/cdk-bootstrap/*"))
        accept(
            self,
            "AwsSolutions-IAM5",
            "CloudFormation makes up names of models, configurations, roles and stacks, and auto "
            "scaling those of its targets and alarms; each ARN ends where that begins. Auto "
            "scaling describes its targets and policies without a resource",
            "Resource::...:model/*",
            "Resource::...:endpoint-config/*",
            f"Resource::...:role{execution_role_path}*",
            *(f"Resource::...:stack/{name}/*" for name in named_stacks),
            "Resource::...:parameter/cdk-bootstrap/*",
            "Resource::...:scalable-target/*",
            f"Resource::...:alarm:TargetTracking-endpoint/{endpoint_name}/*",
            f"Resource::...:alarm:{endpoint_name}-*",
            "Resource::*",
        )

    def _allow_scaling(self, endpoint_name: str) -> None:
        """Auto scaling of the variant, its alarms, and those that an update may be undone by."""
        in_sagemaker = {"application-autoscaling:service-namespace": "sagemaker"}
        self._allow(
            [
                f"application-autoscaling:{action}"
                for action in (
                    "RegisterScalableTarget",
                    "DeregisterScalableTarget",
                    "PutScalingPolicy",
                    "DeleteScalingPolicy",
                )
            ],
            self._arns("application-autoscaling", "scalable-target/*"),
            in_sagemaker,
        )
        self._allow(
            ["application-autoscaling:TagResource"],
            self._arns("application-autoscaling", "scalable-target/*"),
        )
        self._allow(
            [
                "application-autoscaling:DescribeScalableTargets",
                "application-autoscaling:DescribeScalingPolicies",
            ],
            ["*"],
        )
        # Auto scaling registers no target whose caller could not scale it.
        # https://docs.aws.amazon.com/sagemaker/latest/dg/endpoint-auto-scaling-prerequisites.html
        self._allow(
            ["sagemaker:UpdateEndpointWeightsAndCapacities"],
            self._arns("sagemaker", f"endpoint/{endpoint_name}"),
        )
        self._allow(
            ["iam:CreateServiceLinkedRole"],
            self._arns(
                "iam", f"role/aws-service-role/{_SCALING_SERVICE}/{_SCALING_ROLE}", region=""
            ),
            {"iam:AWSServiceName": _SCALING_SERVICE},
        )
        own = f"TargetTracking-endpoint/{endpoint_name}/*"
        self._allow(["cloudwatch:PutMetricAlarm", "cloudwatch:DeleteAlarms"], self._alarms(own))
        self._allow(["cloudwatch:DescribeAlarms"], self._alarms(own, f"{endpoint_name}-*"))

    def _allow(
        self,
        actions: list[str],
        resources: list[str],
        condition: Mapping[str, str] | None = None,
    ) -> None:
        self.add_to_policy(
            iam.PolicyStatement(
                actions=actions,
                resources=resources,
                conditions={"StringEquals": dict(condition)} if condition else None,
            )
        )

    def _alarms(self, *names: str) -> list[str]:
        return [
            Stack.of(self).format_arn(
                service="cloudwatch",
                resource="alarm",
                resource_name=name,
                arn_format=ArnFormat.COLON_RESOURCE_NAME,
            )
            for name in names
        ]

    def _arns(self, service: str, *names: str, region: str | None = None) -> list[str]:
        return [
            Stack.of(self).format_arn(
                service=service,
                region=region,
                resource=name.split("/")[0],
                resource_name=name.split("/", 1)[1],
                arn_format=ArnFormat.SLASH_RESOURCE_NAME,
            )
            for name in names
        ]
