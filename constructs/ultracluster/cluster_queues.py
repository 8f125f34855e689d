"""Slurm queues in ParallelCluster's own schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ultracluster.catalog import Catalog
from ultracluster.settings.queues import Queue

_CAPACITY = {"ondemand": "ONDEMAND", "spot": "SPOT", "capacity-block": "CAPACITY_BLOCK"}
_MOST_NAME = 25


def uses_efa(queue: Queue, catalog: Catalog) -> bool:
    """Whether the nodes speak EFA: where the settings leave it open, if each type has it."""
    if queue.efa is not None:
        return queue.efa
    rows = [catalog.instance_type(name) for name in (queue.instance_type, *queue.alternatives)]
    return all(row is not None and row.efa_interfaces > 0 for row in rows)


def queue_section(
    queue: Queue,
    catalog: Catalog,
    *,
    subnets: Sequence[str],
    security_group: str,
    actions: Mapping[str, Any],
    iam: Mapping[str, Any],
) -> dict[str, Any]:
    """One item of `Scheduling/SlurmQueues`.

    Args:
        queue: the queue's settings.
        catalog: says which types have EFA.
        subnets: ids of the nodes' subnets.
        security_group: id of the group that every node is in.
        actions: what the nodes run at boot.
        iam: what the nodes may do.
    """
    efa = uses_efa(queue, catalog)
    section: dict[str, Any] = {
        "Name": queue.name,
        "CapacityType": _CAPACITY[queue.capacity_type],
        # Whole nodes: ParallelCluster knows no share of a Trainium node (GresTypes is refused).
        "JobExclusiveAllocation": True,
        "ComputeSettings": {"LocalStorage": {"RootVolume": {"Size": queue.root_volume_gib}}},
        "ComputeResources": [_compute_resource(queue, efa=efa)],
        "Networking": {
            "SubnetIds": list(subnets),
            "AdditionalSecurityGroups": [security_group],
            "PlacementGroup": {"Enabled": _placement_group(queue, efa=efa)},
        },
        "CustomActions": dict(actions),
        "Iam": dict(iam),
    }
    if queue.reservation:
        section["CapacityReservationTarget"] = {"CapacityReservationId": queue.reservation.id}
    row = catalog.instance_type(queue.instance_type)
    if row is not None and row.kind == "nvidia":
        section["HealthChecks"] = {"Gpu": {"Enabled": True}}
    return section


def _compute_resource(queue: Queue, *, efa: bool) -> dict[str, Any]:
    resource: dict[str, Any] = {
        "Name": f"{queue.name}-nodes"[:_MOST_NAME].rstrip("-"),
        "MinCount": queue.min_count,
        "MaxCount": queue.max_count,
    }
    if queue.alternatives:
        names = (queue.instance_type, *queue.alternatives)
        resource["Instances"] = [{"InstanceType": name} for name in names]
    else:
        resource["InstanceType"] = queue.instance_type
    if efa:
        resource["Efa"] = {"Enabled": True}
    if queue.spot_price is not None:
        resource["SpotPrice"] = queue.spot_price
    return resource


def _placement_group(queue: Queue, *, efa: bool) -> bool:
    """A group asks for a place that reserved capacity does not sit in, so it is off with one."""
    if queue.placement_group is not None:
        return queue.placement_group
    return efa and queue.reservation is None and queue.capacity_type != "capacity-block"
