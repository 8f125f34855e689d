"""Uploads a package to the model bucket, where its manifest announces it to the deployment."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from shared.layout import MAXIMUM_ARCHIVE
from training.command import InputError, first_line
from training.files import read_json, sha256_of
from training.packaging.package import ARCHIVE, MANIFEST, MANIFEST_SCHEMA, key_of

# A conflict (409) is S3's answer to two conditional writes of one key at once: it says try again.
CONFLICTS = 3


@dataclass(frozen=True, kw_only=True)
class Platform:
    """The part of platform.json that a publisher needs."""

    region: str
    model_bucket: str
    model_name: str


@dataclass(frozen=True, kw_only=True)
class Published:
    """Where a package lies. `uploaded` is false where the same archive was there already."""

    url: str
    manifest_url: str
    uploaded: bool


def read_platform(path: Path) -> Platform:
    """Read platform.json.

    Raises:
        InputError: it is missing or lacks something; names all of it.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    names = ("region", "model_bucket", "model_name")
    if not isinstance(content, dict) or content.get("schema_version") != 1:
        raise InputError(f"{path} is not a platform.json of schema_version 1")
    if lacking := [name for name in names if not isinstance(content.get(name), str)]:
        raise InputError(f"{path} lacks {', '.join(lacking)}")
    return Platform(**{name: content[name] for name in names})


def s3_client(platform: Platform) -> Any:
    """An S3 client that tries again where that can help; AWS_ENDPOINT_URL is honoured."""
    retries = Config(retries={"mode": "standard", "total_max_attempts": 6})
    return boto3.client("s3", region_name=platform.region, config=retries)


def publish(package: Path, platform: Platform, *, s3: Any) -> Published:
    """Upload the archive, compare what S3 says it holds, then put the manifest, last.

    Raises:
        InputError: the package is not whole, too large, or S3 refuses it.
    """
    manifest: dict[str, Any] = read_json(package / MANIFEST, schema=MANIFEST_SCHEMA)
    archive = package / ARCHIVE
    _check(archive, manifest)
    key, digest = manifest["archive"]["key"], manifest["archive"]["sha256"]
    bucket = platform.model_bucket
    try:
        uploaded = _put_archive(s3, archive, bucket=bucket, key=key, digest=digest)
        _compare(s3, bucket=bucket, key=key, size=manifest["archive"]["bytes"], digest=digest)
        manifest_key = key.removesuffix(ARCHIVE) + MANIFEST
        s3.put_object(
            Bucket=bucket,
            Key=manifest_key,
            Body=(package / MANIFEST).read_bytes(),
            ContentType="application/json",
            ChecksumAlgorithm="SHA256",
        )
    except ClientError as error:
        raise InputError(_refusal(error, bucket)) from error
    except BotoCoreError as error:
        raise InputError(f"cannot reach S3: {first_line(error)}") from error
    return Published(
        url=f"s3://{bucket}/{key}", manifest_url=f"s3://{bucket}/{manifest_key}", uploaded=uploaded
    )


def _check(archive: Path, manifest: dict[str, Any]) -> None:
    """Refuse a package whose manifest is not about its archive."""
    if not archive.is_file():
        raise InputError(f"no archive at {archive}")
    size, said = archive.stat().st_size, manifest["archive"]
    if size > MAXIMUM_ARCHIVE:
        raise InputError(
            f"{archive} has {size} bytes, and one upload takes at most {MAXIMUM_ARCHIVE} (5 GiB); "
            "publish a smaller model"
        )
    digest = sha256_of(archive)
    expected = {
        "sha256": digest,
        "bytes": size,
        "key": key_of(manifest["model_name"], digest),
    }
    if wrong := [name for name, value in expected.items() if said[name] != value]:
        raise InputError(
            f"the manifest is not about this archive: {', '.join(wrong)} differ; package it again"
        )


def _checksum(digest: str) -> str:
    """A hex digest in S3's form."""
    return base64.b64encode(bytes.fromhex(digest)).decode()


def _put_archive(s3: Any, archive: Path, *, bucket: str, key: str, digest: str) -> bool:
    """Put the archive where there is none under its key; whether that was so."""
    for attempt in range(1, CONFLICTS + 1):
        with archive.open("rb") as body:
            try:
                s3.put_object(
                    Bucket=bucket,
                    Key=key,
                    Body=body,
                    ContentType="application/gzip",
                    ChecksumAlgorithm="SHA256",
                    ChecksumSHA256=_checksum(digest),
                    IfNoneMatch="*",
                )
            except ClientError as error:
                status = error.response["ResponseMetadata"].get("HTTPStatusCode")
                if status == 412:
                    return False
                if status != 409 or attempt == CONFLICTS:
                    raise
            else:
                return True
    return False


def _compare(s3: Any, *, bucket: str, key: str, size: int, digest: str) -> None:
    """Refuse to announce an archive that is not, in S3's own words, the one that was packed."""
    head = s3.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
    if head["ContentLength"] != size or head.get("ChecksumSHA256") != _checksum(digest):
        raise InputError(
            f"s3://{bucket}/{key} holds {head['ContentLength']} bytes with the SHA-256 "
            f"{head.get('ChecksumSHA256')}, not the {size} bytes that were packed; delete it there"
        )


def _refusal(error: ClientError, bucket: str) -> str:
    """What S3 refused, in one line."""
    code = error.response["Error"].get("Code", "")
    if code in ("NoSuchBucket", "404"):
        return f"there is no bucket {bucket}; see model_bucket in platform.json"
    return f"S3 refuses {error.operation_name} in the bucket {bucket}: {first_line(error)}"
