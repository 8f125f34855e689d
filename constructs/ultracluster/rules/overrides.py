"""Rules of `[cluster.overrides]`, what it hands to ParallelCluster as it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ultracluster.catalog import Catalog
from ultracluster.rules.problem import Problem, Problems, leaves
from ultracluster.settings import Settings

# Top level of ParallelCluster's schema (User Guide, "Cluster configuration file"), with the form of
# each. Region is left out: the stack's own is the only one possible.
TABLES = {
    *("Image", "Imds", "HeadNode", "Scheduling", "LoginNodes", "Monitoring", "Iam"),
    *("AdditionalPackages", "DirectoryService", "DeploymentSettings", "DevSettings"),
}
FORMS = dict.fromkeys(TABLES, "table") | {
    "SharedStorage": "list of tables",
    "Tags": "list of tables",
    "AdditionalResources": "string",
    "CustomS3Bucket": "string",
}


def overrides_fit(settings: Settings, catalog: Catalog) -> Problems:
    """Keys and forms that ParallelCluster knows, and values that a template can hold."""
    overrides = settings.cluster.overrides
    for key, value in overrides.items():
        path = f"cluster.overrides.{key}"
        if key not in FORMS:
            yield Problem(path, f"unknown to ParallelCluster; allowed: {', '.join(sorted(FORMS))}")
        elif _form(value) != FORMS[key]:
            yield Problem(path, f"got {value!r}; it should be a {FORMS[key]}")
    scheduling = overrides.get("Scheduling")
    queues = scheduling.get("SlurmQueues") if isinstance(scheduling, Mapping) else None
    if queues is not None and not _named(queues):
        yield Problem(
            "cluster.overrides.Scheduling.SlurmQueues",
            "each item should be a table whose Name is that of the queue it changes",
        )
    yield from _unwritable(overrides)


def _form(value: Any) -> str:
    if isinstance(value, Mapping):
        return "table"
    if isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
        return "list of tables"
    return "string" if isinstance(value, str) else "value"


def _named(queues: Any) -> bool:
    return isinstance(queues, list) and all(
        isinstance(queue, Mapping) and isinstance(queue.get("Name"), str) for queue in queues
    )


def _unwritable(overrides: Mapping[str, Any]) -> Problems:
    """Values that JSON has no words for: dates, infinities."""
    for path, value in leaves("cluster.overrides", overrides):
        if not isinstance(value, (str, int, float)) or (
            isinstance(value, float) and not math.isfinite(value)
        ):
            yield Problem(
                path, f"got {value!r}; allowed: text, numbers, true and false: put it in quotes"
            )
