"""`[network]`: the VPC around the accelerators."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ultracluster.settings.section import AzId, Section

Cidr = Annotated[str, Field(pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}$")]
SubnetId = Annotated[str, Field(pattern=r"^subnet-([0-9a-f]{8}|[0-9a-f]{17})$")]


class ImportedVpc(Section):
    """`[network.imported]`: a VPC that exists already and stays when the environment goes."""

    vpc_id: str = Field(pattern=r"^vpc-([0-9a-f]{8}|[0-9a-f]{17})$")
    """Id of the VPC; `network.cidr` must be its IPv4 range."""
    private_subnet_id: SubnetId
    """Subnet of the nodes and the file system, in `network.accelerator_az_id`."""
    private_subnet_cidr: Cidr
    """Its range, from which the addresses for nodes are counted."""
    private_route_table_id: str | None = Field(
        default=None, pattern=r"^rtb-([0-9a-f]{8}|[0-9a-f]{17})$"
    )
    """Gets S3 and DynamoDB gateway endpoints; unset where it has them already."""
    public_subnet_id: SubnetId | None = None
    """Subnet of a public head node."""
    second_private_subnet_id: SubnetId | None = None
    """Private subnet in `network.second_az_id`."""
    dns_confirmed: bool = False
    """States that enableDnsSupport and enableDnsHostnames are on: Lustre is mounted by name."""


class Network(Section):
    """`[network]`: a public and a private subnet in the accelerator's availability zone."""

    accelerator_az_id: AzId
    """An AZ *id* such as usw2-az4: AZ names differ from account to account."""
    second_az_id: AzId | None = None
    """Another zone with a private subnet, for queues or an endpoint that name it."""
    cidr: str = Field(
        default="10.0.0.0/16", pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){3}/(1[6-9]|2[0-2])$"
    )
    """IPv4 range of the VPC, /16 to /22."""
    private_mask: int = Field(default=23, ge=17, le=26)
    """Size of a private subnet: /23 has 507 free addresses, /20 has 4091."""
    nat: bool = True
    """A NAT gateway for the private subnets; false makes interface endpoints instead."""
    flow_logs: bool = True
    """Writes accepted and rejected connections to CloudWatch, kept for `log_days`."""
    keep: bool = False
    """Keeps VPC, subnets and security groups on destroy, as a kept file system needs them."""
    imported: ImportedVpc | None = None
    """An own VPC instead of a new one."""
