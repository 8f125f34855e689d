"""`[[cluster.queues]]`: the Slurm queues."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ultracluster.settings.section import AzId, Section

QueueName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,24}$")]
CapacityType = Literal["ondemand", "spot", "capacity-block"]


class Reservation(Section):
    """`[cluster.queues.reservation]`: EC2 capacity that is paid for already."""

    id: str = Field(pattern=r"^cr-([0-9a-f]{8}|[0-9a-f]{17})$")
    """Id of the capacity reservation or capacity block."""
    count: int = Field(ge=1)
    """Instances that it holds."""
    az_id: AzId
    """AZ id that it is in."""
    match: Literal["targeted", "open"] = "targeted"
    """An open reservation may be used up by anything else in the account."""


class Queue(Section):
    """`[[cluster.queues]]`: one Slurm queue of equal nodes."""

    name: QueueName
    """At most 25 lower-case letters, digits and hyphens."""
    instance_type: str = "trn1.32xlarge"
    """EC2 type of the nodes."""
    alternatives: tuple[str, ...] = Field(default=(), strict=False)
    """Further types with the same vCPUs that may be used where the first is not to be had."""
    min_count: int = Field(default=0, ge=0)
    """Nodes that run, and bill, all the time; with 0 creation needs no capacity."""
    max_count: int = Field(default=2, ge=1, le=100_000)
    """Nodes that Slurm may power up."""
    capacity_type: CapacityType = "ondemand"
    """How nodes are bought; a capacity block needs `reservation`."""
    spot_price: float | None = Field(default=None, gt=0, allow_inf_nan=False, strict=False)
    """Highest price in USD an hour; unset is the on-demand price. `spot` only."""
    reservation: Reservation | None = None
    """Capacity reservation or capacity block that the nodes come from."""
    efa: bool | None = None
    """EFA between nodes; unset is on for each type that has it."""
    placement_group: bool | None = None
    """One cluster placement group; unset is on with EFA where no reservation is named."""
    az_ids: tuple[AzId, ...] = Field(default=(), strict=False)
    """Zones of the nodes; empty is the accelerator's. EFA allows one."""
    root_volume_gib: int = Field(default=512, ge=50, le=16384)
    """GiB of each node's root volume; Neuron's guides ask for 512."""
