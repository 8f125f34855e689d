"""Dated facts about AWS: instance types, zones, file systems, images, Neuron and ParallelCluster.

The rows are data (`*.toml` beside this file), each file with the date of its facts and the command
that refreshes them; messages that rest on a row show both. A user's own file may override rows.
"""

from ultracluster.catalog.catalog import Catalog, CatalogError, load_catalog
from ultracluster.catalog.rows import (
    InstanceType,
    KnownBad,
    LustreKind,
    NeuronSet,
    ServingImage,
    ServingInstance,
)

PARALLELCLUSTER_VERSION = "3.16.1"

__all__ = [
    "PARALLELCLUSTER_VERSION",
    "Catalog",
    "CatalogError",
    "InstanceType",
    "KnownBad",
    "LustreKind",
    "NeuronSet",
    "ServingImage",
    "ServingInstance",
    "load_catalog",
]
