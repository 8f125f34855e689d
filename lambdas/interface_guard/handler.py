"""`Custom::InterfaceGuard`: a security group stays until the last network interface has left it.

SageMaker lets go of an endpoint's interfaces some time after the endpoint is gone, and meanwhile
EC2 refuses to delete the group and the subnets.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from shared.answer import succeed
from shared.log import logger
from shared.waiting import LOOK, Answer, once_gone, respond

log = logger("interface_guard")


def handler(event: dict[str, Any], context: Any) -> None:
    """Carry out one request, or one look of a deletion that waits.

    Args:
        event: CloudFormation's request; `Deadline` is added once a deletion waits.
        context: names this function, which calls itself for the next look.
    """
    # The group's own id: another group is another resource, and the old one is waited for.
    known = event["ResourceProperties"]["SecurityGroup"]
    respond(event, known, lambda: _outcome(event, context, known))


def _outcome(event: dict[str, Any], context: Any, group: str) -> Answer | None:
    if event["RequestType"] != "Delete":
        return partial(succeed, event, group)
    return once_gone(event, context, known=group, left=_what_is_left(group))


def _what_is_left(group: str) -> str | None:
    """What keeps the group, in words; a look that fails is no proof that nothing does."""
    ec2 = boto3.client("ec2", config=LOOK)
    pages = ec2.get_paginator("describe_network_interfaces")
    try:
        found = [
            interface["NetworkInterfaceId"]
            for page in pages.paginate(Filters=[{"Name": "group-id", "Values": [group]}])
            for interface in page["NetworkInterfaces"]
        ]
    except (BotoCoreError, ClientError) as error:
        log.exception("the look failed")
        return f"cannot see whether interfaces are left in {group}: {error}; delete again"
    if not found:
        return None
    return f"still in {group}: {', '.join(found)}; see which endpoint holds them, then delete again"
