"""The instance and the image that would serve a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shared.manifest import Manifest
from shared.problem import Problem

MACHINE = "aarch64"
"""Every endpoint of this product runs on Graviton."""

MIB = 1024**2
GIB = 1024 * MIB
DISK_GIB = 30
"""The volume that SageMaker unpacks a model on, by default."""

# Measured with TorchServe 0.12 and roberta-base, 500 MB of weights: 442 MB for the server and its
# parent, 727 MB a worker; a quarter of the weights more for a request.
SERVER_MIB = 512
WORKER_MIB = 256
MEMORY_PER_WEIGHT = 1.25


@dataclass(frozen=True, kw_only=True)
class Host:
    """What a model is held against.

    `instance` is SageMaker's name of the type; `torch` and `python` are the image's versions;
    `package_mib` is the largest archive that the endpoint's time limits reckon with; `workers` is
    the number of processes, each with a copy of the weights.
    """

    instance: str
    torch: str
    python: str
    memory_gib: float
    disk_gib: float
    package_mib: int
    workers: int
    bf16: bool

    @property
    def platform(self) -> str:
        """The name of the folder below `code/vendor` that this host uses."""
        return f"cp{''.join(self.python.split('.')[:2])}-{MACHINE}"

    def needed_bytes(self, weights: int) -> int:
        """An estimate of the memory that weights of so many bytes (as fp32) need."""
        workers = self.workers * (MEMORY_PER_WEIGHT * weights + WORKER_MIB * MIB)
        return int(workers + SERVER_MIB * MIB)


def unfit(manifest: Manifest, host: Host, minimum_macro_f1: float) -> Iterator[Problem]:
    """What a manifest says against serving its model on a host, behind a gate."""
    for name, needed, has in (
        ("torch", manifest.requires_torch, host.torch),
        ("python", manifest.requires_python, host.python),
    ):
        if _version(has) < _version(needed):
            yield Problem(
                reason=f"{name}-too-old",
                message=f"the model needs {name} {needed} or newer, the serving image has {has}",
            )
    if manifest.archive_bytes > host.package_mib * MIB:
        yield Problem(
            reason="instance-package",
            message=(
                f"the archive has {manifest.archive_bytes / MIB:.0f} MiB, the endpoint's time "
                f"limits reckon with {host.package_mib}; raise endpoint.largest_package_mib"
            ),
        )
    if manifest.macro_f1 < minimum_macro_f1:
        yield Problem(
            reason="below-gate",
            message=(
                f"macro_f1 on {manifest.evaluation_set} is {manifest.macro_f1}, "
                f"allowed: {minimum_macro_f1} or more"
            ),
        )


def _version(text: str) -> tuple[int, ...]:
    """Numbers of a version; 2.6 and 2.6.0 are the same."""
    numbers = [int(part) for part in text.split("+")[0].split(".")]
    return tuple(numbers + [0] * (3 - len(numbers)))
