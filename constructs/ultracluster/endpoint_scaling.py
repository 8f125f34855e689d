"""More instances under load."""

from __future__ import annotations

from aws_cdk import CfnCondition
from aws_cdk import aws_applicationautoscaling as scaling
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from ultracluster.serving_metrics import VARIANT
from ultracluster.settings import Scaling

DIMENSION = "sagemaker:variant:DesiredInstanceCount"
NAMESPACE = "sagemaker"


class EndpointScaling(Construct):
    """A scalable target and the policy that holds each instance's load.

    Both are made after the endpoint and deleted before it: the target is bound to a variant that
    exists, and while it is registered SageMaker refuses another instance type.

    Args:
        endpoint: has one variant, named `main`.
        endpoint_name: literal.
        min_count: instances without load.
        condition: under which there is an endpoint.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        endpoint: sagemaker.CfnEndpoint,
        endpoint_name: str,
        min_count: int,
        settings: Scaling,
        condition: CfnCondition,
    ) -> None:
        super().__init__(scope, construct_id)
        target = scaling.CfnScalableTarget(
            self,
            "Target",
            min_capacity=min_count,
            max_capacity=settings.max_count,
            resource_id=f"endpoint/{endpoint_name}/variant/{VARIANT}",
            scalable_dimension=DIMENSION,
            service_namespace=NAMESPACE,
        )
        target.node.add_dependency(endpoint)
        policy = scaling.CfnScalingPolicy(
            self,
            "Policy",
            policy_name=f"{endpoint_name}-requests",
            policy_type="TargetTrackingScaling",
            scaling_target_id=target.ref,
            target_tracking_scaling_policy_configuration=(
                scaling.CfnScalingPolicy.TargetTrackingScalingPolicyConfigurationProperty(
                    target_value=settings.requests_per_minute,
                    scale_out_cooldown=settings.scale_out_seconds,
                    scale_in_cooldown=settings.scale_in_seconds,
                    predefined_metric_specification=(
                        scaling.CfnScalingPolicy.PredefinedMetricSpecificationProperty(
                            predefined_metric_type="SageMakerVariantInvocationsPerInstance"
                        )
                    ),
                )
            ),
        )
        for resource in (target, policy):
            resource.cfn_options.condition = condition
