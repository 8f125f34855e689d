"""What one row of a table says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class InstanceType:
    """An EC2 type that a node may be."""

    name: str
    vcpus: int
    memory_gib: float
    price_usd_per_hour: float
    """On demand, Linux, in the region that the table names."""
    architecture: str = "x86_64"
    kind: str = ""
    """`trainium`, `nvidia`, or empty for a type without accelerators."""
    accelerators: int = 0
    cores: int = 0
    """NeuronCores of all chips."""
    network_cards: int = 1
    efa_interfaces: int = 0
    capacity_block: bool = False
    """Sold as a capacity block."""

    @property
    def family(self) -> str:
        """`trn1` of `trn1.32xlarge`."""
        return self.name.split(".")[0]

    @property
    def size(self) -> str:
        """`32xlarge` of `trn1.32xlarge`."""
        return self.name.split(".")[1]

    def addresses(self, *, efa: bool) -> int:
        """IPv4 addresses that a node takes: EFA-only interfaces carry none, plain ones one each."""
        return 1 if efa else self.network_cards


@dataclass(frozen=True, kw_only=True)
class LustreKind:
    """What a deployment type of FSx for Lustre accepts with one storage type."""

    sizes: tuple[int, ...]
    step: int
    """GiB; sizes above the listed ones are multiples of it."""
    throughput: tuple[int, ...]
    """MB/s for each TiB to choose from; empty takes none."""
    versions: tuple[str, ...]
    links: bool

    def nearest_sizes(self, gib: int) -> tuple[int, ...]:
        """The allowed capacity, or the allowed ones next to it."""
        below = max(gib, 0) // self.step * self.step
        allowed = sorted({*self.sizes, below, below + self.step} - {0})
        if gib in allowed:
            return (gib,)
        lower = [size for size in allowed if size < gib][-1:]
        return (*lower, *[size for size in allowed if size > gib][:1])


@dataclass(frozen=True, kw_only=True)
class NeuronSet:
    """One Neuron release: packages that were tested together."""

    name: str
    driver: str
    runtime: str
    collectives: str
    tools: str
    compiler: str
    framework: str
    """Version of torch-neuronx."""
    torch: str
    python: tuple[str, ...]
    os: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class KnownBad:
    """A combination that ParallelCluster's users reported as failing."""

    reason: str
    issue: str
    versions: tuple[str, ...] = ()
    os: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    level: str = "error"

    def matches(self, *, version: str, os: str, families: set[str]) -> bool:
        """Whether a cluster is such a combination; an empty field matches everything."""
        return (
            (not self.versions or any(f"{version}.".startswith(f"{v}.") for v in self.versions))
            and (not self.os or os in self.os)
            and (not self.families or not families.isdisjoint(self.families))
        )


@dataclass(frozen=True, kw_only=True)
class ServingImage:
    """A container image of AWS for SageMaker hosting on Graviton."""

    repository: str
    tag: str
    torch: str
    python: str
    patched_until: str
    accounts: Mapping[str, str] = field(default_factory=dict)
    """By region, where CDK's own facts do not know the account."""


@dataclass(frozen=True, kw_only=True)
class ServingInstance:
    """A SageMaker hosting type with a Graviton processor."""

    name: str
    vcpus: int
    memory_gib: int
    bf16: bool
    """Whether the processor computes in bfloat16."""
