"""Where a model, its manifest and its verdict lie in the model bucket."""

from __future__ import annotations

import re
from dataclasses import dataclass

NO_MODEL = "none"
"""Value of the endpoint stack's ModelUrl while nothing serves."""

_MANIFEST = re.compile(r"models/(?P<name>[^/]+)/(?P<digest>[0-9a-f]{64})/manifest\.json")
_ARCHIVE = re.compile(
    r"s3://(?P<bucket>[^/]+)/models/(?P<name>[^/]+)/(?P<digest>[0-9a-f]{64})/model\.tar\.gz"
)


@dataclass(frozen=True, kw_only=True)
class Place:
    """One published model: its bucket, served name and the SHA-256 of its archive."""

    bucket: str
    model_name: str
    digest: str

    @property
    def manifest_key(self) -> str:
        """Key of the manifest, the object that announces the model."""
        return f"models/{self.model_name}/{self.digest}/manifest.json"

    @property
    def archive_key(self) -> str:
        """Key of the archive that serves."""
        return f"models/{self.model_name}/{self.digest}/model.tar.gz"

    @property
    def model_url(self) -> str:
        """URL of the archive, as the endpoint stack takes it."""
        return f"s3://{self.bucket}/{self.archive_key}"


def verdict_key(digest: str) -> str:
    """Key of the verdict on a model: outside `models/`, so that it announces nothing."""
    return f"verdicts/{digest}.json"


def from_manifest_key(bucket: str, key: str) -> Place | None:
    """The model that a manifest's key announces; None for any other key."""
    found = _MANIFEST.fullmatch(key)
    return Place(bucket=bucket, model_name=found["name"], digest=found["digest"]) if found else None


def from_model_url(url: str) -> Place | None:
    """The model behind the endpoint stack's ModelUrl; None for `none` or a foreign URL."""
    found = _ARCHIVE.fullmatch(url)
    if not found:
        return None
    return Place(bucket=found["bucket"], model_name=found["name"], digest=found["digest"])
