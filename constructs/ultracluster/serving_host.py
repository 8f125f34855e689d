"""What would serve a model, as the delivery's checks and `ultracluster package check` need it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ultracluster.catalog import Catalog
from ultracluster.images import serving_image
from ultracluster.serving_process import serving_process
from ultracluster.settings import Settings

# The volume of an instance for a model, where the endpoint configuration asks for no other.
DISK_GIB = 30


@dataclass(frozen=True, kw_only=True)
class ServingHost:
    """The instance type and the image of an endpoint.

    Attributes:
        torch: version in the serving image, as `python`.
        memory_gib: of one instance.
        disk_gib: of the volume that a model is unpacked on.
        package_mib: the largest archive that memory and time limits reckon with.
        workers: processes that hold the model.
        bf16: whether the processor computes in bfloat16.
    """

    instance: str
    torch: str
    python: str
    memory_gib: float
    disk_gib: float
    package_mib: int
    workers: int
    bf16: bool

    def environment(self) -> dict[str, str]:
        """The variables that the validating function reads it from."""
        return {f"SERVING_{name.upper()}": _written(value) for name, value in asdict(self).items()}


def serving_host(settings: Settings, catalog: Catalog) -> ServingHost:
    """The host of an environment's endpoint."""
    instance = catalog.serving_instance(settings.endpoint.instance_type)
    assert instance is not None, "the rules let no other instance type pass"  # noqa: S101
    image = serving_image(settings, catalog)
    return ServingHost(
        instance=instance.name,
        torch=image.torch,
        python=image.python,
        memory_gib=instance.memory_gib,
        disk_gib=DISK_GIB,
        package_mib=settings.endpoint.largest_package_mib,
        workers=serving_process(settings.endpoint, instance).workers,
        bf16=instance.bf16,
    )


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
