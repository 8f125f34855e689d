"""Small models to announce."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from typing import Any

from shared.host import Host
from shared.layout import HANDLERS
from tests.support.weights import weights
from tests.unit.lambdas.fakes import FakeS3

BUCKET = "models-of-the-test"
NAME = "sentiment"

HOST = Host(
    instance="ml.c7g.4xlarge",
    torch="2.6.0",
    python="3.12",
    memory_gib=32,
    disk_gib=30,
    package_mib=4096,
    workers=4,
    bf16=True,
)
GOOD_FILES = {
    "code/inference.py": b"".join(b"def %s(*given): ...\n" % name.encode() for name in HANDLERS[0]),
    "config.json": b"{}",
    "model.safetensors": weights(bytes(range(256)) * 16),
}


def tar(files: dict[str, bytes], *, extra: list[tarfile.TarInfo] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in extra or []:
            archive.addfile(member)
    return buffer.getvalue()


def pack(files: dict[str, bytes], *, extra: list[tarfile.TarInfo] | None = None) -> bytes:
    return gzip.compress(tar(files, extra=extra), mtime=0)


def good_archive(seed: str = "") -> bytes:
    """An archive that may serve; another seed, other bytes."""
    return pack({**GOOD_FILES, "config.json": json.dumps({"seed": seed}).encode()})


def manifest_of(content: bytes, **changes: Any) -> dict[str, Any]:
    """The manifest of an archive; changes replace top-level keys, None drops them."""
    digest = hashlib.sha256(content).hexdigest()
    manifest = {
        "schema_version": 1,
        "model_name": NAME,
        "created": "2026-11-30T16:00:00Z",
        "archive": {
            "key": f"models/{NAME}/{digest}/model.tar.gz",
            "sha256": digest,
            "bytes": len(content),
        },
        "requires": {"torch": "2.6", "python": "3.10"},
        "trained_with": {"torch": "2.13.0", "transformers": "5.24.0", "python": "3.11.7"},
        "labels": ["negative", "neutral", "positive"],
        "metrics": {"evaluation_set": "vader-tweets/test", "accuracy": 0.83, "macro_f1": 0.78},
        "smoke": [{"text": "a fine day", "label": "positive"}],
    }
    return {key: value for key, value in {**manifest, **changes}.items() if value is not None}


@dataclass(frozen=True)
class Published:
    digest: str
    url: str
    manifest_key: str
    event: dict[str, Any]


def publish(
    s3: FakeS3, content: bytes | None = None, *, sequencer: str = "0001", **changes: Any
) -> Published:
    """Put an archive and its manifest, and return what EventBridge would send."""
    content = good_archive() if content is None else content
    digest = hashlib.sha256(content).hexdigest()
    folder = f"models/{NAME}/{digest}"
    s3.store(BUCKET, f"{folder}/model.tar.gz", content)
    stored = s3.store(
        BUCKET, f"{folder}/manifest.json", json.dumps(manifest_of(content, **changes)).encode()
    )
    return Published(
        digest=digest,
        url=f"s3://{BUCKET}/{folder}/model.tar.gz",
        manifest_key=f"{folder}/manifest.json",
        event={
            "source": "aws.s3",
            "detail-type": "Object Created",
            "detail": {
                "bucket": {"name": BUCKET},
                "object": {
                    "key": f"{folder}/manifest.json",
                    "size": len(stored.body),
                    "etag": stored.etag.strip('"'),
                    "sequencer": sequencer,
                },
                "reason": "PutObject",
            },
        },
    )
