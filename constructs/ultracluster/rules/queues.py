"""Rules of one Slurm queue: counts, types, EFA and zones."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from ultracluster.catalog import Catalog, InstanceType
from ultracluster.rules.problem import Problem, Problems, warning
from ultracluster.settings import Queue, Settings


def each_queue(settings: Settings) -> Iterator[tuple[str, Queue]]:
    """Every queue with its path in the settings."""
    for index, queue in enumerate(settings.cluster.queues):
        yield f"cluster.queues[{index}]", queue


def known_queues(settings: Settings, catalog: Catalog) -> Iterator[tuple[str, Queue, InstanceType]]:
    """Every queue whose type the catalog knows, with that row."""
    for path, queue in each_queue(settings):
        row = catalog.instance_type(queue.instance_type)
        if row is not None:
            yield path, queue, row


def zones(settings: Settings, queue: Queue) -> tuple[str, ...]:
    """AZ ids of a queue's nodes."""
    return queue.az_ids or (settings.network.accelerator_az_id,)


def wants_efa(queue: Queue, row: InstanceType) -> bool:
    """Whether a queue's nodes talk over EFA."""
    return row.efa_interfaces > 0 if queue.efa is None else queue.efa


def types_are_known(settings: Settings, catalog: Catalog) -> Problems:
    """A queue's types are in the catalog, which knows network cards and prices; nodes are x86."""
    for path, queue in each_queue(settings):
        for key, name in (
            (f"{path}.instance_type", queue.instance_type),
            *((f"{path}.alternatives", name) for name in queue.alternatives),
        ):
            row = catalog.instance_type(name)
            if row is None:
                known = catalog.accelerator_names()
                near = difflib.get_close_matches(name, known, n=3) or known
                yield Problem(
                    key,
                    f"got {name!r}; known among others: {', '.join(near)} "
                    f"({catalog.source('instance_types')})",
                )
            elif row.architecture != "x86_64":
                yield Problem(
                    key, f"got {name!r}, which is {row.architecture}; choose an x86_64 type"
                )


def counts_and_names(settings: Settings, catalog: Catalog) -> Problems:
    """Names are unique and none is Slurm's `default`; min_count does not exceed max_count."""
    seen: set[str] = set()
    for path, queue in each_queue(settings):
        if queue.name in seen:
            yield Problem(f"{path}.name", f"got {queue.name!r} a second time; rename one")
        seen.add(queue.name)
        if queue.name == "default":
            yield Problem(f"{path}.name", "got 'default', which Slurm keeps for itself; rename it")
        if queue.min_count > queue.max_count:
            yield Problem(
                f"{path}.min_count",
                f"got {queue.min_count}, above max_count {queue.max_count}; lower it or raise that",
            )


def zones_exist(settings: Settings, catalog: Catalog) -> Problems:
    """A queue's zones are those of the network, each once."""
    network = settings.network
    known = [network.accelerator_az_id, *([network.second_az_id] if network.second_az_id else [])]
    for path, queue in each_queue(settings):
        for zone in sorted(set(queue.az_ids) - set(known)):
            yield Problem(
                f"{path}.az_ids",
                f"got {zone!r}, where the network has no subnet; allowed: {', '.join(known)}; "
                "name it in network.second_az_id or remove it",
            )
        if len(set(queue.az_ids)) < len(queue.az_ids):
            yield Problem(f"{path}.az_ids", f"got {list(queue.az_ids)}; name each zone once")


def types_are_offered(settings: Settings, catalog: Catalog) -> Problems:
    """A queue's zones offer its types; EC2 says so only when a node is launched.

    Source: aws/aws-parallelcluster#1343, #2660. Zones that only a user's own row names are told.
    """
    region = settings.aws.region
    for path, queue, _ in known_queues(settings, catalog):
        for name in (queue.instance_type, *queue.alternatives):
            offered = catalog.offered_az_ids(region=region, instance=name)
            for zone in zones(settings, queue):
                where = f"{path}.az_ids" if queue.az_ids else "network.accelerator_az_id"
                if offered is not None and zone not in offered:
                    yield Problem(
                        where,
                        f"got {zone!r}, which does not offer {name} ({path}); AZ ids of {region} "
                        f"that do: {', '.join(offered) or 'none: choose another region'} "
                        f"({catalog.source('az_offerings')})",
                    )
                elif catalog.offered_by_own_row(region=region, instance=name, az_id=zone):
                    yield warning(
                        where,
                        f"got {zone!r}, which offers {name} by {catalog.own_path} alone; "
                        f"check it ({catalog.source('az_offerings')})",
                    )


def efa_fits(settings: Settings, catalog: Catalog) -> Problems:
    """EFA is a matter of the size, not the family, and stays within one zone.

    Source: ParallelCluster's EfaValidator and EfaMultiAzValidator.
    """
    for path, queue, row in known_queues(settings, catalog):
        if queue.efa and not row.efa_interfaces:
            yield Problem(
                f"{path}.efa", f"got true; {row.name} has no EFA: remove it or choose another type"
            )
        if queue.efa is False and row.efa_interfaces and queue.max_count > 1:
            yield warning(
                f"{path}.efa", f"got false; jobs over several {row.name} are slow without EFA"
            )
        if wants_efa(queue, row) and len(queue.az_ids) > 1:
            yield Problem(
                f"{path}.az_ids",
                f"got {len(queue.az_ids)} zones; EFA works within one: name one or set efa = false",
            )


def placement_group_fits(settings: Settings, catalog: Catalog) -> Problems:
    """A cluster placement group stays within one zone and fights with reserved capacity.

    Source: awslabs/awsome-distributed-ai#353 (InsufficientInstanceCapacity beside a free
    reservation); ParallelCluster's MultiAzPlacementGroupValidator.
    """
    for path, queue in each_queue(settings):
        if not queue.placement_group:
            continue
        if len(queue.az_ids) > 1:
            yield Problem(
                f"{path}.placement_group",
                f"got true with {len(queue.az_ids)} zones; a placement group lies within one",
            )
        if queue.capacity_type == "capacity-block":
            yield Problem(
                f"{path}.placement_group",
                "got true; a capacity block has its own placement: remove it",
            )
        elif queue.reservation is not None:
            yield warning(
                f"{path}.placement_group",
                "got true; nodes may find no capacity beside the group although the reservation "
                "has some: remove it, unless the reservation was made in a placement group",
            )


def alternatives_match(settings: Settings, catalog: Catalog) -> Problems:
    """Types of one queue have equal vCPUs and EFA.

    Source: ParallelCluster's InstancesCPUValidator and InstancesEFAValidator.
    """
    for path, queue, row in known_queues(settings, catalog):
        for other in filter(None, map(catalog.instance_type, queue.alternatives)):
            for label, got, needed in (
                ("vCPUs", other.vcpus, row.vcpus),
                ("accelerators", other.accelerators, row.accelerators),
                ("EFA interfaces", other.efa_interfaces, row.efa_interfaces),
            ):
                if got != needed:
                    yield Problem(
                        f"{path}.alternatives",
                        f"got {other.name} with {got} {label}; {row.name} has {needed}: "
                        "make it a queue of its own",
                    )
