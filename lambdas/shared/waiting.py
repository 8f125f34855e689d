"""A custom resource whose deletion may wait: one look an invocation, which calls for the next."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from shared.answer import fail, succeed
from shared.log import logger

log = logger("waiting")

LOOK = Config(connect_timeout=3, read_timeout=10, retries={"total_max_attempts": 2})
"""For clients that look: one that hangs must end within the function's own time."""

# Under CloudFormation's hour for a custom resource, so that it is us who say what is left.
_PATIENCE_SECONDS = 50 * 60
# A call that was taken and is made again would start a second chain of looks. Its time ends after
# this function's own: then Lambda itself repeats the event, and no answer is made up.
_CALL = Config(read_timeout=180, retries={"total_max_attempts": 1})
_ATTEMPTS = 3

# What CloudFormation will be told, once it is called.
Answer = Callable[[], None]


def respond(event: dict[str, Any], known: str, outcome: Callable[[], Answer | None]) -> None:
    """Carry out a request and answer it; None of `outcome` says that a later look will.

    Args:
        event: CloudFormation's request.
        known: id that the resource has, for the answer where `outcome` breaks.
        outcome: carries the request out.
    """
    try:
        answer = outcome()
    except Exception as error:
        log.exception("the request could not be carried out")
        answer = partial(fail, event, known, f"{type(error).__name__}: {error}")
    if answer is not None:
        _send(answer)


def once_gone(
    event: dict[str, Any], context: Any, *, known: str, left: str | None
) -> Answer | None:
    """Answer a deletion once nothing is left; until then look again.

    Args:
        event: CloudFormation's request; `Deadline` is added once it waits.
        context: names this function, which calls itself for the next look.
        known: id of the resource.
        left: what the deletion waits for, in words, and what to do about it.
    """
    if left is None:
        return partial(succeed, event, known)
    deadline = event.setdefault("Deadline", time.time() + _PATIENCE_SECONDS)
    if time.time() >= deadline:
        return partial(fail, event, known, left)
    log.info("waiting", extra={"left": left})
    time.sleep(float(os.environ["POLL_SECONDS"]))
    _look_again(event, context)
    return None


def _send(answer: Answer) -> None:
    """Give an answer; the same one again where it is unknown whether it arrived."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            answer()
            return
        except (OSError, http.client.HTTPException):
            if attempt == _ATTEMPTS:
                raise
            log.exception("the answer may not have arrived")
            time.sleep(attempt)


def _look_again(event: dict[str, Any], context: Any) -> None:
    client = boto3.client("lambda", config=_CALL)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            client.invoke(
                FunctionName=context.invoked_function_arn,
                InvocationType="Event",
                Payload=json.dumps(event).encode(),
            )
            return
        except ClientError:  # refused, so it was not taken
            if attempt == _ATTEMPTS:
                raise
            log.exception("the next look was refused")
            time.sleep(attempt)
