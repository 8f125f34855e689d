"""Verdicts: what came of each announced model, one object a digest in the model bucket."""

from __future__ import annotations

import json
from typing import Any

from shared.objects import read_small
from shared.places import verdict_key

_NEEDED = {"outcome", "final", "problems", "announcement", "execution"}


class VerdictProblem(Exception):
    """An object in the place of a verdict that somebody else has put there."""


def read(s3: Any, bucket: str, digest: str) -> dict[str, Any] | None:
    """The verdict on a digest, None while there is none.

    Raises:
        VerdictProblem: what lies there is none.
    """
    content = read_small(s3, bucket, verdict_key(digest))
    if content is None:
        return None
    try:
        verdict = json.loads(content[0])
    except (ValueError, RecursionError):
        verdict = None
    if not isinstance(verdict, dict) or not verdict.keys() >= _NEEDED:
        raise VerdictProblem(
            f"s3://{bucket}/{verdict_key(digest)} is no verdict; delete it, then announce the "
            "model again"
        )
    return verdict


def write(s3: Any, bucket: str, digest: str, verdict: dict[str, Any]) -> None:
    """Put the verdict on a digest in place of an earlier one."""
    s3.put_object(
        Bucket=bucket,
        Key=verdict_key(digest),
        Body=json.dumps(verdict, indent=2).encode(),
        ContentType="application/json",
    )
