"""What a reviewer reads in a pull request, and the ids that must not change."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

SNAPSHOTS = Path(__file__).parents[1] / "snapshots"
STACKS = ("network", "storage", "cluster", "endpoint", "delivery", "monitoring")
GOLDEN = SNAPSHOTS / "stateful_ids.yaml"
# A rename of one of these replaces it: data, addresses or a serving endpoint are lost.
STATEFUL = {
    "AWS::EC2::VPC",
    "AWS::EC2::Subnet",
    "AWS::S3::Bucket",
    "AWS::KMS::Key",
    "AWS::FSx::FileSystem",
    "AWS::SageMaker::Endpoint",
    "Custom::PclusterCluster",
}


def normalised(template: dict[str, Any]) -> str:
    """The template as YAML, without asset hashes and CDK's own bookkeeping."""
    kept = {
        section: {
            name: {key: value for key, value in item.items() if key != "Metadata"}
            for name, item in template[section].items()
        }
        for section in ("Parameters", "Conditions", "Resources", "Outputs")
        if section in template
    }
    for item in ("BootstrapVersion",):
        kept.get("Parameters", {}).pop(item, None)
    text = yaml.safe_dump(kept, sort_keys=True, width=110)
    return re.sub(r"[0-9a-f]{64}", "<asset>", text)


@pytest.fixture
def renew(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--renew-snapshots"))


@pytest.mark.parametrize("stack", STACKS)
def test_template_is_the_reviewed_one(
    stack: str, templates: dict[str, dict[str, Any]], renew: bool
) -> None:
    path = SNAPSHOTS / f"{stack}.yaml"
    text = normalised(templates[stack])
    if renew:
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, "changed; review, then `make snapshots`"


def test_every_stack_has_a_snapshot(templates: dict[str, dict[str, Any]]) -> None:
    assert set(templates) == set(STACKS)


def test_things_with_state_keep_their_ids(
    templates: dict[str, dict[str, Any]], renew: bool
) -> None:
    ids = sorted(
        f"{stack} {name} {resource['Type']}"
        for stack, template in templates.items()
        for name, resource in template["Resources"].items()
        if resource["Type"] in STATEFUL
    )
    if renew:
        GOLDEN.write_text(yaml.safe_dump(ids), encoding="utf-8")
    assert ids == yaml.safe_load(GOLDEN.read_text(encoding="utf-8"))
