"""neuron-monitor's reports on their way to CloudWatch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.unit.boot.node import SCRIPTS


def report(*, pid: int, utilization: float) -> dict[str, Any]:
    return {
        "neuron_runtime_data": [
            {
                "pid": pid,
                "report": {
                    "neuroncore_counters": {
                        "neuroncores_in_use": {
                            str(core): {"neuroncore_utilization": utilization} for core in range(2)
                        }
                    },
                    "memory_used": {
                        "neuron_runtime_used_bytes": {"host": 1, "neuron_device": 2048}
                    },
                    "execution_stats": {"error_summary": {"generic": 1, "hardware": 2}},
                },
            }
        ],
        "system_data": {
            "neuron_hw_counters": {
                "neuron_devices": [{"mem_ecc_uncorrected": 0, "sram_ecc_uncorrected": 1}]
            }
        },
    }


def published(tmp_path: Path, lines: str, *, job: str = "42") -> list[dict[str, Any]]:
    """What reaches CloudWatch from neuron-monitor's lines."""
    stub = tmp_path / "aws"
    stub.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$*" >>{tmp_path}/arguments\nfor last; do :; done\nprintf "%s\\n" "$last" >>{tmp_path}/sent\n'
    )
    stub.chmod(0o755)
    result = subprocess.run(
        [
            sys.executable,
            SCRIPTS / "neuron_metrics.py",
            "--cluster",
            "uc-dev",
            "--region",
            "us-west-2",
        ],
        input=lines,
        text=True,
        capture_output=True,
        env=os.environ | {"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )
    assert result.returncode == 0, result.stderr
    sent = tmp_path / "sent"
    if not sent.exists():
        return []
    return [item for line in sent.read_text().splitlines() for item in json.loads(line)]


def test_a_minute_is_summed_by_job_and_by_node(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "60"], env={"SLURM_JOB_ID": "42", "PATH": "/usr/bin:/bin"})
    try:
        lines = "".join(
            json.dumps(report(pid=child.pid, utilization=value)) + "\n" for value in (50, 100)
        )
        data = published(tmp_path, lines)
    finally:
        child.kill()
        child.wait()
    by_job = {
        one["MetricName"]: one["StatisticValues"]
        for one in data
        if one["Dimensions"]
        == [{"Name": "Cluster", "Value": "uc-dev"}, {"Name": "JobId", "Value": "42"}]
    }
    assert by_job["NeuronCoreUtilization"] == {
        "SampleCount": 4, "Sum": 300, "Minimum": 50, "Maximum": 100,
    }  # fmt: skip
    assert by_job["DeviceMemory"]["Maximum"] == 2048
    assert by_job["ExecutionErrors"]["Sum"] == 6
    nodes = [one for one in data if len(one["Dimensions"]) == 3]
    assert len(nodes) == len(data) / 2
    ecc = [one for one in data if one["MetricName"] == "UncorrectedEcc"]
    assert {one["Dimensions"][1]["Value"] for one in ecc} == {"none"}
    assert "--namespace UltraCluster/Neuron" in (tmp_path / "arguments").read_text()


def test_a_process_outside_slurm_and_an_idle_node_are_no_error(tmp_path: Path) -> None:
    gone = report(pid=2**22 + 1, utilization=1)
    data = published(tmp_path, json.dumps(gone) + "\n{}\n")
    assert {one["Dimensions"][1]["Value"] for one in data} == {"none"}
    (tmp_path / "sent").unlink()
    assert published(tmp_path, '{"neuron_runtime_data": []}\n') == []
