"""InvokeEndpoint of the emulated SageMaker Runtime."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from operations.emulator.sagemaker_endpoints import Endpoints
from operations.emulator.sagemaker_fleet import Answer
from operations.emulator.sagemaker_requests import ApiError

# https://docs.aws.amazon.com/general/latest/gr/sagemaker.html, "maximum payload size"
MAX_BODY_BYTES = 6_291_456
_TIMED_OUT = (
    "Your invocation timed out while waiting for a response from container primary. Review the "
    "latency metrics for each container in Amazon CloudWatch, resolve the issue, and try again."
)


@dataclass(frozen=True)
class InvokeResult:
    """An answer of the runtime API, errors included, ready to be sent."""

    status: int
    headers: dict[str, str]
    body: bytes


def invoke(
    endpoints: Endpoints,
    *,
    region: str,
    account: str,
    name: str,
    body: bytes,
    content_type: str | None,
    accept: str | None,
) -> InvokeResult:
    """Answer one InvokeEndpoint.

    It is a ValidationError if no fleet serves under this exact name, 413 for a body that is too
    large, ServiceUnavailable if the container is gone, and a ModelError, status 424, for whatever
    the container answers but success.
    """
    headers = {"Content-Type": content_type, "Accept": accept}
    sent = {key: value for key, value in headers.items() if value}
    try:
        answer, variant = _answer(endpoints, account=account, name=name, body=body, headers=sent)
    except ApiError as error:
        return _error(error.status, error.code, {"Message": error.message})
    if answer.status // 100 != 2:
        return _model_error(answer, region=region, account=account, name=name)
    kept = {"Content-Type": answer.content_type, "x-Amzn-Invoked-Production-Variant": variant}
    return InvokeResult(200, kept, answer.body)


def _answer(
    endpoints: Endpoints, *, account: str, name: str, body: bytes, headers: dict[str, str]
) -> tuple[Answer, str]:
    if len(body) > MAX_BODY_BYTES:
        raise ApiError("413", f"HTTP content length exceeded {MAX_BODY_BYTES} bytes.", 413)
    with endpoints.serving(name) as found:
        if found is None:
            raise ApiError("ValidationError", f"Endpoint {name} of account {account} not found.")
        fleet, variant = found
        try:
            return fleet.invoke(body, headers), variant
        except TimeoutError:
            return Answer(0, "", _TIMED_OUT.encode()), variant
        except OSError as error:
            raise ApiError(
                "ServiceUnavailable",
                f"the container of variant {variant} does not answer ({error}); "
                f"read its log {fleet.log}, then update the endpoint to start a new one",
                503,
            ) from error


def _model_error(answer: Answer, *, region: str, account: str, name: str) -> InvokeResult:
    original = answer.body.decode("utf-8", "replace")
    side = "client" if answer.status // 100 == 4 else "server"
    group = f"/aws/sagemaker/Endpoints/{name}"
    logs = f"https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}"
    message = (
        f'Received {side} error ({answer.status}) from primary with message "{original}". '
        f"See {logs}#logEventViewer:group={group} in account {account} for more information."
    )
    members = {
        "Message": message,
        "OriginalMessage": original,
        "OriginalStatusCode": answer.status,
        "LogStreamArn": f"arn:aws:logs:{region}:{account}:log-group:{group}",
    }
    return _error(424, "ModelError", members)


def _error(status: int, code: str, members: Mapping[str, object]) -> InvokeResult:
    headers = {"Content-Type": "application/json", "x-amzn-ErrorType": code}
    return InvokeResult(status, headers, json.dumps(members).encode())
