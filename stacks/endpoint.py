"""The endpoint that serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from ultracluster.catalog import Catalog
from ultracluster.endpoint import CapturePlace, GravitonEndpoint, VpcPlace
from ultracluster.images import EcrImage
from ultracluster.interface_guard import InterfaceGuard
from ultracluster.network import ClusterNetwork
from ultracluster.retention import log_retention
from ultracluster.settings import Capture, Settings


class EndpointStack(Stack):
    """Model, endpoint configuration and endpoint, present while `ModelUrl` names a model.

    Args:
        image: what the container is made of.
        models: bucket of the archives.
        data: bucket of what is captured, where the settings name no other.
        network: where the container runs; None without `endpoint.vpc`.
        code: folder of the Lambda functions.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        catalog: Catalog,
        image: EcrImage,
        models: s3.IBucket,
        data: s3.IBucket,
        network: ClusterNetwork | None,
        code: Path,
        **kwargs: Any,
    ) -> None:
        super().__init__(scope, construct_id, **kwargs)
        instance = catalog.serving_instance(settings.endpoint.instance_type)
        assert instance is not None, "the rules let no other type pass"  # noqa: S101
        self.endpoint = GravitonEndpoint(
            self,
            "Graviton",
            endpoint_name=settings.prefix,
            settings=settings.endpoint,
            instance=instance,
            image=image,
            models=models,
            log_retention=log_retention(settings),
            capture=self._capture(settings.endpoint.capture, data),
            vpc=self._vpc(network, settings, code) if network is not None else None,
        )
        CfnOutput(self, "EndpointName", value=self.endpoint.endpoint_name)
        CfnOutput(self, "ServingImage", value=image.uri)
        # What must serve: SageMaker can roll an update back without telling CloudFormation.
        for name, value in (
            ("EndpointConfigName", self.endpoint.configuration_name),
            ("ServedModel", self.endpoint.model_url.value_as_string),
        ):
            CfnOutput(self, name, value=value, condition=self.endpoint.has_model)

    def _capture(self, settings: Capture | None, data: s3.IBucket) -> CapturePlace | None:
        if settings is None:
            return None
        bucket = (
            s3.Bucket.from_bucket_name(self, "Captured", settings.bucket)
            if settings.bucket
            else data
        )
        key = (
            kms.Key.from_key_arn(self, "CaptureKey", settings.key_arn) if settings.key_arn else None
        )
        return CapturePlace(bucket=bucket, prefix=settings.prefix, key=key)

    def _vpc(self, network: ClusterNetwork, settings: Settings, code: Path) -> VpcPlace:
        group = ec2.SecurityGroup(
            self,
            "SecurityGroup",
            vpc=network.vpc,
            description="Containers of the endpoint",
            allow_all_outbound=False,
        )
        # Model packages come from S3 through the network; the container itself has no way out.
        group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(443), "HTTPS to S3")
        guard = InterfaceGuard(
            self,
            "InterfaceGuard",
            code=code,
            security_group=group,
            log_retention=log_retention(settings),
        )
        return VpcPlace(
            subnets=list(network.private_subnets.values()), security_group=group, guard=guard
        )
