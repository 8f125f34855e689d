"""Looks once at an update that is under way."""

from __future__ import annotations

import functools
from typing import Any

import boto3
from botocore.config import Config

from settle.bake import Bake
from settle.fault import Fault
from settle.observation import Observer, Settings
from shared.environment import from_environment
from shared.log import logger, telling
from shared.places import NO_MODEL

log = logger("settle")

# A model must answer within 60 s; the retries are for a fleet that is still warming up.
_INVOCATION = Config(read_timeout=70, retries={"mode": "standard", "max_attempts": 3})


@functools.cache
def _observer() -> Observer:
    settings = from_environment(Settings)
    sagemaker = boto3.client("sagemaker")
    return Observer(
        settings,
        s3=boto3.client("s3"),
        cloudformation=boto3.client("cloudformation"),
        sagemaker=sagemaker,
        runtime=boto3.client("sagemaker-runtime", config=_INVOCATION),
        bake=Bake(
            settings.endpoint_name, sagemaker=sagemaker, cloudwatch=boto3.client("cloudwatch")
        ),
    )


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Look at the update that RollOut started.

    Args:
        event: `run` as Validate answered it, `operation` as RollOut did, `fault` as an earlier
            look found it, and `action`: after a `roll-out` the manifest's texts are tried, after a
            `roll-back` they are not.
        context: unused.
    """
    run, fault = event["run"], event["fault"]
    with telling(log, digest=run["digest"], action=event["action"]):
        answer = _observer().look(
            token=event["operation"]["token"],
            target=event["operation"]["target"],
            manifest_key=run["manifest_key"] if event["action"] == "roll-out" else None,
            former_model=run["previous_model_url"] != NO_MODEL,
            fault=Fault(**fault) if fault["reason"] else None,
        )
    log.info(event["action"], extra={"digest": run["digest"], **answer})
    return answer
