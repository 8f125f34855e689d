import dataclasses
import gzip
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.places import verdict_key
from shared.stack import StackProblem
from shared.verdict import VerdictProblem
from tests.support.weights import weights
from tests.unit.lambdas.fakes import STACK, FakeCloudFormation, FakeS3, Platform
from tests.unit.lambdas.models import (
    BUCKET,
    GOOD_FILES,
    HOST,
    NAME,
    Published,
    good_archive,
    manifest_of,
    pack,
    publish,
    tar,
)
from validate.announcement import AnnouncementProblem
from validate.judgement import Judge, Settings

NOW = datetime(2026, 12, 1, tzinfo=UTC)
SETTINGS = Settings(
    aws_region="us-west-2",
    model_bucket=BUCKET,
    model_name=NAME,
    endpoint_stack=STACK,
    minimum_macro_f1=0.6,
)


class World:
    def __init__(self, *, region: str = "us-west-2", **host: Any) -> None:
        self.s3 = FakeS3()
        self.platform = Platform()
        self.cloudformation = FakeCloudFormation(self.platform)
        self.judge = Judge(
            dataclasses.replace(SETTINGS, aws_region=region),
            dataclasses.replace(HOST, **host),
            s3=self.s3,
            cloudformation=self.cloudformation,
        )

    def __call__(self, event: dict[str, Any]) -> dict[str, Any]:
        answer = self.judge.judge(event, now=NOW)
        # Whatever is decided, judging changes nothing.
        assert self.s3.count("PutObject") == 0
        assert self.cloudformation.count("UpdateStack") == 0
        return answer

    def serve(self, archive: bytes | None = None, **changes: Any) -> Published:
        published = publish(self.s3, archive or good_archive("served"), **changes)
        self.platform.url = published.url
        return published

    def remember(self, digest: str, **verdict: Any) -> None:
        told = {"outcome": "refused", "final": True, "problems": ["x: y"]}
        body = json.dumps({**told, "announcement": "", "execution": "", **verdict}).encode()
        self.s3.store(BUCKET, verdict_key(digest), body)


@pytest.fixture
def world() -> World:
    return World()


def changed(value: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**value, **changes}


METRICS = {"evaluation_set": "vader-tweets/test", "accuracy": 0.8, "macro_f1": 0.78}


def test_a_good_model_is_rolled_out(world: World) -> None:
    model = publish(world.s3)
    answer = world(model.event)
    assert (answer["decision"], answer["reason"]) == ("roll-out", "accepted")
    assert answer["model_url"] == model.url
    assert answer["previous_model_url"] == "none"
    assert answer["digest"] == model.digest


def test_no_byte_is_read_for_the_digest_of_an_archive_that_was_checked(world: World) -> None:
    model = publish(world.s3)
    etag = world(model.event)["archive_etag"]
    before = world.s3.count("GetObject")
    assert world({**model.event, "checked_archive": etag})["decision"] == "roll-out"
    archives = [
        request
        for name, request in world.s3.calls[before:]
        if name == "GetObject" and request["Key"].endswith("model.tar.gz")
    ]
    assert len(archives) == 1  # the first look
    assert world.s3.calls[-1][0] == "HeadObject"


@pytest.mark.case("M06")
@pytest.mark.parametrize(
    ("archive", "reason"),
    [
        (pack({f"model/{name}": data for name, data in GOOD_FILES.items()}), "extra-root-folder"),
        (pack({name: GOOD_FILES[name] for name in ("config.json",)}), "missing-file"),
        (tar(GOOD_FILES), "not-gzip"),
        (good_archive()[:-20], "truncated"),
        (pack({**GOOD_FILES, "../../etc/cron.d/x": b"x"}), "unsafe-name"),
        (pack({**GOOD_FILES, "code/requirements.txt": b"x"}), "requirements"),
        (gzip.compress(b"x" * 2000), "not-tar"),
    ],
)
def test_an_archive_that_cannot_serve_is_refused_for_good(
    world: World, archive: bytes, reason: str
) -> None:
    answer = world(publish(world.s3, archive).event)
    assert (answer["decision"], answer["reason"]) == ("refuse", f"archive-{reason}")
    assert answer["final"]


