"""Clusters for the tests of the ParallelCluster provider: what they stand on, and their parts."""

from __future__ import annotations

import copy
import itertools
from typing import Any

from operations.emulator.parallelcluster import TEMPLATE_KEY, bucket_name

REGION = "us-west-2"
SSM_CORE = "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"
QUEUE = "Scheduling.SlurmQueues.0"  # for `changed`
_numbers = itertools.count(1)


def subnet(cidr: str, zone: str) -> dict[str, Any]:
    return {
        "Type": "AWS::EC2::Subnet",
        "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": cidr, "AvailabilityZoneId": zone},
    }


NETWORK: dict[str, Any] = {
    "Vpc": {
        "Type": "AWS::EC2::VPC",
        "Properties": {
            "CidrBlock": "10.0.0.0/16",
            "EnableDnsSupport": True,
            "EnableDnsHostnames": True,
        },
    },
    "Subnet": subnet("10.0.16.0/20", "usw2-az4"),
    "OtherZone": subnet("10.0.32.0/20", "usw2-az2"),
    "Group": {
        "Type": "AWS::EC2::SecurityGroup",
        "Properties": {"GroupDescription": "nodes", "VpcId": {"Ref": "Vpc"}},
    },
    "FileSystem": {
        "Type": "AWS::FSx::FileSystem",
        "Properties": {
            "FileSystemType": "LUSTRE",
            "StorageCapacity": 1200,
            "SubnetIds": [{"Ref": "Subnet"}],
            "LustreConfiguration": {"DeploymentType": "SCRATCH_2"},
        },
    },
    "Provider": {
        "Type": "AWS::CloudFormation::Stack",
        "Properties": {
            "TemplateURL": {
                "Fn::Sub": f"https://{bucket_name(REGION)}.s3.{REGION}.${{AWS::URLSuffix}}/"
                f"{TEMPLATE_KEY}"
            },
            "Parameters": {"AdditionalIamPolicies": SSM_CORE},
        },
    },
}
NETWORK_OUTPUTS = {
    name: {"Value": {"Ref": name}} for name in ("Subnet", "OtherZone", "Group", "FileSystem")
} | {
    name: {"Value": {"Fn::GetAtt": ["Provider", f"Outputs.{name}"]}}
    for name in ("ServiceToken", "LogGroupArn", "LambdaLayerArn")
}


def configuration(network: dict[str, str]) -> dict[str, Any]:
    """A cluster as the product makes it."""
    groups = [network["Group"]]
    return {
        "Image": {"Os": "alinux2023"},
        "HeadNode": {
            "InstanceType": "m6i.xlarge",
            "Networking": {"SubnetId": network["Subnet"], "AdditionalSecurityGroups": groups},
            "Iam": {"AdditionalIamPolicies": [{"Policy": SSM_CORE}]},
        },
        "Scheduling": {
            "Scheduler": "slurm",
            "SlurmSettings": {"QueueUpdateStrategy": "DRAIN"},
            "SlurmQueues": [queue(network, "trn1")],
        },
        "SharedStorage": [
            {
                "Name": "fsx",
                "MountDir": "/fsx",
                "StorageType": "FsxLustre",
                "FsxLustreSettings": {"FileSystemId": network["FileSystem"]},
            }
        ],
        "Monitoring": {"Logs": {"CloudWatch": {"DeletionPolicy": "Delete"}}},
    }


def queue(network: dict[str, str], name: str, *, efa: bool = True) -> dict[str, Any]:
    return {
        "Name": name,
        "JobExclusiveAllocation": True,
        "ComputeResources": [
            {
                "Name": f"{name}-nodes",
                "InstanceType": "trn1.32xlarge",
                "MinCount": 0,
                "MaxCount": 2,
                "Efa": {"Enabled": efa},
            }
        ],
        "Networking": {
            "SubnetIds": [network["Subnet"]],
            "AdditionalSecurityGroups": [network["Group"]],
            "PlacementGroup": {"Enabled": True},
        },
        "Iam": {
            "AdditionalIamPolicies": [{"Policy": SSM_CORE}],
            "S3Access": [
                {
                    "BucketName": bucket_name(REGION),
                    "KeyName": "models/sentiment/*",
                    "EnableWriteAccess": True,
                }
            ],
        },
    }


def cluster(
    network: dict[str, str], name: str, config: dict[str, Any], **properties: Any
) -> dict[str, Any]:
    """The resources of a stack that makes one cluster."""
    return {
        "Cluster": {
            "Type": "Custom::PclusterCluster",
            "Properties": {
                "ServiceToken": network["ServiceToken"],
                "ClusterName": name,
                "ClusterConfiguration": config,
                **properties,
            },
        }
    }


def asking(*attributes: str) -> dict[str, Any]:
    """Outputs of the cluster's attributes, under names without a dot."""
    return {
        attribute.replace(".", ""): {"Value": {"Fn::GetAtt": ["Cluster", attribute]}}
        for attribute in attributes
    }


def new_name() -> str:
    return f"cluster-{next(_numbers)}"


def changed(config: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with another value at a dotted path; None removes what is there."""
    result = copy.deepcopy(config)
    *parents, last = (int(part) if part.isdigit() else part for part in path.split("."))
    inner: Any = result
    for part in parents:
        inner = inner.setdefault(part, {}) if isinstance(part, str) else inner[part]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return result
