"""What tells the state machine of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class AnnouncementProblem(Exception):
    """An input that announces nothing."""


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """The object that announces a model.

    `etag` and `sequencer` (which tells one put of an object from another) are empty where a person
    and not an event announced it.
    """

    bucket: str
    key: str
    etag: str
    sequencer: str
    roll_back: bool
    checked_archive: str

    def repeats(self, verdict: dict[str, Any]) -> bool:
        """Whether a verdict answers this very announcement: events can come more than once."""
        return bool(self.sequencer) and verdict["announcement"] == self.sequencer


def announcement_of(event: dict[str, Any]) -> Announcement:
    """Read EventBridge's event, or a person's `{"bucket", "key", "intent"}`.

    Raises:
        AnnouncementProblem: the event has neither form.
    """
    try:
        if "detail" in event:
            bucket, announced = event["detail"]["bucket"]["name"], event["detail"]["object"]
        else:
            bucket, announced = event["bucket"], {"key": event["key"]}
        key = announced["key"]
        if not (isinstance(bucket, str) and isinstance(key, str)):
            raise TypeError("no names")
    except (KeyError, TypeError):
        raise AnnouncementProblem(
            "the input names no object; allowed: an S3 event of EventBridge, "
            'or {"bucket": ..., "key": ".../manifest.json", "intent": "roll-back"}'
        ) from None
    intent = event.get("intent", "roll-out")
    if intent not in ("roll-out", "roll-back"):
        raise AnnouncementProblem(f"intent: got {intent!r}, allowed: roll-out, roll-back")
    return Announcement(
        bucket=bucket,
        key=key,
        etag=announced.get("etag", ""),
        sequencer=announced.get("sequencer", ""),
        roll_back=intent == "roll-back",
        checked_archive=event.get("checked_archive", ""),
    )
