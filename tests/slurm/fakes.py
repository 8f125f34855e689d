"""Trn1 nodes that are none: their facts, and tools that tell of devices which are not there."""

from __future__ import annotations

import json
from pathlib import Path

from tests.slurm.cluster import SlurmCluster

VERSIONS = {"neuronx_cc": "2.26.6360.0", "torch_neuronx": "2.9.0.2.15.32035"}
BOOT = """\
NEURON_RELEASE=2.31.1
NEURON_DRIVER=2.29.0
NEURON_COMPILER=2.26.6360
NEURON_FRAMEWORK=2.9.0.2.15.32035
"""


class Trainium:
    """A root folder with a node's facts, and `fi_info`, `neuron-ls` and `lfs` on the path.

    One device of two cores and two EFA interfaces a node, unless a test says otherwise.
    """

    def __init__(self, folder: Path, tools: Path) -> None:
        self.folder, self.tools = folder, tools
        self.root = folder / "root"
        instance = {
            "type": "trn1.32xlarge",
            "kind": "trainium",
            "accelerators": 1,
            "efa_interfaces": 2,
            "price_usd_per_hour": 21.5,
            "price_date": "2026-08-01",
        }
        self.write("etc/ultracluster/platform.json", json.dumps({"instance": instance}))
        self.write("etc/ultracluster/efa", "efa")
        self.write("opt/ultracluster/release/boot.env", BOOT)
        self.write("sys/module/neuron/version", "2.29.0.0")
        for name, number in VERSIONS.items():
            self.package(name, number)
        self.set("efa", "2")
        self.set("devices", "1")
        self.tool(
            "fi_info",
            "for ((i = 0; i < $(told efa); i++)); do"
            " printf 'provider: efa\\n    domain: rdmap%d-rdm\\n' $i; done",
        )
        self.tool(
            "neuron-ls",
            "printf '['; for ((i = 0; i < $(told devices); i++)); do ((i == 0)) || printf ,;"
            ' printf \'{"neuron_device": %d, "nc_count": 2}\' $i; done; echo "]"',
        )

    def tool(self, name: str, body: str) -> None:
        """A command; `told NAME` in it gives what was set for this node, or for all."""
        told = (
            f'told() {{ cat "{self.folder}/$1.$SLURMD_NODENAME" 2>/dev/null ||'
            f' cat "{self.folder}/$1"; }}'
        )
        path = self.tools / name
        path.write_text(f"#!/bin/bash\n{told}\n{body}\n")
        path.chmod(0o755)

    def set(self, name: str, value: str, node: str = "") -> None:
        """What a tool tells of, on one node or all."""
        (self.folder / f"{name}{node and '.'}{node}").write_text(value)

    def write(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def package(self, name: str, number: str) -> None:
        """Make python believe that a package is installed."""
        folder = self.folder / "packages" / f"{name}.dist-info"
        folder.mkdir(parents=True, exist_ok=True)
        project = name.replace("_", "-")
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project}\nVersion: {number}\n"
        )

    @property
    def variables(self) -> dict[str, str]:
        """What a run is told, so that it sees all this."""
        return {"ULTRACLUSTER_ROOT": str(self.root), "PYTHONPATH": f"{self.folder / 'packages'}"}


def trainium_nodes(cluster: SlurmCluster, folder: Path) -> Trainium:
    """Make the nodes of a cluster look like Trn1's."""
    return Trainium(folder, cluster.run / "bin")
