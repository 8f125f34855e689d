"""Publishing: which calls S3 gets, in which order, and what ends it before the manifest."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from botocore.stub import ANY, Stubber

from shared.layout import MAXIMUM_ARCHIVE
from training.command import InputError
from training.packaging import publish as publishing
from training.packaging.cli import main
from training.packaging.publish import Platform, publish, read_platform, s3_client

pytestmark = pytest.mark.training

BUCKET = "model-bucket"
PLATFORM = Platform(region="us-west-2", model_bucket=BUCKET, model_name="sentiment")


@pytest.fixture
def s3() -> Any:
    return boto3.client(
        "s3", region_name="us-west-2", aws_access_key_id="x", aws_secret_access_key="y"
    )


@pytest.fixture
def stub(s3: Any) -> Iterator[Stubber]:
    """S3 that answers as told, and fails on any call that differs from what was expected."""
    with Stubber(s3) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


class Facts:
    """What a package is, in S3's terms."""

    def __init__(self, folder: Path) -> None:
        self.manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        archive = self.manifest["archive"]
        self.key, self.size = archive["key"], archive["bytes"]
        self.checksum = base64.b64encode(bytes.fromhex(archive["sha256"])).decode()
        self.put_archive = {
            "Bucket": BUCKET,
            "Key": self.key,
            "Body": ANY,
            "ContentType": "application/gzip",
            "ChecksumAlgorithm": "SHA256",
            "ChecksumSHA256": self.checksum,
            "IfNoneMatch": "*",
        }
        self.head = {"Bucket": BUCKET, "Key": self.key, "ChecksumMode": "ENABLED"}
        self.found = {"ContentLength": self.size, "ChecksumSHA256": self.checksum}
        self.put_manifest = {
            "Bucket": BUCKET,
            "Key": self.key.replace("model.tar.gz", "manifest.json"),
            "Body": (folder / "manifest.json").read_bytes(),
            "ContentType": "application/json",
            "ChecksumAlgorithm": "SHA256",
        }


@pytest.fixture
def facts(package_copy: Path) -> Facts:
    return Facts(package_copy)


def refuse(stub: Stubber, operation: str, code: str, status: int, facts: Facts) -> None:
    expected = {"put_object": facts.put_archive, "head_object": facts.head}[operation]
    stub.add_client_error(
        operation, code, "as S3 says it", http_status_code=status, expected_params=expected
    )


def test_the_archive_goes_first_is_compared_and_the_manifest_goes_last(
    package_copy: Path, s3: Any, stub: Stubber, facts: Facts
) -> None:
    stub.add_response("put_object", {"ChecksumSHA256": facts.checksum}, facts.put_archive)
    stub.add_response("head_object", facts.found, facts.head)
    stub.add_response("put_object", {}, facts.put_manifest)
    published = publish(package_copy, PLATFORM, s3=s3)
    assert published.uploaded
    assert published.url == f"s3://{BUCKET}/{facts.key}"
    assert published.manifest_url.endswith("/manifest.json")


def test_an_archive_that_is_there_already_is_announced_again(
    package_copy: Path, s3: Any, stub: Stubber, facts: Facts
) -> None:
    refuse(stub, "put_object", "PreconditionFailed", 412, facts)
    stub.add_response("head_object", facts.found, facts.head)
    stub.add_response("put_object", {}, facts.put_manifest)
    assert not publish(package_copy, PLATFORM, s3=s3).uploaded


def test_a_conflict_with_another_upload_is_tried_again(
    package_copy: Path, s3: Any, stub: Stubber, facts: Facts
) -> None:
    refuse(stub, "put_object", "ConditionalRequestConflict", 409, facts)
    stub.add_response("put_object", {}, facts.put_archive)
    stub.add_response("head_object", facts.found, facts.head)
    stub.add_response("put_object", {}, facts.put_manifest)
    assert publish(package_copy, PLATFORM, s3=s3).uploaded


def test_a_conflict_that_stays_ends_it(
    package_copy: Path, s3: Any, stub: Stubber, facts: Facts
) -> None:
    for _ in range(3):
        refuse(stub, "put_object", "ConditionalRequestConflict", 409, facts)
    with pytest.raises(InputError, match=r"S3 refuses PutObject in the bucket model-bucket"):
        publish(package_copy, PLATFORM, s3=s3)


@pytest.mark.parametrize("found", [{"ContentLength": 7}, {"ChecksumSHA256": "AAAA"}])
def test_an_archive_that_s3_holds_otherwise_is_not_announced(
    package_copy: Path, s3: Any, stub: Stubber, facts: Facts, found: dict[str, Any]
) -> None:
    refuse(stub, "put_object", "PreconditionFailed", 412, facts)
    stub.add_response("head_object", facts.found | found, facts.head)
    with pytest.raises(InputError, match=r"not the \d+ bytes that were packed; delete it there"):
        publish(package_copy, PLATFORM, s3=s3)


def test_an_archive_without_a_checksum_in_s3_is_not_announced(
    package_copy: Path, s3: Any, stub: Stubber, facts: Facts
) -> None:
    stub.add_response("put_object", {}, facts.put_archive)
    stub.add_response("head_object", {"ContentLength": facts.size}, facts.head)
    with pytest.raises(InputError, match="with the SHA-256 None"):
        publish(package_copy, PLATFORM, s3=s3)


