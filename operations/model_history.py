"""What was published, refused and served: manifests, verdicts and the stack's parameter."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared import verdict
from shared.manifest import MAXIMUM_BYTES, Manifest, ManifestProblem, parse
from shared.objects import read_small
from shared.places import NO_MODEL, Place, from_manifest_key, from_model_url
from shared.stack import describe

_READERS = 16
SHORT = 12
"""Digits of a digest that people are shown."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """One published model.

    `manifest` is None where it cannot be read; `verdict` is empty while there is none.
    """

    place: Place
    published: datetime
    manifest: Manifest | None
    verdict: dict[str, Any]
    serves: bool

    @property
    def name(self) -> str:
        """The first digits of its digest."""
        return self.place.digest[:SHORT]

    @property
    def state(self) -> str:
        """What became of it: the verdict's word, or what it was before something else served."""
        if self.serves:
            return "serving"
        outcome = str(self.verdict.get("outcome", "no verdict yet"))
        return "served" if outcome == "serving" else outcome

    @property
    def why(self) -> str:
        """The verdict's problems in one line; empty for what served."""
        problems = self.verdict.get("problems") or [self.verdict.get("reason", "")]
        return "" if self.state in ("serving", "served") else "; ".join(problems)

    @property
    def metrics(self) -> str:
        """What it was measured at."""
        if self.manifest is None:
            return "no readable manifest"
        measured = self.manifest
        return f"{measured.macro_f1:.4f}, {measured.accuracy:.4f} on {measured.evaluation_set}"


@dataclass(frozen=True, kw_only=True)
class History:
    """Every published model, the newest first, and the URL that serves."""

    models: tuple[Model, ...]
    served_url: str

    @property
    def serving(self) -> Model | None:
        """The model that serves, where it is one of these."""
        return next((model for model in self.models if model.serves), None)

    def lines(self) -> Iterator[str]:
        """A table for people."""
        serving = self.serving
        foreign = "no model" if self.served_url == NO_MODEL else self.served_url
        yield f"serves now: {serving.name if serving else foreign}"
        if not self.models:
            yield "no model was published yet"
            return
        head = ("digest", "published (UTC)", "state", "judged (UTC)", "macro-F1, accuracy", "why")
        rows = [head, *(_row(model) for model in self.models)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(head) - 1)]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
            yield "  ".join([*cells, row[-1]]).rstrip()


def history(
    *, s3: Any, cloudformation: Any, bucket: str, model_name: str, endpoint_stack: str
) -> History:
    """Read it; manifests and verdicts of many models side by side.

    Raises:
        StackProblem: the Endpoint stack is not there or stuck.
    """
    served_url = describe(cloudformation, endpoint_stack).model_url
    served = from_model_url(served_url)
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket=bucket, Prefix=f"models/{model_name}/"
    )
    found = [
        (place, item["LastModified"])
        for page in pages
        for item in page.get("Contents", [])
        if (place := from_manifest_key(bucket, item["Key"]))
    ]

    def read(entry: tuple[Place, datetime]) -> Model:
        place, published = entry
        return Model(
            place=place,
            published=published,
            manifest=_manifest(s3, place),
            verdict=_verdict(s3, place),
            serves=place == served,
        )

    with ThreadPoolExecutor(_READERS) as pool:
        models = sorted(pool.map(read, found), key=lambda model: model.published, reverse=True)
    return History(models=tuple(models), served_url=served_url)


def _verdict(s3: Any, place: Place) -> dict[str, Any]:
    try:
        return verdict.read(s3, place.bucket, place.digest) or {}
    except verdict.VerdictProblem as error:
        return {"outcome": "unreadable", "problems": [str(error)]}


def _manifest(s3: Any, place: Place) -> Manifest | None:
    content = read_small(s3, place.bucket, place.manifest_key, MAXIMUM_BYTES)
    try:
        return parse(content[0]) if content else None
    except ManifestProblem:
        return None


def _row(model: Model) -> tuple[str, ...]:
    judged = str(model.verdict.get("recorded", "")).removesuffix("Z").replace("T", " ")
    return (
        model.name,
        f"{model.published:%Y-%m-%d %H:%M:%S}",
        model.state,
        judged,
        model.metrics,
        model.why,
    )
