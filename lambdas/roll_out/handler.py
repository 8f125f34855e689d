"""Asks CloudFormation to serve another model, or the one that served before."""

from __future__ import annotations

import functools
from typing import Any

import boto3

from roll_out.update import Settings, Updater
from shared.environment import from_environment
from shared.log import logger, telling

log = logger("roll_out")


@functools.cache
def _updater() -> Updater:
    return Updater(
        from_environment(Settings),
        cloudformation=boto3.client("cloudformation"),
        cloudwatch=boto3.client("cloudwatch"),
    )


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Start one update of the Endpoint stack.

    Args:
        event: `run` as Validate answered it, `token` that names this one attempt, and `action`:
            `roll-out`, or `roll-back` to the URL that served when the run was validated.
        context: unused.
    """
    run = event["run"]
    urls = {name: run[name] for name in ("model_url", "previous_model_url")}
    announced = f"{run['digest'][:8]}-{run['announcement']}" if run["announcement"] else ""
    with telling(log, digest=run["digest"], action=event["action"]):
        if event["action"] == "roll-back":
            answer = _updater().roll_back(**urls, token=event["token"])
        else:
            answer = _updater().roll_out(**urls, token=event["token"], announcement=announced)
    log.info(event["action"], extra={"digest": run["digest"], **answer})
    return answer
