"""Decides whether an announced model may serve."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from shared import archive, verdict
from shared.host import Host, unfit
from shared.manifest import MAXIMUM_BYTES, Manifest, ManifestProblem, parse
from shared.objects import head, read_small
from shared.places import Place, from_manifest_key, from_model_url
from shared.problem import Problem
from shared.stack import StackFacts, describe
from validate.announcement import Announcement, announcement_of

_CLOCK_SKEW = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the function is told: where models lie, the stack that serves them, and the gate.

    `aws_region` is Lambda's own variable.
    """

    aws_region: str
    model_bucket: str
    model_name: str
    endpoint_stack: str
    minimum_macro_f1: float


@dataclass
class _Verdict:
    """The answer while it is being made."""

    announcement: Announcement
    place: Place | None = None
    previous_model_url: str = ""
    archive_etag: str = ""
    final: bool = False
    problems: list[Problem] = field(default_factory=list)

    def refuse(self, reason: str, message: str) -> None:
        self.problems.append(Problem(reason=reason, message=message))

    def answer(
        self,
        decision: Literal["roll-out", "refuse", "nothing-to-do", "wait"],
        reason: str,
        problems: list[str] | None = None,
        *,
        tell: bool = False,
    ) -> dict[str, Any]:
        place = self.place
        return {
            "decision": decision,
            "reason": reason,
            "problems": problems or [],
            "final": self.final,
            "tell": tell,
            "announcement": self.announcement.sequencer,
            "bucket": self.announcement.bucket,
            "manifest_key": self.announcement.key,
            "model_name": place.model_name if place else "",
            "digest": place.digest if place else "",
            "model_url": place.model_url if place else "",
            "previous_model_url": self.previous_model_url,
            "archive_etag": self.archive_etag,
        }

    def refusal(self) -> dict[str, Any]:
        return self.answer(
            "refuse",
            self.problems[0].reason,
            [str(problem) for problem in self.problems],
        )


