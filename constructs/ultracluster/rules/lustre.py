"""Rules of the file system and of its links to S3."""

from __future__ import annotations

from itertools import combinations

from ultracluster.catalog import Catalog, LustreKind
from ultracluster.rules.problem import Problem, Problems, warning
from ultracluster.settings import Settings


def kind_exists(settings: Settings, catalog: Catalog) -> Problems:
    """HDD comes with PERSISTENT_1 only; some regions have no PERSISTENT_2."""
    lustre = settings.lustre
    if _kind(settings, catalog) is None:
        yield Problem(
            "lustre.storage_type",
            f"got {lustre.storage_type!r}; {lustre.deployment_type} has SSD alone",
        )
    if settings.aws.region in catalog.lustre_regions_without(lustre.deployment_type):
        yield Problem(
            "lustre.deployment_type",
            f"got {lustre.deployment_type!r}, which {settings.aws.region} does not offer: choose "
            f"PERSISTENT_1 with a throughput of 50, 100 or 200 ({catalog.source('fsx')})",
        )


def capacity_is_a_step(settings: Settings, catalog: Catalog) -> Problems:
    """Capacity comes in steps of the deployment type (CreateFileSystem, StorageCapacity)."""
    kind = _kind(settings, catalog)
    capacity = settings.lustre.capacity_gib
    if kind is None:
        return
    nearest = kind.nearest_sizes(capacity)
    if nearest != (capacity,):
        yield Problem(
            "lustre.capacity_gib",
            f"got {capacity}; nearest allowed: {' or '.join(map(str, nearest))}",
        )


def throughput_belongs_to_the_type(settings: Settings, catalog: Catalog) -> Problems:
    """PERSISTENT types need a throughput of their own generation, SCRATCH takes none."""
    lustre = settings.lustre
    kind = _kind(settings, catalog)
    if kind is None:
        return
    choices = ", ".join(map(str, kind.throughput))
    if lustre.throughput_mb_per_tib is None and kind.throughput:
        yield Problem(
            "lustre.throughput_mb_per_tib", f"missing; {lustre.deployment_type} takes {choices}"
        )
    elif lustre.throughput_mb_per_tib is not None and not kind.throughput:
        yield Problem(
            "lustre.throughput_mb_per_tib",
            f"got {lustre.throughput_mb_per_tib}; {lustre.deployment_type} takes none: remove it "
            "or choose PERSISTENT_2",
        )
    elif lustre.throughput_mb_per_tib is not None and (
        lustre.throughput_mb_per_tib not in kind.throughput
    ):
        yield Problem(
            "lustre.throughput_mb_per_tib",
            f"got {lustre.throughput_mb_per_tib}; {lustre.deployment_type} {lustre.storage_type} "
            f"takes {choices}",
        )


def scratch_has_no_key_and_no_backups(settings: Settings, catalog: Catalog) -> Problems:
    """Own keys and backups are for PERSISTENT types, backups for those without links.

    Source: CreateFileSystem (KmsKeyId, AutomaticBackupRetentionDays).
    """
    lustre = settings.lustre
    scratch = lustre.deployment_type.startswith("SCRATCH")
    if lustre.customer_key and scratch:
        yield Problem(
            "lustre.customer_key",
            f"got true; {lustre.deployment_type} is encrypted with a key of FSx: remove it or "
            "choose a PERSISTENT type",
        )
    if lustre.backup_days and (scratch or lustre.links):
        yield Problem(
            "lustre.backup_days",
            f"got {lustre.backup_days}; FSx backs up PERSISTENT types without links: set it to 0, "
            "or links = [] with a PERSISTENT type",
        )


def links_do_not_overlap(settings: Settings, catalog: Catalog) -> Problems:
    """Folders and prefixes are linked once; a file system takes eight links.

    Source: CreateDataRepositoryAssociation; hashicorp/terraform-provider-aws#24678.
    """
    lustre = settings.lustre
    kind = _kind(settings, catalog)
    if kind is not None and lustre.links and not kind.links:
        yield Problem(
            "lustre.links", f"got links; {lustre.deployment_type} takes none: set links = []"
        )
    most = catalog.most_links()
    if len(lustre.links) > most:
        yield Problem("lustre.links", f"got {len(lustre.links)}; FSx takes at most {most}")
    for (one, first), (two, second) in combinations(enumerate(lustre.links), 2):
        if _overlap(first.path, second.path):
            yield Problem(
                f"lustre.links[{two}].path",
                f"got {second.path!r}, which overlaps {first.path!r} of links[{one}]: choose "
                "folders beside each other",
            )
        if first.bucket == second.bucket and _overlap(f"/{first.prefix}", f"/{second.prefix}"):
            yield Problem(
                f"lustre.links[{two}].prefix",
                f"got {second.prefix!r}, which overlaps {first.prefix!r} of links[{one}] in the "
                "same bucket: choose another",
            )


def links_are_safe(settings: Settings, catalog: Catalog) -> Problems:
    """A deletion on one side must not empty the other; buckets are in the region.

    Source: aws-samples/parallelcluster-cdk (root linked both ways to a bucket that is emptied).
    """
    for index, link in enumerate(settings.lustre.links):
        path = f"lustre.links[{index}]"
        if "DELETED" in link.export_events:
            yield warning(
                f"{path}.export_events",
                "got 'DELETED': removing a file removes the object in S3 too",
            )
        if link.bucket is None and not link.prefix and not settings.keeps_data:
            yield Problem(
                f"{path}.prefix",
                "got the whole data bucket, which is emptied on destroy: link a prefix, or set "
                'retention = "retain"',
            )
        if link.bucket is not None and link.bucket_region != settings.aws.region:
            yield Problem(
                f"{path}.bucket_region",
                f"got {link.bucket_region!r}; FSx links buckets of its own region, "
                f"{settings.aws.region}: name it, or copy the data",
            )


def place_is_near(settings: Settings, catalog: Catalog) -> Problems:
    """Reads across zones are slow and billed."""
    zone, network = settings.lustre.az_id, settings.network
    if zone is None or zone == network.accelerator_az_id:
        return
    if zone != network.second_az_id:
        yield Problem(
            "lustre.az_id",
            f"got {zone!r}, where the network has no subnet: name it in network.second_az_id",
        )
    else:
        yield warning(
            "lustre.az_id",
            f"got {zone!r}; the accelerators are in {network.accelerator_az_id}: cross-AZ traffic "
            "is slower and billed",
        )


def kept_file_system_keeps_its_subnet(settings: Settings, catalog: Catalog) -> Problems:
    """A file system's network interfaces hold its subnet: one cannot go without the other."""
    network = settings.network
    if settings.lustre.keep and network.imported is None and not network.keep:
        yield Problem(
            "lustre.keep",
            "got true; its subnet would go: set network.keep = true or import a VPC",
        )


def _kind(settings: Settings, catalog: Catalog) -> LustreKind | None:
    lustre = settings.lustre
    return catalog.lustre(
        deployment=lustre.deployment_type,
        storage=lustre.storage_type,
        throughput=lustre.throughput_mb_per_tib,
    )


def _overlap(first: str, second: str) -> bool:
    one, two = f"{first.rstrip('/')}/", f"{second.rstrip('/')}/"
    return one.startswith(two) or two.startswith(one)
