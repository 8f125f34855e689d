"""`Custom::DeliveryDrain`: no delivery is cut off in the middle of a roll-out."""

from __future__ import annotations

from functools import partial
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from drain.delivery import Delivery
from shared.answer import succeed
from shared.log import logger
from shared.waiting import LOOK, Answer, once_gone, respond

log = logger("drain")

_ID = "drain"


def handler(event: dict[str, Any], context: Any) -> None:
    """Carry out one request, or one look of a deletion that waits.

    Args:
        event: CloudFormation's request; `Deadline` is added once a deletion waits.
        context: names this function, which calls itself for the next look.
    """
    respond(event, _ID, lambda: _outcome(event, context))


def _outcome(event: dict[str, Any], context: Any) -> Answer | None:
    delivery = _delivery(event["ResourceProperties"])
    if event["RequestType"] != "Delete":
        delivery.open()
        return partial(succeed, event, _ID)
    if "Deadline" in event:
        left = _what_is_left(delivery)
    else:
        delivery.close()
        # A rule matches events for a moment after it was disabled: the first look says nothing.
        # https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_DisableRule.html
        left = "an event may still start a delivery; delete again"
    return once_gone(event, context, known=_ID, left=left)


def _what_is_left(delivery: Delivery) -> str | None:
    """What keeps the delivery, in words; a look that fails is no proof that nothing does."""
    try:
        return delivery.under_way()
    except (BotoCoreError, ClientError) as error:
        log.exception("the look failed")
        return f"cannot see whether a delivery runs: {error}; delete again"


def _delivery(properties: dict[str, str]) -> Delivery:
    return Delivery(
        rule=properties["Rule"],
        machine=properties["StateMachine"],
        endpoint_stack=properties["EndpointStack"],
        events=boto3.client("events", config=LOOK),
        states=boto3.client("stepfunctions", config=LOOK),
        cloudformation=boto3.client("cloudformation", config=LOOK),
    )
