"""A node that is no node: a temporary root, and stubs of the commands that boot scripts call."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parents[3] / "constructs" / "ultracluster" / "boot"
KERNEL = "6.8.0-1021-aws"
REAL = "bash basename cat chmod cp cut date dirname flock grep head install ln mkdir mv rm sed sort touch tr wc"

# Each stub writes its command line down, then does what the node would.
STUBS = {
    "uname": f"echo {KERNEL}",
    "sleep": "true",
    "hostname": "echo train-dy-train-nodes-1",
    "timeout": 'shift 3; if [[ ${LIMIT:-} ]]; then exec "$TIMEOUT" "$LIMIT" "$@"; fi; "$@"',
    "mountpoint": "true",
    "modprobe": "true",
    "systemctl": '[[ "$*" != *is-active* ]]',
    "systemd-run": "true",
    "apt-mark": "true",
    "dnf": "true",
    "rpm": "exit 1",
    "dmesg": "true",
    "sysctl": "true",
    "dkms": f'if [[ $1 == status ]]; then echo "aws-neuronx/2.26.10.0, {KERNEL}, x86_64: installed"; fi',
    "apt-get": 'for word in "$@"; do if [[ $word == *=* && $word == aws-* ]]; then echo "installed ${word#*=}" | sed "s/\\*/0/" >"$STATE/package-${word%%=*}"; fi; done',
    "dpkg-query": 'cat "$STATE/package-${@: -1}" 2>/dev/null',
    "neuron-ls": "for ((i = 0; i < ${DEVICES:-16}; i++)); do echo '  {\"neuron_device\": '$i'}'; done",
    "fi_info": "for ((i = 0; i < ${EFAS:-8}; i++)); do printf 'provider: efa\\n    domain: rdmap%d-rdm\\nprovider: efa\\n    domain: rdmap%d-dgrm\\n' $i $i; done",
    "nvidia-smi": 'if [[ $* == *ecc* ]]; then echo 0; else for ((i = 0; i < ${GPUS:-8}; i++)); do echo $i; done; fi',
    "scontrol": 'if [[ $1 == show ]]; then echo "   State=${NODE_STATE:-IDLE+CLOUD}"; fi',
    "curl": 'for word in "$@"; do case $word in *instance-type) echo -n "${TYPE:-trn1.32xlarge}" ;; */token) echo -n token ;; -o) out=next ;; *) if [[ ${out:-} == next ]]; then echo key >"$word"; out=; fi ;; esac; done',
    "python3.12": 'mkdir -p "$3/bin"; printf "#!/bin/bash\\necho pip \\"\\$@\\" >>$STATE/calls\\n" >"$3/bin/pip"; chmod +x "$3/bin/pip"',
    "aws": 'source=${4#s3://*/}; cp "$BUCKET/$source" "$5"',
}  # fmt: skip


@dataclass
class Node:
    """A root folder and what a boot script sees of it."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root = self.folder / "root"
        self.state = self.folder / "state"
        self.bucket = self.folder / "bucket"
        self.bin = self.folder / "bin"
        for folder in (self.root, self.state, self.bucket / "boot", self.bin):
            folder.mkdir(parents=True)
        for name in REAL.split():
            found = shutil.which(name)
            assert found, name
            (self.bin / name).symlink_to(found)
        for name, body in STUBS.items():
            self.stub(name, body)
        self.stub("python3", f'exec "{sys.executable}" "$@"')
        self.write("/etc/parallelcluster/cfnconfig", "cfn_node_type=ComputeFleet\n")
        self.write("/etc/os-release", "ID=ubuntu\nVERSION_CODENAME=noble\n")
        self.write("/sys/module/neuron/version", "2.26.10.0\n")
        self.write("/fsx/.mounted", "")

    def stub(self, name: str, body: str) -> None:
        """Make a command do this, after it wrote its arguments down."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f'#!/bin/bash\necho "{name} $*" >>"$STATE/calls"\n{body}\n')
        path.chmod(0o755)

    def write(self, path: str, text: str) -> Path:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def run(self, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a script as a node would; never raises."""
        environment = {
            "PATH": str(self.bin),
            "ULTRACLUSTER_ROOT": str(self.root),
            "STATE": str(self.state),
            "BUCKET": str(self.bucket),
            "LC_ALL": "C",
            "TIMEOUT": shutil.which("timeout") or "",
        }
        return subprocess.run(
            [self.bin / "bash", *command],
            env=environment | self.variables | variables,
            capture_output=True,
            text=True,
            cwd=self.folder,
        )

    @property
    def calls(self) -> list[str]:
        path = self.state / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def forget(self) -> None:
        (self.state / "calls").unlink(missing_ok=True)

    def files(self) -> dict[str, bytes]:
        """Every file of the root but logs and the cache of fetched releases, with its content."""
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and not path.is_relative_to(self.root / "var" / "log")
        }

    @property
    def log(self) -> str:
        return (self.root / "var" / "log" / "ultracluster-boot.log").read_text()


def publish(node: Node, release: str, environment: str, platform: dict[str, Any]) -> None:
    """Put a release into the node's bucket, as the function behind `Custom::BootFiles` does."""
    boot = node.bucket / "boot"
    archive = shutil.make_archive(str(node.folder / "scripts"), "zip", SCRIPTS)
    (boot / release).mkdir(exist_ok=True)
    shutil.copy(archive, boot / release / "scripts.zip")
    (boot / release / "boot.env").write_text(environment)
    shutil.copy(SCRIPTS / "boot.sh", boot / "boot.sh")
    (boot / "current").write_text(release)
    (boot / "platform.json").write_text(json.dumps(platform))
