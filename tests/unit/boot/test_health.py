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


@pytest.mark.parametrize("status", [1, 15, 18, 124])
@pytest.mark.parametrize(("printed", "seen"), [("", 0), (" 0 1 2", 3)])
def test_a_neuron_ls_that_fails_drains_the_node(
    booted: Node, status: int, printed: str, seen: int
) -> None:
    booted.stub(
        "neuron-ls",
        f"for i in {printed or ' '}; do echo '  {{\"neuron_device\": '$i'}}'; done; exit {status}",
    )
    (drained,) = check(booted)
    assert drained.endswith(f"reason=ultracluster: neuron-ls sees {seen} of 16 devices")


@pytest.mark.parametrize("status", [1, 15, 18, 124])
@pytest.mark.parametrize(("printed", "seen"), [("", 0), (" 0 1 2", 3)])
def test_an_nvidia_smi_that_fails_drains_the_node(
    node: Node, release: Release, status: int, printed: str, seen: int
) -> None:
    name = release(instance_type="p4d.24xlarge")
    gpu = {"TYPE": "p4d.24xlarge", "EFAS": "4"}
    assert node.run(ENTRY, "configured", "bucket", name, "efa", **gpu).returncode == 0
    node.forget()
    node.stub(
        "nvidia-smi",
        f"if [[ $* != *ecc* ]]; then for i in {printed or ' '}; do echo $i; done; fi; exit {status}",
    )
    (drained,) = check(node, **gpu)
    assert drained.endswith(f"reason=ultracluster: nvidia-smi sees {seen} of 8 GPUs")


@pytest.mark.parametrize("status", [1, 15, 18, 124])
def test_a_dmesg_that_fails_hides_neither_its_own_words_nor_another_fault(
    booted: Node, status: int
) -> None:
    booted.stub("dmesg", f"echo 'neuron: NEURON_HW_ERR=DMA_ABORT x'; exit {status}")
    (drained,) = check(booted, DEVICES="12")
    assert "neuron-ls sees 12 of 16 devices; the driver reports NEURON_HW_ERR=DMA_ABORT" in drained
    booted.forget()
    booted.stub("dmesg", f"exit {status}")
    assert check(booted) == []


@pytest.mark.parametrize("status", [1, 15, 18, 124])
@pytest.mark.parametrize(("printed", "seen"), [("", 0), ("    domain: rdmap0-rdm", 1)])
def test_an_fi_info_that_fails_is_told_with_every_other_reason(
    booted: Node, status: int, printed: str, seen: int
) -> None:
    booted.stub("fi_info", f"echo '{printed}'; exit {status}")
    script = booted.root / "opt/ultracluster/release/node_health.sh"
    result = booted.run(script, "--prove", DEVICES="15")
    assert result.returncode == 1
    assert result.stderr == (
        f"ultracluster: neuron-ls sees 15 of 16 devices; fi_info sees {seen} of 8 EFA interfaces\n"
    )


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("mountpoint", "/fsx does not answer"),
        ("neuron-ls", "neuron-ls sees 0 of 16 devices"),
    ],
)
def test_a_command_that_hangs_drains_the_node(booted: Node, command: str, reason: str) -> None:
    booted.stub(command, "exec /bin/sleep 60")
    (drained,) = check(booted, LIMIT="0.5")
    assert drained.endswith(f"reason=ultracluster: {reason}")


def test_lost_facts_hide_no_other_fault(booted: Node) -> None:
    (booted.root / "etc/ultracluster/platform.json").unlink()
    booted.stub("mountpoint", "false")
    (drained,) = check(booted)
    assert drained.endswith(
        "/fsx is not mounted; no facts for instance type trn1.32xlarge in platform.json"
    )
