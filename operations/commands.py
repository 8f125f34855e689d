"""Commands that look at an environment and change nothing."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from operations.aws_errors import told
from operations.changes import ForeignStack, deployed_stacks, refused_changes
from operations.deploy_policy import DeployPolicyError, deploy_policies, resource_types
from operations.settings_reference import settings_reference
from ultracluster.environment import load_environment
from ultracluster.settings import SettingsError

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "config"
ACCOUNT_MISSING = "set aws.account in the settings or give --account"

Show = Callable[[str], None]


def lint(environment: str, *, show: Show = print) -> int:
    """Say all that can be known of an environment without AWS; 1 where something is wrong."""
    try:
        loaded = load_environment(environment, CONFIG)
    except SettingsError as error:
        show(str(error))
        return 1
    for problem in loaded.findings:
        show(f"{problem.level}: {problem}")
    show(f"environment {loaded.settings.environment!r}: no errors")
    return 0


def deploy_policy(
    environment: str, *, account: str | None, output: Path, show: Show = print
) -> int:
    """Write the policies of a custom execution role, and show how `cdk bootstrap` takes them."""
    from app import build_app

    context = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    try:
        settings = load_environment(environment, CONFIG).settings
        account = account or settings.aws.account
        if account is None:
            show(ACCOUNT_MISSING)
            return 1
        with tempfile.TemporaryDirectory() as folder:
            build_app(environment, context=context, outdir=folder).synth()
            types = resource_types(Path(folder))
        documents = deploy_policies(types, settings, account=account)
    except (SettingsError, DeployPolicyError) as error:
        show(str(error))
        return 1
    output.mkdir(parents=True, exist_ok=True)
    arns = []
    for number, document in enumerate(documents, start=1):
        name = f"{settings.prefix}-deploy-{number}"
        path = output / f"{name}.json"
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        arns.append(f"arn:aws:iam::{account}:policy/{name}")
        show(f"aws iam create-policy --policy-name {name} --policy-document file://{path}")
    show(
        f"npx cdk bootstrap aws://{account}/{settings.aws.region} "
        f"--cloudformation-execution-policies {','.join(arns)}"
    )
    return 0


def changes(environment: str, *, show: Show = print) -> int:
    """Say what the deployed environment would refuse of its settings; 1 where there is something.

    Reads the deployed templates with the credentials at hand.
    """
    from app import build_app

    context = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    try:
        region = load_environment(environment, CONFIG).settings.aws.region
        with tempfile.TemporaryDirectory() as folder:
            build_app(environment, context=context, outdir=folder).synth()
            wanted = {
                path.name.removesuffix(".template.json"): json.loads(path.read_text("utf-8"))
                for path in Path(folder).glob("*.template.json")
            }
        client = boto3.client("cloudformation", region_name=region)
        deployed, model_url = deployed_stacks(client, iter(wanted))
    except (SettingsError, ForeignStack) as error:
        show(str(error))
        return 1
    except (BotoCoreError, ClientError) as error:
        show(f"the deployed stacks cannot be read: {told(error)}")
        return 1
    refused = refused_changes(deployed, wanted, model_url=model_url)
    for line in refused:
        show(line)
    if not refused:
        show(f"{len(deployed)} of {len(wanted)} stacks are deployed; one deploy does it")
    return 1 if refused else 0


def settings(*, show: Show = print) -> int:
    """Show every option of the settings with its default and meaning."""
    show(settings_reference())
    return 0
