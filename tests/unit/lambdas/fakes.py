"""In-memory AWS services for the delivery functions; botocore's own models check each request."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import botocore.session
from botocore.exceptions import ClientError
from botocore.response import StreamingBody
from botocore.validate import validate_parameters

STACK = "ultracluster-test-endpoint"
UNHEALTHY = (
    "The primary container for production variant main did not pass the ping health check. "
    "Please check CloudWatch logs for this endpoint."
)
ROLLED_BACK = "the endpoint was rolled back: alarm ultracluster-test-smoke is in ALARM"
STACK_ID = f"arn:aws:cloudformation:us-west-2:000000000000:stack/{STACK}/1"
ENDPOINT = "ultracluster-test"

_SESSION = botocore.session.get_session()


def refused(operation: str, code: str, message: str, **more: Any) -> ClientError:
    response: Any = {"Error": {"Code": code, "Message": message}, **more}
    return ClientError(response, operation)


class _Service:
    """Checks requests and remembers them."""

    service = ""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._model = _SESSION.get_service_model(self.service)

    def _called(self, operation: str, request: dict[str, Any]) -> None:
        shape = self._model.operation_model(operation).input_shape
        assert shape is not None
        validate_parameters(request, shape)
        self.calls.append((operation, request))

    def count(self, operation: str) -> int:
        return sum(name == operation for name, _ in self.calls)


def _body(content: bytes) -> StreamingBody:
    return StreamingBody(io.BytesIO(content), len(content))


@dataclass
class Stored:
    body: bytes
    checksum: str | None = None
    checksum_type: str = "FULL_OBJECT"

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.body, usedforsecurity=False).hexdigest()}"'


class FakeS3(_Service):
    service = "s3"

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[tuple[str, str], Stored] = {}
        self.location: str | None = "us-west-2"

    def store(self, bucket: str, key: str, body: bytes) -> Stored:
        """Put an object as the publisher does: in one put, with its SHA-256."""
        checksum = base64.b64encode(hashlib.sha256(body).digest()).decode()
        self.objects[bucket, key] = Stored(body, checksum)
        return self.objects[bucket, key]

    def get_object(self, **request: Any) -> dict[str, Any]:
        self._called("GetObject", request)
        found = self.objects.get((request["Bucket"], request["Key"]))
        if found is None:
            raise refused("GetObject", "NoSuchKey", "The specified key does not exist.")
        if request.get("IfMatch", found.etag) != found.etag:
            raise refused("GetObject", "PreconditionFailed", "At least one precondition failed")
        return {"Body": _body(found.body), "ETag": found.etag, "ContentLength": len(found.body)}

    def get_bucket_location(self, **request: Any) -> dict[str, Any]:
        self._called("GetBucketLocation", request)
        return {"LocationConstraint": self.location}

    def head_object(self, **request: Any) -> dict[str, Any]:
        self._called("HeadObject", request)
        found = self.objects.get((request["Bucket"], request["Key"]))
        if found is None:
            raise refused("HeadObject", "404", "Not Found")
        answer: dict[str, Any] = {"ContentLength": len(found.body), "ETag": found.etag}
        if request.get("ChecksumMode") == "ENABLED" and found.checksum:
            answer |= {"ChecksumSHA256": found.checksum, "ChecksumType": found.checksum_type}
        return answer

    def put_object(self, **request: Any) -> dict[str, Any]:
        self._called("PutObject", request)
        if "IfNoneMatch" in request and (request["Bucket"], request["Key"]) in self.objects:
            raise refused("PutObject", "PreconditionFailed", "At least one precondition failed")
        self.objects[request["Bucket"], request["Key"]] = Stored(request["Body"])
        return {}

    def json(self, bucket: str, key: str) -> Any:
        return json.loads(self.objects[bucket, key].body)


class FakeSns(_Service):
    service = "sns"

    def publish(self, **request: Any) -> dict[str, Any]:
        self._called("Publish", request)
        return {"MessageId": "1"}

    @property
    def messages(self) -> list[str]:
        return [request["Message"] for _, request in self.calls]


@dataclass
class Platform:
    """The Endpoint stack and its endpoint, moved on by `tick`.

    `endings` says how the update to a URL ends, after `ticks` ticks: `complete`, `failed` (then
    CloudFormation rolls back, for `failure`), or `silent` (complete, but SageMaker keeps the old
    configuration). The last `bake` of these ticks all traffic is on the new fleet, and a failure of
    the texts that is told to CloudWatch then makes SageMaker roll back.
    """

    url: str = "none"
    status: str = "UPDATE_COMPLETE"
    ticks: int = 2
    bake: int = 0
    traffic: str = "ALL_AT_ONCE"
    alarm: str = "OK"
    endings: dict[str, str] = field(default_factory=dict)
    failure: str = UNHEALTHY
    events: list[dict[str, Any]] = field(default_factory=list)
    serves: str | None = None
    endpoint_status: str = "InService"
    failure_reason: str = ""
    _before: str = ""
    _left: int = 0

    def __post_init__(self) -> None:
        self.serves = None if self.url == "none" else configuration(self.url)

    @property
    def bakes(self) -> bool:
        """Whether an update has shifted the traffic and can still be rolled back by an alarm."""
        running = self.status == "UPDATE_IN_PROGRESS" and self._before != "none"
        return running and 0 < self._left <= self.bake

    @property
    def answers(self) -> str | None:
        """The configuration whose fleet answers."""
        return configuration(self.url) if self.bakes else self.serves

    def begin(self, url: str, token: str) -> None:
        self._before, self.url, self._left = self.url, url, self.ticks
        self.status = "UPDATE_IN_PROGRESS"
        self._event(STACK, self.status, token, reason="User Initiated")

    def tick(self) -> None:
        if not self.status.endswith("_IN_PROGRESS"):
            return
        if self.bakes and self.alarm == "ALARM":
            self.endings[self.url], self.failure, self._left = "failed", ROLLED_BACK, 1
        self._left -= 1
        if self._left > 0:
            return
        token = self.events[0]["ClientRequestToken"]
        ending = self.endings.get(self.url, "complete")
        if ending == "failed":
            self._event("Endpoint", "UPDATE_FAILED", token, reason=self.failure)
            self._event("Model", "UPDATE_FAILED", token, reason="Resource update cancelled")
            self.url, self.status = self._before, "UPDATE_ROLLBACK_COMPLETE"
        else:
            if ending == "complete":
                self.serves = None if self.url == "none" else configuration(self.url)
            self.status = "UPDATE_COMPLETE"
        self._event(STACK, self.status, token)

    def _event(self, name: str, status: str, token: str, *, reason: str = "") -> None:
        own = name == STACK
        event = {
            "StackId": STACK_ID,
            "PhysicalResourceId": STACK_ID if own else f"{name}-1",
            "LogicalResourceId": name,
            "ResourceType": "AWS::CloudFormation::Stack" if own else f"AWS::SageMaker::{name}",
            "ResourceStatus": status,
            "ResourceStatusReason": reason,
            "ClientRequestToken": token,
        }
        self.events.insert(0, event)


def configuration(url: str) -> str:
    """Name of the endpoint configuration of a model."""
    return f"configuration-{url.split('/')[-2][:8]}"


class FakeCloudFormation(_Service):
    service = "cloudformation"

    def __init__(self, platform: Platform, *, page: int = 2) -> None:
        super().__init__()
        self.platform = platform
        self.exists = True
        self._page = page

    def describe_stacks(self, **request: Any) -> dict[str, Any]:
        self._called("DescribeStacks", request)
        if not self.exists:
            raise refused(
                "DescribeStacks", "ValidationError", f"Stack with id {STACK} does not exist"
            )
        stack = self.platform
        outputs = {"EndpointName": ENDPOINT}
        if stack.url != "none":
            outputs["EndpointConfigName"] = configuration(stack.url)
        return {
            "Stacks": [
                {
                    "StackStatus": stack.status,
                    "Parameters": [
                        {"ParameterKey": "BootstrapVersion", "ParameterValue": "/cdk/version"},
                        {"ParameterKey": "ModelUrl", "ParameterValue": stack.url},
                    ],
                    "Outputs": [
                        {"OutputKey": key, "OutputValue": value} for key, value in outputs.items()
                    ],
                }
            ]
        }

    def describe_stack_events(self, **request: Any) -> dict[str, Any]:
        self._called("DescribeStackEvents", request)
        start = int(request.get("NextToken", "0"))
        answer: dict[str, Any] = {"StackEvents": self.platform.events[start : start + self._page]}
        if start + self._page < len(self.platform.events):
            answer["NextToken"] = str(start + self._page)
        return answer

    def update_stack(self, **request: Any) -> dict[str, Any]:
        self._called("UpdateStack", request)
        status = self.platform.status
        if status.endswith("_IN_PROGRESS"):
            raise refused(
                "UpdateStack",
                "ValidationError",
                f"Stack:{STACK_ID} is in {status} state and can not be updated.",
            )
        values = {item["ParameterKey"]: item for item in request["Parameters"]}
        url = values["ModelUrl"]["ParameterValue"]
        if url == self.platform.url:
            raise refused("UpdateStack", "ValidationError", "No updates are to be performed.")
        self.platform.begin(url, request["ClientRequestToken"])
        return {"StackId": STACK_ID}


class FakeSageMaker(_Service):
    service = "sagemaker"

    def __init__(self, platform: Platform) -> None:
        super().__init__()
        self.platform = platform

    def describe_endpoint(self, **request: Any) -> dict[str, Any]:
        self._called("DescribeEndpoint", request)
        answer = {
            "EndpointName": request["EndpointName"],
            "EndpointStatus": self.platform.endpoint_status,
            "EndpointConfigName": self.platform.serves,
        }
        if self.platform.failure_reason:
            answer["FailureReason"] = self.platform.failure_reason
        if self.platform.serves is None:
            raise refused(
                "DescribeEndpoint", "ValidationException", f"Could not find endpoint {ENDPOINT}"
            )
        if self.platform.status == "UPDATE_IN_PROGRESS":
            stage = "Baking" if self.platform.bakes else "Creating"
            answer["PendingDeploymentSummary"] = {
                "EndpointConfigName": configuration(self.platform.url),
                "ProductionVariants": [
                    {"VariantName": "main", "VariantStatus": [{"Status": stage}]}
                ],
            }
            answer["LastDeploymentConfig"] = {
                "BlueGreenUpdatePolicy": {
                    "TrafficRoutingConfiguration": {"Type": self.platform.traffic}
                }
            }
        return answer


class FakeCloudWatch(_Service):
    """Takes the outcome of the texts, and has the one alarm that watches it."""

    service = "cloudwatch"

    def __init__(self, platform: Platform) -> None:
        super().__init__()
        self.platform = platform

    def put_metric_data(self, **request: Any) -> dict[str, Any]:
        self._called("PutMetricData", request)
        (datum,) = request["MetricData"]
        assert (request["Namespace"], datum["MetricName"]) == ("UltraCluster", "SmokeFailures")
        assert datum["Dimensions"] == [{"Name": "EndpointName", "Value": ENDPOINT}]
        if datum["Value"]:
            self.platform.alarm = "ALARM"
        return {}

    def describe_alarms(self, **request: Any) -> dict[str, Any]:
        self._called("DescribeAlarms", request)
        assert request["AlarmNames"] == [f"{ENDPOINT}-smoke"]
        return {"MetricAlarms": [{"StateValue": self.platform.alarm}]}

    @property
    def told(self) -> list[float]:
        return [
            request["MetricData"][0]["Value"]
            for name, request in self.calls
            if name == "PutMetricData"
        ]


class FakeRuntime(_Service):
    """Answers as the model that serves does: `answer` maps texts to a body, or raises."""

    service = "sagemaker-runtime"

    def __init__(self, answer: Callable[[list[str]], bytes]) -> None:
        super().__init__()
        self.answer = answer

    def invoke_endpoint(self, **request: Any) -> dict[str, Any]:
        self._called("InvokeEndpoint", request)
        return {"Body": _body(self.answer(json.loads(request["Body"])["inputs"]))}


def labels_of(texts: list[str], label: str = "positive") -> bytes:
    return json.dumps([{"label": label, "score": 0.9} for _ in texts]).encode()
