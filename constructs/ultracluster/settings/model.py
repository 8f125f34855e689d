"""All settings of one environment."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ultracluster.settings.cluster import Cluster
from ultracluster.settings.endpoint import Endpoint
from ultracluster.settings.network import Network
from ultracluster.settings.section import Arn, Name, Section
from ultracluster.settings.serving import Delivery, Monitoring
from ultracluster.settings.storage import Buckets, Lustre

LogDays = Literal[1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1827, 3653]


class Aws(Section):
    """`[aws]`: where the environment lives."""

    region: str = Field(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]$")
    """Region of every stack."""
    account: str | None = Field(default=None, pattern=r"^[0-9]{12}$")
    """Twelve digits; unset takes the account of the credentials at deploy."""
    permissions_boundary: Arn | None = None
    """Managed policy that bounds every role made here."""


class Settings(Section):
    """All settings of one environment; its name is the file's."""

    environment: Name
    """The file's own name, at most 20 lower-case letters, digits and hyphens."""
    name: Name = "ultracluster"
    """What every stack and physical name starts with, before the environment."""
    retention: Literal["retain", "destroy"] = "retain"
    """What `cdk destroy` does with buckets, their keys and logs."""
    termination_protection: bool = False
    """Refuses to delete a stack until this is off."""
    log_days: LogDays = 90
    """Days that log groups keep their events."""
    catalog: str | None = None
    """A file beside this one whose rows override the catalog's; unset is `catalog.toml`, if any."""
    tags: dict[str, str] = Field(default_factory=dict)
    """Put on everything that takes tags."""
    aws: Aws
    """Where the environment lives."""
    network: Network
    """The VPC."""
    lustre: Lustre = Lustre()
    """The shared file system."""
    buckets: Buckets = Buckets()
    """Model and data bucket."""
    cluster: Cluster
    """The Slurm cluster."""
    endpoint: Endpoint = Endpoint()
    """The endpoint."""
    delivery: Delivery = Delivery()
    """The road to the endpoint."""
    monitoring: Monitoring = Monitoring()
    """Alarms and budget."""

    @property
    def prefix(self) -> str:
        """`<name>-<environment>`: what every stack and physical name starts with."""
        return f"{self.name}-{self.environment}"

    @property
    def keeps_data(self) -> bool:
        """Whether buckets, their keys and logs outlive the environment."""
        return self.retention == "retain"
