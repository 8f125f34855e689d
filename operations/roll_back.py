"""Puts an earlier model back, by the delivery's own state machine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from operations.model_history import SHORT, History, Model
from shared.places import from_model_url, verdict_key

Show = Callable[[str], None]


class RollBackRefused(Exception):
    """There is no such model to put back; the message says what to do."""


def choose(history: History, prefix: str | None) -> Model:
    """The model to put back: the one whose digest starts so, or the one that served before.

    Raises:
        RollBackRefused: there is none, more than one, or it cannot serve.
    """
    model = _starting(history, prefix.lower()) if prefix else _previous(history)
    if model.serves:
        raise RollBackRefused(f"{model.name} serves already; there is nothing to do")
    if model.verdict.get("final"):
        raise RollBackRefused(
            f"{model.name} cannot serve: {model.why}; to have the same bytes tried again, delete "
            f"s3://{model.place.bucket}/{verdict_key(model.place.digest)}"
        )
    return model


def _starting(history: History, prefix: str) -> Model:
    found = [model for model in history.models if model.place.digest.startswith(prefix)]
    if not found:
        raise RollBackRefused(
            f"no published model starts with {prefix!r}; `ultracluster models` lists them"
        )
    if len(found) > 1:
        digits = max(len(prefix) + 1, SHORT)
        names = ", ".join(model.place.digest[:digits] for model in found[:5])
        raise RollBackRefused(f"{prefix!r} fits {len(found)} models: {names}; give more digits")
    return found[0]


def _previous(history: History) -> Model:
    serving = history.serving
    if serving is None:
        raise RollBackRefused(
            f"{'nothing' if history.served_url == 'none' else history.served_url} serves, so none "
            "is known to have served before; name one that `ultracluster models` lists"
        )
    before = from_model_url(str(serving.verdict.get("previous_model_url", "")))
    for model in history.models:
        if model.place == before:
            return model
    raise RollBackRefused(
        f"it is not known what served before {serving.name}; name one that "
        "`ultracluster models` lists"
    )


def start(states: Any, state_machine: str, model: Model) -> str:
    """Start the roll-back; returns the execution's ARN."""
    asked = {
        "bucket": model.place.bucket,
        "key": model.place.manifest_key,
        "intent": "roll-back",
    }
    answer = states.start_execution(stateMachineArn=state_machine, input=json.dumps(asked))
    return str(answer["executionArn"])


def wait(states: Any, execution: str, *, poll_seconds: float, show: Show) -> bool:
    """Wait until an execution has ended, and say how; whether the model serves.

    The state machine bounds every wait of its own.
    """
    while (ended := states.describe_execution(executionArn=execution))["status"] == "RUNNING":
        time.sleep(poll_seconds)
    if ended["status"] != "SUCCEEDED":
        show(f"the execution is {ended['status']}: {ended.get('cause', 'no cause is given')}")
        return False
    output = json.loads(ended["output"])
    show(f"outcome: {output['outcome']}; {output.get('reason', '')}".rstrip("; "))
    return bool(output["outcome"] == "serving")
