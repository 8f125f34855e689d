"""Everything that holds data, and the role that outlives what it deploys."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnOutput, CrossStackReferences, ReferenceStrength, RemovalPolicy, Stack
from aws_cdk import aws_s3 as s3
from constructs import Construct

from ultracluster.data_key import DataKey
from ultracluster.endpoint_role import EndpointServiceRole
from ultracluster.execution_role import execution_role_path
from ultracluster.lustre import BucketLink, LustreFileSystem
from ultracluster.model_bucket import ModelBucket, PrivateBucket
from ultracluster.network import ClusterNetwork
from ultracluster.retention import removal_policy
from ultracluster.settings import Link, Settings

STAYS = (
    "Stays when the stack goes; to remove it, delete every version of every object, then the bucket"
)


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
        lustre = settings.lustre
        removal = removal_policy(settings)
        keyed = settings.buckets.customer_key or lustre.customer_key
        # A kept file system cannot be read without its key.
        self.key = (
            DataKey(self, "Key", removal_policy=RemovalPolicy.RETAIN if lustre.keep else removal)
            if keyed
            else None
        )
        bucket_key = self.key if settings.buckets.customer_key else None
        if self.key is not None and bucket_key is not None and lustre.links:
            self.key.grant_lustre_links()
        days = settings.buckets.noncurrent_days
        self.models = ModelBucket(
            self, "Models", removal_policy=removal, noncurrent_days=days, key=bucket_key
        )
        self.data = PrivateBucket(
            self, "Data", removal_policy=removal, noncurrent_days=days, key=bucket_key
        )
        self.lustre = LustreFileSystem(
            self,
            "Lustre",
            vpc=network.vpc,
            subnet=network.private_subnets[lustre.az_id]
            if lustre.az_id
            else network.private_subnet,
            clients=network.security_group,
            deployment_type=lustre.deployment_type,
            storage_type=lustre.storage_type,
            capacity_gib=lustre.capacity_gib,
            throughput_mb_per_tib=lustre.throughput_mb_per_tib,
            version=lustre.version,
            compression=lustre.compression,
            key=self.key if lustre.customer_key else None,
            backup_days=lustre.backup_days,
            keep=lustre.keep,
            links=[self._link(link) for link in lustre.links],
        )
        # Here and not in the Endpoint stack, which could not be deleted with a role it holds.
        self.endpoint_role = EndpointServiceRole(
            self,
            "EndpointRole",
            endpoint_name=settings.prefix,
            execution_role_path=execution_role_path(settings.prefix),
            named_stacks=[
                self.stack_name,
                *([f"{settings.prefix}-network"] if settings.endpoint.vpc else []),
            ],
        )
        stays = STAYS if settings.keeps_data else None
        CfnOutput(self, "ModelBucket", value=self.models.bucket_name, description=stays)
        CfnOutput(self, "DataBucket", value=self.data.bucket_name, description=stays)
        CfnOutput(self, "FileSystemId", value=self.lustre.file_system.file_system_id)

    def _link(self, link: Link) -> BucketLink:
        bucket = (
            s3.Bucket.from_bucket_name(self, f"Bucket{link.path}", link.bucket)
            if link.bucket
            else self.data
        )
        return BucketLink(
            path=link.path,
            bucket=bucket,
            prefix=link.prefix,
            import_events=link.import_events,
            export_events=link.export_events,
        )
