"""What may change without a new cluster: ParallelCluster's own update check says so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.synth import ClusterApp
from tests.unit.cluster.conftest import Make
from ultracluster import boot_files

QUEUE = '[[cluster.queues]]\nname = "train"\ninstance_type = "{type}"\nmax_count = {count}\n'


@pytest.mark.case("P05")
def test_an_edited_script_reaches_a_running_cluster(
    make: Make, dev: ClusterApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited = tmp_path / "boot"
    shutil.copytree(boot_files.SCRIPTS, edited)
    with (edited / "node_health.sh").open("a") as script:
        script.write("# edited\n")
    monkeypatch.setattr(boot_files, "SCRIPTS", edited)
    new = make()
    assert new.configuration != dev.configuration
    assert dev.refused_changes(new) == []
    # What may never change has not.
    for action in ("OnNodeStart", "OnNodeConfigured"):
        before, after = (
            one.configuration["HeadNode"]["CustomActions"][action] for one in (dev, new)
        )
        assert before == after


def test_a_changed_fact_reaches_the_head_node_and_disturbs_no_queue(
    make: Make, dev: ClusterApp
) -> None:
    new = make("[delivery]\nminimum_macro_f1 = 0.9\n")
    assert dev.refused_changes(new) == []
    assert new.configuration["Scheduling"] == dev.configuration["Scheduling"]
    before, after = (one.configuration["HeadNode"]["CustomActions"] for one in (dev, new))
    assert before["OnNodeUpdated"] != after["OnNodeUpdated"]


ALLOWED = {
    "more nodes": QUEUE.format(type="trn1.32xlarge", count=8),
    "another queue": QUEUE.format(type="trn1.32xlarge", count=2)
    + '[[cluster.queues]]\nname = "try"\ninstance_type = "trn1.2xlarge"\n',
    "log-in nodes": "[cluster.login_nodes]\ncount = 1\n",
    "another Neuron release": "[cluster]\nneuron = '2.29.1'\n",
    "containers": "[cluster]\ncontainers = true\n",
    "another model": "[endpoint]\nmodel_name = 'tone'\n",
    "a larger root volume": QUEUE.format(type="trn1.32xlarge", count=2) + "root_volume_gib = 600\n",
    "spot": QUEUE.format(type="trn1.32xlarge", count=2) + "capacity_type = 'spot'\n",
}
REFUSED = {
    "another type of node": (QUEUE.format(type="trn1n.32xlarge", count=2), "InstanceType"),
    "another head node": ("[cluster.head_node]\ninstance_type = 'm5.8xlarge'\n", "InstanceType"),
    "another system": ("[cluster]\nos = 'ubuntu2204'\n", "Os"),
    "an own image": ("[cluster]\ncustom_ami = 'ami-0123456789abcdef0'\n", "CustomAmi"),
    "a larger head volume": ("[cluster.head_node]\nroot_volume_gib = 900\n", "Size"),
    "time to boot": ("[cluster]\nbootstrap_minutes = 45\n", "HeadNodeBootstrapTimeout"),
    "idle time": ("[cluster]\nscaledown_minutes = 60\n", "ScaledownIdletime"),
    "fewer nodes, drained": (QUEUE.format(type="trn1.32xlarge", count=1), "MaxCount"),
}


@pytest.mark.parametrize("change", ALLOWED)
def test_a_running_cluster_takes(make: Make, dev: ClusterApp, change: str) -> None:
    new = make(ALLOWED[change])
    assert new.configuration != dev.configuration
    assert dev.refused_changes(new) == []


@pytest.mark.case("P11")
@pytest.mark.parametrize("change", REFUSED)
def test_a_running_cluster_refuses(make: Make, dev: ClusterApp, change: str) -> None:
    text, key = REFUSED[change]
    refused = dev.refused_changes(make(text))
    assert len(refused) == 1
    assert refused[0].endswith(key)


def test_fewer_nodes_are_taken_where_busy_ones_may_be_ended(make: Make) -> None:
    few, many = (
        make(
            f"[cluster]\nqueue_update = 'terminate'\n{QUEUE.format(type='trn1.32xlarge', count=n)}"
        )
        for n in (1, 2)
    )
    assert many.refused_changes(few) == []


@pytest.mark.case("P18")
def test_a_mount_is_not_taken_away_under_running_log_in_nodes(make: Make) -> None:
    log_in = "[cluster.login_nodes]\ncount = 1\n"
    mount = """
[[cluster.overrides.SharedStorage]]
Name = "scratch"
MountDir = "/shared"
StorageType = "Efs"
"""
    with_mount, without = make(log_in + mount), make(log_in)
    assert with_mount.refused_changes(without) != []
