"""Boot files on their way into the boot bucket."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest

from boot_files import handler as boot
from tests.unit.lambdas.cloudformation import answers, only, request
from tests.unit.lambdas.fakes import FakeS3


class S3(FakeS3):
    """Checks each request against botocore's model."""

    def __init__(self) -> None:
        super().__init__()
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as members:
            members.writestr("boot.sh", "entry")
            members.writestr("node.sh", "node")
        self.store("assets", "hash.zip", archive.getvalue())

    @property
    def puts(self) -> list[str]:
        return [request["Key"] for name, request in self.calls if name == "PutObject"]

    def body(self, key: str) -> bytes:
        return self.objects["boot", key].body


PROPERTIES = {
    "Source": {"Bucket": "assets", "Key": "hash.zip"},
    "Bucket": "boot",
    "Release": "r1",
    "Entry": "boot.sh",
    "Files": json.dumps({"boot/r1/boot.env": "A=1\n", "boot/platform.json": '{"price": 21.5}'}),
}


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> S3:
    store = S3()
    monkeypatch.setattr("boto3.client", lambda name: store)
    return store


def ask(kind: str, properties: dict[str, Any] = PROPERTIES, **rest: str) -> dict[str, Any]:
    with answers() as (url, received):
        boot.handler(request(kind, url, properties, **rest), None)
    return only(received)


@pytest.mark.case("L05")
@pytest.mark.parametrize("kind", ["Create", "Update"])
def test_a_release_is_whole_before_it_is_the_current_one(s3: S3, kind: str) -> None:
    answer = ask(kind)
    assert (answer["Status"], answer["PhysicalResourceId"]) == ("SUCCESS", "boot-files/boot")
    assert s3.body("boot/boot.sh") == s3.body("boot/r1/boot.sh") == b"entry"
    assert s3.body("boot/r1/scripts.zip") == s3.objects["assets", "hash.zip"].body
    assert s3.body("boot/platform.json") == b'{"price": 21.5}'
    assert s3.body("boot/current") == b"r1"
    assert s3.puts[-1] == "boot/current"


def test_an_older_release_stays_for_a_roll_back(s3: S3) -> None:
    ask("Create")
    answer = ask("Update", PROPERTIES | {"Release": "r2"}, PhysicalResourceId="boot-files/boot")
    assert answer["PhysicalResourceId"] == "boot-files/boot"
    assert ("boot", "boot/r1/scripts.zip") in s3.objects
    assert s3.body("boot/current") == b"r2"


def test_the_end_touches_nothing(s3: S3) -> None:
    assert ask("Delete", PhysicalResourceId="boot-files/boot")["Status"] == "SUCCESS"
    assert s3.puts == []


@pytest.mark.case("L01")
def test_a_missing_archive_is_one_failed_answer(s3: S3) -> None:
    answer = ask("Create", PROPERTIES | {"Source": {"Bucket": "assets", "Key": "gone.zip"}})
    assert answer["Status"] == "FAILED"
    assert "NoSuchKey" in answer["Reason"]
    assert s3.puts == []
