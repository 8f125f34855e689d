"""Everything that holds data, and the role that outlives what it deploys."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnOutput, CrossStackReferences, ReferenceStrength, RemovalPolicy, Stack
from constructs import Construct

from ultracluster.endpoint import execution_role_path
from ultracluster.endpoint_role import EndpointServiceRole
from ultracluster.lustre import LustreFileSystem
from ultracluster.model_bucket import ModelBucket, PrivateBucket
from ultracluster.network import ClusterNetwork
from ultracluster.settings import Settings


class StorageStack(Stack):
    """Model bucket, data bucket, Lustre file system, and the Endpoint stack's service role."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        network: ClusterNetwork,
        **kwargs: Any,
    ) -> None:
        super().__init__(scope, construct_id, **kwargs)
        # A replaced producer must be refused, never hide behind a consumer with its old id.
        CrossStackReferences.of(self).consume(ReferenceStrength.STRONG)
        removal = RemovalPolicy.DESTROY if settings.retention == "destroy" else RemovalPolicy.RETAIN
        self.models = ModelBucket(self, "Models", removal_policy=removal)
        self.data = PrivateBucket(self, "Data", removal_policy=removal)
        self.lustre = LustreFileSystem(
            self,
            "Lustre",
            vpc=network.vpc,
            subnet=network.private_subnet,
            clients=network.security_group,
            deployment_type=settings.lustre.deployment_type,
            capacity_gib=settings.lustre.capacity_gib,
            throughput_mb_per_tib=settings.lustre.throughput_mb_per_tib,
            data_bucket=self.data,
        )
        # Here and not in the Endpoint stack, which could not be deleted with a role it holds.
        self.endpoint_role = EndpointServiceRole(
            self,
            "EndpointRole",
            endpoint_name=settings.prefix,
            execution_role_path=execution_role_path(settings.prefix),
        )
        CfnOutput(self, "ModelBucket", value=self.models.bucket_name)
        CfnOutput(self, "DataBucket", value=self.data.bucket_name)
        CfnOutput(self, "FileSystemId", value=self.lustre.file_system.file_system_id)
