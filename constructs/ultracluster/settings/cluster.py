"""`[cluster]`: the ParallelCluster cluster."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ultracluster.catalog import PARALLELCLUSTER_VERSION
from ultracluster.settings.queues import Queue
from ultracluster.settings.section import Arn, Section

Os = Literal["alinux2023", "ubuntu2204", "ubuntu2404", "rhel8", "rhel9", "rocky8", "rocky9"]


class HeadNode(Section):
    """`[cluster.head_node]`: runs Slurm; private and reached by Session Manager by default."""

    instance_type: str = "c5.4xlarge"
    """EC2 type, x86 as Trn1 is; memory in GB of a 25th of all nodes is needed."""
    public: bool = False
    """Puts it into the public subnet with an elastic IP."""
    ssh_key: str | None = Field(default=None, min_length=1, max_length=255)
    """Name of an EC2 key pair (ed25519 on Ubuntu); unset leaves SSH keys out."""
    ssh_from: str | None = None
    """CIDR or prefix list id that may reach port 22; required with `ssh_key`."""
    ssh_from_anywhere: bool = False
    """Confirms `ssh_from = "0.0.0.0/0"`."""
    root_volume_gib: int = Field(default=200, ge=50, le=16384)
    """GiB; holds /home and the operating system."""


class LoginNodes(Section):
    """`[cluster.login_nodes]`: nodes for people, so that the head node runs Slurm alone."""

    instance_type: str = "m5.xlarge"
    """EC2 type, x86."""
    count: int = Field(default=1, ge=1, le=20)
    """How many; they stand behind a network load balancer in the private subnet."""


class Accounting(Section):
    """`[cluster.accounting]`: a MySQL-compatible database for Slurm's accounting."""

    uri: str = Field(pattern=r"^[a-zA-Z0-9.-]+(:[0-9]{1,5})?$")
    """Host and port of the database, reachable from the private subnet."""
    user_name: str = Field(min_length=1)
    """User of the database."""
    password_secret_arn: Arn
    """Secrets Manager secret that holds the password as plain text."""
    database_name: str | None = Field(default=None, pattern=r"^[0-9a-z_]{1,64}$")
    """Unset takes one from the cluster's name."""


class Cluster(Section):
    """`[cluster]`: a Slurm cluster made by AWS ParallelCluster."""

    version: str = PARALLELCLUSTER_VERSION
    """ParallelCluster version; a running cluster never changes it."""
    os: Os = "ubuntu2404"
    """Operating system of every node."""
    custom_ami: str | None = Field(default=None, pattern=r"^ami-([0-9a-f]{8}|[0-9a-f]{17})$")
    """Own image with Neuron installed: boot then only proves the node. Required without NAT."""
    neuron: str = "2.28.1"
    """Neuron release of the nodes, a row of the catalog."""
    bootstrap_minutes: int = Field(default=35, ge=15)
    """Time for a node to become ready; all of creation must stay under CloudFormation's hour."""
    scaledown_minutes: int = Field(default=10, ge=1)
    """Idle time after which Slurm gives a node back."""
    queue_update: Literal["drain", "terminate"] = "drain"
    """What a queue change does with busy nodes: waits for their jobs, or ends them."""
    rollback_on_failure: bool = True
    """False keeps a cluster that could not be created, for a look at its logs."""
    containers: bool = False
    """Enroot and Pyxis for `srun --container-image`."""
    head_node: HeadNode = HeadNode()
    """The head node."""
    login_nodes: LoginNodes | None = None
    """Log-in nodes; unset makes none."""
    accounting: Accounting | None = None
    """Slurm accounting; unset keeps none."""
    queues: tuple[Queue, ...] = Field(min_length=1, max_length=50, strict=False)
    """At least one and at most 50."""
    overrides: dict[str, Any] = Field(default_factory=dict)
    """Any other key of ParallelCluster's configuration, merged in last."""