@pytest.mark.case("M06")
def test_an_archive_of_zero_bytes_is_refused(world: World) -> None:
    model = publish(world.s3, b"", archive=manifest_of(b"x")["archive"])
    answer = world(model.event)
    assert answer["decision"] == "refuse"
    assert any(problem.startswith("archive-empty: ") for problem in answer["problems"])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"labels": []}, "manifest-invalid"),
        ({"schema_version": 2, "labels": []}, "manifest-version"),
        ({"schema_version": "1"}, "manifest-invalid"),
        ({"metrics": None}, "metrics-missing"),
        ({"metrics": {"evaluation_set": "x", "accuracy": 0.8}}, "metrics-missing"),
        ({"model_name": "other"}, "manifest-elsewhere"),
        ({"created": "2026-12-03T00:00:00Z"}, "created-in-future"),
        ({"requires": {"torch": "2.7", "python": "3.10"}}, "torch-too-old"),
        ({"requires": {"torch": "2.6.1", "python": "3.10"}}, "torch-too-old"),
        ({"requires": {"torch": "2.6", "python": "3.13"}}, "python-too-old"),
        ({"metrics": {**METRICS, "macro_f1": 0.59}}, "below-gate"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(
    world: World, changes: dict[str, Any], reason: str
) -> None:
    answer = world(publish(world.s3, **changes).event)
    assert (answer["decision"], answer["reason"]) == ("refuse", reason)
    # Manifest, image and gate can change; the bytes of the digest cannot.
    assert not answer["final"]


@pytest.mark.parametrize(
    ("archive", "reason"),
    [
        (pack({**GOOD_FILES, "code/inference.py": b"def predict(d): ..."}), "archive-handlers"),
        (
            pack({**GOOD_FILES, "code/vendor/cp312-aarch64/x.so": b"\x7fELF\x02\x01" + bytes(30)}),
            "archive-architecture",
        ),
        (pack({**GOOD_FILES, "model.safetensors": b"x" * 40}), "archive-weights"),
    ],
)
def test_bytes_that_no_instance_can_serve_are_refused_for_good(
    world: World, archive: bytes, reason: str
) -> None:
    answer = world(publish(world.s3, archive).event)
    assert (answer["decision"], answer["reason"], answer["final"]) == ("refuse", reason, True)


@pytest.mark.case("M19")
@pytest.mark.parametrize(
    ("archive", "host", "reason"),
    [
        (
            pack({**GOOD_FILES, "model.safetensors": weights(dtype="BF16", shape=(32,))}),
            {"bf16": False},
            "instance-no-bf16",
        ),
        (good_archive(), {"memory_gib": 1, "workers": 4}, "instance-memory"),
        (good_archive(), {"disk_gib": 1e-6}, "instance-disk"),
        (good_archive(), {"package_mib": 0}, "instance-package"),
        (
            pack({**GOOD_FILES, "code/vendor/cp311-aarch64/x.py": b""}),
            {"python": "3.12"},
            "instance-architecture",
        ),
    ],
)
def test_what_another_instance_may_serve_is_refused_but_not_for_good(
    archive: bytes, host: dict[str, Any], reason: str
) -> None:
    world = World(**host)
    answer = world(publish(world.s3, archive).event)
    assert (answer["decision"], answer["reason"], answer["final"]) == ("refuse", reason, False)


@pytest.mark.case("S09")
@pytest.mark.parametrize(
    ("location", "region", "accepted"),
    [
        ("us-west-2", "us-west-2", True),
        ("eu-west-1", "us-west-2", False),
        (None, "us-west-2", False),
        (None, "us-east-1", True),
        ("EU", "eu-west-1", True),
    ],
)
def test_a_bucket_of_another_region_is_refused_before_anything_is_read(
    location: str | None, region: str, accepted: bool
) -> None:
    world = World(region=region)
    world.s3.location = location
    answer = world(publish(world.s3).event)
    assert answer["reason"] == ("accepted" if accepted else "bucket-elsewhere")
    assert accepted or [name for name, _ in world.s3.calls] == ["GetBucketLocation"]


def test_a_manifest_of_another_archive_is_refused(world: World) -> None:
    other = manifest_of(good_archive("other"))["archive"]
    answer = world(publish(world.s3, archive=other).event)
    assert answer["reason"] == "manifest-elsewhere"
    assert len([text for text in answer["problems"] if text.startswith("manifest-else")]) == 2


def test_all_problems_are_told_at_once(world: World) -> None:
    model = publish(
        world.s3,
        pack({**GOOD_FILES, "/x": b""}),
        requires={"torch": "3.0", "python": "4.0"},
        metrics={**METRICS, "macro_f1": 0.1},
    )
    answer = world(model.event)
    assert [text.split(":")[0] for text in answer["problems"]] == [
        "torch-too-old",
        "python-too-old",
        "below-gate",
        "archive-unsafe-name",
    ]
    assert answer["final"], "whatever else changes, these bytes cannot serve"


def test_a_missing_archive_is_refused_and_may_come_later(world: World) -> None:
    model = publish(world.s3)
    del world.s3.objects[BUCKET, model.manifest_key.replace("manifest.json", "model.tar.gz")]
    answer = world(model.event)
    assert (answer["reason"], answer["final"]) == ("archive-missing", False)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"body": good_archive("swapped")}, "checksum-differs"),
        ({"checksum": None}, "checksum-missing"),
        ({"checksum_type": "COMPOSITE"}, "checksum-missing"),
        ({"body": b"short"}, "size-differs"),
    ],
)
def test_bytes_that_are_not_the_digests_are_refused_unread(
    world: World, change: dict[str, Any], reason: str
) -> None:
    model = publish(world.s3)
    key = model.manifest_key.replace("manifest.json", "model.tar.gz")
    if "body" in change:
        world.s3.store(BUCKET, key, change["body"])
    else:
        for name, value in change.items():
            setattr(world.s3.objects[BUCKET, key], name, value)
    answer = world(model.event)
    assert reason in [text.split(":")[0] for text in answer["problems"]]
    assert not answer["final"]
    assert all(request["Key"] != key for name, request in world.s3.calls if name == "GetObject")


