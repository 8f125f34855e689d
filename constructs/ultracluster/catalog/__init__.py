"""Dated facts about AWS: instance types, availability zones, serving images.

The rows are data (`*.toml` beside this file), each file with the date of its facts and the command
that refreshes them; messages that rest on a row show both.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

PARALLELCLUSTER_VERSION = "3.16.1"


@dataclass(frozen=True, kw_only=True)
class InstanceType:
    """An EC2 type that a queue may hold."""

    name: str
    vcpus: int
    accelerators: int
    efa_interfaces: int
    price_usd_per_hour: float
    """On demand, us-west-2."""


@dataclass(frozen=True, kw_only=True)
class ServingImage:
    """A container image of AWS for SageMaker hosting on Graviton."""

    repository: str
    tag: str
    torch: str
    python: str
    patched_until: str


@cache
def _table(name: str) -> dict[str, Any]:
    return tomllib.loads(files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def instance_type(name: str) -> InstanceType | None:
    """The row of an EC2 type, or None where the catalog does not know it."""
    row = _table("instance_types")["types"].get(name)
    return InstanceType(name=name, **row) if row else None


def instance_type_names() -> list[str]:
    """Every EC2 type the catalog knows."""
    return sorted(_table("instance_types")["types"])


def offered_az_ids(*, region: str, instance: str) -> list[str]:
    """AZ ids of the region that offer the type."""
    zones: list[str] = _table("az_offerings")["offerings"].get(instance, {}).get(region, [])
    return zones


def source(table: str) -> str:
    """`as of DATE; refresh with: COMMAND` of a table, for messages that rest on it."""
    facts = _table(table)
    return f"catalog as of {facts['date']}; refresh with: {facts['refresh']}"


def prices_date() -> str:
    """The day of the prices, YYYY-MM-DD."""
    return str(_table("instance_types")["date"])


def graviton_image() -> ServingImage:
    """AWS's newest PyTorch image for Graviton."""
    return ServingImage(**_table("serving_images")["graviton"])


def graviton_families() -> list[str]:
    """SageMaker hosting families with Graviton processors."""
    return list(_table("serving_images")["families"])
