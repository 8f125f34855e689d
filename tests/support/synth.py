"""The application, synthesized from a settings file or from the text of one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app import build_app
from tests.support.parallelcluster import World, findings, refused_changes, world
from tests.support.resolved import Resolved, stringified

ROOT = Path(__file__).parents[2]
BASE = """
retention = "destroy"
[aws]
region = "us-west-2"
[network]
accelerator_az_id = "usw2-az4"
"""
QUEUE = """
[[cluster.queues]]
name = "train"
instance_type = "trn1.32xlarge"
max_count = 2
"""


@dataclass(frozen=True, kw_only=True)
class ClusterApp:
    """Templates of one environment.

    Attributes:
        templates: by short stack name.
        resolved: the same, with ids in place of references.
    """

    templates: dict[str, dict[str, Any]]
    resolved: Resolved

    @property
    def properties(self) -> dict[str, Any]:
        """Properties of the cluster's custom resource."""
        ((_, properties),) = self.resolved.of_type("Custom::PclusterCluster")
        return properties

    @property
    def configuration(self) -> dict[str, Any]:
        """The cluster's configuration, its numbers still numbers."""
        configuration: dict[str, Any] = self.properties["ClusterConfiguration"]
        return configuration

    def world(self) -> World:
        """What ParallelCluster would find of our stacks."""
        return world(self.resolved)

    def findings(self, given: World | None = None) -> list[tuple[str, str, str]]:
        """What ParallelCluster's validators say of the configuration as its function gets it."""
        name = self.properties["ClusterName"]
        return findings(name, stringified(self.configuration), given or self.world())

    def refused_changes(self, new: ClusterApp, given: World | None = None) -> list[str]:
        """Changes from this configuration to another that a running cluster does not take."""
        old_one, new_one = stringified(self.configuration), stringified(new.configuration)
        return refused_changes(old_one, new_one, given or new.world())


def synthesize(environment: str | Path, outdir: Path) -> ClusterApp:
    """Synthesize a settings file, by the name that `-c environment=` takes or by its path."""
    context = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    build_app(str(environment), context=context, outdir=str(outdir)).synth()
    templates = {
        path.name.removesuffix(".template.json"): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(outdir.glob("*.template.json"))
    }
    short = {name.rpartition("-")[2]: template for name, template in templates.items()}
    return ClusterApp(templates=short, resolved=Resolved(templates))


def of_text(text: str, folder: Path, *, name: str = "dev") -> ClusterApp:
    """Synthesize the text of a settings file; `folder` gets the file and the assembly."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / f"{name}.toml"
    settings.write_text(text, encoding="utf-8")
    return synthesize(settings, folder / "out")
