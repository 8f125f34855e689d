"""What a function behind a custom resource tells CloudFormation."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

# CloudFormation takes no answer of more than 4096 bytes; the ids in it need some of them.
_MOST_REASON = 1500


def succeed(event: dict[str, Any], physical_id: str) -> None:
    """The request was carried out; the resource now has this id."""
    _send(event, {"Status": "SUCCESS", "PhysicalResourceId": physical_id})


def fail(event: dict[str, Any], physical_id: str, reason: str) -> None:
    """The request was not carried out; a roll-back sends Delete with this id."""
    text = reason if len(reason) <= _MOST_REASON else f"{reason[:_MOST_REASON]} ..."
    _send(event, {"Status": "FAILED", "PhysicalResourceId": physical_id, "Reason": text})


def _send(event: dict[str, Any], answer: dict[str, str]) -> None:
    echoed = {name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")}
    request = urllib.request.Request(  # noqa: S310 - the URL is CloudFormation's own
        event["ResponseURL"],
        data=json.dumps(answer | echoed).encode(),
        method="PUT",
        # The signature of the URL covers an empty content type.
        headers={"Content-Type": ""},
    )
    urllib.request.urlopen(request, timeout=20).close()  # noqa: S310