@pytest.mark.case("L07")
def test_a_truncated_archive_then_the_full_one_gives_one_roll_out(world: World) -> None:
    model = publish(world.s3, sequencer="01")
    key = model.manifest_key.replace("manifest.json", "model.tar.gz")
    whole = world.s3.objects[BUCKET, key]
    world.s3.store(BUCKET, key, whole.body[:-100])
    first = world(model.event)
    assert first["decision"] == "refuse"
    world.remember(model.digest, final=first["final"], announcement=first["announcement"])
    world.s3.objects[BUCKET, key] = whole
    assert world(publish(world.s3, sequencer="02").event)["decision"] == "roll-out"


@pytest.mark.parametrize(
    ("bucket", "key"),
    [
        (BUCKET, f"models/other/{'a' * 64}/manifest.json"),
        (BUCKET, f"models/{NAME}/latest/manifest.json"),
        (BUCKET, f"models/{NAME}/{'a' * 64}/x/manifest.json"),
        (BUCKET, f"models/{NAME}/{'A' * 64}/manifest.json"),
        ("elsewhere", f"models/{NAME}/{'a' * 64}/manifest.json"),
    ],
)
def test_another_place_is_refused_unread(world: World, bucket: str, key: str) -> None:
    answer = world({"bucket": bucket, "key": key})
    assert (answer["decision"], answer["reason"]) == ("refuse", "wrong-place")
    assert world.s3.calls == []


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({}, "names no object"),
        ({"detail": {}}, "names no object"),
        ({"detail": None}, "names no object"),
        ({"bucket": BUCKET, "key": 7}, "names no object"),
        ({"bucket": [BUCKET], "key": "k"}, "names no object"),
        ({"detail": {"bucket": {"name": BUCKET}, "object": {"key": None}}}, "names no object"),
        ({"bucket": BUCKET, "key": "k", "intent": "panic"}, "allowed: roll-out, roll-back"),
    ],
)
def test_an_input_that_announces_nothing_is_an_error(
    world: World, event: dict[str, Any], said: str
) -> None:
    with pytest.raises(AnnouncementProblem, match=said):
        world(event)


def test_what_serves_already_is_nothing_to_do(world: World) -> None:
    answer = world(world.serve().event)
    assert (answer["reason"], answer["tell"]) == ("serves-already", False)


def test_a_refused_digest_is_not_tried_again(world: World) -> None:
    model = publish(world.s3)
    world.remember(model.digest)
    answer = world(model.event)
    assert (answer["decision"], answer["reason"]) == ("nothing-to-do", "refused-before")
    assert not answer["tell"]


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000])
def test_what_is_no_verdict_is_named(world: World, content: bytes) -> None:
    model = publish(world.s3)
    world.s3.store(BUCKET, verdict_key(model.digest), content)
    with pytest.raises(VerdictProblem, match=f"{verdict_key(model.digest)} is no verdict; delete"):
        world(model.event)


