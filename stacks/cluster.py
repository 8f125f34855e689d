"""The Slurm cluster."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnOutput, CrossStackReferences, ReferenceStrength, Stack
from constructs import Construct

from stacks.storage import StorageStack
from ultracluster.cluster import SlurmQueue, TrainiumCluster
from ultracluster.network import ClusterNetwork
from ultracluster.settings import Settings


class ClusterStack(Stack):
    """The ParallelCluster provider and the Trainium cluster it makes."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        network: ClusterNetwork,
        storage: StorageStack,
        **kwargs: Any,
    ) -> None:
        super().__init__(scope, construct_id, **kwargs)
        # A replaced producer must be refused, never hide behind a consumer with its old id.
        CrossStackReferences.of(self).consume(ReferenceStrength.STRONG)
        self.cluster = TrainiumCluster(
            self,
            "Trainium",
            name=settings.prefix,
            region=settings.aws.region,
            os=settings.cluster.os,
            head_node=settings.cluster.head_node.instance_type,
            queues=[
                SlurmQueue(
                    name=queue.name,
                    instance_type=queue.instance_type,
                    min_count=queue.min_count,
                    max_count=queue.max_count,
                )
                for queue in settings.cluster.queues
            ],
            subnet=network.private_subnet,
            security_group=network.security_group,
            file_system_id=storage.lustre.file_system.file_system_id,
            models=storage.models,
            model_name=settings.endpoint.model_name,
            keep_logs=settings.retention == "retain",
        )
        # Routes, NAT and the file system stay until the last node has gone.
        self.cluster.node.add_dependency(network.vpc, storage.lustre)
        CfnOutput(self, "ClusterName", value=self.cluster.name)
        CfnOutput(
            self,
            "LogIn",
            value=(
                f"aws ssm start-session --region {self.region} --target {self.cluster.head_node_id}"
            ),
            description="Opens a shell on the head node",
        )
