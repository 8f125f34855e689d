"""Publishes what neuron-monitor reports to CloudWatch, once a minute, with the Slurm job's id.

Runs on nodes with the system's python and the AWS CLI; reads neuron-monitor's JSON lines from
standard input.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_NAMESPACE = "UltraCluster/Neuron"
_PERIOD_SECONDS = 60
# CloudWatch takes 1000 metrics in a request; the command line takes fewer.
_BATCH = 100


def job_of(pid: int, proc: Path = Path("/proc")) -> str:
    """The Slurm job of a process; `none` where it is in none, or has ended."""
    try:
        environment = (proc / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return "none"
    for variable in environment:
        if variable.startswith(b"SLURM_JOB_ID="):
            return variable.partition(b"=")[2].decode()
    return "none"


def measures(
    report: dict[str, Any], proc: Path = Path("/proc")
) -> Iterator[tuple[str, str, float]]:
    """Metric, job and value of each thing that one report of neuron-monitor tells."""
    for runtime in report.get("neuron_runtime_data", []):
        job, told = job_of(runtime["pid"], proc), runtime.get("report", {})
        cores = told.get("neuroncore_counters", {}).get("neuroncores_in_use", {})
        for core in cores.values():
            yield "NeuronCoreUtilization", job, core["neuroncore_utilization"]
        memory = told.get("memory_used", {}).get("neuron_runtime_used_bytes", {})
        if "neuron_device" in memory:
            yield "DeviceMemory", job, memory["neuron_device"]
        errors = told.get("execution_stats", {}).get("error_summary", {})
        if errors:
            yield "ExecutionErrors", job, sum(errors.values())
    counters = report.get("system_data", {}).get("neuron_hw_counters", {})
    devices = counters.get("neuron_devices") or []
    if devices:
        yield (
            "UncorrectedEcc",
            "none",
            sum(one["mem_ecc_uncorrected"] + one["sram_ecc_uncorrected"] for one in devices),
        )


_UNITS = {"NeuronCoreUtilization": "Percent", "DeviceMemory": "Bytes"}


def metric_data(
    values: dict[tuple[str, str], list[float]], *, cluster: str, node: str
) -> list[dict[str, Any]]:
    """One minute of values as CloudWatch's statistic sets: by job, and by job and node."""
    data = []
    for (metric, job), given in sorted(values.items()):
        by_job = [{"Name": "Cluster", "Value": cluster}, {"Name": "JobId", "Value": job}]
        for dimensions in (by_job, [*by_job, {"Name": "Node", "Value": node}]):
            data.append(
                {
                    "MetricName": metric,
                    "Dimensions": dimensions,
                    "Unit": _UNITS.get(metric, "Count"),
                    "StatisticValues": {
                        "SampleCount": len(given),
                        "Sum": sum(given),
                        "Minimum": min(given),
                        "Maximum": max(given),
                    },
                }
            )
    return data


def publish(data: list[dict[str, Any]], *, region: str) -> None:
    """Send metrics; one that is refused is reported and lost, the next minute goes on."""
    for begin in range(0, len(data), _BATCH):
        command = [
            "aws", "cloudwatch", "put-metric-data", "--region", region,
            "--namespace", _NAMESPACE,
            "--metric-data", json.dumps(data[begin : begin + _BATCH]),
        ]  # fmt: skip
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            sys.stderr.write(f"put-metric-data: {result.stderr.strip()}\n")


def main() -> None:
    """Publish until neuron-monitor ends; what came in since the last minute is sent then."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--region", required=True)
    arguments = parser.parse_args()
    node = socket.gethostname().partition(".")[0]
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    due = time.monotonic() + _PERIOD_SECONDS
    for line in sys.stdin:
        for metric, job, value in measures(json.loads(line)):
            values[metric, job].append(value)
        if time.monotonic() >= due:
            publish(
                metric_data(values, cluster=arguments.cluster, node=node), region=arguments.region
            )
            values.clear()
            due = time.monotonic() + _PERIOD_SECONDS
    publish(metric_data(values, cluster=arguments.cluster, node=node), region=arguments.region)


if __name__ == "__main__":
    main()
