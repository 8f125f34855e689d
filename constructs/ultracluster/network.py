"""The VPC around the accelerators, made here or imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aws_cdk import Annotations, RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs
from constructs import Construct

PUBLIC_MASK = 26


class ClusterNetwork(Construct):
    """Where nodes, file system and endpoints live, and the security group of every node.

    Attributes:
        vpc: the VPC.
        private_subnets: by AZ id, the accelerators' zone first.
        public_subnet: for a public head node, where there is one.
        security_group: every node of the cluster is in it.
    """

    vpc: ec2.IVpc
    private_subnets: Mapping[str, ec2.ISubnet]
    public_subnet: ec2.ISubnet | None
    security_group: ec2.SecurityGroup

    @property
    def private_subnet(self) -> ec2.ISubnet:
        """The subnet of the accelerators."""
        return next(iter(self.private_subnets.values()))

    def add_interface_endpoints(self, services: Iterable[str], *, cidr: str) -> None:
        """Reach AWS services from the private subnets without a way out.

        Args:
            services: last parts of their endpoints' names, such as `ec2` or `ecr.api`.
            cidr: range of the VPC.
        """
        group = ec2.SecurityGroup(
            self,
            "EndpointSecurityGroup",
            vpc=self.vpc,
            description="Interface endpoints",
            allow_all_outbound=False,
        )
        # The whole VPC: ParallelCluster gives log-in and head nodes groups of their own.
        group.add_ingress_rule(ec2.Peer.ipv4(cidr), ec2.Port.tcp(443), "HTTPS from the VPC")
        for service in services:
            ec2.InterfaceVpcEndpoint(
                self,
                "".join(part.capitalize() for part in service.split(".")) + "Endpoint",
                vpc=self.vpc,
                service=ec2.InterfaceVpcEndpointAwsService(service),
                subnets=ec2.SubnetSelection(subnets=[self.private_subnet]),
                security_groups=[group],
                open=False,
            )

    def _add_security_group(self, *, keep: bool) -> None:
        self.security_group = ec2.SecurityGroup(
            self, "ClusterSecurityGroup", vpc=self.vpc, description="Every node of the cluster"
        )
        if keep:
            self.security_group.apply_removal_policy(RemovalPolicy.RETAIN)
        # EFA traffic is matched only by rules that name the group itself, both ways.
        own = self.security_group.security_group_id
        ec2.CfnSecurityGroupIngress(
            self,
            "EfaIn",
            group_id=own,
            source_security_group_id=own,
            ip_protocol="-1",
            description="EFA between nodes",
        )
        ec2.CfnSecurityGroupEgress(
            self,
            "EfaOut",
            group_id=own,
            destination_security_group_id=own,
            ip_protocol="-1",
            description="EFA between nodes",
        )


class NewNetwork(ClusterNetwork):
    """A public and a private subnet in each zone, with one NAT gateway or without any way out.

    The stack that holds it must return the AZ ids as its `availability_zones`: subnets are placed
    by id, which names the same zone in every account.

    Args:
        az_ids: the accelerators' zone first.
        cidr: IPv4 range.
        private_mask: prefix length of a private subnet.
        nat: a NAT gateway in the accelerators' zone.
        public: public subnets although there is no NAT gateway.
        keep: keep VPC, subnets and security group when the stack goes.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        az_ids: Sequence[str],
        cidr: str,
        private_mask: int,
        nat: bool,
        public: bool,
        keep: bool,
    ) -> None:
        super().__init__(scope, construct_id)
        kind = ec2.SubnetType.PRIVATE_WITH_EGRESS if nat else ec2.SubnetType.PRIVATE_ISOLATED
        vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(cidr),
            max_azs=len(az_ids),
            nat_gateways=1 if nat else 0,
            subnet_configuration=[
                ec2.SubnetConfiguration(
                    name="Public",
                    subnet_type=ec2.SubnetType.PUBLIC,
                    cidr_mask=PUBLIC_MASK,
                    map_public_ip_on_launch=False,
                    # Its range is kept free: private subnets stay where they are.
                    reserved=not (nat or public),
                ),
                ec2.SubnetConfiguration(name="Private", subnet_type=kind, cidr_mask=private_mask),
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
        self.vpc = vpc
        private = vpc.private_subnets if nat else vpc.isolated_subnets
        self.private_subnets = dict(zip(az_ids, private, strict=True))
        self.public_subnet = vpc.public_subnets[0] if nat or public else None
        for subnets in (vpc.public_subnets, private):
            for az_id, subnet in zip(az_ids, subnets, strict=False):
                resource = subnet.node.default_child
                if not isinstance(resource, ec2.CfnSubnet):
                    raise TypeError(f"{subnet.node.path} holds no AWS::EC2::Subnet")
                resource.availability_zone_id = az_id
                resource.add_property_deletion_override("AvailabilityZone")
                if keep:
                    resource.apply_removal_policy(RemovalPolicy.RETAIN)
        if keep:
            vpc.apply_removal_policy(RemovalPolicy.RETAIN)
        self._add_security_group(keep=keep)

    def add_flow_log(self, *, days: logs.RetentionDays, removal_policy: RemovalPolicy) -> None:
        """Write accepted and rejected connections to a log group."""
        group = logs.LogGroup(self, "FlowLogGroup", retention=days, removal_policy=removal_policy)
        ec2.FlowLog(
            self,
            "FlowLog",
            resource_type=ec2.FlowLogResourceType.from_vpc(self.vpc),
            destination=ec2.FlowLogDestination.to_cloud_watch_logs(group),
        )


class ImportedNetwork(ClusterNetwork):
    """Subnets of a VPC that exists already, and the cluster's own security group in it.

    Args:
        private_subnet_ids: by AZ id, the accelerators' zone first.
        route_table_id: gets S3 and DynamoDB gateway endpoints; None where it has them.
        keep: keep the security group when the stack goes.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        vpc_id: str,
        cidr: str,
        private_subnet_ids: Mapping[str, str],
        route_table_id: str | None,
        public_subnet_id: str | None,
        keep: bool,
    ) -> None:
        super().__init__(scope, construct_id)
        # Route tables matter to gateway endpoints alone, and those name theirs below.
        Annotations.of(self).acknowledge_warning("@aws-cdk/aws-ec2:noSubnetRouteTableId")
        self.vpc = ec2.Vpc.from_vpc_attributes(
            self,
            "Vpc",
            vpc_id=vpc_id,
            vpc_cidr_block=cidr,
            availability_zones=list(private_subnet_ids),
            private_subnet_ids=list(private_subnet_ids.values()),
        )
        self.private_subnets = {
            az_id: ec2.Subnet.from_subnet_attributes(
                self,
                f"PrivateSubnet{number}",
                subnet_id=subnet_id,
                availability_zone=az_id,
                route_table_id=route_table_id if number == 1 else None,
            )
            for number, (az_id, subnet_id) in enumerate(private_subnet_ids.items(), start=1)
        }
        self.public_subnet = (
            ec2.Subnet.from_subnet_id(self, "PublicSubnet", public_subnet_id)
            if public_subnet_id
            else None
        )
        if route_table_id is not None:
            for name, service in (
                ("S3", ec2.GatewayVpcEndpointAwsService.S3),
                ("DynamoDb", ec2.GatewayVpcEndpointAwsService.DYNAMODB),
            ):
                ec2.GatewayVpcEndpoint(
                    self,
                    name,
                    vpc=self.vpc,
                    service=service,
                    subnets=[ec2.SubnetSelection(subnets=[self.private_subnet])],
                )
        self._add_security_group(keep=keep)
