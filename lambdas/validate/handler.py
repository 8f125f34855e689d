"""Judges an announced model; changes nothing."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from typing import Any

import boto3

from shared.environment import from_environment
from shared.host import Host
from shared.log import logger, telling
from validate.judgement import Judge, Settings

log = logger("validate")


@functools.cache
def _judge() -> Judge:
    return Judge(
        from_environment(Settings),
        from_environment(Host, prefix="SERVING_"),
        s3=boto3.client("s3"),
        cloudformation=boto3.client("cloudformation"),
    )


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Judge the model that an event announces.

    Args:
        event: EventBridge's "Object Created" event of a manifest, or `{"bucket", "key"}` with an
            optional `"intent": "roll-back"`; and `checked_archive`, the ETag of an archive that
            this run has read already.
        context: unused.
    """
    with telling(log, announced=event):
        verdict = _judge().judge(event, now=datetime.now(UTC))
    log.info(
        "judged",
        extra={key: verdict[key] for key in ("digest", "decision", "reason", "problems")},
    )
    return verdict
