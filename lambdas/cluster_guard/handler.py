"""`Custom::ClusterGuard`: other clusters are left alone, and the network outlives the nodes."""

from __future__ import annotations

from functools import partial
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from cluster_guard.guard import Guard
from shared.answer import fail, succeed
from shared.log import logger
from shared.waiting import LOOK, Answer, once_gone, respond

log = logger("cluster_guard")

_REFUSED = "refused"


def handler(event: dict[str, Any], context: Any) -> None:
    """Carry out one request, or one look of a deletion that waits.

    Args:
        event: CloudFormation's request; `Deadline` is added once a deletion waits.
        context: names this function, which calls itself for the next look.
    """
    name = event["ResourceProperties"]["ClusterName"]
    known = event.get("PhysicalResourceId", f"{_REFUSED}/{name}")
    respond(event, known, lambda: _outcome(event, context, name=name, known=known))


def _outcome(event: dict[str, Any], context: Any, *, name: str, known: str) -> Answer | None:
    """Decide what to answer; None where a later look will."""
    own = f"guard/{name}"
    if event["RequestType"] == "Delete":
        # Any other id stands for a creation that was refused: nothing of that name is ours.
        left = _what_is_left(event) if known == own else None
        return once_gone(event, context, known=known, left=left)
    if known not in (own, f"{_REFUSED}/{name}"):
        # The provider cannot rename a cluster; said before it is asked.
        reason: str | None = f"{known.partition('/')[2]!r} cannot become {name!r}; destroy first"
    else:
        reason = _refusal(event)
    return partial(fail, event, known, reason) if reason else partial(succeed, event, own)


def _what_is_left(event: dict[str, Any]) -> str | None:
    """What keeps the network, in words; a look that fails is no proof that nothing does."""
    try:
        remains = _guard(event).remains()
    except (BotoCoreError, ClientError) as error:
        log.exception("the look failed")
        return f"cannot see whether nodes are left: {error}; delete again"
    return f"still there: {', '.join(remains)}; end them, then delete again" if remains else None


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
        cloudformation=boto3.client("cloudformation", config=LOOK),
        ec2=boto3.client("ec2", config=LOOK),
    )
