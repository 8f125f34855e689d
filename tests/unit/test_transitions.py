"""A change of settings never asks CloudFormation to take back what a deployed stack still uses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.environments import ROOT, Synthesized, synthesize

DEV = (ROOT / "config" / "dev.toml").read_text(encoding="utf-8")
CHANGES = {
    "public head node": "[cluster.head_node]\npublic = true\n",
    "log-in nodes, containers": "[cluster]\ncontainers = true\n[cluster.login_nodes]\n",
    "other links": '[[lustre.links]]\npath = "/corpus"\nprefix = "corpus"\n',
    "alarms, larger endpoint": (
        '[monitoring]\nemail = "a@example.com"\nmonthly_budget_usd = 9\n'
        "[endpoint]\ninstance_count = 2\n"
    ),
}


def made(folder: Path, text: str) -> Synthesized:
    folder.mkdir()
    (folder / "team.toml").write_text(text, encoding="utf-8")
    return synthesize(str(folder / "team.toml"), folder / "out")


def exports(environment: Synthesized) -> set[str]:
    return {
        json.dumps(output["Export"]["Name"])
        for template in environment.templates.values()
        for output in template.get("Outputs", {}).values()
        if "Export" in output
    }


def imports(environment: Synthesized) -> set[str]:
    text = json.dumps(environment.templates)
    return set(re.findall(r'"Fn::ImportValue": ("[^"]+")', text))


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Synthesized:
    return made(tmp_path_factory.mktemp("before") / "dev", DEV)


@pytest.mark.case("C01")
@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_no_export_in_use_is_taken_back(change: str, before: Synthesized, tmp_path: Path) -> None:
    after = made(tmp_path / "after", DEV + change)
    assert len(imports(before)) >= 3
    for old, new in ((before, after), (after, before)):
        removed = exports(old) - exports(new)
        assert removed & imports(old) == set()
        assert imports(new) <= exports(new)
