"""Rules of the cluster: versions, systems, head node, time to create."""

from __future__ import annotations

import re

from ultracluster.catalog import Catalog
from ultracluster.rules.problem import Level, Problem, Problems, warning
from ultracluster.rules.queues import known_queues
from ultracluster.settings import Settings

# ParallelCluster's Lambda answers within CloudFormation's hour, less a margin.
CREATE_LIMIT_MINUTES = 55
STACK_MINUTES = 10
STATIC_NODES_MINUTES = 5
ANYWHERE = ("0.0.0.0/0", "::/0")


def region_is_supported(settings: Settings, catalog: Catalog) -> Problems:
    """ParallelCluster's provider template lives in a bucket of each supported region."""
    if settings.aws.region not in catalog.cluster_regions():
        yield Problem(
            "aws.region",
            f"got {settings.aws.region!r}; ParallelCluster supports "
            f"{', '.join(catalog.cluster_regions())} ({catalog.source('parallelcluster')})",
        )


def version_can_create(settings: Settings, catalog: Catalog) -> Problems:
    """The version is known and can still create a cluster."""
    version, least = settings.cluster.version, catalog.cluster_minimum()
    if re.fullmatch(r"\d+(\.\d+){2}", version) and _order(version) < _order(least["version"]):
        yield Problem(
            "cluster.version",
            f"got {version!r}: {least['reason']} ({least['issue']}); "
            f"choose {least['version']} or newer",
        )
    elif version not in catalog.cluster_versions():
        yield Problem(
            "cluster.version",
            f"got {version!r}; known: {', '.join(catalog.cluster_versions())} "
            f"({catalog.source('parallelcluster')})",
        )


def system_is_supported(settings: Settings, catalog: Catalog) -> Problems:
    """The version has images of the operating system; there is none of Rocky Linux."""
    cluster = settings.cluster
    systems = catalog.cluster_versions().get(cluster.version)
    if systems is not None and cluster.os not in systems:
        yield Problem(
            "cluster.os",
            f"got {cluster.os!r}; ParallelCluster {cluster.version} takes {', '.join(systems)}",
        )
    if cluster.os.startswith("rocky") and cluster.custom_ami is None:
        yield Problem(
            "cluster.custom_ami",
            f"missing; there is no official image of {cluster.os}: name an own one",
        )


def combination_is_not_known_bad(settings: Settings, catalog: Catalog) -> Problems:
    """No user has reported the combination of version, system and instance as failing."""
    cluster = settings.cluster
    names = (cluster.head_node.instance_type, *(queue.instance_type for queue in cluster.queues))
    families = {name.split(".")[0] for name in names}
    for row in catalog.known_bad():
        if row.matches(version=cluster.version, os=cluster.os, families=families):
            yield Problem(
                "cluster",
                f"got version {cluster.version}, {cluster.os}, {', '.join(sorted(families))}: "
                f"{row.reason} ({row.issue}); change one of them",
                Level(row.level),
            )


def neuron_fits(settings: Settings, catalog: Catalog) -> Problems:
    """The Neuron release is one row of the catalog, and the system and its Python take it.

    Source: Neuron's announcements of ended support (Python 3.10 with 2.30) and its set-up guides.
    """
    cluster = settings.cluster
    if not any(row.kind == "trainium" for _, _, row in known_queues(settings, catalog)):
        return
    release = catalog.neuron_set(cluster.neuron)
    if release is None:
        yield Problem(
            "cluster.neuron",
            f"got {cluster.neuron!r}; known: {', '.join(catalog.neuron_set_names())} "
            f"({catalog.source('neuron')})",
        )
    elif cluster.custom_ami is not None:
        return  # the image brings system, Python and Neuron
    elif cluster.os not in release.os:
        yield Problem(
            "cluster.os",
            f"got {cluster.os!r}; Neuron {release.name} with PyTorch {release.torch} takes "
            f"{', '.join(release.os)}, or an own image in cluster.custom_ami",
        )
    elif catalog.system_python(cluster.os) not in release.python:
        yield Problem(
            "cluster.os",
            f"got {cluster.os!r} with Python {catalog.system_python(cluster.os)}; "
            f"Neuron {release.name} takes {', '.join(release.python)}: choose a newer system",
        )


