"""Rules of the endpoint: its instance, its process, its roll-outs, its scaling, its network."""

from __future__ import annotations

from shared.host import MEMORY_PER_WEIGHT, SERVER_MIB, WORKER_MIB
from ultracluster.catalog import Catalog
from ultracluster.rules.problem import Level, Problem, Problems, warning
from ultracluster.serving_process import (
    least_download_seconds,
    least_startup_seconds,
    most_workers,
    serving_process,
)
from ultracluster.settings import Settings

# With the time that instances take to start, within the two hours that a delivery waits.
MOST_PAUSE_MINUTES = 60
# The slowest of them looks at three whole minutes.
LEAST_BAKE_MINUTES = 3


def endpoint_is_graviton(settings: Settings, catalog: Catalog) -> Problems:
    """The serving image is arm64, so the endpoint's family must be a Graviton one.

    Source: the API's ProductionVariantInstanceType, which not every size of a family is in.
    """
    instance = settings.endpoint.instance_type
    if catalog.serving_instance(instance) is not None:
        return
    parts = instance.split(".")
    sizes = catalog.serving_family(parts[1]) if len(parts) == 3 else {}
    allowed = (
        f"this family has {', '.join(sizes)}"
        if sizes
        else "the image is arm64 and needs ml.FAMILY.SIZE, SIZE such as 4xlarge, of the families "
        f"{', '.join(catalog.graviton_families())}"
    )
    yield Problem(
        "endpoint.instance_type",
        f"got {instance!r}; {allowed} ({catalog.source('serving_instances')})",
    )


def model_fits_into_memory(settings: Settings, catalog: Catalog) -> Problems:
    """Each worker holds the model: with one for each vCPU the container ends under load.

    Source: pytorch/serve#71, aws/sagemaker-python-sdk#1275; memory for a package as measured.
    """
    endpoint = settings.endpoint
    instance = catalog.serving_instance(endpoint.instance_type)
    if instance is None:
        return
    most = most_workers(endpoint, instance)
    reckoned = (
        f"{endpoint.largest_package_mib} MiB x {MEMORY_PER_WEIGHT} and {WORKER_MIB} MiB for each "
        f"worker, {SERVER_MIB} MiB for the server, of {instance.memory_gib} GiB"
    )
    if most == 0:
        yield Problem(
            "endpoint.largest_package_mib",
            f"got {endpoint.largest_package_mib}; not one worker fits into {instance.name} "
            f"({reckoned}): lower it to what your models need, or take a larger instance",
        )
    elif endpoint.workers is not None and endpoint.workers > most:
        yield Problem(
            "endpoint.workers",
            f"got {endpoint.workers}; {instance.name} holds {most} ({reckoned}): lower it or "
            "largest_package_mib, or take a larger instance",
        )
    process = serving_process(endpoint, instance)
    if process.workers * process.threads > instance.vcpus:
        yield warning(
            "endpoint.threads",
            f"{process.workers} worker(s) with {process.threads} thread(s) each share "
            f"{instance.vcpus} vCPUs: more threads than vCPUs make every answer slower",
        )


def processor_has_bf16(settings: Settings, catalog: Catalog) -> Problems:
    """Graviton2 has no bfloat16 (AWS Graviton Technical Guide, "Transitioning: processors")."""
    instance = catalog.serving_instance(settings.endpoint.instance_type)
    if settings.endpoint.bf16 and instance is not None and not instance.bf16:
        yield Problem(
            "endpoint.bf16",
            f"got true; the processor of {instance.name} has no bfloat16: remove it, or take a "
            f"family such as c7g or c8g ({catalog.source('serving_instances')})",
        )


def limits_suffice(settings: Settings, catalog: Catalog) -> Problems:
    """SageMaker gives a container up after these limits, however good the model is.

    Source: aws/sagemaker-python-sdk#4115. The package's size is known only when it is rolled out,
    so the limits are those of the largest one.
    """
    endpoint = settings.endpoint
    for name, given, least in (
        ("download_seconds", endpoint.download_seconds, least_download_seconds(endpoint)),
        ("startup_seconds", endpoint.startup_seconds, least_startup_seconds(endpoint)),
    ):
        if given is not None and given < least:
            yield Problem(
                f"endpoint.{name}",
                f"got {given}; a package of {endpoint.largest_package_mib} MiB may take {least}: "
                "raise it, lower largest_package_mib, or remove it",
            )