@pytest.mark.parametrize(
    ("code", "status", "message"),
    [
        ("NoSuchBucket", 404, "there is no bucket model-bucket; see model_bucket in platform.json"),
        ("AccessDenied", 403, "S3 refuses PutObject in the bucket model-bucket: .*AccessDenied"),
    ],
)
def test_a_refusal_of_s3_is_told(
    package_copy: Path, s3: Any, stub: Stubber, facts: Facts, code: str, status: int, message: str
) -> None:
    refuse(stub, "put_object", code, status, facts)
    with pytest.raises(InputError, match=message):
        publish(package_copy, PLATFORM, s3=s3)


def test_a_network_that_does_not_answer_is_told(
    package_copy: Path, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise EndpointConnectionError(endpoint_url="https://s3")

    monkeypatch.setattr(s3, "put_object", fail)
    with pytest.raises(InputError, match="cannot reach S3: Could not connect"):
        publish(package_copy, PLATFORM, s3=s3)


def spoil_manifest(folder: Path, **archive: Any) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["archive"] |= archive
    path.write_text(json.dumps(manifest), encoding="utf-8")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "model.tar.gz").unlink(), "no archive at"),
        (
            lambda folder: (folder / "model.tar.gz").write_bytes(b"other"),
            "the manifest is not about this archive: sha256, bytes, key differ",
        ),
        (lambda folder: spoil_manifest(folder, key="models/x/model.tar.gz"), "archive: key differ"),
        (lambda folder: spoil_manifest(folder, bytes=1), "archive: bytes differ"),
        (
            lambda folder: spoil_manifest(folder, sha256="no"),
            "does not follow manifest.schema.json",
        ),
        (lambda folder: (folder / "manifest.json").unlink(), "cannot read"),
    ],
)
def test_a_package_that_is_not_whole_is_not_uploaded(
    package_copy: Path, s3: Any, stub: Stubber, spoil: Any, message: str
) -> None:
    spoil(package_copy)
    with pytest.raises(InputError, match=message):
        publish(package_copy, PLATFORM, s3=s3)


def test_an_archive_over_5_gib_is_not_uploaded(
    package_copy: Path, s3: Any, stub: Stubber, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAXIMUM_ARCHIVE == 5 * 1024**3
    monkeypatch.setattr(publishing, "MAXIMUM_ARCHIVE", 1000)
    with pytest.raises(InputError, match=r"one upload takes at most 1000 \(5 GiB\)"):
        publish(package_copy, PLATFORM, s3=s3)


def test_the_platform_is_read_and_other_keys_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "platform.json"
    content = {"schema_version": 1, "region": "us-west-2", "model_bucket": BUCKET}
    content |= {"model_name": "sentiment", "gate": {"macro_f1": 0.6}, "instance": None}
    path.write_text(json.dumps(content), encoding="utf-8")
    assert read_platform(path) == PLATFORM


def test_the_client_follows_the_environment_and_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    client = s3_client(PLATFORM)
    assert client.meta.endpoint_url == "http://127.0.0.1:9"
    assert client.meta.config.retries["mode"] == "standard"
    assert client.meta.config.retries["total_max_attempts"] == 6


def test_the_command_says_where_the_package_is(
    package_copy: Path,
    s3: Any,
    stub: Stubber,
    facts: Facts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "platform.json"
    platform = {"schema_version": 1, "region": "us-west-2", "model_bucket": BUCKET}
    path.write_text(json.dumps(platform | {"model_name": "sentiment"}), encoding="utf-8")
    monkeypatch.setattr("training.packaging.cli.s3_client", lambda _: s3)
    stub.add_response("put_object", {}, facts.put_archive)
    stub.add_response("head_object", facts.found, facts.head)
    stub.add_response("put_object", {}, facts.put_manifest)
    assert main(["publish", "--package", str(package_copy), "--platform", str(path)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"s3://{BUCKET}/{facts.key}"
    assert shown[1].endswith("manifest.json (announces it)")


@pytest.mark.case("F11")
@pytest.mark.parametrize("refused", [None, "archive", "size", "manifest"])
def test_a_finished_run_leaves_its_model_under_the_watched_prefix_or_the_job_fails(
    package_copy: Path,
    s3: Any,
    stub: Stubber,
    facts: Facts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    refused: str | None,
) -> None:
    path = tmp_path / "platform.json"
    platform = {"schema_version": 1, "region": "us-west-2", "model_bucket": BUCKET}
    path.write_text(json.dumps(platform | {"model_name": "sentiment"}), encoding="utf-8")
    monkeypatch.setattr("training.packaging.cli.s3_client", lambda _: s3)
    put: list[str] = []
    s3.meta.events.register(
        "before-parameter-build.s3.PutObject", lambda params, **_: put.append(params["Key"])
    )
    steps: tuple[tuple[str, str, dict[str, Any], dict[str, Any]], ...] = (
        ("archive", "put_object", {}, facts.put_archive),
        ("size", "head_object", facts.found, facts.head),
        ("manifest", "put_object", {}, facts.put_manifest),
    )
    for name, operation, answer, expected in steps:
        if name == refused:
            stub.add_client_error(
                operation, "AccessDenied", "no", http_status_code=403, expected_params=expected
            )
            break
        stub.add_response(operation, answer, expected)
    code = main(["publish", "--package", str(package_copy), "--platform", str(path)])
    digest = facts.manifest["archive"]["sha256"]
    watched = [f"models/sentiment/{digest}/{name}" for name in ("model.tar.gz", "manifest.json")]
    if refused is None:
        assert (code, put) == (0, watched)
    else:
        assert code == 2
        assert put == (watched if refused == "manifest" else watched[:1])
        assert capsys.readouterr().err.startswith("error: S3 refuses ")
