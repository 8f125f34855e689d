"""SageMaker's control plane and runtime behind the gateway."""

from __future__ import annotations

import functools
import json
import logging
import re
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlparse

from botocore.exceptions import ClientError
from ministack.core.responses import get_account_id, get_region

from operations.emulator.sagemaker import ApiError, SageMaker
from operations.emulator.server.calls import client
from operations.emulator.server.gateway import Query, Response, json_answer, json_error
from operations.emulator.server.settings import Settings

logger = logging.getLogger(__name__)

_INVOCATION = re.compile(r"/endpoints/(?P<endpoint>[^/]+)/invocations")


class SageMakerGateway:
    """Hands each request to the SageMaker of its region and account."""

    def __init__(self, settings: Settings) -> None:
        """Start with no SageMaker; each is made at its first request."""
        self._settings = settings
        self._lock = threading.Lock()
        self._homes: dict[tuple[str, str], SageMaker] = {}

    def answer(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, query: Query
    ) -> Response:
        """Answer one request of `sagemaker` or `sagemaker-runtime`."""
        invocation = _INVOCATION.fullmatch(path)
        if invocation is not None and method == "POST":
            result = self._home().invoke(
                unquote(invocation["endpoint"]),
                body,
                headers.get("content-type"),
                headers.get("accept"),
            )
            return result.status, dict(result.headers), result.body
        operation = headers.get("x-amz-target", "").rpartition(".")[2]
        try:
            return json_answer(self._home().call(operation, json.loads(body or b"{}")))
        except ApiError as error:
            return json_error(error.code, error.message, status=error.status)

    def close(self) -> None:
        """End every model server."""
        with self._lock:
            homes = list(self._homes.values())
        for home in homes:
            home.close()

    def _home(self) -> SageMaker:
        place = (get_region(), get_account_id())
        with self._lock:
            if place not in self._homes:
                folder = self._settings.work_directory / "sagemaker" / "-".join(place)
                self._homes[place] = SageMaker(
                    region=place[0],
                    account=place[1],
                    work_directory=folder,
                    server_python=self._settings.model_server_python,
                    store=functools.partial(_store, place),
                    scaled=functools.partial(_scaled, place),
                    fetch=Downloads(folder / "downloads", place),
                    settle_seconds=self._settings.settle_seconds,
                    ringing=functools.partial(_ringing, place),
                )
            return self._homes[place]


def _ringing(place: tuple[str, str], alarms: list[str]) -> list[str]:
    """Names of those alarms of a region and account that are in ALARM."""
    answer = client("cloudwatch", place=place).describe_alarms(AlarmNames=alarms)
    return [one["AlarmName"] for one in answer["MetricAlarms"] if one["StateValue"] == "ALARM"]


def _store(place: tuple[str, str], url: str, body: bytes) -> None:
    """Put an object; a bucket that is not there loses it, as the service does."""
    parts = urlparse(url)
    try:
        client("s3", place=place).put_object(
            Bucket=parts.netloc, Key=parts.path.lstrip("/"), Body=body
        )
    except ClientError:
        logger.exception("%s could not be kept", url)


def _scaled(place: tuple[str, str], resource: str) -> bool:
    """Whether Application Auto Scaling has a target of this name."""
    targets = client("application-autoscaling", place=place).describe_scalable_targets(
        ServiceNamespace="sagemaker", ResourceIds=[resource]
    )
    return bool(targets["ScalableTargets"])


class Downloads:
    """Objects of the emulated buckets as files of the work folder, each downloaded once."""

    def __init__(self, folder: Path, place: tuple[str, str]) -> None:
        """Keep the files in `folder`; read the buckets of this region and account."""
        self._folder = folder
        self._place = place
        self._lock = threading.Lock()

    def __call__(self, url: str) -> Path:
        """The object at an `s3://` URL.

        Raises:
            FileNotFoundError: There is no such object.
        """
        parts = urlparse(url)
        bucket, key = parts.netloc, parts.path.lstrip("/")
        try:
            answer = client("s3", place=self._place).get_object(Bucket=bucket, Key=key)
        except ClientError as error:
            raise FileNotFoundError(f"{url}: {error.response['Error']['Message']}") from error
        file: Path = self._folder / answer["ETag"].strip('"') / Path(key).name
        with self._lock:
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                unfinished = file.with_suffix(".part")
                with unfinished.open("wb") as target:
                    shutil.copyfileobj(answer["Body"], target)
                unfinished.replace(file)
        return file