class Judge:
    """Holds an announced model against the bucket, the host, the gate and what serves."""

    def __init__(self, settings: Settings, host: Host, *, s3: Any, cloudformation: Any) -> None:
        self._settings = settings
        self._host = host
        self._s3 = s3
        self._cloudformation = cloudformation

    def judge(self, event: dict[str, Any], *, now: datetime) -> dict[str, Any]:
        """Return the decision, its reason (a stable word) and every problem (sentences).

        `wait` says that the stack is busy: what serves is not known yet. A refusal is `final`
        where it speaks about the bytes of this digest; gate, serving image, manifest and what
        serves can change, and then the same digest may be tried again. `nothing-to-do` with `tell`
        is the end of this model; without it another run has told the end, or will.

        Raises:
            AnnouncementProblem: the event names no object.
        """
        settings, announcement = self._settings, announcement_of(event)
        result = _Verdict(announcement)
        place = from_manifest_key(announcement.bucket, announcement.key)
        if (
            place is None
            or place.bucket != settings.model_bucket
            or place.model_name != settings.model_name
        ):
            result.refuse(
                "wrong-place",
                f"got s3://{announcement.bucket}/{announcement.key}, allowed: s3://"
                f"{settings.model_bucket}/models/{settings.model_name}/<sha256>/manifest.json",
            )
            return result.refusal()
        result.place = place
        if (region := self._bucket_region()) != settings.aws_region:
            result.refuse(
                "bucket-elsewhere",
                f"{place.bucket} is in {region}, the endpoint in {settings.aws_region}: SageMaker "
                "reads models of its own region only",
            )
            return result.refusal()

        earlier = verdict.read(self._s3, place.bucket, place.digest)
        if earlier and earlier["final"]:
            return result.answer("nothing-to-do", "refused-before", earlier["problems"])
        if earlier and earlier["outcome"] != "failed" and announcement.repeats(earlier):
            return result.answer("nothing-to-do", "judged-before")
        if earlier and earlier["outcome"] == "failed":
            # A person has sent it again: no duplicate of the event whose delivery broke.
            result.announcement = announcement = replace(announcement, sequencer="")
        stack = describe(self._cloudformation, settings.endpoint_stack)
        result.previous_model_url = stack.model_url
        if stack.model_url == place.model_url and not stack.busy:
            return result.answer("nothing-to-do", "serves-already")

        found = read_small(self._s3, place.bucket, place.manifest_key, MAXIMUM_BYTES)
        if found is None:
            return result.answer(
                "nothing-to-do",
                "manifest-gone",
                [f"manifest-gone: s3://{place.bucket}/{place.manifest_key} does not exist"],
                tell=True,
            )
        content, etag = found
        if announcement.etag and announcement.etag != etag:
            # The manifest was put again since, and that put sent an event of its own.
            return result.answer("nothing-to-do", "announced-again")
        try:
            manifest = parse(content)
        except ManifestProblem as error:
            result.problems = error.problems
            return result.refusal()

        self._check_manifest(result, place, manifest, now)
        self._check_object(result, place, manifest)
        if result.problems:
            return result.refusal()
        if stack.busy:
            return result.answer("wait", "stack-busy")
        if announcement.roll_back:
            return result.answer("roll-out", "roll-back-asked-for")
        return self._compare(result, manifest, stack)

    def _bucket_region(self) -> str:
        """S3 calls its first region nothing, and Ireland by an older name as well."""
        answer = self._s3.get_bucket_location(Bucket=self._settings.model_bucket)
        location = answer.get("LocationConstraint") or "us-east-1"
        return "eu-west-1" if location == "EU" else str(location)

    def _check_manifest(
        self, result: _Verdict, place: Place, manifest: Manifest, now: datetime
    ) -> None:
        settings = self._settings
        for name, got, allowed in (
            ("model_name", manifest.model_name, place.model_name),
            ("archive.key", manifest.archive_key, place.archive_key),
            ("archive.sha256", manifest.archive_sha256, place.digest),
        ):
            if got != allowed:
                result.refuse(
                    "manifest-elsewhere",
                    f"{name}: got {got!r}, allowed where this manifest lies: {allowed!r}",
                )
        if manifest.created > now + _CLOCK_SKEW:
            # It would look newer than every model that comes after it.
            result.refuse("created-in-future", f"created: got {manifest.created}, now is {now}")
        result.problems += unfit(manifest, self._host, settings.minimum_macro_f1)

    def _check_object(self, result: _Verdict, place: Place, manifest: Manifest) -> None:
        url = place.model_url
        facts = head(self._s3, place.bucket, place.archive_key)
        integrity = list(_integrity(url, place, manifest, facts))
        if integrity or facts is None:
            result.problems += integrity
            return
        etag = facts["ETag"].strip('"')
        if etag != result.announcement.checked_archive:
            answer = self._s3.get_object(
                Bucket=place.bucket, Key=place.archive_key, IfMatch=facts["ETag"]
            )
            with answer["Body"] as body:
                wrong = archive.check(body, self._host)
            # The checksum has shown that these bytes are this digest's, now and for ever.
            result.final = any(not problem.of_instance for problem in wrong)
            result.problems += wrong
        result.archive_etag = etag

    def _compare(self, result: _Verdict, manifest: Manifest, stack: StackFacts) -> dict[str, Any]:
        """Hold the model against the one that serves, as far as that one's manifest can be read."""
        served = self._served_manifest(stack)
        if served is None:
            return result.answer("roll-out", "accepted")
        if manifest.created <= served.created:
            return result.answer(
                "nothing-to-do",
                "older-than-served",
                [
                    f"older-than-served: created {manifest.created}, "
                    f"what serves was created {served.created}"
                ],
                tell=True,
            )
        same_test = (manifest.model_name, manifest.evaluation_set) == (
            served.model_name,
            served.evaluation_set,
        )
        if same_test and manifest.macro_f1 < served.macro_f1:
            result.refuse(
                "worse-than-served",
                f"macro_f1 on {manifest.evaluation_set} is {manifest.macro_f1}, "
                f"what serves has {served.macro_f1}",
            )
            return result.refusal()
        return result.answer("roll-out", "accepted")

    def _served_manifest(self, stack: StackFacts) -> Manifest | None:
        place = from_model_url(stack.model_url)
        found = place and read_small(self._s3, place.bucket, place.manifest_key, MAXIMUM_BYTES)
        if not found:
            return None
        try:
            return parse(found[0])
        except ManifestProblem:
            return None


def _integrity(
    url: str, place: Place, manifest: Manifest, facts: dict[str, Any] | None
) -> list[Problem]:
    if facts is None:
        return [Problem(reason="archive-missing", message=f"{url} does not exist")]
    problems = []
    size = facts["ContentLength"]
    if size == 0:
        problems.append(Problem(reason="archive-empty", message=f"{url} has no bytes"))
    elif size != manifest.archive_bytes:
        problems.append(
            Problem(
                reason="size-differs",
                message=f"{url} has {size} bytes, the manifest says {manifest.archive_bytes}",
            )
        )
    checksum = facts.get("ChecksumSHA256", "")
    if not checksum or facts.get("ChecksumType", "FULL_OBJECT") != "FULL_OBJECT":
        problems.append(
            Problem(
                reason="checksum-missing",
                message=(
                    f"{url} carries no SHA-256 of the whole object; "
                    "upload it in one put with ChecksumSHA256"
                ),
            )
        )
    elif checksum != base64.b64encode(bytes.fromhex(place.digest)).decode():
        problems.append(
            Problem(
                reason="checksum-differs",
                message=f"{url} has the SHA-256 {checksum} (base64), its key says {place.digest}",
            )
        )
    return problems
