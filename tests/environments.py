"""Synthesizes environments for tests, each once a session."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
STACKS = ("network", "storage", "cluster", "endpoint", "delivery", "monitoring")
EXAMPLES = tuple(
    f"examples/{path.stem}" for path in sorted((ROOT / "config" / "examples").glob("*.toml"))
)
ENVIRONMENTS = ("dev", "prod", "rehearsal", *EXAMPLES)

Template = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Synthesized:
    """One environment's cloud assembly.

    Attributes:
        name: as `-c environment=` takes it.
        folder: the assembly.
        templates: by the stack's short name.
        findings: what cdk-nag found, as (rule with details, path of the construct).
    """

    name: str
    folder: Path
    templates: Mapping[str, Template]
    findings: tuple[tuple[str, str], ...]

    @property
    def prefix(self) -> str:
        """What stack names start with."""
        return f"ultracluster-{self.name.rsplit('/', 1)[-1].removesuffix('.toml')}"

    def metadata(self, kind: str) -> Iterator[tuple[str, Any]]:
        """Path and data of every metadata entry of a kind."""
        manifest = json.loads((self.folder / "manifest.json").read_text())
        for artifact in manifest["artifacts"].values():
            entries = artifact.get("metadata", {})
            extra = artifact.get("additionalMetadataFile")
            if extra:
                entries = {**entries, **json.loads((self.folder / extra).read_text())}
            for path, items in entries.items():
                for item in items:
                    if item["type"] == kind:
                        yield path.removeprefix("/"), item["data"]

    def resources(self, *types: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """Stack, logical id and body of every resource of some types, or of all."""
        for stack, template in self.templates.items():
            for logical_id, resource in template["Resources"].items():
                if not types or resource["Type"] in types:
                    yield stack, logical_id, resource


def synthesize(name: str, folder: Path) -> Synthesized:
    """Synthesize an environment, with cdk-nag's findings recorded and not raised."""
    import aws_cdk as cdk
    from cdk_nag import AwsSolutionsChecks

    from app import build_app

    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    app = build_app(name, context=context, outdir=str(folder))
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks())
    try:
        app.synth()
    except RuntimeError as error:
        if "ValidationFailed" not in str(error):
            raise
    return Synthesized(
        name=name,
        folder=folder,
        templates={
            path.name.removesuffix(".template.json").rsplit("-", 1)[-1]: json.loads(
                path.read_text()
            )
            for path in sorted(folder.glob("*.template.json"))
        },
        findings=tuple(_findings(folder / "validation-report.json")),
    )


def _findings(report: Path) -> Iterator[tuple[str, str]]:
    if not report.is_file():
        return
    for plugin in json.loads(report.read_text())["pluginReports"]:
        if plugin["pluginName"] != "AwsSolutions":
            continue  # our own warnings are reported there too
        for violation in plugin["violations"]:
            for construct in violation["violatingConstructs"]:
                yield violation["ruleName"], construct["constructPath"]