def traffic_fits(settings: Settings, catalog: Catalog) -> Problems:
    """A canary takes at most half of the instances, a step a tenth to half of them.

    Source: API reference, TrafficRoutingConfig. Of one instance there is no half. A roll-out meets
    as many instances as scaling has made.
    """
    endpoint = settings.endpoint
    if endpoint.traffic == "all-at-once":
        return
    count, step = endpoint.instance_count, endpoint.step_instances
    if count == 1:
        yield Problem(
            "endpoint.traffic",
            f"got {endpoint.traffic!r} with one instance, which takes all traffic or none; "
            "allowed: all-at-once, or an instance_count of 2 or more",
        )
        return
    most = endpoint.most_instances
    least = -(-most // 10) if endpoint.traffic == "linear" else 1
    if not least <= step <= count // 2:
        fleet = f"{count}" if most == count else f"{count} to {most}"
        allowed = (
            f"{least} to {count // 2}"
            if least <= count // 2
            else f"none: a tenth of {most} is more than half of {count}, so take a canary"
        )
        yield Problem(
            "endpoint.step_instances",
            f"got {step} of {fleet} instances; allowed for {endpoint.traffic}: {allowed}",
        )


def roll_out_ends_in_time(settings: Settings, catalog: Catalog) -> Problems:
    """A delivery waits two hours for the update; the pauses must leave time to start and undo."""
    minutes = settings.endpoint.pause_minutes
    if minutes > MOST_PAUSE_MINUTES:
        yield Problem(
            "endpoint.step_minutes",
            f"got pauses of {minutes} minutes together with the bake; at most "
            f"{MOST_PAUSE_MINUTES}: lower it or bake_minutes, or raise step_instances",
        )


def alarms_have_time(settings: Settings, catalog: Catalog) -> Problems:
    """An alarm looks at whole minutes; a fleet that has gone cannot come back."""
    minutes = settings.endpoint.bake_minutes
    if minutes < LEAST_BAKE_MINUTES:
        yield warning(
            "endpoint.bake_minutes",
            f"got {minutes}; the alarms that bring the former model back need "
            f"{LEAST_BAKE_MINUTES} minutes to ring",
        )


def fleet_is_doubled(settings: Settings, catalog: Catalog) -> Problems:
    """Blue/green starts a second fleet: the quota must hold both.

    Source: SageMaker guide, "Blue/green deployments".
    """
    endpoint = settings.endpoint
    most = endpoint.most_instances
    yield Problem(
        "endpoint.instance_count",
        f"a roll-out runs up to {most} instance(s) twice: the quota "
        f"'{endpoint.instance_type} for endpoint usage' must be {2 * most} or more",
        Level.NOTE,
    )


def scaling_has_room(settings: Settings, catalog: Catalog) -> Problems:
    """Between the least and the most there must be an instance to add."""
    endpoint = settings.endpoint
    if endpoint.scaling and endpoint.scaling.max_count <= endpoint.instance_count:
        yield Problem(
            "endpoint.scaling.max_count",
            f"got {endpoint.scaling.max_count} with an instance_count of "
            f"{endpoint.instance_count}, the least; raise it, or remove [endpoint.scaling]",
        )


def vpc_has_two_zones(settings: Settings, catalog: Catalog) -> Problems:
    """SageMaker spreads instances over zones and asks for subnets in two of them.

    Source: SageMaker guide, "Give hosted endpoints access to resources in your VPC".
    """
    if settings.endpoint.vpc and settings.network.second_az_id is None:
        yield Problem(
            "network.second_az_id",
            "missing; endpoint.vpc needs a private subnet in a second zone",
        )


def capture_key_is_near(settings: Settings, catalog: Catalog) -> Problems:
    """A KMS key works in its own region, and a role is given rights on a key, not on its alias."""
    capture = settings.endpoint.capture
    if capture is None or capture.key_arn is None:
        return
    _, _, service, region, _, resource = capture.key_arn.split(":", 5)
    if service != "kms" or region != settings.aws.region or not resource.startswith("key/"):
        yield Problem(
            "endpoint.capture.key_arn",
            f"got {capture.key_arn!r}; it should be a KMS key of {settings.aws.region}: "
            f"arn:aws:kms:{settings.aws.region}:ACCOUNT:key/ID",
        )
