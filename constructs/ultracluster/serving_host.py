"""What would serve a model, as the delivery's checks and `ultracluster package check` need it."""

from __future__ import annotations

from dataclasses import asdict

from shared.host import DISK_GIB, Host
from ultracluster.catalog import Catalog
from ultracluster.images import serving_image
from ultracluster.serving_process import serving_process
from ultracluster.settings import Settings


def serving_host(settings: Settings, catalog: Catalog) -> Host:
    """The host of an environment's endpoint."""
    instance = catalog.serving_instance(settings.endpoint.instance_type)
    assert instance is not None, "the rules let no other instance type pass"  # noqa: S101
    image = serving_image(settings, catalog)
    return Host(
        instance=instance.name,
        torch=image.torch,
        python=image.python,
        memory_gib=instance.memory_gib,
        disk_gib=DISK_GIB,
        package_mib=settings.endpoint.largest_package_mib,
        workers=serving_process(settings.endpoint, instance).workers,
        bf16=instance.bf16,
    )


def host_environment(host: Host) -> dict[str, str]:
    """The variables that the validating function reads a host from."""
    return {f"SERVING_{name.upper()}": _written(value) for name, value in asdict(host).items()}


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
