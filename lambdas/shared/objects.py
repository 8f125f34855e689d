"""Small objects of the model bucket, read whole."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

_MISSING = ("NoSuchKey", "NotFound", "404")


def read_small(
    s3: Any, bucket: str, key: str, limit: int = 1024 * 1024
) -> tuple[bytes, str] | None:
    """Content and ETag of an object; None if it is not there.

    Of a larger object only `limit` bytes and one more come back, so that the caller sees it.
    """
    try:
        answer = s3.get_object(Bucket=bucket, Key=key)
    except ClientError as error:
        if error.response["Error"]["Code"] in _MISSING:
            return None
        raise
    with answer["Body"] as body:
        return body.read(limit + 1), answer["ETag"].strip('"')


def head(s3: Any, bucket: str, key: str) -> dict[str, Any] | None:
    """Size, ETag and checksum of an object, without its bytes; None if it is not there."""
    try:
        return dict(s3.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED"))
    except ClientError as error:
        if error.response["Error"]["Code"] in _MISSING:
            return None
        raise
