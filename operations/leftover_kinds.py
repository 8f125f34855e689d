"""The kinds of things that bill or block: how each is listed, and what may stay of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Item = Mapping[str, Any]

_IMPLICIT_LOGS = re.compile(r"/aws/(lambda|sagemaker|codebuild)/|/aws/ssm/")
_STACK_STATES = (
    "CREATE_IN_PROGRESS", "CREATE_FAILED", "CREATE_COMPLETE", "ROLLBACK_IN_PROGRESS",
    "ROLLBACK_FAILED", "ROLLBACK_COMPLETE", "DELETE_IN_PROGRESS", "DELETE_FAILED",
    "UPDATE_IN_PROGRESS", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "UPDATE_COMPLETE",
    "UPDATE_FAILED", "UPDATE_ROLLBACK_IN_PROGRESS", "UPDATE_ROLLBACK_FAILED",
    "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS", "UPDATE_ROLLBACK_COMPLETE",
    "REVIEW_IN_PROGRESS", "IMPORT_IN_PROGRESS", "IMPORT_COMPLETE", "IMPORT_ROLLBACK_IN_PROGRESS",
    "IMPORT_ROLLBACK_FAILED", "IMPORT_ROLLBACK_COMPLETE",
)  # fmt: skip


def _nothing(item: Item) -> str:
    return ""


def _never(item: Item) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of thing.

    Attributes:
        name: What people call it.
        service: boto3's name of the service.
        operation: The client's method that lists it.
        items: Where the answer holds the things; `[]` goes through a list.
        identity: Fields that name a thing; the first is shown, all are compared.
        arguments: Arguments of the operation.
        needs_account: Whether the operation wants the account id too.
        details: Operation, its argument (a field of the thing) and where the answer has the rest.
        with_vpc: Whether a default VPC comes with such things.
        explain: Why a thing may stay; empty where it may not.
        ignore: Whether a thing is only a part of another that is listed.
    """

    name: str
    service: str
    operation: str
    items: str
    identity: tuple[str, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    needs_account: bool = False
    details: tuple[str, str, str] | None = None
    with_vpc: bool = False
    explain: Callable[[Item], str] = _nothing
    ignore: Callable[[Item], bool] = _never


def _explain_bucket(item: Item) -> str:
    if item["Name"].endswith("-aws-parallelcluster"):
        return "AWS's own, holds the provider template of ParallelCluster"
    return ""


def _explain_key(item: Item) -> str:
    if item["KeyManager"] == "AWS":
        return "AWS's own key of a service"
    if item["KeyState"] == "PendingDeletion":
        return (
            f"deleted, AWS keeps a key until its waiting time ends: {item['DeletionDate']:%Y-%m-%d}"
        )
    return ""


def _explain_log_group(item: Item) -> str:
    if _IMPLICIT_LOGS.match(item["logGroupName"]):
        return "made by the service when it first wrote, in no stack; CloudFormation leaves it"
    return ""


def _explain_nat_gateway(item: Item) -> str:
    return "deleted, AWS lists it for an hour" if item["State"] == "deleted" else ""


def _explain_role(item: Item) -> str:
    if item["Path"].startswith("/aws-service-role/"):
        return "a service-linked role, kept by AWS"
    return ""


def _explain_rule(item: Item) -> str:
    return f"managed by {item['ManagedBy']}" if item.get("ManagedBy") else ""


def _kind(name: str, service: str, operation: str, items: str, *identity: str, **rest: Any) -> Kind:
    return Kind(
        name=name, service=service, operation=operation, items=items, identity=identity, **rest
    )


_SAGEMAKER = {"ServiceNamespace": "sagemaker"}

KINDS: tuple[Kind, ...] = (
    _kind("stack", "cloudformation", "list_stacks", "StackSummaries", "StackName",
          arguments={"StackStatusFilter": _STACK_STATES}),
    _kind("s3 bucket", "s3", "list_buckets", "Buckets", "Name", explain=_explain_bucket),
    _kind("ecr repository", "ecr", "describe_repositories", "repositories", "repositoryName"),
    _kind("kms key", "kms", "list_keys", "Keys", "KeyId", "KeyArn",
          details=("describe_key", "KeyId", "KeyMetadata"), explain=_explain_key),
    _kind("iam role", "iam", "list_roles", "Roles", "RoleName", "Arn", explain=_explain_role),
    _kind("iam policy", "iam", "list_policies", "Policies", "PolicyName", "Arn",
          arguments={"Scope": "Local"}),
    _kind("iam instance profile", "iam", "list_instance_profiles", "InstanceProfiles",
          "InstanceProfileName", "Arn"),
    _kind("lambda function", "lambda", "list_functions", "Functions", "FunctionName"),
    _kind("lambda layer", "lambda", "list_layers", "Layers", "LayerName"),
    _kind("log group", "logs", "describe_log_groups", "logGroups", "logGroupName",
          explain=_explain_log_group),
    _kind("ssm parameter", "ssm", "describe_parameters", "Parameters", "Name"),
    _kind("ec2 instance", "ec2", "describe_instances", "Reservations[].Instances", "InstanceId",
          ignore=lambda item: item["State"]["Name"] == "terminated"),
    _kind("ebs volume", "ec2", "describe_volumes", "Volumes", "VolumeId"),
    _kind("launch template", "ec2", "describe_launch_templates", "LaunchTemplates",
          "LaunchTemplateName", "LaunchTemplateId"),
    _kind("vpc", "ec2", "describe_vpcs", "Vpcs", "VpcId", with_vpc=True),
    _kind("subnet", "ec2", "describe_subnets", "Subnets", "SubnetId", with_vpc=True),
    _kind("network interface", "ec2", "describe_network_interfaces", "NetworkInterfaces",
          "NetworkInterfaceId"),
    _kind("route table", "ec2", "describe_route_tables", "RouteTables", "RouteTableId",
          ignore=lambda item: any(one.get("Main") for one in item["Associations"])),
    _kind("security group", "ec2", "describe_security_groups", "SecurityGroups", "GroupId",
          ignore=lambda item: item["GroupName"] == "default"),
    _kind("network acl", "ec2", "describe_network_acls", "NetworkAcls", "NetworkAclId",
          ignore=lambda item: item["IsDefault"]),
    _kind("internet gateway", "ec2", "describe_internet_gateways", "InternetGateways",
          "InternetGatewayId", with_vpc=True),
    _kind("nat gateway", "ec2", "describe_nat_gateways", "NatGateways", "NatGatewayId",
          explain=_explain_nat_gateway),
    _kind("elastic ip", "ec2", "describe_addresses", "Addresses", "AllocationId", "PublicIp"),
    _kind("vpc endpoint", "ec2", "describe_vpc_endpoints", "VpcEndpoints", "VpcEndpointId"),
    _kind("flow log", "ec2", "describe_flow_logs", "FlowLogs", "FlowLogId"),
    _kind("fsx file system", "fsx", "describe_file_systems", "FileSystems", "FileSystemId"),
    _kind("fsx association", "fsx", "describe_data_repository_associations", "Associations",
          "AssociationId"),
    _kind("fsx backup", "fsx", "describe_backups", "Backups", "BackupId"),
    _kind("sqs queue", "sqs", "list_queues", "QueueUrls", "QueueUrl"),
    _kind("sns topic", "sns", "list_topics", "Topics", "TopicArn"),
    _kind("event rule", "events", "list_rules", "Rules", "Name", explain=_explain_rule),
    _kind("state machine", "stepfunctions", "list_state_machines", "stateMachines",
          "stateMachineArn", "name"),
    _kind("alarm", "cloudwatch", "describe_alarms", "MetricAlarms", "AlarmName"),
    _kind("composite alarm", "cloudwatch", "describe_alarms", "CompositeAlarms", "AlarmName",
          arguments={"AlarmTypes": ["CompositeAlarm"]}),
    _kind("dashboard", "cloudwatch", "list_dashboards", "DashboardEntries", "DashboardName"),
    _kind("sagemaker model", "sagemaker", "list_models", "Models", "ModelName"),
    _kind("sagemaker endpoint config", "sagemaker", "list_endpoint_configs", "EndpointConfigs",
          "EndpointConfigName"),
    _kind("sagemaker endpoint", "sagemaker", "list_endpoints", "Endpoints", "EndpointName"),
    _kind("scaling target", "application-autoscaling", "describe_scalable_targets",
          "ScalableTargets", "ResourceId", arguments=_SAGEMAKER),
    _kind("scaling policy", "application-autoscaling", "describe_scaling_policies",
          "ScalingPolicies", "PolicyName", arguments=_SAGEMAKER),
    _kind("budget", "budgets", "describe_budgets", "Budgets", "BudgetName", needs_account=True),
    _kind("dynamodb table", "dynamodb", "list_tables", "TableNames", "TableName"),
    _kind("hosted zone", "route53", "list_hosted_zones", "HostedZones", "Id", "Name"),
)  # fmt: skip
