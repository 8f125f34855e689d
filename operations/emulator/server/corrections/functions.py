"""Lambda functions: dropped properties, and errors under the names that AWS gives them."""

from __future__ import annotations

import threading
from typing import Any

from ministack.core import lambda_runtime
from ministack.services import cloudwatch_logs, lambda_svc

from operations.emulator.server.calls import client
from operations.emulator.server.corrections.handlers import Properties, after_change
from operations.emulator.server.provisioners.resource_type import run_on_worker_thread

_FUNCTION = "AWS::Lambda::Function"


def apply() -> None:
    """Apply the corrections."""
    after_change(_FUNCTION, _finish)
    run_on_worker_thread(_FUNCTION)
    _name_errors()
    _leave_deleted_logs_deleted()


def _leave_deleted_logs_deleted() -> None:
    """A log group of the function's own choice is not made again by what it writes at its end.

    Its role would need logs:CreateLogGroup.
    https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs-loggroups.html
    """
    emit = lambda_svc._emit_lambda_logs

    def emitted(function: dict[str, Any], *arguments: Any, **rest: Any) -> None:
        config = function.get("config") or function
        group = (config.get("LoggingConfig") or {}).get("LogGroup")
        implicit = f"/aws/lambda/{config.get('FunctionName')}"
        if group in (None, implicit) or group in cloudwatch_logs._log_groups:
            emit(function, *arguments, **rest)

    lambda_svc._emit_lambda_logs = emitted


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


# The worker's line that answers an invocation with an error, and the same with the error's type.
_ANSWER = '{"status": "error", "error": str(e), "trace": traceback.format_exc()}'
_TYPED_ANSWER = _ANSWER.replace("}", ', "type": type(e).__name__}')


def _name_errors() -> None:
    """MiniStack calls every error Runtime.HandlerError; AWS gives the exception's class name.

    Step Functions' Retry and Catch go by that name.
    """
    script = lambda_runtime._PYTHON_WORKER_SCRIPT
    if script.count(_ANSWER) != 1:
        raise RuntimeError("this MiniStack answers errors of functions otherwise than 1.5.33")
    lambda_runtime._PYTHON_WORKER_SCRIPT = script.replace(_ANSWER, _TYPED_ANSWER)
    invoke, execute = lambda_runtime.Worker.invoke, lambda_svc._execute_function_warm
    last = threading.local()

    def invoked(worker: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
        answer: dict[str, Any] = invoke(worker, *arguments, **options)
        last.error_type = answer.get("type")
        return answer

    def executed(function: dict[str, Any], event: Any, request_id: str) -> dict[str, Any]:
        last.error_type = None
        result: dict[str, Any] = execute(function, event, request_id)
        if result.get("error") and last.error_type is not None:
            result["body"]["errorType"] = last.error_type
        return result

    lambda_runtime.Worker.invoke = invoked
    lambda_svc._execute_function_warm = executed
