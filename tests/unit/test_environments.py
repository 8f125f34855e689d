"""Every settings file of the repository makes right templates, beside any other in one account."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.environments import ENVIRONMENTS, EXAMPLES, ROOT, STACKS, Synthesized, synthesize
from ultracluster.catalog import load_catalog

Get = Callable[[str], Synthesized]
NAMES = ("FunctionName", "RoleName", "PolicyName", "BucketName", "LogGroupName", "QueueName",
         "TopicName", "StateMachineName", "DashboardName", "EndpointName", "ManagedPolicyName",
         "ClusterName", "BudgetName", "AlarmName", "Name", "GroupName")  # fmt: skip
# Names inside their parent, not in the account.
NESTED = {("AWS::IAM::Policy", "PolicyName")}


def run_app(environment: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    return subprocess.run(
        [sys.executable, str(ROOT / "app.py")],
        env=os.environ
        | {
            "CDK_CONTEXT_JSON": json.dumps(context | {"environment": environment}),
            "CDK_OUTDIR": str(cwd / "out"),
        }
        | variables,
        cwd=cwd,
        capture_output=True,
        text=True,
    )


def test_there_is_an_example_for_each_kind_of_cluster() -> None:
    assert {name.removeprefix("examples/") for name in EXAMPLES} == {
        "capacity-block",
        "capacity-reservation",
        "imported-vpc",
        "many-nodes",
        "no-nat",
        "serving",
        "serving-linear",
        "trainium-and-gpu",
        "two-queues",
    }


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_environment_has_six_stacks(name: str, synthesized: Get) -> None:
    assert set(synthesized(name).templates) == set(STACKS)


@pytest.mark.case("C06")
def test_settings_outside_the_repository_are_named_by_path(tmp_path: Path) -> None:
    text = (ROOT / "config" / "dev.toml").read_text()
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    made = run_app("mine.toml", tmp_path)
    assert made.returncode == 0, made.stderr[-2000:]
    assert (tmp_path / "out" / "ultracluster-mine-network.template.json").is_file()


@pytest.mark.case("L11")
def test_two_environments_share_no_physical_name(synthesized: Get) -> None:
    def physical(environment: Synthesized) -> Iterator[tuple[str, str, str]]:
        for stack, template in environment.templates.items():
            yield "stack", "StackName", f"{environment.prefix}-{stack}"
            for output in template.get("Outputs", {}).values():
                if "Export" in output:
                    yield "export", "Name", json.dumps(output["Export"]["Name"])
        for _, _, resource in environment.resources():
            for key in set(NAMES) & set(resource.get("Properties", {})):
                value = resource["Properties"][key]
                made_up = isinstance(value, dict) and {"Ref", "Fn::GetAtt"} & set(value)
                if not made_up and (resource["Type"], key) not in NESTED:
                    yield resource["Type"], key, json.dumps(value)

    first, second = (set(physical(synthesized(name))) for name in ("dev", "examples/two-queues"))
    assert len(first) > 10
    assert first & second == set()


@pytest.mark.case("P09")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_cluster_is_named_like_no_stack(name: str, synthesized: Get) -> None:
    environment = synthesized(name)
    ((_, _, cluster),) = environment.resources("Custom::PclusterCluster")
    cluster_name = cluster["Properties"]["ClusterName"]
    assert re.fullmatch(r"[a-zA-Z][a-zA-Z0-9-]{0,39}", cluster_name)
    assert cluster_name not in {f"{environment.prefix}-{stack}" for stack in environment.templates}


def test_production_is_protected_and_marked(synthesized: Get) -> None:
    environment = synthesized("prod")
    manifest = json.loads((environment.folder / "manifest.json").read_text())
    stacks = [a for a in manifest["artifacts"].values() if a["type"] == "aws:cloudformation:stack"]
    assert len(stacks) == 6
    assert all(stack["properties"]["terminationProtection"] is True for stack in stacks)
    for kind in ("AWS::S3::Bucket", "AWS::EC2::VPC", "AWS::FSx::FileSystem"):
        for _, _, resource in environment.resources(kind):
            tags = {tag["Key"]: tag["Value"] for tag in resource["Properties"]["Tags"]}
            assert tags["cost-center"] == "machine-learning"
            assert tags["ultracluster:environment"] == "ultracluster-prod"


def test_boundary_is_on_every_role(tmp_path: Path) -> None:
    boundary = "arn:aws:iam::111122223333:policy/boundary"
    text = (ROOT / "config" / "dev.toml").read_text()
    (tmp_path / "own.toml").write_text(
        text.replace("[aws]\n", f'[aws]\npermissions_boundary = "{boundary}"\n')
    )
    made = synthesize(str(tmp_path / "own.toml"), tmp_path / "out")
    roles = list(made.resources("AWS::IAM::Role"))
    assert len(roles) > 8
    for stack, name, role in roles:
        assert role["Properties"].get("PermissionsBoundary") == boundary, (stack, name)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_log_groups_end_and_follow_retention(name: str, synthesized: Get) -> None:
    environment = synthesized(name)
    kept = name in ("prod", "examples/many-nodes")
    groups = list(environment.resources("AWS::Logs::LogGroup"))
    assert groups
    for stack, logical_id, group in groups:
        assert group["Properties"]["RetentionInDays"] > 0, (stack, logical_id)
        # Functions that do nothing but answer CloudFormation take their logs along, and so does
        # the endpoint, whose log has SageMaker's own name.
        answers = stack in ("cluster", "delivery") and "FunctionLog" in logical_id
        goes = answers or stack == "endpoint"
        stays = kept and not goes
        assert group["DeletionPolicy"] == ("Retain" if stays else "Delete"), (stack, logical_id)


@pytest.mark.case("P06")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_no_function_uses_a_blocked_runtime(name: str, synthesized: Get) -> None:
    blocked = load_catalog().blocked_runtimes()
    for stack, logical_id, function in synthesized(name).resources("AWS::Lambda::Function"):
        assert function["Properties"]["Runtime"] not in blocked, (stack, logical_id)


@pytest.mark.case("K03")
def test_a_warning_is_said_once_and_stops_nothing(tmp_path: Path) -> None:
    made = run_app("examples/capacity-block", tmp_path)
    assert made.returncode == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    said = [
        (name, item["data"])
        for name, artifact in manifest["artifacts"].items()
        for items in _metadata(tmp_path / "out", artifact).values()
        for item in items
        if item["type"] == "aws:cdk:warning"
    ]
    ((stack, text), (serving, patches)) = said
    assert (stack, serving) == (
        "ultracluster-capacity-block-cluster",
        "ultracluster-capacity-block-endpoint",
    )
    assert "is patched until 2026-06-30" in patches
    assert "4 nodes always on, 512 vCPUs, 96 node-hours a day" in text


def _metadata(folder: Path, artifact: Mapping[str, Any]) -> dict[str, Any]:
    extra = artifact.get("additionalMetadataFile")
    more = json.loads((folder / extra).read_text()) if extra else {}
    return {**artifact.get("metadata", {}), **more}


def test_ten_mistakes_end_the_app_with_ten_lines(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(
        'retention = "keep"\n[aws]\nregion = "us-west-2"\n[network]\n'
        'accelerator_az_id = "usw2-az2"\nnat = false\n[lustre]\ncapacity_gib = 1300\n'
        'throughput_mb_per_tib = 125\n[cluster.head_node]\nssh_key = "a.pem"\n'
        '[endpoint]\ninstance_type = "ml.m5.large"\n'
        '[[cluster.queues]]\nname = "default"\nmax_cuont = 4\nspot_price = 1\nmin_count = 5\n'
    )
    made = run_app("bad.toml", tmp_path)
    assert made.returncode == 1
    assert "Traceback" not in made.stderr
    lines = [line for line in made.stderr.splitlines() if line.startswith("  ")]
    assert len(lines) >= 10
    assert all(re.match(r"  [a-z_.\[\]0-9]+: \S", line) for line in lines)


@pytest.mark.parametrize(
    "text", ["[cluster default]\nkey = x\n", "[global]\ncluster_template = d\n"]
)
@pytest.mark.case("P21")
def test_old_cluster_files_are_recognised(text: str, tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_text(text)
    made = run_app("old.toml", tmp_path)
    assert made.returncode == 1
    assert "ParallelCluster 2 format" in made.stderr


@pytest.mark.parametrize(
    "text", ["HeadNode:\n  InstanceType: c5.large\n", "- hosts: all\n  tasks: []\n"]
)
@pytest.mark.case("P21")
def test_yaml_is_recognised(text: str, tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(text)
    made = run_app("cluster.toml", tmp_path)
    assert made.returncode == 1
    assert "looks like YAML" in made.stderr
    assert "[cluster.overrides]" in made.stderr


@pytest.mark.case("P19")
@pytest.mark.parametrize(
    "text",
    [
        "[lustre]\ncapacity_gib = 1200\ncapacity_gib = 2400\n",
        "[lustre]\n[lustre]\n",
        '[[cluster.queues]]\nname = "a"\nname = "b"\n',
    ],
)
def test_a_repeated_key_is_refused_with_its_place(text: str, tmp_path: Path) -> None:
    (tmp_path / "twice.toml").write_text(text)
    made = run_app("twice.toml", tmp_path)
    assert made.returncode == 1
    assert re.search(r"not valid TOML: .*line \d+, column \d+", made.stderr)


def test_cdk_validates_every_environment_strictly(tmp_path: Path) -> None:
    """CDK's own linter, which fails a synth on a property CloudFormation does not know."""
    code = (
        "import json, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from app import build_app\n"
        f"context = json.load(open({str(ROOT / 'cdk.json')!r}))['context']\n"
        "for name in sys.argv[1:]:\n"
        f"    build_app(name, context=context, outdir={str(tmp_path / 'out')!r} + name).synth()\n"
        "    print('valid', name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *ENVIRONMENTS],
        env=os.environ | {"CDK_VALIDATION": "true"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("valid ") == len(ENVIRONMENTS)


def test_cfn_lint_finds_nothing(synthesized: Get) -> None:
    from cfnlint.api import ManualArgs, lint  # type: ignore[import-untyped]

    config = ManualArgs(regions=["us-west-2"])
    seen: dict[str, tuple[str, str]] = {}
    for name in ENVIRONMENTS:
        environment = synthesized(name)
        for stack, template in environment.templates.items():
            text = json.dumps(template, sort_keys=True)
            # Most stacks of most examples differ in names and hashes of names alone.
            plain = text.replace(environment.prefix, "").replace(
                environment.prefix.replace("-", ""), ""
            )
            seen.setdefault(re.sub(r"[0-9A-F]{8,}", "", plain), (f"{name} {stack}", text))
    assert len(seen) > len(STACKS)
    found = [
        f"{where}: {match}"
        for where, text in seen.values()
        for match in lint(text, config=config)
        # CDK writes dependencies out that a reference implies.
        if match.rule.id != "W3005"
    ]
    assert found == []
