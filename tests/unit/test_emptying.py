"""The function that empties a bucket on destroy: never on an update, and after shutting writers out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.environments import Synthesized

Get = Callable[[str], Synthesized]
# An S3 of one bucket: each list gives a page of what is there.
CLIENT = """
const calls = [];
const written = JSON.parse(process.env.WRITTEN);
class S3 {
  async getBucketTagging() { return { TagSet: JSON.parse(process.env.TAGS) }; }
  async getBucketPolicy() { return {}; }
  async putBucketPolicy(r) { calls.push(['policy', JSON.parse(r.Policy).Statement[0].Effect]); }
  async listObjectVersions() {
    calls.push(['list']);
    return { Versions: written.shift() || [], IsTruncated: written.length > 0 };
  }
  async deleteObjects(r) { calls.push(['delete', r.Delete.Objects.map((o) => o.Key)]); return {}; }
}
module.exports = { S3, calls };
"""
RUN = """
const { autoDeleteHandler } = require('./index.js');
const { calls } = require('@aws-sdk/client-s3');
autoDeleteHandler(JSON.parse(process.env.EVENT)).then(
  (answer) => console.log(JSON.stringify({ answer: answer || {}, calls })));
"""
TAGS = [{"Key": "aws-cdk:auto-delete-objects", "Value": "true"}]


def ask(
    environment: Synthesized,
    folder: Path,
    event: dict[str, Any],
    *,
    written: list[list[dict[str, str]]],
    tags: list[dict[str, str]],
) -> dict[str, Any]:
    (handler,) = [
        path
        for path in environment.folder.glob("asset.*/index.js")
        if "aws-cdk:auto-delete-objects" in path.read_text(encoding="utf-8")
    ]
    shutil.copy(handler, folder / "index.js")
    client = folder / "node_modules" / "@aws-sdk" / "client-s3"
    client.mkdir(parents=True)
    (client / "index.js").write_text(CLIENT)
    (folder / "run.js").write_text(RUN)
    node = os.environ.get("JSII_NODE") or shutil.which("node")
    assert node
    done = subprocess.run(
        [node, "run.js"],
        cwd=folder,
        env=os.environ
        | {
            "EVENT": json.dumps(event),
            "WRITTEN": json.dumps(written),
            "TAGS": json.dumps(tags),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.case("S03")
def test_an_update_to_another_bucket_empties_nothing(synthesized: Get, tmp_path: Path) -> None:
    event = {
        "RequestType": "Update",
        "PhysicalResourceId": "old",
        "OldResourceProperties": {"BucketName": "old"},
        "ResourceProperties": {"BucketName": "new"},
    }
    told = ask(synthesized("dev"), tmp_path, event, written=[[{"Key": "a"}]], tags=TAGS)
    assert told == {"answer": {"PhysicalResourceId": "new"}, "calls": []}


@pytest.mark.case("S03")
def test_a_bucket_that_is_not_to_be_emptied_is_left_alone(synthesized: Get, tmp_path: Path) -> None:
    event = {"RequestType": "Delete", "ResourceProperties": {"BucketName": "kept"}}
    told = ask(synthesized("dev"), tmp_path, event, written=[[{"Key": "a"}]], tags=[])
    assert not any(call[0] == "delete" for call in told["calls"])


@pytest.mark.case("S02")
def test_writers_are_shut_out_before_the_first_page_is_emptied(
    synthesized: Get, tmp_path: Path
) -> None:
    event = {"RequestType": "Delete", "ResourceProperties": {"BucketName": "gone"}}
    pages = [[{"Key": "early"}], [{"Key": "late"}]]
    told = ask(synthesized("dev"), tmp_path, event, written=pages, tags=TAGS)
    assert told["calls"] == [
        ["policy", "Deny"],
        ["list"],
        ["delete", ["early"]],
        ["list"],
        ["delete", ["late"]],
    ]
