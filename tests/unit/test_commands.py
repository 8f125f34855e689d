"""`ultracluster lint`, `changes`, `settings` and `deploy-policy`."""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from operations.cli import main
from operations.deploy_policy import POLICY_LIMIT, DeployPolicyError, deploy_policies
from tests.environments import ENVIRONMENTS, ROOT, Synthesized
from ultracluster.settings import load_settings

Get = Callable[[str], Synthesized]
ACCOUNT = "111122223333"


def run(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def test_lint_says_every_level(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("lint", "-c", "environment=examples/capacity-block") == 0
    output = capsys.readouterr().out
    assert "note: cluster.queues[0]: at most 4 x trn1.32xlarge: 512 vCPUs" in output
    assert "warning: cluster.queues[0].min_count: got 4" in output
    assert "environment 'capacity-block': no errors" in output


def test_lint_ends_with_1_on_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "config" / "dev.toml").read_text().replace("az4", "az2")
    (tmp_path / "own.toml").write_text(text)
    assert run("lint", "-c", str(tmp_path / "own.toml")) == 1
    assert "network.accelerator_az_id: got 'usw2-az2'" in capsys.readouterr().out


def test_changes_say_when_the_account_cannot_be_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    assert run("changes", "-c", "dev") == 1
    assert "the deployed stacks cannot be read: unable to locate credentials; log in" in (
        capsys.readouterr().out
    )


def test_settings_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("settings") == 0
    assert "| `accelerator_az_id` | text | required |" in capsys.readouterr().out


def test_deploy_policy_is_written_with_the_commands_that_use_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "policies"
    status = run("deploy-policy", "-c", "dev", "--account", ACCOUNT, "--output", str(folder))
    assert status == 0
    output = capsys.readouterr().out
    files = sorted(folder.glob("*.json"))
    assert [path.stem for path in files] == [
        f"ultracluster-dev-deploy-{number}" for number in range(1, len(files) + 1)
    ]
    for path in files:
        assert f"create-policy --policy-name {path.stem} --policy-document file://{path}" in output
        assert f"arn:aws:iam::{ACCOUNT}:policy/{path.stem}" in output
    assert f"npx cdk bootstrap aws://{ACCOUNT}/us-west-2" in output


def test_deploy_policy_needs_an_account(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("deploy-policy", "-c", "dev") == 1
    assert "give --account" in capsys.readouterr().out


def statements(environment: Synthesized) -> list[dict[str, Any]]:
    types = {resource["Type"] for _, _, resource in environment.resources()}
    settings = load_settings(environment.name, ROOT / "config")
    documents = deploy_policies(types, settings, account=ACCOUNT)
    return [statement for document in documents for statement in document["Statement"]]


def allowed(found: list[dict[str, Any]], action: str, resource: str) -> bool:
    for statement in found:
        names = statement["Resource"]
        actions = statement["Action"]
        if any(fnmatch.fnmatchcase(action, known) for known in actions) and any(
            fnmatch.fnmatchcase(resource, known)
            for known in ([names] if isinstance(names, str) else names)
        ):
            return True
    return False


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_type_of_every_environment_has_rights(name: str, synthesized: Get) -> None:
    assert len(statements(synthesized(name))) > 10


@pytest.mark.case("F10")
def test_deploy_policy_has_what_a_link_to_s3_needs(synthesized: Get) -> None:
    found = statements(synthesized("dev"))
    bucket = "arn:aws:s3:::any-linked-bucket"
    for action in ("s3:GetBucketAcl", "s3:ListBucket"):
        assert allowed(found, action, bucket)
    for action in ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"):
        assert allowed(found, action, f"{bucket}/data/x")
    role = (
        f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/"
        "AWSServiceRoleForFSxS3Access_fs-0123"
    )
    for action in ("iam:CreateServiceLinkedRole", "iam:PutRolePolicy", "iam:AttachRolePolicy"):
        assert allowed(found, action, role)


@pytest.mark.parametrize("name", ["dev", "prod", "examples/no-nat"])
def test_deploy_policy_gives_no_more(name: str, synthesized: Get) -> None:
    environment = synthesized(name)
    found = statements(environment)
    for statement in found:
        assert all(action != "*" and not action.endswith(":*") for action in statement["Action"])
        identity = any(action.startswith("iam:") for action in statement["Action"])
        assert not (identity and statement["Resource"] == "*"), statement
        if not identity and not statement["Action"][0].startswith("budgets:"):
            assert statement["Condition"]["StringEquals"]["aws:RequestedRegion"] == "us-west-2"
    other = f"arn:aws:iam::{ACCOUNT}:role/admin"
    assert not allowed(found, "iam:PassRole", other)
    assert not allowed(found, "iam:PutRolePolicy", other)
    assert not allowed(found, "s3:DeleteBucket", "arn:aws:s3:::another-bucket")
    assert allowed(found, "iam:CreateRole", f"arn:aws:iam::{ACCOUNT}:role/{environment.prefix}-x")
    nat = allowed(found, "ec2:CreateNatGateway", "*")
    assert nat is (name != "examples/no-nat")


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_each_document_fits_into_a_managed_policy(name: str, synthesized: Get) -> None:
    types = {resource["Type"] for _, _, resource in synthesized(name).resources()}
    settings = load_settings(name, ROOT / "config")
    documents = deploy_policies(types, settings, account=ACCOUNT)
    assert len(documents) <= 10
    for document in documents:
        assert len(json.dumps(document, separators=(",", ":"))) <= POLICY_LIMIT


def test_an_unknown_type_is_named() -> None:
    settings = load_settings("dev", ROOT / "config")
    with pytest.raises(DeployPolicyError) as caught:
        deploy_policies(["AWS::EC2::VPC", "AWS::X::Y"], settings, account=ACCOUNT)
    assert "no rights are known for AWS::X::Y; add a row to deploy_rights.toml" in str(caught.value)


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = [sys.executable, "-m", "operations.cli", "settings"]
    path = os.pathsep.join(str(ROOT / folder) for folder in ("", "constructs", "lambdas"))
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (141, b"")


def test_ctrl_c_ends_a_command_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("operations.commands.settings", stopped)
    assert run("settings") == 130