def head_node_fits(settings: Settings, catalog: Catalog) -> Problems:
    """The head node is x86 and has memory for every node.

    Source: ParallelCluster's HeadNodeMemorySizeValidator, a 25th of a GB for each node and 0.6, at
    most 16; micro and nano are refused with the larger systems.
    """
    name = settings.cluster.head_node.instance_type
    path = "cluster.head_node.instance_type"
    row = catalog.instance_type(name)
    if row is None:
        yield Problem(
            path,
            f"got {name!r}, which the catalog does not know; add a row to an own catalog "
            f"({catalog.source('instance_types')})",
        )
        return
    if row.architecture != "x86_64":
        yield Problem(
            path, f"got {name!r}, which is {row.architecture}; the nodes are x86_64: choose such"
        )
    if row.size in ("micro", "nano") and not settings.cluster.os.startswith("alinux"):
        yield Problem(path, f"got {name!r}; {settings.cluster.os} needs small or larger")
    nodes = sum(queue.max_count for queue in settings.cluster.queues)
    needed = min(nodes / 25 + 0.6, 16)
    if row.memory_gib < needed:
        yield Problem(
            path,
            f"got {name!r} with {row.memory_gib:g} GB of memory; {nodes} nodes need {needed:.2f} "
            "GB: choose a larger type or lower max_count",
        )


def log_in_nodes_are_x86(settings: Settings, catalog: Catalog) -> Problems:
    """Log-in nodes share the head node's architecture."""
    nodes = settings.cluster.login_nodes
    if nodes is None:
        return
    row = catalog.instance_type(nodes.instance_type)
    if row is None or row.architecture != "x86_64":
        yield Problem(
            "cluster.login_nodes.instance_type",
            f"got {nodes.instance_type!r}; choose an x86_64 type of the catalog "
            f"({catalog.source('instance_types')})",
        )


def shell_is_not_open_to_the_world(settings: Settings, catalog: Catalog) -> Problems:
    """SSH needs a range to come from: ParallelCluster's own default is the whole world."""
    head = settings.cluster.head_node
    path = "cluster.head_node.ssh_from"
    source = head.ssh_from
    if source is None:
        if head.ssh_key is not None:
            yield Problem(path, "missing; ssh_key needs the CIDR or prefix list that may connect")
        return
    if not re.fullmatch(r"pl-[0-9a-f]+|[0-9.]+/\d{1,2}|[0-9a-f:]+/\d{1,3}", source):
        yield Problem(path, f"got {source!r}; allowed: a CIDR such as 198.51.100.0/24, or pl-...")
    if source in ANYWHERE and not head.ssh_from_anywhere:
        yield Problem(
            path,
            f"got {source!r}, the whole world; narrow it, use Session Manager, or confirm with "
            "ssh_from_anywhere = true",
        )
    if head.ssh_key is None:
        yield Problem(
            "cluster.head_node.ssh_key", "missing; ssh_from opens port 22 for nobody without a key"
        )


def key_is_a_name(settings: Settings, catalog: Catalog) -> Problems:
    """EC2 wants the key pair's name, not its file."""
    key = settings.cluster.head_node.ssh_key
    if key is not None and key.endswith(".pem"):
        yield Problem(
            "cluster.head_node.ssh_key",
            f"got {key!r}; name the key pair, {key.removesuffix('.pem')!r}, not its file",
        )


def creation_ends_within_the_hour(settings: Settings, catalog: Catalog) -> Problems:
    """CloudFormation waits an hour for a custom resource, and no longer.

    Source: aws/aws-parallelcluster#3849, #3939; the limit is that of custom resources.
    """
    cluster = settings.cluster
    static = any(queue.min_count for queue in cluster.queues)
    rest = STACK_MINUTES + (STATIC_NODES_MINUTES if static else 0)
    if rest + cluster.bootstrap_minutes > CREATE_LIMIT_MINUTES:
        yield Problem(
            "cluster.bootstrap_minutes",
            f"got {cluster.bootstrap_minutes}; with {rest} minutes for the rest, creation may pass "
            f"CloudFormation's hour: at most {CREATE_LIMIT_MINUTES - rest}; bake an image instead",
        )


def no_way_out_needs_an_image(settings: Settings, catalog: Catalog) -> Problems:
    """Without NAT the package repositories cannot be reached: the image must hold everything."""
    if not settings.network.nat and settings.cluster.custom_ami is None:
        yield Problem(
            "cluster.custom_ami",
            "missing; with network.nat = false no package can be fetched at boot: name an image "
            "with Neuron installed",
        )


def protected_data_is_not_destroyed(settings: Settings, catalog: Catalog) -> Problems:
    """Protection against deletion and data that goes with the stack do not go together."""
    if settings.termination_protection and not settings.keeps_data:
        yield warning(
            "retention",
            "got 'destroy' with termination_protection; buckets are emptied once that is off",
        )


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
