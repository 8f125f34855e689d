"""Boot of each node kind in a temporary root with stubbed commands: twice the same, and proven."""

from __future__ import annotations

import json

import pytest

from tests.unit.boot.conftest import Release
from tests.unit.boot.node import KERNEL, SCRIPTS, Node

ENTRY = SCRIPTS / "boot.sh"
INSTALLED = {
    "aws-neuronx-dkms": "2.26.10",
    "aws-neuronx-collectives": "2.30.59",
    "aws-neuronx-runtime-lib": "2.30.51",
    "aws-neuronx-tools": "2.28.23",
}


def installs(node: Node) -> list[str]:
    return [
        call for call in node.calls if call.startswith(("apt-get", "dnf")) and " install " in call
    ]


@pytest.mark.case("P02")
@pytest.mark.case("T09")
def test_a_compute_node_boots_twice_the_same(node: Node, release: Release) -> None:
    name = release()
    for stage in ("start", "configured"):
        result = node.run(ENTRY, stage, "bucket", name, "efa")
        assert result.returncode == 0, result.stderr
    asked = " ".join(installs(node))
    for package, version in INSTALLED.items():
        assert f"{package}={version}.*" in asked
    assert f"linux-headers-{KERNEL}" in asked
    first, state = node.files(), sorted(path.name for path in node.state.glob("package-*"))
    assert len(state) == len(INSTALLED)

    node.forget()
    for stage in ("start", "configured"):
        result = node.run(ENTRY, stage, "bucket", name, "efa")
        assert result.returncode == 0, result.stderr
    assert installs(node) == []
    assert node.files() == first
    assert sorted(path.name for path in node.state.glob("package-*")) == state


@pytest.mark.case("F07")
@pytest.mark.parametrize("family", ["apt", "dnf"])
def test_the_kernel_is_held_and_nothing_upgrades_itself(
    node: Node, release: Release, family: str
) -> None:
    if family == "dnf":
        (node.bin / "apt-get").unlink()
    for _ in range(2):
        assert node.run(ENTRY, "start", "bucket", release()).returncode == 0
    if family == "apt":
        assert f"apt-mark hold linux-image-{KERNEL}" in node.calls
        assert "apt-mark hold linux-aws" in node.calls
        assert "systemctl disable --now unattended-upgrades.service" in node.calls
        conf = (node.root / "etc/apt/apt.conf.d/99-ultracluster").read_text()
        assert 'Unattended-Upgrade "0"' in conf
    else:
        assert "systemctl disable --now dnf-automatic.timer" in node.calls
        assert (node.root / "etc/dnf/dnf.conf").read_text() == "excludepkgs=kernel*\n"


def test_a_job_finds_the_facts_of_the_environment_and_of_its_node(
    node: Node, release: Release
) -> None:
    assert node.run(ENTRY, "configured", "bucket", release(), "efa").returncode == 0
    told = json.loads((node.root / "etc/ultracluster/platform.json").read_text())
    assert told["model_bucket"] == "m"
    assert told["instance"]["type"] == "trn1.32xlarge"
    assert (told["instance"]["accelerators"], told["instance"]["efa_interfaces"]) == (16, 8)
    assert told["instance"]["price_usd_per_hour"] == 21.5


def test_steps_are_timed(node: Node, release: Release) -> None:
    node.run(ENTRY, "configured", "bucket", release(), "efa")
    assert any(
        line.split(" ", 1)[1].startswith("neuron packages: ") for line in node.log.splitlines()
    )


def test_a_flaky_repository_is_tried_again_with_back_off(node: Node, release: Release) -> None:
    body = '[[ -e "$STATE/tried" ]] || { touch "$STATE/tried"; exit 100; }\n'
    node.stub("apt-get", body + (node.bin / "apt-get").read_text().split("\n", 2)[2])
    result = node.run(ENTRY, "configured", "bucket", release(), "efa")
    assert result.returncode == 0, result.stderr
    assert "sleep 2" in node.calls


def test_a_repository_that_stays_away_ends_the_boot_with_the_command(
    node: Node, release: Release
) -> None:
    node.stub("apt-get", "exit 100")
    result = node.run(ENTRY, "configured", "bucket", release(), "efa")
    assert result.returncode == 1
    assert "ultracluster: gave up on: apt-get" in result.stderr
    assert [call for call in node.calls if call.startswith("sleep")] == [
        f"sleep {seconds}" for seconds in (2, 4, 8, 16, 32, 0)
    ]


