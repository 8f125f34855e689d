"""EventBridge: an event without a target is kept, and a rule is known to IAM by its own ARN."""

from __future__ import annotations

import contextvars
import json
import threading
from typing import Any

from ministack.core import iam_actions
from ministack.services import eventbridge, lambda_svc, stepfunctions

from operations.emulator.server.calls import client


def apply() -> None:
    """Apply the corrections."""
    _keep_what_has_no_target()
    _name_rules_as_aws_does()


def _name_rules_as_aws_does() -> None:
    """The ARN of a rule on the default bus holds no name of the bus.

    https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazoneventbridge.html
    """
    resource = iam_actions.extract_resource_arn

    def named(service: str, *arguments: Any, **rest: Any) -> str:
        arn: str = resource(service, *arguments, **rest)
        return arn.replace(":rule/default/", ":rule/") if service == "events" else arn

    iam_actions.extract_resource_arn = named


def _keep_what_has_no_target() -> None:
    """An event whose target is gone goes to the target's dead-letter queue; MiniStack drops it."""
    invoke = eventbridge._invoke_target

    def invoked(
        target: dict[str, Any], event: dict[str, Any], rule: dict[str, Any], view: Any = None
    ) -> None:
        queue = (target.get("DeadLetterConfig") or {}).get("Arn")
        if queue is None or _exists(target["Arn"]):
            invoke(target, event, rule, view)
            return
        view = view or eventbridge._pattern_event_view(event)
        body = json.dumps(view.event_with_detail())
        work = contextvars.copy_context().run
        # Events are put on the event loop, which must not wait for our own API.
        threading.Thread(target=work, args=(_keep, queue, body, rule, target), daemon=True).start()

    eventbridge._invoke_target = invoked


def _exists(arn: str) -> bool:
    service = arn.split(":")[2]
    if service == "states":
        return stepfunctions._resolve_state_machine_arn(arn) is not None
    if service == "lambda":
        return arn.split(":")[6] in lambda_svc._functions
    return True


def _keep(queue: str, body: str, rule: dict[str, Any], target: dict[str, Any]) -> None:
    """Send the event with the attributes that AWS adds.

    https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-rule-dlq.html
    """
    facts = {
        "RULE_ARN": rule.get("Arn", ""),
        "TARGET_ARN": target["Arn"],
        "ERROR_CODE": "RESOURCE_NOT_FOUND",
        "ERROR_MESSAGE": f"{target['Arn']} does not exist",
    }
    url = client("sqs").get_queue_url(QueueName=queue.rpartition(":")[2])["QueueUrl"]
    client("sqs").send_message(
        QueueUrl=url,
        MessageBody=body,
        MessageAttributes={
            name: {"DataType": "String", "StringValue": text} for name, text in facts.items()
        },
    )
