"""Buckets: tags reach the bucket, and one that is not empty cannot be deleted."""

from __future__ import annotations

from typing import Any

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
