"""The tables, with a user's own rows laid over them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ultracluster.catalog.rows import (
    InstanceType,
    KnownBad,
    LustreKind,
    NeuronSet,
    ServingImage,
    ServingInstance,
)

TABLES = (
    "instance_types",
    "az_offerings",
    "fsx",
    "serving_images",
    "serving_instances",
    "neuron",
    "parallelcluster",
)


class CatalogError(Exception):
    """A user's own catalog cannot be used; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """Facts about AWS.

    Attributes:
        tables: each table by its name, with the user's rows.
        own: the user's rows alone, by table.
        own_path: the user's file, or None.
    """

    tables: Mapping[str, Mapping[str, Any]]
    own: Mapping[str, Mapping[str, Any]]
    own_path: Path | None = None

    def source(self, table: str) -> str:
        """Date and refresh command of a table, for messages that rest on it."""
        facts = self.tables[table]
        return f"catalog as of {facts['date']}; refresh with: {facts['refresh']}"

    def instance_type(self, name: str) -> InstanceType | None:
        """The row of an EC2 type, or None where the catalog does not know it."""
        row = self.tables["instance_types"]["types"].get(name)
        return InstanceType(name=name, **row) if row else None

    def accelerator_names(self) -> list[str]:
        """Every EC2 type with accelerators that the catalog knows."""
        types = self.tables["instance_types"]["types"]
        return [name for name, row in types.items() if row.get("accelerators")]

    def quota(self, row: InstanceType) -> str:
        """Name of the vCPU quota that a type counts against."""
        letters = "trn" if row.family.startswith("trn") else row.family[0]
        quotas = self.tables["instance_types"]["quotas"]
        return str(quotas.get(letters, "Running On-Demand Standard instances"))

    def prices_date(self) -> str:
        """The day of the prices, YYYY-MM-DD."""
        return str(self.tables["instance_types"]["date"])

    def offered_az_ids(self, *, region: str, instance: str) -> list[str] | None:
        """AZ ids of the region that offer the type; None where the type is offered widely."""
        offers = self.tables["az_offerings"]["offerings"].get(instance)
        return None if offers is None else list(offers.get(region, []))

    def offered_by_own_row(self, *, region: str, instance: str, az_id: str) -> bool:
        """Whether only the user's own file says that the zone offers the type."""
        own = self.own.get("az_offerings", {}).get("offerings", {}).get(instance, {})
        known = _table("az_offerings")["offerings"].get(instance, {})
        return az_id in own.get(region, []) and az_id not in known.get(region, [])

    def lustre(self, *, deployment: str, storage: str, throughput: int | None) -> LustreKind | None:
        """What FSx accepts, or None where the deployment type has no such storage."""
        row = self.tables["fsx"]["types"][deployment].get(storage)
        if row is None:
            return None
        step = row["step"]
        if isinstance(step, Mapping):
            step = step.get(str(throughput), next(iter(step.values())))
        return LustreKind(
            sizes=tuple(row["sizes"]),
            step=step,
            throughput=tuple(row["throughput"]),
            versions=tuple(row["versions"]),
            links=row["links"],
        )

    def lustre_regions_without(self, deployment: str) -> list[str]:
        """Regions that do not offer a deployment type of FSx for Lustre."""
        return list(self.tables["fsx"]["not_offered"].get(deployment, []))

    def most_links(self) -> int:
        """Data repository associations that one file system takes."""
        return int(self.tables["fsx"]["most_links"])

    def graviton_image(self) -> ServingImage:
        """AWS's newest PyTorch image for Graviton."""
        table = self.tables["serving_images"]
        return ServingImage(**table["graviton"], accounts=table["accounts"])

    def graviton_images(self, repository: str) -> dict[str, ServingImage] | None:
        """Images in one of AWS's arm64 repositories, by tag; None where it is not one of them."""
        rows = self.tables["serving_images"]["images"].get(repository)
        if rows is None:
            return None
        return {tag: ServingImage(repository=repository, tag=tag, **rows[tag]) for tag in rows}

    def graviton_repositories(self) -> list[str]:
        """AWS's repositories of PyTorch serving images for arm64."""
        return list(self.tables["serving_images"]["images"])

    def serving_family(self, name: str) -> dict[str, ServingInstance]:
        """The SageMaker types of a Graviton family, such as c7g, by name."""
        table = self.tables["serving_instances"]
        row = table["families"].get(name)
        if row is None:
            return {}
        found = {}
        for size in row["sizes"]:
            vcpus = int(table["vcpus"][size])
            found[f"ml.{name}.{size}"] = ServingInstance(
                name=f"ml.{name}.{size}",
                vcpus=vcpus,
                memory_gib=vcpus * row["gib_per_vcpu"],
                bf16=row["bf16"],
            )
        return found

    def serving_instance(self, name: str) -> ServingInstance | None:
        """The row of a SageMaker type, such as ml.c7g.4xlarge; None where it is not Graviton."""
        parts = name.split(".")
        return self.serving_family(parts[1]).get(name) if len(parts) == 3 else None

    def graviton_families(self) -> list[str]:
        """SageMaker hosting families with Graviton processors."""
        return list(self.tables["serving_instances"]["families"])

    def neuron_set(self, name: str) -> NeuronSet | None:
        """The packages of a Neuron release, or None where the catalog does not know it."""
        row = self.tables["neuron"]["sets"].get(name)
        if row is None:
            return None
        lists = {key: tuple(row[key]) for key in ("python", "os")}
        return NeuronSet(name=name, **{**row, **lists})

    def neuron_set_names(self) -> list[str]:
        """Every Neuron release that the catalog knows."""
        return list(self.tables["neuron"]["sets"])

    def system_python(self, os: str) -> str | None:
        """The Python that an operating system brings."""
        python: str | None = self.tables["neuron"]["system_python"].get(os)
        return python

    def cluster_versions(self) -> Mapping[str, list[str]]:
        """Operating systems of each ParallelCluster version."""
        versions: Mapping[str, list[str]] = self.tables["parallelcluster"]["versions"]
        return versions

    def cluster_minimum(self) -> Mapping[str, str]:
        """The oldest ParallelCluster that can create a cluster: version, reason, issue."""
        minimum: Mapping[str, str] = self.tables["parallelcluster"]["minimum"]
        return minimum

    def cluster_regions(self) -> list[str]:
        """Regions of ParallelCluster."""
        return list(self.tables["parallelcluster"]["regions"])

    def known_bad(self) -> list[KnownBad]:
        """Combinations of ParallelCluster, system and instance type that are known to fail."""
        found = []
        for row in self.tables["parallelcluster"]["known_bad"]:
            lists = {key: tuple(value) for key, value in row.items() if isinstance(value, list)}
            found.append(KnownBad(**{**row, **lists}))
        return found

    def blocked_runtimes(self) -> list[str]:
        """Lambda runtimes that can no longer be created."""
        return list(self.tables["parallelcluster"]["blocked_runtimes"])


