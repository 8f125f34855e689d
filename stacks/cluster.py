"""The Slurm cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aws_cdk import CfnOutput, CrossStackReferences, ReferenceStrength, Stack
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.storage import StorageStack
from ultracluster.catalog import Catalog
from ultracluster.cluster import TrainiumCluster
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
        catalog: Catalog,
        code: Path,
        **kwargs: Any,
    ) -> None:
        super().__init__(scope, construct_id, **kwargs)
        # A replaced producer must be refused, never hide behind a consumer with its old id.
        CrossStackReferences.of(self).consume(ReferenceStrength.STRONG)
        self.cluster = TrainiumCluster(
            self,
            "Trainium",
            settings=settings,
            catalog=catalog,
            code=code,
            head_subnet=_head_subnet(settings, network),
            subnets=network.private_subnets,
            security_group=network.security_group,
            file_system_id=storage.lustre.file_system.file_system_id,
            models=storage.models,
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


def _head_subnet(settings: Settings, network: ClusterNetwork) -> ec2.ISubnet:
    private = network.private_subnets[settings.network.accelerator_az_id]
    if not settings.cluster.head_node.public:
        return private
    if network.public_subnet is None:
        raise ValueError("a public head node needs a public subnet")
    return network.public_subnet