def test_a_node_that_may_not_read_the_bucket_says_so(node: Node, release: Release) -> None:
    release()
    node.stub("aws", "exit 1")
    result = node.run(ENTRY, "configured", "bucket", "r1", "efa")
    assert result.returncode == 1
    assert "cannot fetch s3://bucket/boot/r1/scripts.zip; may this node read it?" in result.stderr


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"DEVICES": "15"}, "neuron-ls sees 15 of 16 devices"),
        ({"EFAS": "7"}, "fi_info sees 7 of 8 EFA interfaces"),
        ({"module": "2.19.64.0"}, "driver 2.19.64.0 is loaded, 2.26.10 is wanted"),
        ({"module": "2.26.1.0"}, "driver 2.26.1.0 is loaded, 2.26.10 is wanted"),
        ({"stub": "mountpoint"}, "/fsx is not mounted"),
    ],
)
def test_a_node_that_is_not_whole_fails_its_boot_with_the_reason(
    node: Node, release: Release, change: dict[str, str], reason: str
) -> None:
    if "module" in change:
        node.write("/sys/module/neuron/version", change["module"])
    if "stub" in change:
        node.stub(change["stub"], "exit 1")
    result = node.run(ENTRY, "configured", "bucket", release(), "efa", **change)
    assert result.returncode == 1
    assert f"ultracluster: {reason}" in result.stderr
    assert "drain" not in " ".join(node.calls)


@pytest.mark.case("F07")
def test_a_kernel_without_lustre_is_named(node: Node, release: Release) -> None:
    node.stub("modprobe", "[[ $1 != lustre ]]")
    result = node.run(ENTRY, "configured", "bucket", release(), "efa")
    assert result.returncode == 1
    assert f"lustre module not available for {KERNEL}" in result.stderr


def test_a_module_that_was_not_built_is_built_then_proven(node: Node, release: Release) -> None:
    node.stub("dkms", '[[ $1 != status ]] || echo "aws-neuronx/2.26.10.0: added"')
    node.stub("modprobe", "[[ $1 != neuron ]]")
    result = node.run(ENTRY, "configured", "bucket", release(), "efa")
    assert f"dkms autoinstall -k {KERNEL}" in node.calls
    assert result.returncode == 1
    assert f"no neuron module for kernel {KERNEL}" in result.stderr


def test_an_own_image_is_proven_and_left_alone(node: Node, release: Release) -> None:
    name = release(custom_ami="ami-0123456789abcdef0")
    for package, version in INSTALLED.items():
        (node.state / f"package-{package}").write_text(f"installed {version}.0")
    assert node.run(ENTRY, "configured", "bucket", name, "efa").returncode == 0
    assert installs(node) == []
    assert not any(call.startswith("curl") and "neuron" in call for call in node.calls)
    assert not (node.root / "fsx/envs").exists()

    (node.state / "package-aws-neuronx-runtime-lib").unlink()
    result = node.run(ENTRY, "configured", "bucket", name, "efa")
    assert result.returncode == 1
    assert "runtime none is installed, 2.30.51 belongs to driver 2.26.10" in result.stderr


def test_a_gpu_node_is_proven_by_its_gpus(node: Node, release: Release) -> None:
    name = release(instance_type="p4d.24xlarge")
    good = node.run(ENTRY, "configured", "bucket", name, "efa", TYPE="p4d.24xlarge", EFAS="4")
    assert good.returncode == 0, good.stderr
    assert installs(node) == []
    bad = node.run(
        ENTRY, "configured", "bucket", name, "efa", TYPE="p4d.24xlarge", EFAS="4", GPUS="7"
    )
    assert bad.returncode == 1
    assert "nvidia-smi sees 7 of 8 GPUs" in bad.stderr


def test_a_node_without_accelerator_needs_no_proof_but_its_storage(
    node: Node, release: Release
) -> None:
    name = release(instance_type="c5.4xlarge")
    result = node.run(ENTRY, "configured", "bucket", name, "no-efa", TYPE="c5.4xlarge")
    assert result.returncode == 0, result.stderr
    assert not any(call.startswith(("neuron-ls", "nvidia-smi", "fi_info")) for call in node.calls)


def head(node: Node) -> None:
    node.write("/etc/parallelcluster/cfnconfig", 'cfn_node_type="HeadNode"\n')


def test_the_head_node_takes_the_current_release_and_lays_out_the_file_system(
    node: Node, release: Release
) -> None:
    head(node)
    release("r1")
    for _ in range(2):
        result = node.run(ENTRY, "configured", "bucket", TYPE="c5.4xlarge")
        assert result.returncode == 0, result.stderr
    places = sorted(str(path.relative_to(node.root)) for path in (node.root / "fsx").rglob("*"))
    for place in ("cache/neuron", "checkpoints", "code", "containers", "envs", "results"):
        assert f"fsx/{place}" in places
    assert (node.root / "fsx/cache").stat().st_mode & 0o7777 == 0o1777
    # Minutes of pip must not count against the head node's time.
    assert any("--unit ultracluster-environment" in call for call in node.calls)
    assert installs(node) == []

    release("r2", neuron="2.29.1")
    result = node.run(ENTRY, "updated", "bucket", "r2", "no-efa", "facts", TYPE="c5.4xlarge")
    assert result.returncode == 0, result.stderr
    assert (node.root / "opt/ultracluster/release/boot.env").read_text().count("2.29.1") == 1


def test_a_running_build_is_not_started_again(node: Node, release: Release) -> None:
    head(node)
    node.stub("systemctl", "true")
    assert node.run(ENTRY, "configured", "bucket", release(), TYPE="c5.4xlarge").returncode == 0
    assert not any(call.startswith("systemd-run") for call in node.calls)


