"""`Custom::ClusterGuard`: other clusters are left alone, and the network outlives the nodes."""

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
from botocore.exceptions import BotoCoreError, ClientError

from cluster_guard.guard import Guard
from shared.answer import fail, succeed
from shared.log import logger

log = logger("cluster_guard")

_REFUSED = "refused"
# Under CloudFormation's hour for a custom resource, so that it is us who say what is left.
_PATIENCE_SECONDS = 50 * 60
# A look that hangs must end within this function's own time, so that another can follow.
_LOOK = Config(connect_timeout=3, read_timeout=10, retries={"total_max_attempts": 2})
# A call that was taken and is made again would start a second chain of looks. Its time ends after
# this function's own: then Lambda itself repeats the event, and no answer is made up.
_CALL = Config(read_timeout=180, retries={"total_max_attempts": 1})
_ATTEMPTS = 3

# What CloudFormation will be told, once it is called.
Answer = Callable[[], None]


def handler(event: dict[str, Any], context: Any) -> None:
    """Carry out one request, or one look of a deletion that waits.

    Args:
        event: CloudFormation's request; `Deadline` is added once a deletion waits.
        context: names this function, which calls itself for the next look.
    """
    name = event["ResourceProperties"]["ClusterName"]
    own = f"guard/{name}"
    known = event.get("PhysicalResourceId", f"{_REFUSED}/{name}")
    try:
        answer = _outcome(event, context, name=name, own=own, known=known)
    except Exception as error:
        log.exception("the request could not be carried out")
        answer = partial(fail, event, known, f"{type(error).__name__}: {error}")
    if answer is not None:
        _send(answer)


def _outcome(
    event: dict[str, Any], context: Any, *, name: str, own: str, known: str
) -> Answer | None:
    """Decide what to answer; None where a later look will."""
    if event["RequestType"] == "Delete":
        return _delete(event, context, own=own, known=known)
    if known not in (own, f"{_REFUSED}/{name}"):
        # The provider cannot rename a cluster; said before it is asked.
        reason: str | None = f"{known.partition('/')[2]!r} cannot become {name!r}; destroy first"
    else:
        reason = _refusal(event)
    return partial(fail, event, known, reason) if reason else partial(succeed, event, own)


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


def _delete(event: dict[str, Any], context: Any, *, own: str, known: str) -> Answer | None:
    # Any other id stands for a creation that was refused: nothing of that name is ours.
    left = _what_is_left(event) if known == own else None
    if left is None:
        return partial(succeed, event, known)
    deadline = event.setdefault("Deadline", time.time() + _PATIENCE_SECONDS)
    if time.time() >= deadline:
        return partial(fail, event, known, left)
    log.info("waiting", extra={"left": left})
    time.sleep(float(os.environ["POLL_SECONDS"]))
    _look_again(event, context)
    return None


def _what_is_left(event: dict[str, Any]) -> str | None:
    """What keeps the network, in words; a look that fails is no proof that nothing does."""
    try:
        remains = _guard(event).remains()
    except (BotoCoreError, ClientError) as error:
        log.exception("the look failed")
        return f"cannot see whether nodes are left: {error}; delete again"
    return f"still there: {', '.join(remains)}; end them, then delete again" if remains else None


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


def _refusal(event: dict[str, Any]) -> str | None:
    if event["RequestType"] == "Update":
        return None
    resource = event["ResourceProperties"]["ClusterResource"]
    return _guard(event).refusal(event["StackId"], resource)


def _guard(event: dict[str, Any]) -> Guard:
    properties = event["ResourceProperties"]
    return Guard(
        cluster=properties["ClusterName"],
        security_group=properties["SecurityGroup"],
        cloudformation=boto3.client("cloudformation", config=_LOOK),
        ec2=boto3.client("ec2", config=_LOOK),
    )
