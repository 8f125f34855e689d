"""The cluster in ParallelCluster's own schema (AWS ParallelCluster User Guide, version 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ultracluster.catalog import Catalog
from ultracluster.cluster_queues import queue_section, uses_efa
from ultracluster.settings import Settings

HEALTH_CHECK = "/opt/ultracluster/release/node_health.sh"
_HEALTH_SECONDS = 300


@dataclass(frozen=True, kw_only=True)
class Places:
    """Ids of what the cluster stands on; each may be a token.

    Attributes:
        head_subnet: subnet of the head node.
        subnets: private subnets by AZ id.
        security_group: every node is in it.
        file_system: FSx for Lustre, mounted at /fsx.
        model_bucket: compute nodes publish to it.
        boot_bucket: holds what nodes run at boot.
    """

    head_subnet: str
    subnets: Mapping[str, str]
    security_group: str
    file_system: str
    model_bucket: str
    boot_bucket: str


@dataclass(frozen=True, kw_only=True)
class BootActions:
    """Custom actions of each node kind; queues take `node`, or `node_efa` where they have EFA."""

    head: Mapping[str, Any]
    login: Mapping[str, Any]
    node: Mapping[str, Any]
    node_efa: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class NodePolicies:
    """ARNs of managed policies, by node kind."""

    head: Sequence[str]
    login: Sequence[str]
    node: Sequence[str]


def cluster_configuration(
    settings: Settings,
    catalog: Catalog,
    *,
    places: Places,
    actions: BootActions,
    policies: NodePolicies,
) -> dict[str, Any]:
    """The whole configuration, with `[cluster.overrides]` merged in last."""
    cluster = settings.cluster
    configuration: dict[str, Any] = {
        "Image": {"Os": cluster.os},
        "Imds": {"ImdsSupport": "v2.0"},
        "HeadNode": _head_node(settings, places, actions, policies),
        "Scheduling": {
            "Scheduler": "slurm",
            "SlurmSettings": _slurm(settings),
            "SlurmQueues": [
                queue_section(
                    queue,
                    catalog,
                    subnets=[
                        places.subnets[az_id]
                        for az_id in queue.az_ids or (settings.network.accelerator_az_id,)
                    ],
                    security_group=places.security_group,
                    actions=actions.node_efa if uses_efa(queue, catalog) else actions.node,
                    iam=_iam(
                        policies.node,
                        _read(places.boot_bucket, "boot/*"),
                        _write(places.model_bucket, f"models/{settings.endpoint.model_name}/*"),
                    ),
                )
                for queue in cluster.queues
            ],
        },
        "SharedStorage": [
            {
                "Name": "fsx",
                "MountDir": "/fsx",
                "StorageType": "FsxLustre",
                # By id, never managed: the cluster may go and the data stays.
                "FsxLustreSettings": {"FileSystemId": places.file_system},
            }
        ],
        "Monitoring": {
            "Logs": {
                "CloudWatch": {
                    "RetentionInDays": settings.log_days,
                    "DeletionPolicy": "Retain" if settings.keeps_data else "Delete",
                }
            }
        },
        "DevSettings": {
            "Timeouts": {
                "HeadNodeBootstrapTimeout": cluster.bootstrap_minutes * 60,
                "ComputeNodeBootstrapTimeout": cluster.bootstrap_minutes * 60,
            }
        },
    }
    if cluster.custom_ami:
        configuration["Image"]["CustomAmi"] = cluster.custom_ami
    if cluster.login_nodes:
        configuration["LoginNodes"] = _login_nodes(settings, places, actions, policies)
    if settings.aws.permissions_boundary:
        configuration["Iam"] = {"PermissionsBoundary": settings.aws.permissions_boundary}
    merged: dict[str, Any] = merge(configuration, cluster.overrides)
    return merged


def merge(base: Any, over: Any) -> Any:
    """Lay one part of a configuration over another.

    Tables are merged key by key, and lists of named tables item by item of the same `Name`; any
    other value replaces what was there.
    """
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        return {**base, **{key: merge(base.get(key), value) for key, value in over.items()}}
    if _named(base) and _named(over):
        items = {item["Name"]: item for item in base}
        for item in over:
            items[item["Name"]] = merge(items.get(item["Name"]), item)
        return list(items.values())
    return over


def _named(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, Mapping) and "Name" in item for item in value
    )


def _head_node(
    settings: Settings, places: Places, actions: BootActions, policies: NodePolicies
) -> dict[str, Any]:
    head = settings.cluster.head_node
    networking: dict[str, Any] = {
        "SubnetId": places.head_subnet,
        "AdditionalSecurityGroups": [places.security_group],
    }
    if head.public:
        networking["ElasticIp"] = True
    ssh: dict[str, Any] = {"AllowedIps": _ssh_from(settings)}
    if head.ssh_key:
        ssh["KeyName"] = head.ssh_key
    return {
        "InstanceType": head.instance_type,
        "Networking": networking,
        "Ssh": ssh,
        "LocalStorage": {"RootVolume": {"Size": head.root_volume_gib}},
        "CustomActions": dict(actions.head),
        "Iam": _iam(policies.head, _read(places.boot_bucket, "boot/*")),
    }


def _login_nodes(
    settings: Settings, places: Places, actions: BootActions, policies: NodePolicies
) -> dict[str, Any]:
    login = settings.cluster.login_nodes
    if login is None:
        return {}
    return {
        "Pools": [
            {
                "Name": "login",
                "InstanceType": login.instance_type,
                "Count": login.count,
                "Networking": {
                    "SubnetIds": [places.subnets[settings.network.accelerator_az_id]],
                    "AdditionalSecurityGroups": [places.security_group],
                },
                "Ssh": {"AllowedIps": _ssh_from(settings)},
                "CustomActions": dict(actions.login),
                # A pool has no S3Access: its policies carry the right to read the boot bucket.
                "Iam": _iam(policies.login),
            }
        ]
    }


def _slurm(settings: Settings) -> dict[str, Any]:
    cluster = settings.cluster
    section: dict[str, Any] = {
        # Lets most queue changes be deployed while the head node runs.
        "QueueUpdateStrategy": cluster.queue_update.upper(),
        "ScaledownIdletime": cluster.scaledown_minutes,
        "CustomSlurmSettings": [
            {"HealthCheckProgram": HEALTH_CHECK},
            {"HealthCheckInterval": _HEALTH_SECONDS},
            {"HealthCheckNodeState": "ANY"},
        ],
    }
    if cluster.accounting:
        database = {
            "Uri": cluster.accounting.uri,
            "UserName": cluster.accounting.user_name,
            "PasswordSecretArn": cluster.accounting.password_secret_arn,
        }
        if cluster.accounting.database_name:
            database["DatabaseName"] = cluster.accounting.database_name
        section["Database"] = database
    return section


def _ssh_from(settings: Settings) -> str:
    # Unset, ParallelCluster opens port 22 to the world.
    return settings.cluster.head_node.ssh_from or settings.network.cidr


def _iam(policies: Sequence[str], *access: Mapping[str, Any]) -> dict[str, Any]:
    section: dict[str, Any] = {"AdditionalIamPolicies": [{"Policy": arn} for arn in policies]}
    if access:
        section["S3Access"] = [dict(one) for one in access]
    return section


def _read(bucket: str, keys: str) -> dict[str, Any]:
    return {"BucketName": bucket, "KeyName": keys, "EnableWriteAccess": False}


def _write(bucket: str, keys: str) -> dict[str, Any]:
    return {"BucketName": bucket, "KeyName": keys, "EnableWriteAccess": True}
