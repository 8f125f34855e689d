"""Asks an endpoint for the labels that its model gave when it was packed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from settle.fault import Fault, told_by_container
from shared.manifest import Smoke

_ANSWERED_BADLY = ("ModelError", "ModelNotReadyException", "InternalDependencyException")


def mismatch(runtime: Any, endpoint_name: str, smoke: Sequence[Smoke]) -> Fault | None:
    """Send all texts in one request; None if every label is as it was, else what was wrong.

    Errors that say nothing about the model, such as a missing right, pass through.
    """
    try:
        answer = runtime.invoke_endpoint(
            EndpointName=endpoint_name,
            ContentType="application/json",
            Accept="application/json",
            Body=json.dumps({"inputs": [item.text for item in smoke]}).encode(),
        )
        with answer["Body"] as body:
            content = body.read()
    except ClientError as error:
        response: Any = error.response
        if response["Error"]["Code"] not in _ANSWERED_BADLY:
            raise
        status: int | None = response.get("OriginalStatusCode")
        said = str(response.get("OriginalMessage") or response["Error"].get("Message"))
        shown = "no status" if status is None else status
        return told_by_container(
            f"the model failed on the manifest's texts: {shown}: {said[:300]}", status=status
        )
    except BotoCoreError as error:
        return Fault(
            reason=f"the model gave no answer to the manifest's texts: {error}", of_model=False
        )
    problem = _difference(content, smoke)
    return Fault(reason=problem, of_model=True) if problem else None


def _difference(content: bytes, smoke: Sequence[Smoke]) -> str | None:
    try:
        answers: list[Any] = json.loads(content)
        labels = [answer["label"] for answer in answers]
    except (ValueError, TypeError, KeyError, RecursionError):
        return f"the model's answer is no list of labels: {content[:200]!r}"
    if len(labels) != len(smoke):
        return f"the model gave {len(labels)} labels for {len(smoke)} texts"
    wrong = [
        f"smoke[{index}]: got {label!r:.200}, the manifest says {item.label!r}"
        for index, (label, item) in enumerate(zip(labels, smoke, strict=True))
        if label != item.label
    ]
    return "; ".join(wrong) or None
