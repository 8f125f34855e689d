"""Lambda functions: properties that MiniStack's CloudFormation drops, set through the API."""

from __future__ import annotations

from typing import Any

from operations.emulator.server.calls import client
from operations.emulator.server.corrections.handlers import Properties, after_change
from operations.emulator.server.provisioners.resource_type import run_on_worker_thread

_FUNCTION = "AWS::Lambda::Function"


def apply() -> None:
    """Apply the corrections."""
    after_change(_FUNCTION, _finish)
    run_on_worker_thread(_FUNCTION)


def _finish(
    function: str, attributes: dict[str, Any], old: Properties, new: Properties
) -> dict[str, Any]:
    calls = client("lambda")
    queue = new.get("DeadLetterConfig")
    if queue or old.get("DeadLetterConfig"):
        calls.update_function_configuration(
            FunctionName=function, DeadLetterConfig=queue or {"TargetArn": ""}
        )
    reserved = new.get("ReservedConcurrentExecutions")
    if reserved is not None:
        calls.put_function_concurrency(
            FunctionName=function, ReservedConcurrentExecutions=int(reserved)
        )
    elif old.get("ReservedConcurrentExecutions") is not None:
        calls.delete_function_concurrency(FunctionName=function)
    return attributes
