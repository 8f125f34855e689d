"""Rules of the network: zones, addresses, imported VPCs."""

from __future__ import annotations

import ipaddress
from collections import Counter

from ultracluster.catalog import Catalog
from ultracluster.rules.problem import Problem, Problems, warning
from ultracluster.rules.queues import known_queues, wants_efa, zones
from ultracluster.settings import Settings

# AWS keeps five addresses of each subnet.
AWS_KEEPS = 5
# RFC 1918, and RFC 6598 which AWS allows beside it (VPC User Guide, "VPC CIDR blocks").
PRIVATE_RANGES = tuple(
    map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"))
)
PUBLIC_ADDRESSES = 64
ENDPOINT_ADDRESSES = 16
_DIRECTIONS = {
    "north": "n",
    "south": "s",
    "east": "e",
    "west": "w",
    "central": "c",
    "northeast": "ne",
    "southeast": "se",
    "northwest": "nw",
    "gov": "g",
}


def zones_are_in_the_region(settings: Settings, catalog: Catalog) -> Problems:
    """AZ ids start with a short form of their region (EC2 User Guide, "AZ IDs")."""
    region = settings.aws.region
    parts = region.split("-")
    if any(part not in _DIRECTIONS for part in parts[1:-1]):
        return  # isolated regions abbreviate in their own way
    prefix = parts[0] + "".join(_DIRECTIONS[part] for part in parts[1:-1]) + parts[-1]
    named = {
        "network.accelerator_az_id": settings.network.accelerator_az_id,
        "network.second_az_id": settings.network.second_az_id,
    }
    for path, zone in named.items():
        if zone is not None and not zone.startswith(f"{prefix}-"):
            yield Problem(path, f"got {zone!r}; AZ ids of {region} start with {prefix}-az")


def second_zone_is_another(settings: Settings, catalog: Catalog) -> Problems:
    """Two subnets in one zone give no second zone."""
    network = settings.network
    if network.second_az_id == network.accelerator_az_id:
        yield Problem(
            "network.second_az_id",
            f"got {network.second_az_id!r}, the accelerators' own zone; name another or remove it",
        )


def subnets_fit_into_the_vpc(settings: Settings, catalog: Catalog) -> Problems:
    """Range of the VPC: a proper network, with room for a public and a private subnet a zone."""
    network = settings.network
    try:
        vpc = ipaddress.IPv4Network(network.cidr)
    except ValueError as error:
        yield Problem("network.cidr", f"got {network.cidr!r}; {error}")
        return
    # Public addresses would hide the hosts that own them, the registries' perhaps among them.
    if not any(vpc.subnet_of(private) for private in PRIVATE_RANGES):
        ranges = ", ".join(map(str, PRIVATE_RANGES))
        yield Problem("network.cidr", f"got {network.cidr!r}; allowed: a part of {ranges}")
        return
    if network.imported is not None:
        return
    count = 2 if network.second_az_id else 1
    private = 2 ** (32 - network.private_mask)
    # Public subnets come first; private ones start at a multiple of their own size.
    public = -(-count * PUBLIC_ADDRESSES // private) * private
    if public + count * private > vpc.num_addresses:
        yield Problem(
            "network.private_mask",
            f"got {network.private_mask}: {count} private subnet(s) of {private} addresses and the "
            f"public ones do not fit into {network.cidr}; raise it or widen network.cidr",
        )


def addresses_suffice(settings: Settings, catalog: Catalog) -> Problems:
    """Each node takes one address with EFA, one for each network card without.

    Source: the launch templates of ParallelCluster 3.16, whose EFA-only interfaces carry none.
    """
    network = settings.network
    imported = network.imported
    taken: Counter[str] = Counter()
    for _, queue, row in known_queues(settings, catalog):
        for zone in zones(settings, queue):
            taken[zone] += queue.max_count * row.addresses(efa=wants_efa(queue, row))
    home = network.accelerator_az_id
    logins = settings.cluster.login_nodes
    taken[home] += (0 if settings.cluster.head_node.public else 1) + (
        logins.count + 1 if logins else 0
    )
    # One interface for each Lustre server, and one for the metadata.
    taken[settings.lustre.az_id or home] += 2 + settings.lustre.capacity_gib // 1200
    for zone, needed in sorted(taken.items()):
        if not network.nat:
            needed += ENDPOINT_ADDRESSES
        where, mask = "network.private_mask", network.private_mask
        if imported is not None:
            if zone != home:
                continue  # its size is not known
            where = "network.imported.private_subnet_cidr"
            mask = _mask(imported.private_subnet_cidr)
        free = 2 ** (32 - mask) - AWS_KEEPS
        if needed > free:
            fits = 32 - (needed + AWS_KEEPS - 1).bit_length()
            yield Problem(
                where,
                f"got /{mask}, {free} addresses in {zone}; nodes, file system and endpoints need "
                f"{needed}: /{fits} or larger, or lower max_count",
            )


def imported_vpc_is_complete(settings: Settings, catalog: Catalog) -> Problems:
    """What cannot be looked up at synth is stated: subnets, DNS, endpoints.

    Source: aws-samples/genai-video-super-resolution#3 (Lustre is mounted by DNS name).
    """
    network = settings.network
    imported = network.imported
    if imported is None:
        return
    if not imported.dns_confirmed:
        yield Problem(
            "network.imported.dns_confirmed",
            "got false; the file system is mounted by name: switch enableDnsSupport and "
            "enableDnsHostnames on, then set it to true",
        )
    if settings.cluster.head_node.public and imported.public_subnet_id is None:
        yield Problem(
            "network.imported.public_subnet_id",
            "missing; a public head node needs a subnet with a route to an internet gateway",
        )
    if network.second_az_id and imported.second_private_subnet_id is None:
        yield Problem(
            "network.imported.second_private_subnet_id",
            f"missing; network.second_az_id = {network.second_az_id!r} needs a subnet there",
        )
    if imported.private_route_table_id is None:
        yield warning(
            "network.imported.private_route_table_id",
            "missing; make sure that the subnet's route table has S3 and DynamoDB gateway "
            "endpoints: without them data goes over NAT, and without NAT nodes never join",
        )
    if not _inside(imported.private_subnet_cidr, network.cidr):
        yield Problem(
            "network.imported.private_subnet_cidr",
            f"got {imported.private_subnet_cidr!r}, which is no part of network.cidr "
            f"{network.cidr!r}: give the VPC's own range there",
        )


def _mask(cidr: str) -> int:
    return int(cidr.partition("/")[2])


def _inside(inner: str, outer: str) -> bool:
    try:
        return ipaddress.IPv4Network(inner).subnet_of(ipaddress.IPv4Network(outer))
    except ValueError:
        return False
