"""The network of an environment."""

from __future__ import annotations

from typing import Any

import jsii
from aws_cdk import CfnOutput, Stack
from constructs import Construct

from ultracluster.network import ClusterNetwork, ImportedNetwork, NewNetwork
from ultracluster.private_access import interface_services
from ultracluster.retention import log_retention, removal_policy
from ultracluster.settings import Settings


class NetworkStack(Stack):
    """VPC, subnets, NAT or interface endpoints, and the cluster's security group."""

    def __init__(
        self, scope: Construct, construct_id: str, *, settings: Settings, **kwargs: Any
    ) -> None:
        network = settings.network
        second = [network.second_az_id] if network.second_az_id else []
        self._az_ids = [network.accelerator_az_id, *second]
        super().__init__(scope, construct_id, **kwargs)
        self.network = self._network(settings)
        if not network.nat:
            self.network.add_interface_endpoints(interface_services(settings), cidr=network.cidr)
        if network.imported is None and self.network.public_subnet is not None:
            # Exported whether the head node is public or not: an export that went with that choice
            # could not be taken back while the deployed cluster still imports it.
            self.export_value(self.network.public_subnet.subnet_id)
        CfnOutput(self, "VpcId", value=self.network.vpc.vpc_id)
        CfnOutput(self, "PrivateSubnetId", value=self.network.private_subnet.subnet_id)

    def _network(self, settings: Settings) -> ClusterNetwork:
        network = settings.network
        if network.imported is None:
            made = NewNetwork(
                self,
                "Network",
                az_ids=self._az_ids,
                cidr=network.cidr,
                private_mask=network.private_mask,
                nat=network.nat,
                public=settings.cluster.head_node.public,
                keep=network.keep,
            )
            if network.flow_logs:
                made.add_flow_log(
                    days=log_retention(settings), removal_policy=removal_policy(settings)
                )
            return made
        imported = network.imported
        subnet_ids = (imported.private_subnet_id, imported.second_private_subnet_id)
        return ImportedNetwork(
            self,
            "Network",
            vpc_id=imported.vpc_id,
            cidr=network.cidr,
            private_subnet_ids={
                az_id: subnet_id
                for az_id, subnet_id in zip(self._az_ids, subnet_ids, strict=False)
                if subnet_id
            },
            route_table_id=imported.private_route_table_id,
            public_subnet_id=imported.public_subnet_id,
            keep=settings.lustre.keep,
        )

    @property
    @jsii.member(jsii_name="availabilityZones")
    def availability_zones(self) -> list[str]:
        """The configured AZ ids: with an account set, CDK would look zones up instead."""
        return self._az_ids
