"""The Trainium cluster, made by AWS ParallelCluster's own CloudFormation provider."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aws_cdk import Aws, CfnStack, CustomResource, Fn, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_s3 as s3
from constructs import Construct

from ultracluster.boot_files import BootFiles, facts_digest
from ultracluster.catalog import Catalog
from ultracluster.cluster_configuration import NodePolicies, Places, cluster_configuration
from ultracluster.cluster_guard import ClusterGuard
from ultracluster.cluster_policies import ClusterPolicies
from ultracluster.platform import platform_facts
from ultracluster.retention import log_retention
from ultracluster.settings import Settings

# ParallelCluster makes a stack of the cluster's own name, which must differ from ours.
CLUSTER_NAME_LIMIT = 60
ACCOUNTING_NAME_LIMIT = 40


class TrainiumCluster(Construct):
    """A Slurm cluster, with what its nodes run at boot and what guards its name.

    Args:
        settings: the environment.
        catalog: facts about AWS.
        code: folder of the functions.
        head_subnet: subnet of the head node.
        subnets: private subnets of the nodes, by AZ id.
        security_group: added to every node.
        file_system_id: FSx for Lustre, mounted at /fsx.
        models: bucket whose `models/<model_name>/` the compute nodes may write.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        catalog: Catalog,
        code: Path,
        head_subnet: ec2.ISubnet,
        subnets: Mapping[str, ec2.ISubnet],
        security_group: ec2.ISecurityGroup,
        file_system_id: str,
        models: s3.IBucket,
    ) -> None:
        super().__init__(scope, construct_id)
        self.name = settings.prefix
        limit = ACCOUNTING_NAME_LIMIT if settings.cluster.accounting else CLUSTER_NAME_LIMIT
        if len(self.name) > limit:
            raise ValueError(f"cluster name {self.name!r} is longer than {limit}")

        def facts(model_bucket: str) -> dict[str, Any]:
            return platform_facts(
                settings, catalog=catalog, model_bucket=model_bucket, node_type=None
            )

        boot = BootFiles(
            self,
            "Boot",
            code=code,
            settings=settings,
            catalog=catalog,
            facts=facts(models.bucket_name),
            facts_digest=facts_digest(facts("")),
        )
        policies = ClusterPolicies(
            self, "Policies", settings=settings, boot=boot.bucket, models=models
        )
        self.configuration = cluster_configuration(
            settings,
            catalog,
            places=Places(
                head_subnet=head_subnet.subnet_id,
                subnets={az_id: subnet.subnet_id for az_id, subnet in subnets.items()},
                security_group=security_group.security_group_id,
                file_system=file_system_id,
                model_bucket=models.bucket_name,
                boot_bucket=boot.bucket.bucket_name,
            ),
            actions=boot.actions,
            policies=NodePolicies(
                head=policies.head_node, login=policies.login_nodes, node=policies.compute_nodes
            ),
        )
        provider = self._provider(settings, policies.provider)
        # The provider refuses any property it does not know, ServiceTimeout included, and
        # RollbackOnFailure in every later update.
        properties: dict[str, Any] = {
            "ClusterName": self.name,
            "ClusterConfiguration": self.configuration,
        }
        if not settings.cluster.rollback_on_failure:
            properties["RollbackOnFailure"] = False
        self.resource = CustomResource(
            self,
            "Cluster",
            resource_type="Custom::PclusterCluster",
            service_token=provider.get_att("Outputs.ServiceToken").to_string(),
            properties=properties,
        )
        guard = ClusterGuard(
            self,
            "Guard",
            code=code,
            cluster=self.name,
            cluster_resource=self._logical_id(),
            security_group=security_group,
            log_retention=log_retention(settings),
        )
        # Made before the cluster and deleted after it.
        self.resource.node.add_dependency(guard, boot)

    @property
    def head_node_id(self) -> str:
        """EC2 instance id of the head node."""
        return self.resource.get_att_string("headNode.instanceId")

    def _provider(self, settings: Settings, policies: list[str]) -> CfnStack:
        """ParallelCluster's provider, whose version is the cluster's; one for each cluster."""
        region = settings.aws.region
        provider = CfnStack(
            self,
            "Provider",
            template_url=(
                f"https://{region}-aws-parallelcluster.s3.{region}.{Aws.URL_SUFFIX}/parallelcluster/"
                f"{settings.cluster.version}/templates/custom_resource/cluster.yaml"
            ),
            parameters={"AdditionalIamPolicies": Fn.join(",", policies)},
        )
        provider.apply_removal_policy(RemovalPolicy.DESTROY)
        return provider

    def _logical_id(self) -> str:
        resource = self.resource.node.default_child
        if resource is None:
            raise TypeError(f"{self.resource.node.path} holds no resource")
        return Stack.of(self).get_logical_id(resource)  # type: ignore[arg-type]
