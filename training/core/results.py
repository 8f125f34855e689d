"""What every run reports besides its scores: time, cost, speed, versions and surroundings."""

import json
import os
import platform
import resource
import statistics
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from training.command import InputError
from training.core.backend import Backend
from training.core.data import Batch
from training.core.loop import Position
from training.core.metrics import Record, flops_per_second, speed
from training.core.settings import Train

SCHEMA = Path(__file__).parents[1] / "results.schema.json"
PLATFORM = Path("/etc/ultracluster/platform.json")
# Settings of the layers below that change speed or numbers. None of them holds a secret.
ENVIRONMENT = ("NEURON_", "XLA_", "PJRT_", "OMP_", "MKL_", "NCCL_", "FI_", "CUDA_", "SLURM_JOB_ID")
PROBE = 1024
PROBES = 5


def read_platform(path: Path | None) -> Mapping[str, Any]:
    """The facts of the node's platform.json; empty where there is none and none was named.

    Raises:
        InputError: the file that was named cannot be read.
    """
    if path is None and not PLATFORM.is_file():
        return {}
    try:
        content = json.loads((path or PLATFORM).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path or PLATFORM}: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path or PLATFORM} is not a platform.json: it is no object")
    return content


def run_facts(
    *,
    backend: Backend,
    batch: Batch,
    train: Train,
    position: Position,
    records: Sequence[Record],
    stalls: Sequence[float],
    other_seconds: float,
    site: Mapping[str, Any],
    packages: Sequence[str],
) -> dict[str, object]:
    """The parts of `results.json` that every task has.

    Args:
        backend: what computed.
        batch: how the global batch was cut.
        train: for the scaling rule.
        position: where the run ended, with the time of all its processes.
        records: the steps of this process.
        stalls: seconds that checkpoints held training up, one a checkpoint.
        other_seconds: of this process, outside of training.
        site: platform.json.
        packages: whose versions matter.
    """
    workers = backend.workers
    seconds = position.seconds + other_seconds
    return {
        "time": {
            "steps": position.step,
            "samples": position.samples,
            "train_seconds": round(position.seconds, 2),
            "total_seconds": round(seconds, 2),
            "samples_per_second": round(position.samples / position.seconds, 2),
            "starts": position.starts,
        },
        "cost": _cost(site, seconds, nodes=workers.nodes),
        "speed": _speed(backend, records),
        "checkpoints": {
            "written": len(stalls),
            "stall_seconds_median": round(statistics.median(stalls), 4) if stalls else None,
            "stall_seconds_max": round(max(stalls), 4) if stalls else None,
        },
        "parallel": {
            "workers": workers.world,
            "nodes": workers.nodes,
            "scaling": train.scaling,
            "batch_size": batch.size,
            "micro_batch_size": batch.micro,
            "accumulate": batch.accumulate,
            "learning_rate": batch.learning_rate,
        },
        "versions": backend.versions() | _versions(packages),
        "environment": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(ENVIRONMENT)
        },
        "hardware": _hardware(backend),
    }


def _cost(site: Mapping[str, Any], seconds: float, *, nodes: int) -> dict[str, object] | None:
    """What the instances cost for this time; None where platform.json names no instance."""
    instance = site.get("instance")
    if not instance:
        return None
    price = float(instance["price_usd_per_hour"])
    return {
        "instance_type": instance["type"],
        "nodes": nodes,
        "price_usd_per_hour": price,
        "price_date": instance["price_date"],
        "usd": round(price * nodes * seconds / 3600, 4),
    }


def _speed(backend: Backend, records: Sequence[Record]) -> dict[str, object]:
    """Rates over all workers, and the share of the hardware's peak that the model used (MFU)."""
    peak, source = backend.peak_flops()
    if peak is None and backend.device.type in ("cpu", "cuda"):
        peak = measure_peak(backend)
    used = flops_per_second(records)
    share = used / (peak * backend.workers.world) if used and peak else None
    figures = {
        name: round(value, 6) if isinstance(value, float) else value
        for name, value in speed(records).items()
    }
    return figures | {
        "model_flops_per_second": round(used) if used else None,
        "peak_flops_per_worker": round(peak) if peak else None,
        "peak_source": source,
        "mfu": round(share, 4) if share else None,
    }


def measure_peak(backend: Backend) -> float:
    """FLOP/s of a square matrix product in the run's precision, the best of a few."""
    kind = torch.bfloat16 if backend.precision == "bf16" else torch.float32
    size = PROBE * (8 if backend.device.type == "cuda" else 1)
    matrix = torch.ones(size, size, dtype=kind, device=backend.device)
    best = float("inf")
    for _ in range(PROBES):
        start = time.perf_counter()
        float((matrix @ matrix)[0, 0])  # waits for the device
        best = min(best, time.perf_counter() - start)
    return 2.0 * size**3 / best


def _versions(packages: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in packages:
        try:
            found[name.lower()] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _hardware(backend: Backend) -> dict[str, object]:
    """What this worker ran on. Memory is the most that its process held."""
    unit = 1 if platform.system() == "Darwin" else 1024
    return {
        "device": backend.device.type,
        "name": backend.name(),
        "machine": platform.machine(),
        "logical_cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "precision": backend.precision,
        "precision_reason": backend.reason,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
    }
