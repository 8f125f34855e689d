"""What every test of the application shares."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.environments import Synthesized, synthesize

# Before the first aws_cdk call: CDK's own linter is most of a synth, and one test runs it.
os.environ.setdefault("CDK_VALIDATION", "false")
ROOT = Path(__file__).parents[1]
# A node of the environment's own, where the machine's is too old for CDK.
if (ROOT / ".venv" / "bin" / "node").exists():
    os.environ.setdefault("JSII_NODE", str(ROOT / ".venv" / "bin" / "node"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew-snapshots", action="store_true", help="write tests/snapshots anew")


@pytest.fixture(scope="session")
def context() -> dict[str, Any]:
    """The context of cdk.json, which only the CDK CLI passes on by itself."""
    loaded: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    return loaded


@pytest.fixture(scope="session")
def assembly(context: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cloud assembly of the dev environment."""
    from app import build_app

    outdir = tmp_path_factory.mktemp("cdk.out")
    build_app("dev", context=context, outdir=str(outdir)).synth()
    yield outdir


@pytest.fixture(scope="session")
def templates(assembly: Path) -> dict[str, dict[str, Any]]:
    """Template of each stack of the dev environment, by its short name."""
    return {
        path.name.removesuffix(".template.json").removeprefix("ultracluster-dev-"): json.loads(
            path.read_text(encoding="utf-8")
        )
        for path in sorted(assembly.glob("*.template.json"))
    }


@pytest.fixture(scope="session")
def synthesized(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Synthesized]:
    """Any environment by the name that `-c environment=` takes, synthesized once."""
    made: dict[str, Synthesized] = {}

    def get(name: str) -> Synthesized:
        if name not in made:
            made[name] = synthesize(name, tmp_path_factory.mktemp("environment") / "out")
        return made[name]

    return get
