"""Rules of names, tags and of what stands in free-form keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ultracluster.catalog import Catalog
from ultracluster.rules.problem import Problem, Problems, leaves, warning
from ultracluster.settings import Settings

STACKS = ("network", "storage", "cluster", "endpoint", "delivery", "monitoring")
CLUSTER_NAME_LIMIT = 40
MOST_TAGS = 30
PLACEHOLDER = re.compile(r"\$\{[^}]*\}?|\{\{.*?\}\}|^\{[^{}]*\}$|^<[^<>]+>$")
MOVING = re.compile(r"raw\.githubusercontent\.com/.+/(main|master)/|(^|[/:@-])latest([/.-]|$)")


def names_fit(settings: Settings, catalog: Catalog) -> Problems:
    """The cluster's name, `<name>-<environment>`, is a stack of its own beside ours.

    Source: ParallelCluster's ClusterNameValidator, 40 characters with Slurm accounting.
    """
    if len(settings.prefix) > CLUSTER_NAME_LIMIT:
        yield Problem(
            "name",
            f"got {settings.prefix!r}, {len(settings.prefix)} characters together with the "
            f"environment; at most {CLUSTER_NAME_LIMIT}: shorten one",
        )
    ending = settings.environment.rsplit("-", 1)[-1]
    if "-" in settings.environment and ending in STACKS:
        yield Problem(
            "environment",
            f"got {settings.environment!r}; its cluster would have the name of the {ending} stack "
            f"of environment {settings.environment.removesuffix('-' + ending)!r}: rename the file",
        )


def tags_are_allowed(settings: Settings, catalog: Catalog) -> Problems:
    """Keys of AWS and ParallelCluster are taken; lengths are those of EC2 tags."""
    if len(settings.tags) > MOST_TAGS:
        yield Problem("tags", f"got {len(settings.tags)}; at most {MOST_TAGS}")
    for key, value in settings.tags.items():
        if key.lower().startswith(("aws:", "parallelcluster:", "ultracluster:")):
            yield Problem(f"tags.{key}", "got a reserved prefix; rename the key")
        if not 1 <= len(key) <= 128 or len(value) > 256:
            yield Problem(f"tags.{key}", "keys have 1 to 128 characters, values at most 256")


def nothing_is_left_unrendered(settings: Settings, catalog: Catalog) -> Problems:
    """Placeholders of a shell template or of a guide never reach the API."""
    for path, value in _texts("", settings.model_dump()):
        found = PLACEHOLDER.search(value)
        if found:
            yield Problem(path, f"got {value!r}; replace the placeholder {found[0]!r}")


def own_keys_are_sound(settings: Settings, catalog: Catalog) -> Problems:
    """Key names, mount folders and scripts among the free-form keys of the cluster.

    Source: ParallelCluster passes nested mount folders, and scripts that move under a fixed URL.
    """
    for path, value in _texts("cluster.overrides", settings.cluster.overrides):
        key = path.rsplit(".", 1)[-1]
        if key == "KeyName" and value.endswith(".pem"):
            yield Problem(path, f"got {value!r}; name the key pair, not its file")
        if key == "MountDir":
            yield from _mount(path, value)
        if MOVING.search(value):
            yield warning(
                path, f"got {value!r}, which changes under its name: pin a version or a commit"
            )


def _mount(path: str, value: str) -> Problems:
    if " " in value or not value.startswith("/"):
        yield Problem(path, f"got {value!r}; a mount folder is absolute and has no blanks")
    elif f"{value.rstrip('/')}/".startswith("/fsx/"):
        yield Problem(path, f"got {value!r}; /fsx is the file system's own: mount beside it")


def counts_are_numbers(settings: Settings, catalog: Catalog) -> Problems:
    """ParallelCluster's counts and sizes are numbers; a string comes from a template."""
    for path, value in _texts("cluster.overrides", settings.cluster.overrides):
        key = path.rsplit(".", 1)[-1]
        if key in ("MinCount", "MaxCount", "Count", "Size") and not value.isdigit():
            yield Problem(path, f"got {value!r}; write a number")


def _texts(path: str, value: Any) -> Iterator[tuple[str, str]]:
    return ((place, leaf) for place, leaf in leaves(path, value) if isinstance(leaf, str))
