"""What a cluster of 1,875 nodes, 30,000 Trainium chips, asks of Slurm; and of the compile cache.

    make benchmark-slurm              # 1,875 nodes: 7 GB of memory, some minutes
    make benchmark-slurm NODES=64

A real slurmctld and as many real slurmd, on one machine, each on a port of its own. So scheduling
and the life cycle of nodes and jobs are real; training is not.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.slurm.cluster import SlurmCluster, reason_to_skip
from training.slurm.compile_cache import fetch, publish

NODES = 1875
REPEATS = 5
FIRST_PORT = 20_000
# Of BERT-large's compile: some tens of programs of some megabytes.
PROGRAMS, PROGRAM_BYTES = 40, 8 << 20


class ManyNodes(SlurmCluster):
    """Nodes that share one network and one name, told apart by their ports."""

    def _write_files(self) -> None:
        super()._write_files()
        path, count = self.run / "slurm.conf", len(self.names)
        text = path.read_text()
        for name, value in (("SlurmdTimeout", "0"), ("MessageTimeout", "60")):
            text = re.sub(rf"^{name}=.*$", f"{name}={value}", text, flags=re.M)
        text = re.sub(r"^SlurmdLogFile=.*$", "SlurmdLogFile=/dev/null", text, flags=re.M)
        ports = f"[{FIRST_PORT}-{FIRST_PORT + count - 1}]"
        nodes = (
            f"TreeWidth=50\nNodeName={self.names[0][:-1]}[1-{count}] NodeHostname=head"
            f" NodeAddr=127.0.0.1 Port={ports} CPUs=128 Boards=1 SocketsPerBoard=2"
            " CoresPerSocket=32 ThreadsPerCore=2 RealMemory=1 State=UNKNOWN"
        )
        path.write_text(re.sub(r"^NodeName=.*$", nodes, text, flags=re.M))

    def _boot_all(self) -> None:
        spool, prefix = self.run / "spool", self.names[0][:-1]
        self.shell(
            f"for ((i = 1; i <= {len(self.names)}; i++)); do mkdir {spool}/{prefix}$i;"
            f" nice slurmd -N {prefix}$i -d {self.stepd} 2>>{spool}/errors; done"
        )


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else NODES
    if reason := reason_to_skip():
        sys.exit(f"cannot measure: {reason}")
    with tempfile.TemporaryDirectory() as folder:
        print(f"{count} nodes on {os.cpu_count()} cores")
        begun = time.perf_counter()
        with ManyNodes(Path(folder) / "run", nodes=count) as cluster:
            print(f"all idle after {time.perf_counter() - begun:.1f} s")
            _jobs(cluster, count)
        _cache(Path(folder))


def _jobs(cluster: SlurmCluster, count: int) -> None:
    """A job of all nodes: until it is submitted, starts, and has given all of them back."""
    submitted, started, idle = [], [], []
    for number in range(REPEATS):
        mark = cluster.run / f"mark-{number}"
        begun = time.time()
        job = cluster.shell(
            f"sbatch --parsable --exclusive --nodes={count} --output=/dev/null"
            f" --wrap 'date +%s.%N >{mark}'"
        )
        submitted.append(time.time() - begun)
        cluster.wait(partial(_is_over, cluster, int(job)), f"job {job}")
        started.append(float(mark.read_text()) - begun)
        cluster.wait(lambda: len(cluster.idle()) == count, "all nodes idle")
        idle.append(time.time() - begun)
    for what, values in (("submitted", submitted), ("started", started), ("over", idle)):
        middle = statistics.median(values)
        print(
            f"a job of all nodes is {what} after {middle:.2f} s"
            f" ({min(values):.2f} to {max(values):.2f}, {REPEATS} jobs)"
        )


def _is_over(cluster: SlurmCluster, job: int) -> bool:
    return cluster.state(job) == "COMPLETED"


def _cache(folder: Path) -> None:
    """Sharing programs and fetching them, beside a plain copy of the same files."""
    private = folder / "private"
    for number in range(PROGRAMS):
        program = private / "neuronxcc-2.26" / f"MODULE_{number}+a"
        program.mkdir(parents=True)
        (program / "model.neff").write_bytes(os.urandom(PROGRAM_BYTES))
        (program / "model.done").touch()
    plain = _seconds(lambda: shutil.copytree(private, folder / "plain"))
    shared = _seconds(lambda: publish(private, folder / "shared", patience=60))
    again = _seconds(lambda: publish(private, folder / "shared", patience=60))
    fetched = _seconds(lambda: fetch(folder / "shared", folder / "other"))
    print(
        f"{PROGRAMS} programs of {PROGRAM_BYTES >> 20} MB: shared in {shared:.2f} s,"
        f" {shared / plain:.1f} times a plain copy; nothing new: {again * 1000:.0f} ms;"
        f" fetched in {fetched:.2f} s"
    )


def _seconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
