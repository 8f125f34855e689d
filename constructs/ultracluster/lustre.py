"""The shared file system of the cluster."""

from __future__ import annotations

from aws_cdk import CfnDeletionPolicy, RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_s3 as s3
from constructs import Construct

DATA_PATH = "/data"
# Lustre talks on 988 and 1018-1023, between clients and servers and among servers
# (FSx for Lustre User Guide, "File system access control with Amazon VPC").
LUSTRE_PORTS = (ec2.Port.tcp(988), ec2.Port.tcp_range(1018, 1023))


class LustreFileSystem(Construct):
    """An FSx for Lustre file system whose `/data` mirrors `data/` of a bucket.

    Args:
        clients: security group of the nodes that mount it.
        capacity_gib: GiB, 1200 or a multiple of 2400.
        throughput_mb_per_tib: MB/s for each TiB, PERSISTENT_2 only.
        data_bucket: bucket behind `/data`; new and changed files go both ways, deletions neither.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        vpc: ec2.IVpc,
        subnet: ec2.ISubnet,
        clients: ec2.ISecurityGroup,
        deployment_type: str,
        capacity_gib: int,
        throughput_mb_per_tib: int | None,
        data_bucket: s3.IBucket,
    ) -> None:
        super().__init__(scope, construct_id)
        group = ec2.SecurityGroup(
            self, "SecurityGroup", vpc=vpc, description="FSx for Lustre", allow_all_outbound=False
        )
        for port in LUSTRE_PORTS:
            group.add_ingress_rule(clients, port, "Lustre from the cluster")
            group.add_egress_rule(clients, port, "Lustre to the cluster")
            group.add_ingress_rule(group, port, "Lustre among servers")
            group.add_egress_rule(group, port, "Lustre among servers")
        self.file_system = fsx.LustreFileSystem(
            self,
            "FileSystem",
            vpc=vpc,
            vpc_subnet=subnet,
            security_group=group,
            storage_capacity_gib=capacity_gib,
            file_system_type_version=fsx.FileSystemTypeVersion.V_2_15,
            lustre_configuration=fsx.LustreConfiguration(
                deployment_type=fsx.LustreDeploymentType[deployment_type],
                data_compression_type=fsx.LustreDataCompressionType.LZ4,
                per_unit_storage_throughput=throughput_mb_per_tib,
            ),
            removal_policy=RemovalPolicy.DESTROY,
        )
        resource = self.file_system.node.default_child
        if not isinstance(resource, fsx.CfnFileSystem):
            raise TypeError(f"{self.file_system.node.path} holds no AWS::FSx::FileSystem")
        # Destroyed on request, but never because an edit replaces it: its data is there.
        resource.cfn_options.update_replace_policy = CfnDeletionPolicy.RETAIN

        both_ways = ["NEW", "CHANGED"]
        association = fsx.CfnDataRepositoryAssociation
        self.data_link = association(
            self,
            "DataLink",
            file_system_id=self.file_system.file_system_id,
            file_system_path=DATA_PATH,
            data_repository_path=data_bucket.s3_url_for_object("data"),
            batch_import_meta_data_on_create=True,
            s3=association.S3Property(
                auto_import_policy=association.AutoImportPolicyProperty(events=both_ways),
                auto_export_policy=association.AutoExportPolicyProperty(events=both_ways),
            ),
        )
        # The link goes before the bucket is emptied, so that nothing writes to it meanwhile.
        self.data_link.node.add_dependency(data_bucket)
