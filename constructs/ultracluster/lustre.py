"""The shared file system of the cluster."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import CfnDeletionPolicy, Duration, RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

# Lustre talks on 988 and 1018-1023, between clients and servers and among servers
# (FSx for Lustre User Guide, "File system access control with Amazon VPC").
LUSTRE_PORTS = (ec2.Port.tcp(988), ec2.Port.tcp_range(1018, 1023))
_PORT_RANGES = ((988, 988), (1018, 1023))


@dataclass(frozen=True, kw_only=True)
class BucketLink:
    """A folder that mirrors a prefix of a bucket.

    Attributes:
        path: folder of the file system, such as `/data`.
        bucket: the bucket; one of this app is emptied only after the link has gone.
        prefix: without slashes at its ends; empty is the whole bucket.
        import_events: changes of the bucket that the folder follows.
        export_events: changes of the folder that the bucket follows.
    """

    path: str
    bucket: s3.IBucket
    prefix: str
    import_events: Sequence[str]
    export_events: Sequence[str]


class LustreFileSystem(Construct):
    """An FSx for Lustre file system in one subnet, with folders that mirror S3.

    Args:
        clients: security group of the nodes that mount it.
        capacity_gib: GiB, in the steps of the deployment type.
        throughput_mb_per_tib: MB/s for each TiB, PERSISTENT types only.
        version: Lustre version of the servers.
        key: encrypts it, PERSISTENT types only; None is a key of FSx.
        backup_days: days that automatic backups stay; 0 makes none.
        keep: keep file system and security group when the stack goes.
        links: in the order in which they are made.
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
        storage_type: str,
        capacity_gib: int,
        throughput_mb_per_tib: int | None,
        version: str,
        compression: bool,
        key: kms.IKey | None,
        backup_days: int,
        keep: bool,
        links: Sequence[BucketLink],
    ) -> None:
        super().__init__(scope, construct_id)
        removal = RemovalPolicy.RETAIN if keep else RemovalPolicy.DESTROY
        group = self._security_group(vpc, clients)
        group.apply_removal_policy(removal)
        self.file_system = fsx.LustreFileSystem(
            self,
            "FileSystem",
            vpc=vpc,
            vpc_subnet=subnet,
            security_group=group,
            storage_capacity_gib=capacity_gib,
            # Unset is SSD; the property replaces the file system once it is written.
            storage_type=fsx.StorageType.HDD if storage_type == "HDD" else None,
            file_system_type_version=fsx.FileSystemTypeVersion(f"V_{version.replace('.', '_')}"),
            kms_key=key,
            lustre_configuration=fsx.LustreConfiguration(
                deployment_type=fsx.LustreDeploymentType[deployment_type],
                data_compression_type=(
                    fsx.LustreDataCompressionType.LZ4
                    if compression
                    else fsx.LustreDataCompressionType.NONE
                ),
                per_unit_storage_throughput=throughput_mb_per_tib,
                drive_cache_type=fsx.DriveCacheType.NONE if storage_type == "HDD" else None,
                automatic_backup_retention=(
                    None if deployment_type.startswith("SCRATCH") else Duration.days(backup_days)
                ),
            ),
            removal_policy=removal,
        )
        resource = self.file_system.node.default_child
        if not isinstance(resource, fsx.CfnFileSystem):
            raise TypeError(f"{self.file_system.node.path} holds no AWS::FSx::FileSystem")
        # Destroyed on request, but never because an edit replaces it: its data is there.
        resource.cfn_options.update_replace_policy = CfnDeletionPolicy.RETAIN
        self._link(links)

    def _security_group(self, vpc: ec2.IVpc, clients: ec2.ISecurityGroup) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            self, "SecurityGroup", vpc=vpc, description="FSx for Lustre", allow_all_outbound=False
        )
        for port in LUSTRE_PORTS:
            group.add_ingress_rule(clients, port, "Lustre from the cluster")
            group.add_egress_rule(clients, port, "Lustre to the cluster")
            group.add_ingress_rule(group, port, "Lustre among servers")
            group.add_egress_rule(group, port, "Lustre among servers")
        for first, last in _PORT_RANGES:
            # In this stack, not in that of the clients' group, which must not name this one.
            ec2.CfnSecurityGroupIngress(
                self,
                f"ToClients{first}",
                group_id=clients.security_group_id,
                source_security_group_id=group.security_group_id,
                ip_protocol="tcp",
                from_port=first,
                to_port=last,
                description="Lustre from the servers",
            )
        return group

    def _link(self, links: Sequence[BucketLink]) -> None:
        """Associate buckets one after the other: FSx handles one change at a time."""
        association = fsx.CfnDataRepositoryAssociation
        before: fsx.CfnDataRepositoryAssociation | None = None
        for link in links:
            words = re.findall(r"\w+", link.path) or ["root"]
            made = association(
                self,
                "".join(word.capitalize() for word in words) + "Link",
                file_system_id=self.file_system.file_system_id,
                file_system_path=link.path,
                data_repository_path=link.bucket.s3_url_for_object(link.prefix or None),
                batch_import_meta_data_on_create=True,
                s3=association.S3Property(
                    auto_import_policy=association.AutoImportPolicyProperty(
                        events=list(link.import_events)
                    ),
                    auto_export_policy=association.AutoExportPolicyProperty(
                        events=list(link.export_events)
                    ),
                ),
            )
            # The link goes before its bucket is emptied, so that nothing writes there meanwhile.
            made.node.add_dependency(link.bucket)
            if before is not None:
                made.add_dependency(before)
            before = made
