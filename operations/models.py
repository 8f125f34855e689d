"""`ultracluster models`: lists them, and puts an earlier one back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from operations.aws_errors import told
from operations.model_history import History, Model, history
from operations.roll_back import RollBackRefused, choose, start, wait
from shared.stack import StackProblem
from ultracluster.environment import load_environment
from ultracluster.settings import Settings, SettingsError

CONFIG = Path(__file__).resolve().parents[1] / "config"
POLL_SECONDS = 5.0

Show = Callable[[str], None]
Client = Callable[[str], Any]


@dataclass(frozen=True, kw_only=True)
class Account:
    """An environment's names, and clients for its region.

    Args:
        client: makes the client of a service.
    """

    settings: Settings
    client: Client

    def history(self) -> History:
        """What is known of every published model."""
        return history(
            s3=self.client("s3"),
            cloudformation=self.client("cloudformation"),
            bucket=self.output("storage", "ModelBucket"),
            model_name=self.settings.endpoint.model_name,
            endpoint_stack=f"{self.settings.prefix}-endpoint",
        )

    def output(self, stack: str, key: str) -> str:
        """An output of one of the environment's stacks.

        Raises:
            StackProblem: the stack or the output is not there.
        """
        name = f"{self.settings.prefix}-{stack}"
        try:
            found = self.client("cloudformation").describe_stacks(StackName=name)["Stacks"][0]
        except ClientError as error:
            if "does not exist" not in str(error):
                raise
            region = self.settings.aws.region
            raise StackProblem(
                f"stack {name} does not exist in {region}; deploy the environment, or name "
                "another one by --environment"
            ) from None
        for item in found.get("Outputs", []):
            if item["OutputKey"] == key:
                return str(item["OutputValue"])
        raise StackProblem(f"stack {name} has no output {key}; deploy it again")


def models(environment: str, *, client: Client | None = None, show: Show = print) -> int:
    """List what was published, refused and served."""

    def run(account: Account) -> int:
        for line in account.history().lines():
            show(line)
        return 0

    return _with_account(environment, client, show, run)


def roll_back(
    environment: str,
    digest: str | None,
    *,
    yes: bool,
    wait_for_end: bool,
    client: Client | None = None,
    show: Show = print,
    poll_seconds: float = POLL_SECONDS,
) -> int:
    """Put an earlier model back; 0 where it was started, or, waited for, where it serves."""

    def run(account: Account) -> int:
        known = account.history()
        model = choose(known, digest)
        serving = known.serving
        show(f"serves now:  {_line(serving) if serving else known.served_url}")
        show(f"would serve: {_line(model)}")
        show("its age and metrics are not compared; its bytes and its smoke texts are checked")
        if not (yes or _agreed()):
            show("nothing was changed")
            return 1
        states = account.client("stepfunctions")
        execution = start(states, account.output("delivery", "StateMachineArn"), model)
        show(f"started: {execution}")
        if not wait_for_end:
            show("its verdict will be told to the topic, and by `ultracluster models`")
            return 0
        return 0 if wait(states, execution, poll_seconds=poll_seconds, show=show) else 1

    return _with_account(environment, client, show, run)


def _with_account(
    environment: str, client: Client | None, show: Show, run: Callable[[Account], int]
) -> int:
    try:
        settings = load_environment(environment, CONFIG).settings
        made = client or boto3.Session(region_name=settings.aws.region).client
        return run(Account(settings=settings, client=made))
    except (BotoCoreError, ClientError) as error:
        show(told(error))
    except (SettingsError, StackProblem, RollBackRefused) as error:
        show(str(error))
    except KeyboardInterrupt:
        show("\nstopped; a roll-back that was started goes on")
        return 130
    return 1


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise RollBackRefused("nobody can be asked, this is no terminal; give --yes")
    return input("roll back? [y/N] ").strip().lower() in ("y", "yes")


def _line(model: Model) -> str:
    return f"{model.name}  published {model.published:%Y-%m-%d %H:%M:%S}  {model.metrics}"
