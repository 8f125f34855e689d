"""The SageMaker endpoint on Graviton, present while a model serves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import CfnCondition, CfnParameter, CfnResource, Fn, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from ultracluster.catalog import ServingInstance
from ultracluster.endpoint_alarms import RollBackAlarms
from ultracluster.endpoint_scaling import EndpointScaling
from ultracluster.endpoint_traffic import deployment_config
from ultracluster.execution_role import ExecutionRole, endpoint_log_group_name
from ultracluster.images import EcrImage
from ultracluster.interface_guard import InterfaceGuard
from ultracluster.serving_metrics import VARIANT
from ultracluster.serving_process import serving_process
from ultracluster.settings import Endpoint

NO_MODEL = "none"


@dataclass(frozen=True, kw_only=True)
class CapturePlace:
    """Where requests and answers go; a key other than the bucket's, or None."""

    bucket: s3.IBucket
    prefix: str
    key: kms.IKey | None


@dataclass(frozen=True, kw_only=True)
class VpcPlace:
    """The network that the container runs in: subnets in two zones and its security group.

    The guard is made before the model and deleted after it.
    """

    subnets: Sequence[ec2.ISubnet]
    security_group: ec2.ISecurityGroup
    guard: InterfaceGuard


class GravitonEndpoint(Construct):
    """A real-time endpoint whose model is a stack parameter.

    `ModelUrl` holds the S3 URL of the served `model.tar.gz`, or `none`: then model, endpoint
    configuration, endpoint and its scaling are left out. Whoever updates the parameter deploys a
    model; a later deploy of the template keeps it.

    Args:
        endpoint_name: literal, lower case, at most 63 characters.
        settings: of the endpoint.
        instance: what `settings.instance_type` is.
        image: an arm64 image that answers SageMaker's /ping and /invocations.
        models: bucket of the archives.
        log_retention: of what the containers say.
        capture: where requests and answers go, or None.
        vpc: the container's network, or None for SageMaker's own.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        endpoint_name: str,
        settings: Endpoint,
        instance: ServingInstance,
        image: EcrImage,
        models: s3.IBucket,
        log_retention: logs.RetentionDays,
        capture: CapturePlace | None,
        vpc: VpcPlace | None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.endpoint_name = endpoint_name
        self.model_url = CfnParameter(
            Stack.of(self),
            "ModelUrl",
            default=NO_MODEL,
            description="S3 URL of the model.tar.gz that serves, or none.",
        )
        self.has_model = CfnCondition(
            Stack.of(self),
            "HasModel",
            expression=Fn.condition_not(
                Fn.condition_equals(self.model_url.value_as_string, NO_MODEL)
            ),
        )
        # SageMaker would make it without an end; its name is SageMaker's, so it cannot outlive the
        # stack: the next one of this name could not make it again.
        log_group = logs.LogGroup(
            self,
            "Log",
            log_group_name=endpoint_log_group_name(endpoint_name),
            retention=log_retention,
            removal_policy=RemovalPolicy.DESTROY,
        )
        self.execution_role = ExecutionRole(
            self,
            "ExecutionRole",
            endpoint_name=endpoint_name,
            image=image,
            models=models,
            model_name=settings.model_name,
            log_group=log_group,
        )
        if capture is not None:
            self.execution_role.allow_capture(capture.bucket, capture.prefix, capture.key)
        if vpc is not None:
            self.execution_role.allow_network_interfaces()
        process = serving_process(settings, instance)
        self.model = sagemaker.CfnModel(
            self,
            "Model",
            execution_role_arn=self.execution_role.role_arn,
            # The package carries what it needs: no pip at start, no way out with the texts.
            enable_network_isolation=True,
            primary_container=sagemaker.CfnModel.ContainerDefinitionProperty(
                image=image.uri,
                model_data_url=self.model_url.value_as_string,
                environment=process.environment,
            ),
            vpc_config=_vpc_config(vpc),
        )
        if vpc is not None:
            self.model.node.add_dependency(vpc.guard)
        # Without this the model may be made before the role can read the archive.
        for grant in self.execution_role.needed:
            grant.apply_before(self.model)
        configuration = sagemaker.CfnEndpointConfig(
            self,
            "Configuration",
            production_variants=[
                sagemaker.CfnEndpointConfig.ProductionVariantProperty(
                    variant_name=VARIANT,
                    model_name=self.model.attr_model_name,
                    instance_type=settings.instance_type,
                    initial_instance_count=settings.instance_count,
                    initial_variant_weight=1,
                    model_data_download_timeout_in_seconds=process.download_seconds,
                    container_startup_health_check_timeout_in_seconds=process.startup_seconds,
                )
            ],
            data_capture_config=_data_capture(settings, capture),
        )
        alarms = RollBackAlarms(
            self, "RollBack", endpoint_name=endpoint_name, settings=settings.alarms
        )
        self.endpoint = sagemaker.CfnEndpoint(
            self,
            "Endpoint",
            endpoint_name=endpoint_name,
            endpoint_config_name=configuration.attr_endpoint_config_name,
            deployment_config=deployment_config(settings, alarms.alarms),
            # With scaling the count is the load's; without, the settings' count holds again.
            retain_all_variant_properties=True if settings.scaling else None,
        )
        self.endpoint.node.add_dependency(log_group)
        self.configuration_name = configuration.attr_endpoint_config_name
        conditional: tuple[CfnResource, ...] = (self.model, configuration, self.endpoint)
        for resource in conditional:
            resource.cfn_options.condition = self.has_model
        if settings.scaling is not None:
            EndpointScaling(
                self,
                "Scaling",
                endpoint=self.endpoint,
                endpoint_name=endpoint_name,
                min_count=settings.instance_count,
                settings=settings.scaling,
                condition=self.has_model,
            )


def _vpc_config(place: VpcPlace | None) -> sagemaker.CfnModel.VpcConfigProperty | None:
    if place is None:
        return None
    return sagemaker.CfnModel.VpcConfigProperty(
        subnets=[subnet.subnet_id for subnet in place.subnets],
        security_group_ids=[place.security_group.security_group_id],
    )


def _data_capture(
    settings: Endpoint, place: CapturePlace | None
) -> sagemaker.CfnEndpointConfig.DataCaptureConfigProperty | None:
    if settings.capture is None or place is None:
        return None
    config = sagemaker.CfnEndpointConfig
    return config.DataCaptureConfigProperty(
        enable_capture=True,
        initial_sampling_percentage=settings.capture.percent,
        destination_s3_uri=f"s3://{place.bucket.bucket_name}/{place.prefix}",
        kms_key_id=place.key.key_arn if place.key else None,
        capture_options=[
            config.CaptureOptionProperty(capture_mode=mode) for mode in ("Input", "Output")
        ],
        capture_content_type_header=config.CaptureContentTypeHeaderProperty(
            json_content_types=["application/json"]
        ),
    )
