"""The health check that Slurm runs: a sick node is drained with its reason, a sound one is left."""

from __future__ import annotations

import pytest

from tests.unit.boot.conftest import Release
from tests.unit.boot.node import SCRIPTS, Node

ENTRY = SCRIPTS / "boot.sh"


@pytest.fixture
def booted(node: Node, release: Release) -> Node:
    assert node.run(ENTRY, "configured", "bucket", release(), "efa").returncode == 0
    node.forget()
    return node


def check(node: Node, **variables: str) -> list[str]:
    """Run the check; the commands that drained the node."""
    result = node.run(node.root / "opt/ultracluster/release/node_health.sh", **variables)
    assert result.returncode == 0, result.stderr
    return [call for call in node.calls if call.startswith("scontrol update")]


def test_a_sound_node_is_left_alone(booted: Node) -> None:
    assert check(booted) == []


def test_slurm_can_run_it(booted: Node) -> None:
    script = booted.root / "opt/ultracluster/release/node_health.sh"
    assert script.stat().st_mode & 0o111


def test_a_lost_device_drains_the_node(booted: Node) -> None:
    (drained,) = check(booted, DEVICES="12")
    assert drained == (
        "scontrol update nodename=train-dy-train-nodes-1 state=drain "
        "reason=ultracluster: neuron-ls sees 12 of 16 devices"
    )


def test_uncorrected_memory_errors_drain_the_node(booted: Node) -> None:
    counter = "/sys/devices/virtual/neuron_device/neuron3/stats/hardware/{}_ecc_uncorrected/total"
    booted.write(counter.format("sram"), "0\n")
    assert check(booted) == []
    booted.write(counter.format("mem"), "2\n")
    (drained,) = check(booted)
    assert "uncorrected ECC errors: 2 in /sys/devices/virtual/neuron_device/neuron3" in drained


def test_a_hardware_error_of_the_driver_drains_the_node(booted: Node) -> None:
    booted.stub(
        "dmesg",
        'echo "[1.0] neuron: NEURON_HW_ERR=HBM_UE instance-id=i-1 action=TERMINATE_INSTANCE"',
    )
    (drained,) = check(booted)
    assert "the driver reports NEURON_HW_ERR=HBM_UE" in drained


def test_all_reasons_are_given_at_once(booted: Node) -> None:
    booted.stub("mountpoint", "false")
    (drained,) = check(booted, DEVICES="0")
    assert "/fsx is not mounted; neuron-ls sees 0 of 16 devices" in drained


def test_a_node_that_drains_already_is_not_drained_again(booted: Node) -> None:
    assert check(booted, DEVICES="0", NODE_STATE="ALLOCATED+CLOUD+DRAIN") == []


def test_a_gpu_with_memory_errors_drains_the_node(node: Node, release: Release) -> None:
    name = release(instance_type="p4d.24xlarge")
    gpu = {"TYPE": "p4d.24xlarge", "EFAS": "4"}
    assert node.run(ENTRY, "configured", "bucket", name, "efa", **gpu).returncode == 0
    assert check(node, **gpu) == []
    node.stub("nvidia-smi", "if [[ $* == *ecc* ]]; then echo 0; echo 3; else seq 0 7; fi")
    (node.bin / "seq").symlink_to("/usr/bin/seq")
    (drained,) = check(node, **gpu)
    assert "uncorrected ECC errors on 1 GPUs" in drained
