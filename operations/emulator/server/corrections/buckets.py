"""Buckets: tags arrive, one that is not empty stays, and uploads answer with their checksum."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from ministack.services import s3
from ministack.services.cloudformation import provisioners

from operations.emulator.server.calls import already_gone_is_fine, client
from operations.emulator.server.corrections.handlers import Properties, after_change
from operations.emulator.server.provisioners.resource_type import run_on_worker_thread

_BUCKET = "AWS::S3::Bucket"


def apply() -> None:
    """Apply the corrections."""
    after_change(_BUCKET, _tag)
    handlers = provisioners._RESOURCE_HANDLERS[_BUCKET]
    provisioners._RESOURCE_HANDLERS[_BUCKET] = {**handlers, "delete": _delete}
    run_on_worker_thread(_BUCKET)
    _echo_checksums()


def _tag(
    bucket: str, attributes: dict[str, Any], old: Properties, new: Properties
) -> dict[str, Any]:
    """MiniStack drops the tags, without which CDK's own emptying of buckets refuses to work."""
    if new.get("Tags"):
        client("s3").put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": new["Tags"]})
    elif old.get("Tags"):
        client("s3").delete_bucket_tagging(Bucket=bucket)
    return attributes


def _delete(physical_id: str, properties: Properties) -> None:
    """MiniStack throws the objects away; AWS answers BucketNotEmpty and the stack stays."""
    with already_gone_is_fine():
        client("s3").delete_bucket(Bucket=physical_id)


def _echo_checksums() -> None:
    """AWS answers PutObject with the checksums that it has verified; MiniStack leaves them out."""
    put = s3._put_object

    def put_object(bucket: str, key: str, body: bytes, headers: dict[str, str]) -> Any:
        status, answer, content = put(bucket, key, body, headers)
        if status == HTTPStatus.OK:
            given = [f"x-amz-checksum-{name}" for name in s3._S3_CHECKSUM_HEADERS]
            answer.update({name: headers[name] for name in given if name in headers})
        return status, answer, content

    s3._put_object = put_object
