"""The SageMaker endpoint on Graviton, present while a model serves."""

from __future__ import annotations

from aws_cdk import ArnFormat, Aws, CfnCondition, CfnParameter, CfnResource, Fn, Stack
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from ultracluster.images import EcrImage
from ultracluster.reasons import accept

NO_MODEL = "none"
VARIANT = "main"
WORKERS = 4
"""Processes of the server, each with a copy of the model."""


def execution_role_path(endpoint_name: str) -> str:
    """IAM path of the serving role: generated role names are cut short, paths are not."""
    return f"/{endpoint_name}/"


class GravitonEndpoint(Construct):
    """A real-time endpoint whose model is a stack parameter.

    `ModelUrl` holds the S3 URL of the served `model.tar.gz`, or `none`: then model, endpoint
    configuration and endpoint are left out. Whoever updates the parameter deploys a model; a later
    deploy of the template keeps it.

    Args:
        endpoint_name: literal, lower case, at most 63 characters.
        image: an arm64 image that answers SageMaker's /ping and /invocations.
        startup_seconds: time for the container to load its model, 60 to 3600.
        models: bucket of the archives.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        endpoint_name: str,
        instance_type: str,
        instance_count: int,
        image: EcrImage,
        startup_seconds: int,
        models: s3.IBucket,
        model_name: str,
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
        self.execution_role = iam.Role(
            self,
            "ExecutionRole",
            assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"),
            path=execution_role_path(endpoint_name),
            description="What the serving container may do",
        )
        grants = [
            models.grant_read(self.execution_role, f"models/{model_name}/*"),
            self._repository(image).grant_pull(self.execution_role),
            self._grant_logs_and_metrics(),
        ]

        accept(
            self.execution_role,
            "AwsSolutions-IAM5",
            "CDK's grants to read a bucket; objects below the served model's own prefix",
            "Action::s3:GetBucket*",
            "Action::s3:GetObject*",
            "Action::s3:List*",
            f"Resource::.../models/{model_name}/*",
        )
        accept(
            self.execution_role,
            "AwsSolutions-IAM5",
            "the token of a registry and metrics have no resource; SageMaker names the log group",
            "Resource::*",
            "Resource::...:log-group:/aws/sagemaker/Endpoints/*",
        )
        model = sagemaker.CfnModel(
            self,
            "Model",
            execution_role_arn=self.execution_role.role_arn,
            # The package carries what it needs: no pip at start, no way out with the texts.
            enable_network_isolation=True,
            primary_container=sagemaker.CfnModel.ContainerDefinitionProperty(
                image=image.uri,
                model_data_url=self.model_url.value_as_string,
                environment={
                    "SAGEMAKER_PROGRAM": "inference.py",
                    "SAGEMAKER_MODEL_SERVER_WORKERS": str(WORKERS),
                    "OMP_NUM_THREADS": "4",
                },
            ),
        )
        # Without this the model may be made before the role can read the archive.
        for grant in grants:
            grant.apply_before(model)
        configuration = sagemaker.CfnEndpointConfig(
            self,
            "Configuration",
            production_variants=[
                sagemaker.CfnEndpointConfig.ProductionVariantProperty(
                    variant_name=VARIANT,
                    model_name=model.attr_model_name,
                    instance_type=instance_type,
                    initial_instance_count=instance_count,
                    initial_variant_weight=1,
                    container_startup_health_check_timeout_in_seconds=startup_seconds,
                )
            ],
        )
        self.endpoint = sagemaker.CfnEndpoint(
            self,
            "Endpoint",
            endpoint_name=endpoint_name,
            endpoint_config_name=configuration.attr_endpoint_config_name,
        )
        self.configuration_name = configuration.attr_endpoint_config_name
        conditional: tuple[CfnResource, ...] = (model, configuration, self.endpoint)
        for resource in conditional:
            resource.cfn_options.condition = self.has_model

    def _repository(self, image: EcrImage) -> ecr.IRepository:
        return ecr.Repository.from_repository_attributes(
            self,
            "Image",
            repository_name=image.repository,
            repository_arn=(
                f"arn:{Aws.PARTITION}:ecr:{image.region}:{image.account}:repository/{image.repository}"
            ),
        )

    def _grant_logs_and_metrics(self) -> iam.Grant:
        logs = Stack.of(self).format_arn(
            service="logs",
            resource="log-group",
            resource_name="/aws/sagemaker/Endpoints/*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        iam.Grant.add_to_principal(
            grantee=self.execution_role,
            actions=["cloudwatch:PutMetricData"],
            resource_arns=["*"],
        )
        return iam.Grant.add_to_principal(
            grantee=self.execution_role,
            actions=["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"],
            resource_arns=[logs],
        )
