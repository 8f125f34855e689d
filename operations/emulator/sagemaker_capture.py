"""Data capture of the emulated SageMaker: a share of requests and answers, kept in S3."""

from __future__ import annotations

import base64
import json
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

from operations.emulator.sagemaker_requests import Json

Store = Callable[[str, bytes], None]
"""Puts bytes at an `s3://` URL."""


class Capture:
    """Keeps every n-th request with its answer, each in an object of its own.

    The service gathers several in an object and draws them by chance.
    https://docs.aws.amazon.com/sagemaker/latest/dg/model-monitor-data-capture-endpoint.html

    Args:
        store: where they go.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._seen: Counter[str] = Counter()

    def keep(
        self,
        config: Json,
        *,
        endpoint: str,
        variant: str,
        sent: tuple[bytes, str | None],
        answered: tuple[bytes, str | None],
    ) -> None:
        """Keep a request and its answer where it is their turn.

        Args:
            config: the endpoint configuration's ``DataCaptureConfig``.
            endpoint: name of the endpoint.
            variant: that answered.
            sent: body and content type of the request.
            answered: body and content type of the answer.
        """
        if not config.get("EnableCapture", True) or not self._turn(
            endpoint, config["InitialSamplingPercentage"]
        ):
            return
        text_types = config.get("CaptureContentTypeHeader", {}).get("JsonContentTypes", [])
        modes = {option["CaptureMode"] for option in config["CaptureOptions"]}
        parts = {"Input": ("endpointInput", sent), "Output": ("endpointOutput", answered)}
        now = datetime.now(UTC)
        event = str(uuid.uuid4())
        line = {
            "captureData": {
                member: _part(mode.upper(), *part, text_types)
                for mode, (member, part) in parts.items()
                if mode in modes
            },
            "eventMetadata": {"eventId": event, "inferenceTime": f"{now:%Y-%m-%dT%H:%M:%SZ}"},
            "eventVersion": "0",
        }
        folder = f"{config['DestinationS3Uri'].rstrip('/')}/{endpoint}/{variant}/{now:%Y/%m/%d/%H}"
        url = f"{folder}/{now:%M-%S}-{now.microsecond // 1000:03d}-{event}.jsonl"
        self._store(url, json.dumps(line).encode() + b"\n")

    def _turn(self, endpoint: str, percent: int) -> bool:
        with self._lock:
            self._seen[endpoint] += 1
            number = self._seen[endpoint]
        return number * percent // 100 > (number - 1) * percent // 100


def _part(mode: str, body: bytes, content_type: str | None, text_types: list[str]) -> Json:
    is_text = (content_type or "").partition(";")[0] in text_types
    return {
        "observedContentType": content_type,
        "mode": mode,
        "data": body.decode() if is_text else base64.b64encode(body).decode(),
        "encoding": "JSON" if is_text else "BASE64",
    }
