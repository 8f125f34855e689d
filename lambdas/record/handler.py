"""Writes down what came of a model, and tells people."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from typing import Any

import boto3

from record.report import Reporter, Settings
from shared.environment import from_environment
from shared.log import logger, telling

log = logger("record")


@functools.cache
def _reporter() -> Reporter:
    return Reporter(
        from_environment(Settings),
        s3=boto3.client("s3"),
        sns=boto3.client("sns"),
        cloudformation=boto3.client("cloudformation"),
    )


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Record one run.

    Args:
        event: `outcome` (`serving`, `refused`, `rolled-back`, `nothing-to-do`, `paused`,
            `declined` or `failed`), `reason`, `final` (whether the fault is the model's),
            `execution` (the ARN), `input` of the execution, and `run` as Validate answered it,
            empty where it did not.
        context: unused.
    """
    with telling(log, outcome=event["outcome"], announced=event["input"]):
        answer = _reporter().record(
            outcome=event["outcome"],
            reason=event["reason"],
            final=event["final"],
            run=event["run"],
            announced=event["input"],
            execution=event["execution"],
            now=datetime.now(UTC),
        )
    log.info("recorded", extra=answer)
    return answer
