"""The endpoint that serves."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_s3 as s3
from constructs import Construct

from ultracluster.endpoint import GravitonEndpoint
from ultracluster.images import EcrImage
from ultracluster.settings import Settings


class EndpointStack(Stack):
    """Model, endpoint configuration and endpoint, present while `ModelUrl` names a model."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        image: EcrImage,
        models: s3.IBucket,
        **kwargs: Any,
    ) -> None:
        super().__init__(scope, construct_id, **kwargs)
        self.endpoint = GravitonEndpoint(
            self,
            "Graviton",
            endpoint_name=settings.prefix,
            instance_type=settings.endpoint.instance_type,
            instance_count=settings.endpoint.instance_count,
            image=image,
            startup_seconds=settings.endpoint.startup_seconds,
            models=models,
            model_name=settings.endpoint.model_name,
        )
        CfnOutput(self, "EndpointName", value=self.endpoint.endpoint_name)
        CfnOutput(self, "ServingImage", value=image.uri)
        # What must serve: SageMaker can roll an update back without telling CloudFormation.
        for name, value in (
            ("EndpointConfigName", self.endpoint.configuration_name),
            ("ServedModel", self.endpoint.model_url.value_as_string),
        ):
            CfnOutput(self, name, value=value, condition=self.endpoint.has_model)
