"""What a node is, and whether it is fit for a run."""

import json
import os
import re
import resource
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from training.slurm.plan import Plan

LIMIT = 60
# Ranks open files for each peer: 65,536 is what Neuron's documentation asks for on 16 nodes.
OPEN_FILES_A_RANK = 128
OPEN_FILES = (4096, 65536)
# How many ranks the runtime of a Trn1 takes: its documentation, "supported number of workers".
NEURON_RANKS = (1, 2, 8, 32)


@dataclass(frozen=True, kw_only=True)
class Node:
    """Facts of the machine that this process is on.

    Attributes:
        kind: trainium, nvidia, or empty where there is no accelerator.
        accelerators: devices that the instance type has.
        cores: NeuronCores that the tools see, or GPUs of the instance type; 1 without any.
        efa_interfaces: that this node was started with; 0 in a queue without EFA.
        price: US dollars an hour, None where it is not known.
    """

    kind: str
    accelerators: int
    cores: int
    efa_interfaces: int
    price: float | None

    def network(self, plan: Plan) -> str:
        """What the ranks talk by: efa or tcp."""
        if plan.network == "auto":
            return "efa" if self.efa_interfaces and plan.nodes > 1 else "tcp"
        return plan.network


def look() -> Node:
    """The facts of this node, from what its boot has written and what its tools say."""
    root = _root()
    platform = _json(root / "etc/ultracluster/platform.json")
    instance = (platform.get("instance") if isinstance(platform, dict) else None) or {}
    kind = str(instance.get("kind", ""))
    kind = kind if kind in ("trainium", "nvidia") else ""
    accelerators = int(instance.get("accelerators", 0))
    asked = _text(root / "etc/ultracluster/efa") == "efa"
    cores = sum(_cores()) if kind == "trainium" else accelerators if kind else 1
    return Node(
        kind=kind,
        accelerators=accelerators,
        cores=cores,
        efa_interfaces=int(instance.get("efa_interfaces", 0)) if asked else 0,
        price=instance.get("price_usd_per_hour"),
    )


def problems_of(plan: Plan, node: Node) -> list[str]:
    """Why a run must not start on this node; empty where it may."""
    problems = []
    network = node.network(plan)
    if node.kind == "trainium":
        if (found := len(_cores())) != node.accelerators:
            problems.append(f"neuron-ls sees {found} of {node.accelerators} devices")
        if plan.nodes > 1 and not node.efa_interfaces and plan.network != "tcp":
            problems.append(
                "several Trainium nodes need EFA, and this instance type or queue has none; "
                "choose trn1.32xlarge with efa = true, or one node"
            )
        ranks = plan.ranks_per_node or node.cores
        if plan.nodes > 1 and ranks != node.cores:
            problems.append(f"{ranks} ranks a node: several nodes need one on each core")
        elif ranks not in NEURON_RANKS:
            problems.append(f"{ranks} ranks a node: a Trn1 takes 1, 2, 8 or 32")
        problems += _version_problems()
    if network == "efa":
        found = len(
            set(re.findall(r"domain: (\S+?)-(?:rdm|dgrm)$", _told("fi_info", "-p", "efa"), re.M))
        )
        if not found or found != (node.efa_interfaces or found):
            problems.append(
                f"fi_info sees {found} of {node.efa_interfaces} EFA interfaces; without them the "
                "ranks would fall back to TCP and say nothing"
            )
    ranks = plan.nodes * (plan.ranks_per_node or node.cores)
    least, most = OPEN_FILES
    needed = min(max(least, ranks * OPEN_FILES_A_RANK), most)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < needed:
        problems.append(
            f"a process may open {hard} files, and each of {ranks} ranks needs {needed}; see "
            "/etc/security/limits.d and the limits of slurmd"
        )
    for what, place in (
        ("the output", Path(plan.output).parent),
        ("the compile cache", Path(plan.cache)),
        *([("staged data", Path(plan.scratch))] if plan.stage else []),
    ):
        if problem := _unwritable(place):
            problems.append(f"cannot write {what} to {place}: {problem}")
    return problems


def neuron_packages() -> dict[str, str]:
    """Versions of what decides how a graph is compiled; empty without Neuron."""
    found = {}
    for name in ("neuronx-cc", "torch-neuronx", "libneuronxla"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _version_problems() -> list[str]:
    """What of driver, compiler and framework is not of the node's one Neuron release."""
    root = _root()
    told = _text(root / "opt/ultracluster/release/boot.env")
    wanted = dict(re.findall(r"^(NEURON_\w+)=(\S+)$", told, re.M))
    if "NEURON_RELEASE" not in wanted:
        return []  # an image of one's own, whose versions its maker answers for
    packages = neuron_packages()
    pairs = (
        ("driver", "NEURON_DRIVER", _text(root / "sys/module/neuron/version")),
        ("neuronx-cc", "NEURON_COMPILER", packages.get("neuronx-cc", "")),
        ("torch-neuronx", "NEURON_FRAMEWORK", packages.get("torch-neuronx", "")),
    )
    return [
        f"{name} is {found or 'missing'}, Neuron {wanted['NEURON_RELEASE']} has {wanted[key]}"
        for name, key, found in pairs
        if not f"{found}.".startswith(f"{wanted[key]}.")
    ]


def _cores() -> list[int]:
    """NeuronCores of each device that neuron-ls sees."""
    try:
        return [int(one["nc_count"]) for one in json.loads(_told("neuron-ls", "--json-output"))]
    except (ValueError, TypeError, KeyError):
        return []


def _told(*command: str) -> str:
    """What a tool says in time; nothing where it is missing, fails or hangs."""
    path = f"{os.environ.get('PATH', '')}:/opt/aws/neuron/bin:/opt/amazon/efa/bin"
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT, env=os.environ | {"PATH": path}
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout if result.returncode == 0 else ""


def _unwritable(folder: Path) -> str:
    """Why no file can be made in a folder, which is made where it is missing."""
    probe = folder / f".probe-{os.uname().nodename}-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _root() -> Path:
    """The root of the file system, or of what stands in for it, as for the boot scripts."""
    return Path(os.environ.get("ULTRACLUSTER_ROOT", "/"))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _json(path: Path) -> Mapping[str, Any] | None:
    try:
        content: Mapping[str, Any] = json.loads(_text(path))
    except ValueError:
        return None
    return content