@pytest.mark.parametrize("kind", ["HeadNode", "ComputeFleet", "LoginNode"])
def test_containers_are_switched_on(node: Node, release: Release, kind: str) -> None:
    name = release(containers=True, instance_type="c5.4xlarge")
    node.write("/etc/parallelcluster/cfnconfig", f"cfn_node_type={kind}\n")
    for example in ("enroot/enroot.conf", "spank/plugstack.conf", "pyxis/pyxis.conf"):
        node.write(f"/opt/parallelcluster/examples/{example}", example)
    for _ in range(2):
        result = node.run(ENTRY, "configured", "bucket", name, "no-efa", TYPE="c5.4xlarge")
        assert result.returncode == 0, result.stderr
    assert (node.root / "etc/enroot/enroot.conf").read_text() == "enroot/enroot.conf"
    assert (node.root / "run/pyxis").stat().st_mode & 0o7777 == 0o1777
    plugin = node.root / "opt/slurm/etc/plugstack.conf.d/pyxis.conf"
    assert plugin.exists() is (kind == "HeadNode")
    assert ("scontrol reconfigure" in node.calls) is (kind == "HeadNode")


@pytest.mark.parametrize("restricted", [True, False])
def test_user_namespaces_are_opened_where_the_system_closes_them(
    node: Node, release: Release, restricted: bool
) -> None:
    name = release(containers=True, instance_type="c5.4xlarge")
    for example in ("enroot/enroot.conf", "spank/plugstack.conf", "pyxis/pyxis.conf"):
        node.write(f"/opt/parallelcluster/examples/{example}", example)
    if restricted:
        node.write("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1")
    for _ in range(2):
        result = node.run(ENTRY, "configured", "bucket", name, "no-efa", TYPE="c5.4xlarge")
        assert result.returncode == 0, result.stderr
    assert ("sysctl --system" in node.calls) is restricted
    assert (node.root / "etc/sysctl.d/99-ultracluster.conf").exists() is restricted


def test_an_image_without_enroot_is_named(node: Node, release: Release) -> None:
    name = release(containers=True, instance_type="c5.4xlarge")
    result = node.run(ENTRY, "configured", "bucket", name, TYPE="c5.4xlarge")
    assert result.returncode == 1
    assert "this image holds no Enroot" in result.stderr


def test_an_unknown_stage_is_refused(node: Node, release: Release) -> None:
    result = node.run(ENTRY, "stop", "bucket", release())
    assert result.returncode == 1
    assert "stage stop: it must be start, configured or updated" in result.stderr


@pytest.mark.parametrize("stage", ["configured", "updated"])
@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (None, "cfnconfig, which says what type of node this is"),
        ("", "node type none in "),
        ("cfn_node_type=\n", "node type none in "),
        ("cfn_node_type = ComputeFleet\n", "node type none in "),
        ("cfn_node_type=Oracle\n", "node type Oracle in "),
    ],
)
@pytest.mark.parametrize("containers", [True, False])
def test_a_node_of_unknown_type_fails_its_boot(
    node: Node, release: Release, stage: str, config: str | None, reason: str, containers: bool
) -> None:
    if config is None:
        (node.root / "etc/parallelcluster/cfnconfig").unlink()
    else:
        node.write("/etc/parallelcluster/cfnconfig", config)
    result = node.run(ENTRY, stage, "bucket", release(containers=containers), "efa")
    assert result.returncode == 1
    assert result.stderr.startswith("ultracluster: ")
    assert reason in result.stderr


def test_a_login_node_gets_limits_and_no_proof(node: Node, release: Release) -> None:
    node.write("/etc/parallelcluster/cfnconfig", "cfn_node_type=LoginNode\n")
    result = node.run(ENTRY, "configured", "bucket", release(), "no-efa", TYPE="c5.4xlarge")
    assert result.returncode == 0, result.stderr
    assert (node.root / "etc/security/limits.d/99-ultracluster.conf").exists()
    assert not any(call.startswith(("neuron-ls", "mountpoint")) for call in node.calls)


@pytest.mark.parametrize("efa", ["efa", "no-efa"])
def test_a_compute_node_without_facts_fails_its_boot(
    node: Node, release: Release, efa: str
) -> None:
    result = node.run(ENTRY, "configured", "bucket", release(), efa, TYPE="trn9.large")
    assert result.returncode == 1
    assert result.stderr == (
        "ultracluster: no facts for instance type trn9.large in platform.json\n"
    )


@pytest.mark.parametrize(("given", "said"), [([], "none"), (["EFA"], "EFA"), (["yes"], "yes")])
def test_a_compute_node_must_be_told_whether_it_has_efa(
    node: Node, release: Release, given: list[str], said: str
) -> None:
    result = node.run(ENTRY, "configured", "bucket", release(), *given)
    assert result.returncode == 1
    assert result.stderr == f"ultracluster: argument {said}: it must be efa or no-efa\n"


def test_metadata_is_asked_with_a_time_limit(node: Node, release: Release) -> None:
    node.run(ENTRY, "configured", "bucket", release(), "efa")
    asked = [call for call in node.calls if "169.254.169.254" in call]
    assert len(asked) == 2
    assert all("--max-time 5" in call for call in asked)
