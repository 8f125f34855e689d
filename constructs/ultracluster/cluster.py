"""The Trainium cluster, made by AWS ParallelCluster's own CloudFormation provider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import Aws, CfnStack, CustomResource, RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_s3 as s3
from constructs import Construct

from ultracluster.catalog import PARALLELCLUSTER_VERSION, instance_type

# ParallelCluster makes a stack of the cluster's own name, which must differ from ours, and takes
# 40 characters where Slurm accounting is on.
CLUSTER_NAME_LIMIT = 40
SSM_CORE = "iam::aws:policy/AmazonSSMManagedInstanceCore"


@dataclass(frozen=True, kw_only=True)
class SlurmQueue:
    """A queue of equal nodes; `min_count` of them always run, Slurm powers up to `max_count`."""

    name: str
    instance_type: str
    min_count: int
    max_count: int


class TrainiumCluster(Construct):
    """A Slurm cluster with a private head node, reached by Session Manager.

    Args:
        name: cluster name, at most 40 characters; also the name of the stack ParallelCluster makes.
        subnet: private subnet of the head node and of every queue.
        security_group: added to every node.
        file_system_id: FSx for Lustre, mounted at /fsx.
        models: bucket whose `models/<model_name>/` the compute nodes may write.
        keep_logs: keep CloudWatch logs when the cluster goes.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        region: str,
        os: str,
        head_node: str,
        queues: Sequence[SlurmQueue],
        subnet: ec2.ISubnet,
        security_group: ec2.ISecurityGroup,
        file_system_id: str,
        models: s3.IBucket,
        model_name: str,
        keep_logs: bool,
    ) -> None:
        super().__init__(scope, construct_id)
        if len(name) > CLUSTER_NAME_LIMIT:
            raise ValueError(f"cluster name {name!r} is longer than {CLUSTER_NAME_LIMIT}")
        self.name = name
        self.configuration = _configuration(
            os=os,
            head_node=head_node,
            queues=queues,
            subnet_id=subnet.subnet_id,
            security_group_id=security_group.security_group_id,
            file_system_id=file_system_id,
            bucket_name=models.bucket_name,
            model_prefix=f"models/{model_name}/*",
            keep_logs=keep_logs,
        )
        provider = CfnStack(
            self,
            "Provider",
            template_url=(
                f"https://{region}-aws-parallelcluster.s3.{region}.{Aws.URL_SUFFIX}/parallelcluster/"
                f"{PARALLELCLUSTER_VERSION}/templates/custom_resource/cluster.yaml"
            ),
        )
        provider.apply_removal_policy(RemovalPolicy.DESTROY)
        # The provider refuses any property it does not know, ServiceTimeout included.
        self.resource = CustomResource(
            self,
            "Cluster",
            resource_type="Custom::PclusterCluster",
            service_token=provider.get_att("Outputs.ServiceToken").to_string(),
            properties={"ClusterName": name, "ClusterConfiguration": self.configuration},
        )

    @property
    def head_node_id(self) -> str:
        """EC2 instance id of the head node."""
        return self.resource.get_att_string("headNode.instanceId")


def _configuration(
    *,
    os: str,
    head_node: str,
    queues: Sequence[SlurmQueue],
    subnet_id: str,
    security_group_id: str,
    file_system_id: str,
    bucket_name: str,
    model_prefix: str,
    keep_logs: bool,
) -> dict[str, Any]:
    """The cluster in ParallelCluster's own schema (AWS ParallelCluster User Guide, version 3)."""
    groups = [security_group_id]
    session_manager = [{"Policy": f"arn:{Aws.PARTITION}:{SSM_CORE}"}]
    return {
        "Image": {"Os": os},
        "HeadNode": {
            "InstanceType": head_node,
            "Networking": {"SubnetId": subnet_id, "AdditionalSecurityGroups": groups},
            "Iam": {"AdditionalIamPolicies": session_manager},
        },
        "Scheduling": {
            "Scheduler": "slurm",
            # Lets most queue changes be deployed while the head node runs.
            "SlurmSettings": {"QueueUpdateStrategy": "DRAIN"},
            "SlurmQueues": [
                {
                    "Name": queue.name,
                    "CapacityType": "ONDEMAND",
                    "JobExclusiveAllocation": True,
                    "ComputeResources": [_compute_resource(queue)],
                    "Networking": {
                        "SubnetIds": [subnet_id],
                        "AdditionalSecurityGroups": groups,
                        "PlacementGroup": {"Enabled": _has_efa(queue)},
                    },
                    "Iam": {
                        "AdditionalIamPolicies": session_manager,
                        "S3Access": [
                            {
                                "BucketName": bucket_name,
                                "KeyName": model_prefix,
                                "EnableWriteAccess": True,
                            }
                        ],
                    },
                }
                for queue in queues
            ],
        },
        "SharedStorage": [
            {
                "Name": "fsx",
                "MountDir": "/fsx",
                "StorageType": "FsxLustre",
                "FsxLustreSettings": {"FileSystemId": file_system_id},
            }
        ],
        "Monitoring": {
            "Logs": {"CloudWatch": {"DeletionPolicy": "Retain" if keep_logs else "Delete"}}
        },
    }


def _compute_resource(queue: SlurmQueue) -> dict[str, Any]:
    resource: dict[str, Any] = {
        "Name": f"{queue.name}-nodes"[:25].rstrip("-"),
        "InstanceType": queue.instance_type,
        "MinCount": queue.min_count,
        "MaxCount": queue.max_count,
    }
    if _has_efa(queue):
        resource["Efa"] = {"Enabled": True}
    return resource


def _has_efa(queue: SlurmQueue) -> bool:
    row = instance_type(queue.instance_type)
    return row is not None and row.efa_interfaces > 0
