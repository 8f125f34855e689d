"""The VPC around the accelerators."""

from __future__ import annotations

from aws_cdk import aws_ec2 as ec2
from constructs import Construct


class ClusterNetwork(Construct):
    """A public and a private subnet in the accelerator's AZ, with a NAT gateway between them.

    The stack that holds it must return the AZ id as its only `availability_zones`: subnets are
    placed by id, which names the same zone in every account.
    """

    def __init__(self, scope: Construct, construct_id: str, *, az_id: str, cidr: str) -> None:
        super().__init__(scope, construct_id)
        self.vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(cidr),
            max_azs=1,
            nat_gateways=1,
            subnet_configuration=[
                ec2.SubnetConfiguration(
                    name="Public", subnet_type=ec2.SubnetType.PUBLIC, cidr_mask=26
                ),
                ec2.SubnetConfiguration(
                    name="Private", subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS, cidr_mask=23
                ),
            ],
            # The custom resource behind it outlives its own log group on destroy.
            restrict_default_security_group=False,
            # Keeps training data and checkpoints off the NAT gateway's bill.
            gateway_endpoints={
                "S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3),
                "DynamoDb": ec2.GatewayVpcEndpointOptions(
                    service=ec2.GatewayVpcEndpointAwsService.DYNAMODB
                ),
            },
        )
        for subnet in (*self.vpc.public_subnets, *self.vpc.private_subnets):
            resource = subnet.node.default_child
            if not isinstance(resource, ec2.CfnSubnet):
                raise TypeError(f"{subnet.node.path} holds no AWS::EC2::Subnet")
            resource.availability_zone_id = az_id
            resource.add_property_deletion_override("AvailabilityZone")

        self.security_group = ec2.SecurityGroup(
            self,
            "ClusterSecurityGroup",
            vpc=self.vpc,
            description="Every node of the cluster",
        )
        # EFA traffic is matched only by rules that name the group itself, both ways.
        ec2.CfnSecurityGroupIngress(
            self,
            "EfaIn",
            group_id=self.security_group.security_group_id,
            source_security_group_id=self.security_group.security_group_id,
            ip_protocol="-1",
            description="EFA between nodes",
        )
        ec2.CfnSecurityGroupEgress(
            self,
            "EfaOut",
            group_id=self.security_group.security_group_id,
            destination_security_group_id=self.security_group.security_group_id,
            ip_protocol="-1",
            description="EFA between nodes",
        )

    @property
    def public_subnet(self) -> ec2.ISubnet:
        """The subnet of the NAT gateway."""
        return self.vpc.public_subnets[0]

    @property
    def private_subnet(self) -> ec2.ISubnet:
        """The subnet of the head node, the accelerators and the file system."""
        return self.vpc.private_subnets[0]