@pytest.mark.parametrize(
    ("outcome", "decision"), [("refused", "nothing-to-do"), ("failed", "roll-out")]
)
def test_the_same_event_again_is_judged_again_only_after_a_failure(
    world: World, outcome: str, decision: str
) -> None:
    model = publish(world.s3, sequencer="77")
    world.remember(model.digest, outcome=outcome, final=False, announcement="77")
    assert world(model.event)["decision"] == decision


@pytest.mark.case("L07")
def test_a_manifest_that_went_or_was_put_again_is_nothing_to_do(world: World) -> None:
    model = publish(world.s3)
    late = changed(model.event)
    publish(world.s3, source={"job": "2"})
    again = world(late)
    # The later put has an event of its own, whose run tells the end.
    assert (again["reason"], again["tell"]) == ("announced-again", False)
    del world.s3.objects[BUCKET, model.manifest_key]
    gone = world(late)
    assert (gone["reason"], gone["tell"]) == ("manifest-gone", True)
    assert gone["problems"] == [f"manifest-gone: s3://{BUCKET}/{model.manifest_key} does not exist"]


@pytest.mark.case("L07")
@pytest.mark.parametrize("created", ["2026-11-30T15:59:59Z", "2026-11-30T16:00:00Z"])
def test_an_older_model_changes_nothing(world: World, created: str) -> None:
    world.serve()
    answer = world(publish(world.s3, created=created).event)
    assert (answer["decision"], answer["reason"]) == ("nothing-to-do", "older-than-served")
    assert answer["tell"]
    assert answer["problems"][0].startswith("older-than-served: created 2026-11-30")


@pytest.mark.parametrize(
    ("metrics", "decision"),
    [
        ({**METRICS, "macro_f1": 0.77}, "refuse"),
        ({**METRICS, "macro_f1": 0.78}, "roll-out"),
        ({**METRICS, "macro_f1": 0.77, "evaluation_set": "another"}, "roll-out"),
    ],
)
def test_a_worse_model_on_the_same_set_is_refused(
    world: World, metrics: dict[str, Any], decision: str
) -> None:
    served = world.serve()
    model = publish(world.s3, created="2026-11-30T17:00:00Z", metrics=metrics)
    answer = world(model.event)
    assert answer["decision"] == decision
    assert answer["previous_model_url"] == served.url
    assert not answer["final"]


def test_without_the_served_manifest_only_the_gate_counts(world: World) -> None:
    served = world.serve(metrics={**METRICS, "macro_f1": 0.99})
    del world.s3.objects[BUCKET, served.manifest_key]
    assert world(publish(world.s3).event)["decision"] == "roll-out"


def test_a_roll_back_skips_age_and_comparison_only(world: World) -> None:
    world.serve(metrics={**METRICS, "macro_f1": 0.99})
    model = publish(world.s3, created="2026-01-01T00:00:00Z")
    asked = {"bucket": BUCKET, "key": model.manifest_key, "intent": "roll-back"}
    assert world(asked)["reason"] == "roll-back-asked-for"
    broken = publish(world.s3, pack({**GOOD_FILES, "/x": b""}))
    asked["key"] = broken.manifest_key
    assert world(asked)["reason"] == "archive-unsafe-name"


def test_nothing_is_compared_while_the_stack_is_busy(world: World) -> None:
    world.serve()
    world.platform.status = "UPDATE_IN_PROGRESS"
    assert world(publish(world.s3, created="2026-01-01T00:00:00Z").event)["decision"] == "wait"


@pytest.mark.parametrize(
    "status",
    [
        "UPDATE_ROLLBACK_FAILED",
        "ROLLBACK_COMPLETE",
        "CREATE_FAILED",
        "DELETE_FAILED",
        "REVIEW_IN_PROGRESS",
    ],
)
def test_a_stuck_stack_needs_a_person(world: World, status: str) -> None:
    world.platform.status = status
    with pytest.raises(StackProblem, match=status):
        world(publish(world.s3).event)


def test_a_missing_stack_needs_a_person(world: World) -> None:
    world.cloudformation.exists = False
    with pytest.raises(StackProblem, match="deploy it"):
        world(publish(world.s3).event)
