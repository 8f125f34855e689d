"""The network of an environment."""

from __future__ import annotations

from typing import Any

import jsii
from aws_cdk import CfnOutput, Stack
from constructs import Construct

from ultracluster.network import ClusterNetwork
from ultracluster.settings import Settings


class NetworkStack(Stack):
    """VPC, subnets, NAT, gateway endpoints and the cluster's security group."""

    def __init__(
        self, scope: Construct, construct_id: str, *, settings: Settings, **kwargs: Any
    ) -> None:
        self._az_id = settings.network.accelerator_az_id
        super().__init__(scope, construct_id, **kwargs)
        self.network = ClusterNetwork(
            self, "Network", az_id=self._az_id, cidr=settings.network.cidr
        )
        CfnOutput(self, "VpcId", value=self.network.vpc.vpc_id)
        CfnOutput(self, "PrivateSubnetId", value=self.network.private_subnet.subnet_id)

    @property
    @jsii.member(jsii_name="availabilityZones")
    def availability_zones(self) -> list[str]:
        """The accelerator's AZ id alone: with an account set, CDK would look zones up instead."""
        return [self._az_id]
