"""InvokeEndpoint of the emulated SageMaker Runtime."""

from __future__ import annotations

import json
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
    """An answer of the runtime API, ready to be sent.

    A container's own error has already become the API's ModelError, status 424.
    """

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

    Raises:
        ApiError: no fleet serves under this exact name, the body is too large, or the container
            is gone.
    """
    if len(body) > MAX_BODY_BYTES:
        raise ApiError("413", f"HTTP content length exceeded {MAX_BODY_BYTES} bytes.", 413)
    headers = {"Content-Type": content_type, "Accept": accept}
    sent = {key: value for key, value in headers.items() if value}
    with endpoints.serving(name) as found:
        if found is None:
            raise ApiError("ValidationError", f"Endpoint {name} of account {account} not found.")
        fleet, variant = found
        try:
            answer = fleet.invoke(body, sent)
        except TimeoutError:
            answer = Answer(0, "", _TIMED_OUT.encode())
        except OSError as error:
            raise ApiError(
                "ServiceUnavailable",
                f"the container of variant {variant} does not answer ({error}); "
                f"read its log {fleet.log}, then update the endpoint to start a new one",
                503,
            ) from error
    if answer.status // 100 == 2:
        return InvokeResult(
            200,
            {
                "Content-Type": answer.content_type,
                "x-Amzn-Invoked-Production-Variant": variant,
            },
            answer.body,
        )
    return _model_error(answer, region=region, account=account, name=name)


def _model_error(answer: Answer, *, region: str, account: str, name: str) -> InvokeResult:
    original = answer.body.decode("utf-8", "replace")
    side = "client" if answer.status // 100 == 4 else "server"
    group = f"/aws/sagemaker/Endpoints/{name}"
    logs = f"https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}"
    message = (
        f'Received {side} error ({answer.status}) from primary with message "{original}". '
        f"See {logs}#logEventViewer:group={group} in account {account} for more information."
    )
    error = {
        "Message": message,
        "OriginalMessage": original,
        "OriginalStatusCode": answer.status,
        "LogStreamArn": f"arn:aws:logs:{region}:{account}:log-group:{group}",
    }
    return InvokeResult(
        424,
        {"Content-Type": "application/json", "x-amzn-ErrorType": "ModelError"},
        json.dumps(error).encode(),
    )
