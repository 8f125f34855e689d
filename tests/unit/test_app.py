"""The application synthesizes anywhere, twice the same, and shadows nobody."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def synth(outdir: Path, **environment: str) -> None:
    """Synthesize in a process of its own, without network and credentials."""
    code = (
        "import json, socket, sys\n"
        "def refuse(*a): raise OSError('the test allows no network')\n"
        "socket.socket.connect = refuse\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from app import build_app\n"
        f"context = json.load(open({str(ROOT / 'cdk.json')!r}))['context']\n"
        f"build_app('dev', context=context, outdir={str(outdir)!r}).synth()\n"
    )
    base = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "CDK_DEFAULT")) and name != "PATH"
    }
    # A PATH with node and nothing else: no docker, no git.
    node = Path(os.environ.get("JSII_NODE") or _which("node")).parent
    subprocess.run(
        [sys.executable, "-c", code],
        env=base | {"PATH": str(node), "CDK_VALIDATION": "false"} | environment,
        cwd=outdir.parent,
        check=True,
        capture_output=True,
        text=True,
    )


def _which(name: str) -> str:
    import shutil

    found = shutil.which(name)
    assert found
    return found


@pytest.mark.case("C08")
@pytest.mark.case("L06")
def test_two_synths_give_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    synth(tmp_path / "a" / "out", TZ="Pacific/Auckland", PYTHONHASHSEED="1")
    synth(tmp_path / "b" / "out", TZ="America/Lima", PYTHONHASHSEED="2")
    first = digests(tmp_path / "a" / "out")
    assert len(first) > 6
    assert first == digests(tmp_path / "b" / "out")


@pytest.mark.case("C05")
def test_no_output_holds_an_unresolved_token(assembly: Path) -> None:
    files = [path for path in assembly.rglob("*") if path.is_file()]
    assert len(files) > 6
    for path in files:
        text = path.read_bytes()
        assert b"Token[" not in text, path
        assert b"AWS.AccountId" not in text, path


@pytest.mark.case("C04")
def test_nothing_is_looked_up(assembly: Path, templates: dict[str, dict[str, Any]]) -> None:
    manifest = json.loads((assembly / "manifest.json").read_text())
    assert manifest.get("missing", []) == []
    text = json.dumps(templates)
    for dummy in ("vpc-12345", "p-12345", "dummy", "ami-1234"):
        assert dummy not in text


@pytest.mark.case("M03")
def test_a_deploy_builds_no_image_on_the_machine_that_deploys(assembly: Path) -> None:
    """An image built there would be for its processor; own images are named by their URI."""
    assets = [json.loads(path.read_text()) for path in assembly.glob("*.assets.json")]
    assert len(assets) > 4
    assert all(not stack["dockerImages"] for stack in assets)


@pytest.mark.parametrize("account", [None, "111122223333"])
def test_subnets_are_placed_by_az_id_with_and_without_an_account(
    account: str | None, context: dict[str, Any], tmp_path: Path
) -> None:
    import aws_cdk as cdk

    from stacks.network import NetworkStack
    from ultracluster.settings import load_settings

    settings = load_settings("dev", ROOT / "config")
    app = cdk.App(context=context, outdir=str(tmp_path))
    env = cdk.Environment(account=account, region=settings.aws.region)
    NetworkStack(app, "network", settings=settings, env=env)
    template = app.synth().get_stack_by_name("network").template
    subnets = [r for r in template["Resources"].values() if r["Type"] == "AWS::EC2::Subnet"]
    assert len(subnets) == 2
    for subnet in subnets:
        assert subnet["Properties"]["AvailabilityZoneId"] == "usw2-az4"
        assert "AvailabilityZone" not in subnet["Properties"]


@pytest.mark.case("C02")
def test_no_folder_shadows_an_installed_package() -> None:
    code = "import constructs, aws_cdk; print(constructs.__file__); print(aws_cdk.__file__)"
    output = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for line in output.splitlines():
        assert "site-packages" in line
    assert not (ROOT / "constructs" / "__init__.py").exists()
    installed = {
        name
        for name, owners in importlib.metadata.packages_distributions().items()
        if owners != ["ultracluster"]
    }
    packages = {
        path.parent.name
        for path in ROOT.glob("*/__init__.py")
        if not path.parent.name.startswith(".")
    }
    assert {"stacks", "operations", "training"} <= packages
    assert packages & installed == set()


def test_missing_set_up_is_said_plainly(tmp_path: Path) -> None:
    """A python without the packages is what `cdk` finds before `make setup`."""
    result = subprocess.run(
        [sys.executable, "-S", "-I", str(ROOT / "app.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert result.stderr.strip() == (
        "app.py: python package 'aws_cdk' is not installed; run `make setup` first"
    )


def test_wrong_environment_is_one_line_without_a_traceback(tmp_path: Path) -> None:
    cdk_json = json.loads((ROOT / "cdk.json").read_text())
    result = subprocess.run(
        [sys.executable, str(ROOT / "app.py")],
        env=os.environ
        | {"CDK_CONTEXT_JSON": json.dumps(cdk_json["context"] | {"environment": "x"})},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "no settings for environment 'x'" in result.stderr


def test_cdk_validates_the_templates_strictly(context: dict[str, Any], tmp_path: Path) -> None:
    """CDK's own linter, which fails a synth on a property CloudFormation does not know."""
    assert context["@aws-cdk/core:validateAgainstDefaultRules"] is True
    code = (
        "import json, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from app import build_app\n"
        "import aws_cdk as cdk\n"
        f"context = json.load(open({str(ROOT / 'cdk.json')!r}))['context']\n"
        f"app = build_app('dev', context=context, outdir={str(tmp_path / 'out')!r})\n"
        "stack = app.node.find_child('ultracluster-dev-network')\n"
        "if sys.argv[1:] == ['break']: cdk.CfnResource(stack, 'Bad', type='AWS::S3::Bucket', "
        "properties={'NoSuchProperty': 1})\n"
        "app.synth()\n"
    )
    environment = os.environ | {"CDK_VALIDATION": "true"}
    good = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert good.returncode == 0, good.stderr[-2000:]
    bad = subprocess.run(
        [sys.executable, "-c", code, "break"], env=environment, capture_output=True, text=True
    )
    assert bad.returncode != 0
    assert "NoSuchProperty" in bad.stderr + bad.stdout
