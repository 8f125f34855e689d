"""`[lustre]` and `[buckets]`: everything that holds data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ultracluster.settings.section import AzId, Section

Event = Literal["NEW", "CHANGED", "DELETED"]


class Link(Section):
    """`[[lustre.links]]`: a folder of the file system that mirrors a prefix of a bucket."""

    path: str = Field(pattern=r"^/([\w.-]+(/[\w.-]+)*)?$")
    """Folder of the file system, seen on nodes below /fsx."""
    prefix: str = Field(default="", pattern=r"^([\w.-]+(/[\w.-]+)*)?$")
    """Prefix of the bucket; empty is all of it."""
    bucket: str | None = Field(
        default=None,
        min_length=3,
        max_length=63,
        pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$",
    )
    """An own bucket; unset is the environment's data bucket."""
    bucket_region: str | None = None
    """Region of an own bucket, which must be this one."""
    import_events: tuple[Event, ...] = Field(default=("NEW", "CHANGED"), strict=False)
    """Changes of the bucket that the file system follows."""
    export_events: tuple[Event, ...] = Field(default=("NEW", "CHANGED"), strict=False)
    """Changes of files that the bucket follows; DELETED removes objects too."""


class Lustre(Section):
    """`[lustre]`: the shared file system of the cluster, mounted at /fsx."""

    deployment_type: Literal["SCRATCH_1", "SCRATCH_2", "PERSISTENT_1", "PERSISTENT_2"] = "SCRATCH_2"
    """SCRATCH_2 is cheapest and keeps one copy; PERSISTENT_2 survives a failed server."""
    storage_type: Literal["SSD", "HDD"] = "SSD"
    """HDD with PERSISTENT_1 only."""
    capacity_gib: int = 1200
    """GiB, in the steps of the deployment type; SSD: 1200 or a multiple of 2400."""
    throughput_mb_per_tib: int | None = None
    """MB/s for each TiB; PERSISTENT types only, and required there."""
    version: Literal["2.12", "2.15"] = "2.15"
    """Lustre server version; the clients of the supported systems are 2.15."""
    compression: bool = True
    """Compresses data with LZ4 on the servers."""
    customer_key: bool = False
    """Encrypts with a KMS key of this environment; PERSISTENT types only."""
    backup_days: int = Field(default=0, ge=0, le=90)
    """Days that automatic backups stay; 0 makes none. PERSISTENT types without links only."""
    keep: bool = False
    """Keeps the file system on destroy; needs an imported VPC or `network.keep`."""
    az_id: AzId | None = None
    """Zone of the file system; unset is that of the accelerators."""
    links: tuple[Link, ...] = Field(default=(Link(path="/data", prefix="data"),), strict=False)
    """Folders that mirror S3, at most 8; by default /data and data/ of the data bucket."""


class Buckets(Section):
    """`[buckets]`: the model bucket and the data bucket."""

    customer_key: bool = False
    """Encrypts with a KMS key of this environment instead of S3's own."""
    noncurrent_days: int = Field(default=30, ge=1, le=3650)
    """Days that an overwritten or deleted version stays."""