@cache
def _table(name: str) -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def load_catalog(own: Path | None = None) -> Catalog:
    """The catalog, with the rows of a user's own file laid over it.

    Args:
        own: a TOML file whose first level names tables; a list in it replaces ours.

    Raises:
        CatalogError: the file cannot be read, or names a table that there is not.
    """
    rows = _read(own) if own else {}
    unknown = sorted(set(rows) - set(TABLES))
    if unknown:
        raise CatalogError(
            f"{own}: got the table(s) {', '.join(unknown)}; allowed: {', '.join(TABLES)}"
        )
    odd = [name for name, table in rows.items() if not isinstance(table, Mapping)]
    if odd:
        raise CatalogError(f"{own}: {', '.join(odd)} should be a table; see docs/settings.md")
    try:
        tables = {name: _laid_over(_table(name), rows.get(name, {}), name) for name in TABLES}
    except CatalogError as error:
        raise CatalogError(f"{own}: {error}") from None
    catalog = Catalog(tables=tables, own=rows, own_path=own)
    for kind, names in (
        (catalog.instance_type, rows.get("instance_types", {}).get("types", {})),
        (catalog.neuron_set, rows.get("neuron", {}).get("sets", {})),
        (catalog.graviton_images, rows.get("serving_images", {}).get("images", {})),
        (catalog.serving_family, rows.get("serving_instances", {}).get("families", {})),
    ):
        for name in names:
            try:
                kind(name)
            except (TypeError, KeyError) as error:
                raise CatalogError(f"{own}: row {name!r} has wrong fields: {error}") from None
    return catalog


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CatalogError(f"{path}: cannot be read as TOML: {error}") from None


def _laid_over(base: Mapping[str, Any], own: Mapping[str, Any], path: str) -> dict[str, Any]:
    """One table with a user's rows over ours.

    Raises:
        CatalogError: a value has another form than the one it replaces, or than its neighbours.
    """
    merged = dict(base)
    for key, value in own.items():
        place = f"{path}.{key}"
        known = base[key] if key in base else _neighbour(base)
        if known is not None and not _same_form(known, value):
            example = repr(known)
            raise CatalogError(
                f"{place}: got {value!r}; it should look like {example[:100]}"
                f"{'...' if len(example) > 100 else ''}"
            )
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            rows = known if key in base else dict.fromkeys(value)
            merged[key] = _laid_over(rows, value, place)
        else:
            merged[key] = value
    return merged


def _neighbour(table: Mapping[str, Any]) -> Any:
    """What a new row of a table should look like: tables and lists stand among their kind."""
    values = list(table.values())
    alike = len({type(value) for value in values}) == 1 and isinstance(values[0], (dict, list))
    return values[0] if alike else None


def _same_form(known: Any, value: Any) -> bool:
    if isinstance(known, bool) or isinstance(value, bool):
        return isinstance(known, bool) and isinstance(value, bool)
    if isinstance(known, (int, float)):
        return isinstance(value, (int, float)) and 0 <= value < float("inf")
    if isinstance(known, list):
        if not isinstance(value, list):
            return False
        return not known or all(_same_form(known[0], item) for item in value)
    if isinstance(known, Mapping):
        return isinstance(value, Mapping)
    return isinstance(value, str) and value != ""
