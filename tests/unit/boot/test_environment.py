"""The shared Neuron environment: built once, whoever comes first."""

from __future__ import annotations

import fcntl
from pathlib import Path

from tests.unit.boot.conftest import Release
from tests.unit.boot.node import SCRIPTS, Node

ENTRY = SCRIPTS / "boot.sh"


def boot(node: Node, release: str) -> Path:
    """Boot once, so that the release is on the node; the environment's folder."""
    result = node.run(ENTRY, "configured", "bucket", release, "efa")
    assert result.returncode == 0, result.stderr
    return node.root / "fsx/envs/neuron-2.28.1"


def pip_calls(node: Node) -> list[str]:
    return [call for call in node.calls if call.startswith("pip install")]


def test_versions_are_exact_and_come_from_neurons_index(node: Node, release: Release) -> None:
    boot(node, release())
    (call,) = pip_calls(node)
    assert "torch-neuronx==2.9.0.2.12.22436" in call
    assert "neuronx-cc==2.23.6484.*" in call
    assert "--extra-index-url https://pip.repos.neuron.amazonaws.com" in call


def test_a_whole_environment_is_not_built_again_and_a_torn_one_is(
    node: Node, release: Release
) -> None:
    target = boot(node, release())
    boot(node, "r1")
    assert len(pip_calls(node)) == 1
    (target / ".complete").unlink()
    boot(node, "r1")
    assert len(pip_calls(node)) == 2


def test_one_builds_and_the_others_wait(node: Node, release: Release) -> None:
    target = boot(node, release())
    (target / ".complete").unlink()
    script = node.root / "opt/ultracluster/r1/environment.sh"
    impatient = script.read_text().replace("patience=1500", "patience=0")
    script.write_text(impatient)
    with (target.parent / f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = node.run(script)
        assert waiting.returncode == 1
        assert "another node has built" in waiting.stderr
        assert len(pip_calls(node)) == 1
    assert node.run(script).returncode == 0
    assert len(pip_calls(node)) == 2
