"""`Custom::ClusterGuard`: other clusters are left alone, and the network outlives the nodes."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import boto3

from cluster_guard.guard import Guard
from shared.answer import fail, succeed
from shared.log import logger

log = logger("cluster_guard")

_REFUSED = "refused"
# Under CloudFormation's hour for a custom resource, so that it is us who say what is left.
_PATIENCE_SECONDS = 50 * 60


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
        if event["RequestType"] == "Delete":
            _delete(event, context, own=own, known=known)
        elif known not in (own, f"{_REFUSED}/{name}"):
            # The provider cannot rename a cluster; said before it is asked.
            fail(event, known, f"{known.partition('/')[2]!r} cannot become {name!r}; destroy first")
        elif reason := _refusal(event):
            fail(event, known, reason)
        else:
            succeed(event, own)
    except Exception as error:
        log.exception("the request could not be carried out")
        fail(event, known, f"{type(error).__name__}: {error}")


def _delete(event: dict[str, Any], context: Any, *, own: str, known: str) -> None:
    # Any other id stands for a creation that was refused: nothing of that name is ours.
    remains = _guard(event).remains() if known == own else []
    if not remains:
        succeed(event, known)
        return
    deadline = event.setdefault("Deadline", time.time() + _PATIENCE_SECONDS)
    if time.time() >= deadline:
        fail(event, known, f"still there: {', '.join(remains)}; end them, then delete again")
        return
    log.info("waiting", extra={"remains": remains})
    time.sleep(float(os.environ["POLL_SECONDS"]))
    boto3.client("lambda").invoke(
        FunctionName=context.invoked_function_arn,
        InvocationType="Event",
        Payload=json.dumps(event).encode(),
    )


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
        cloudformation=boto3.client("cloudformation"),
        ec2=boto3.client("ec2"),
    )
