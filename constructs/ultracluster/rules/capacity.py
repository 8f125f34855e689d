"""Rules of how nodes are bought: reservations, capacity blocks, spot, idle nodes."""

from __future__ import annotations

from ultracluster.catalog import Catalog
from ultracluster.rules.problem import Level, Problem, Problems, warning
from ultracluster.rules.queues import each_queue, known_queues, zones
from ultracluster.settings import Settings

LONG_IDLE_MINUTES = 60
HOURS = 24


def reservation_fits(settings: Settings, catalog: Catalog) -> Problems:
    """A reservation lies in the queue's zone, is large enough, and holds one type.

    Source: aws/aws-parallelcluster#4061 (reservation idle, nodes on demand), PR#5861.
    """
    for path, queue in each_queue(settings):
        held = queue.reservation
        if held is None:
            continue
        if zones(settings, queue) != (held.az_id,):
            yield Problem(
                f"{path}.reservation.az_id",
                f"got {held.az_id!r}; the queue's nodes are in "
                f"{', '.join(zones(settings, queue))}: use the reservation's zone",
            )
        if queue.alternatives:
            yield Problem(
                f"{path}.alternatives",
                f"got {list(queue.alternatives)}; a reservation holds one type: remove them",
            )
        if queue.capacity_type == "spot":
            yield Problem(
                f"{path}.capacity_type", "got 'spot'; a reservation is used on demand: remove one"
            )
        if held.count < queue.max_count:
            message = (
                f"got {queue.max_count}, above the {held.count} instances of reservation {held.id}"
            )
            if queue.capacity_type == "capacity-block":
                yield Problem(f"{path}.max_count", f"{message}; lower it")
            else:
                yield warning(
                    f"{path}.max_count",
                    f"{message}; nodes beyond it bill on demand or are not to be had",
                )
        if held.match == "open":
            yield warning(
                f"{path}.reservation.match",
                "got 'open'; anything else in the account may use it up: make it targeted",
            )


def capacity_block_is_complete(settings: Settings, catalog: Catalog) -> Problems:
    """A capacity block is bought by id and runs as a whole.

    Source: ParallelCluster's CapacityBlock validators; EC2's list of types sold as blocks.
    """
    for path, queue, row in known_queues(settings, catalog):
        if queue.capacity_type != "capacity-block":
            continue
        if queue.reservation is None:
            yield Problem(
                f"{path}.reservation", "missing; a capacity block needs id, count and az_id"
            )
        if not row.capacity_block:
            yield Problem(
                f"{path}.capacity_type",
                f"got 'capacity-block'; {row.name} is not sold so "
                f"({catalog.source('instance_types')})",
            )
        if queue.min_count != queue.max_count:
            yield Problem(
                f"{path}.min_count",
                f"got {queue.min_count}; a capacity block runs as a whole: set it to max_count, "
                f"{queue.max_count}",
            )


def spot_price_needs_spot(settings: Settings, catalog: Catalog) -> Problems:
    """ParallelCluster takes a spot price without a word and then buys on demand."""
    for path, queue in each_queue(settings):
        if queue.spot_price is not None and queue.capacity_type != "spot":
            yield Problem(
                f"{path}.spot_price",
                f"got {queue.spot_price} with capacity_type {queue.capacity_type!r}, which ignores "
                'it: remove it or set capacity_type = "spot"',
            )


def idle_nodes_are_told(settings: Settings, catalog: Catalog) -> Problems:
    """Nodes of `min_count` bill around the clock, and creation fails if they are not to be had."""
    for path, queue, row in known_queues(settings, catalog):
        if not queue.min_count or not row.accelerators:
            continue
        count = queue.min_count
        text = (
            f"got {count}: {count} nodes always on, {count * row.vcpus} vCPUs, "
            f"{count * HOURS} node-hours a day, {_usd(count * row.price_usd_per_hour * HOURS)} "
            f"USD a day on demand (prices of {catalog.prices_date()})"
        )
        if queue.reservation is None:
            text += "; creation itself fails where they are not to be had: 0 needs no capacity"
        yield warning(f"{path}.min_count", text)


def scaledown_is_short(settings: Settings, catalog: Catalog) -> Problems:
    """Idle accelerators are given back within the hour."""
    minutes = settings.cluster.scaledown_minutes
    if minutes > LONG_IDLE_MINUTES:
        yield warning(
            "cluster.scaledown_minutes",
            f"got {minutes}; an idle node bills that long after each job: {LONG_IDLE_MINUTES} or "
            "fewer is usual",
        )


def fleet_is_told(settings: Settings, catalog: Catalog) -> Problems:
    """What all nodes together take: vCPUs of the account's quotas, which start at 0, and USD."""
    for path, queue, row in known_queues(settings, catalog):
        count = queue.max_count
        cost = _usd(count * row.price_usd_per_hour)
        yield Problem(
            path,
            f"at most {count} x {row.name}: {count * row.vcpus} vCPUs of the quota "
            f"{catalog.quota(row)!r} or of its spot sibling, {cost} USD an hour on demand "
            f"(prices of {catalog.prices_date()})",
            Level.NOTE,
        )


def _usd(amount: float) -> str:
    return f"{amount:,.2f}"
