"""What can be known to be wrong before a deploy, one small function a rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ultracluster import catalog
from ultracluster.images import aws_graviton_image, parse_image
from ultracluster.settings import Settings, SettingsError


@dataclass(frozen=True)
class Problem:
    """A value that would fail in AWS: where it stands, what was got, what to do."""

    path: str
    message: str

    def __str__(self) -> str:
        """`path: message`, as a person reads it."""
        return f"{self.path}: {self.message}"


Rule = Callable[[Settings], Iterator[Problem]]


def queue_types_are_known(settings: Settings) -> Iterator[Problem]:
    """A queue's type is in the catalog, which knows its network cards and price."""
    for index, queue in enumerate(settings.cluster.queues):
        if catalog.instance_type(queue.instance_type) is None:
            known = ", ".join(catalog.instance_type_names())
            yield Problem(
                f"cluster.queues[{index}].instance_type",
                f"got {queue.instance_type!r}; known: {known} ({catalog.source('instance_types')})",
            )


def accelerators_are_offered(settings: Settings) -> Iterator[Problem]:
    """The accelerator's AZ offers every queue's type; EC2 says so only when a node is launched."""
    region, zone = settings.aws.region, settings.network.accelerator_az_id
    for index, queue in enumerate(settings.cluster.queues):
        if catalog.instance_type(queue.instance_type) is None:
            continue
        zones = catalog.offered_az_ids(region=region, instance=queue.instance_type)
        if zone not in zones:
            offered = ", ".join(zones) or "none: choose another region"
            yield Problem(
                "network.accelerator_az_id",
                f"got {zone!r}, which does not offer {queue.instance_type} "
                f"(cluster.queues[{index}]); AZ ids of {region} that do: {offered} "
                f"({catalog.source('az_offerings')})",
            )


def queue_counts_and_names(settings: Settings) -> Iterator[Problem]:
    """Queue names are unique, and min_count does not exceed max_count."""
    seen: set[str] = set()
    for index, queue in enumerate(settings.cluster.queues):
        path = f"cluster.queues[{index}]"
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


def lustre_capacity(settings: Settings) -> Iterator[Problem]:
    """SSD file systems come in 1200 GiB or multiples of 2400 GiB (CreateFileSystem)."""
    capacity = settings.lustre.capacity_gib
    if capacity == 1200 or (capacity > 0 and capacity % 2400 == 0):
        return
    lower = max(capacity // 2400 * 2400, 1200)
    upper = 1200 if capacity < 1200 else (capacity // 2400 + 1) * 2400
    nearest = f"{lower} or {upper}" if lower != upper else str(lower)
    yield Problem("lustre.capacity_gib", f"got {capacity}; nearest allowed: {nearest}")


def lustre_throughput(settings: Settings) -> Iterator[Problem]:
    """PERSISTENT_2 needs a throughput for each TiB, SCRATCH_2 takes none."""
    throughput = settings.lustre.throughput_mb_per_tib
    if settings.lustre.deployment_type == "PERSISTENT_2" and throughput is None:
        yield Problem(
            "lustre.throughput_mb_per_tib", "missing; PERSISTENT_2 takes 125, 250, 500 or 1000"
        )
    if settings.lustre.deployment_type == "SCRATCH_2" and throughput is not None:
        yield Problem(
            "lustre.throughput_mb_per_tib",
            f"got {throughput}; SCRATCH_2 takes none: remove it or choose PERSISTENT_2",
        )


def endpoint_is_graviton(settings: Settings) -> Iterator[Problem]:
    """The serving image is arm64, so the endpoint's family must be a Graviton one."""
    instance = settings.endpoint.instance_type
    family = re.fullmatch(r"ml\.([a-z0-9]+)\.[a-z0-9]+", instance)
    if family is None or family[1] not in catalog.graviton_families():
        yield Problem(
            "endpoint.instance_type",
            f"got {instance!r}; the image is arm64 and needs ml.FAMILY.SIZE of the families "
            f"{', '.join(catalog.graviton_families())} ({catalog.source('serving_images')})",
        )


def serving_image(settings: Settings) -> Iterator[Problem]:
    """The image is a pinned one of a private ECR repository in the endpoint's region."""
    image = settings.endpoint.image
    region = settings.aws.region
    if image is None:
        if aws_graviton_image(region) is None:
            yield Problem(
                "endpoint.image",
                f"missing; the account of AWS's images in {region} is not known: "
                "name the image's URI",
            )
        return
    parsed = parse_image(image)
    if parsed is None:
        yield Problem(
            "endpoint.image",
            f"got {image!r}; allowed: ACCOUNT.dkr.ecr.REGION.amazonaws.com/REPOSITORY with :TAG or "
            "@sha256:DIGEST",
        )
    elif parsed.region != region:
        yield Problem(
            "endpoint.image",
            f"got an image of {parsed.region}; the endpoint pulls from {region}: copy it there",
        )


RULES: tuple[Rule, ...] = (
    queue_types_are_known,
    accelerators_are_offered,
    queue_counts_and_names,
    lustre_capacity,
    lustre_throughput,
    endpoint_is_graviton,
    serving_image,
)


def check(settings: Settings) -> None:
    """Apply every rule.

    Raises:
        SettingsError: at least one rule is broken; the message lists all of them.
    """
    problems = [problem for rule in RULES for problem in rule(settings)]
    if problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise SettingsError(
            f"environment {settings.environment!r}: {len(problems)} problem(s)\n{lines}"
        )
