"""`ultracluster package check` says what the delivery would say."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from operations.cli import main
from shared.layout import MAXIMUM_ARCHIVE
from tests.environments import ROOT
from tests.support.weights import weights
from tests.unit.lambdas.fakes import STACK, FakeCloudFormation, FakeS3, Platform
from tests.unit.lambdas.models import (
    BUCKET,
    GOOD_FILES,
    HOST,
    NAME,
    good_archive,
    manifest_of,
    pack,
    publish,
)
from validate.judgement import Judge, Settings

METRICS = {"evaluation_set": "tweets", "accuracy": 0.5, "macro_f1": 0.5}
BF16 = pack({**GOOD_FILES, "model.safetensors": weights(dtype="BF16", shape=(32,))})


def check(*arguments: object) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main(["package", "check", *map(str, arguments)])
    return ended.value.code


def lay(folder: Path, packed: bytes, **changes: Any) -> Path:
    """A package in a folder."""
    (folder / "model.tar.gz").write_bytes(packed)
    (folder / "manifest.json").write_text(json.dumps(manifest_of(packed, **changes)))
    return folder / "model.tar.gz"


def test_a_good_package_passes_alone_and_for_an_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = lay(tmp_path, good_archive())
    assert check(file) == 0
    assert "no instance: name one by --environment" in capsys.readouterr().out
    assert check(file, "--environment", "dev") == 0
    assert capsys.readouterr().out == (
        f"{file}: nothing is wrong; archive and its manifest, held against ml.c7g.4xlarge\n"
    )
    (tmp_path / "manifest.json").unlink()
    assert check(file) == 0
    assert "archive without a manifest" in capsys.readouterr().out


def test_an_environment_brings_its_instance_and_its_gate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "config" / "dev.toml").read_text()
    own = tmp_path / "own.toml"
    own.write_text(text + '\n[endpoint]\ninstance_type = "ml.c6g.4xlarge"\n')
    file = lay(tmp_path, BF16, metrics=METRICS, requires={"torch": "2.7", "python": "3.12"})
    assert check(file) == 0
    assert check(file, "-c", own) == 1
    lines = capsys.readouterr().out.splitlines()[1:]
    assert lines[0] == f"{file}: the delivery would refuse it, 3 problem(s)"
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        "torch-too-old",
        "below-gate",
        "instance-no-bf16",
    ]


def test_a_manifest_of_another_archive_is_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = lay(tmp_path, good_archive("one"), archive=manifest_of(BF16)["archive"])
    assert check(file) == 1
    output = capsys.readouterr().out
    assert "size-differs: model.tar.gz has" in output
    assert "checksum-differs: model.tar.gz has" in output
    (tmp_path / "manifest.json").write_text("{")
    assert check(file) == 1
    assert "manifest-invalid: the manifest is not JSON" in capsys.readouterr().out


@pytest.mark.case("M06")
@pytest.mark.parametrize(
    ("archive", "changes"),
    [
        (b"\x1f\x8b\x08", {}),
        (b"<html>", {"labels": []}),
        (pack({f"m/{name}": data for name, data in GOOD_FILES.items()}), {}),
        (pack({"/x": b"", "code/requirements.txt": b""}), {"metrics": METRICS}),
        (good_archive(), {"schema_version": 3}),
        (good_archive(), {"metrics": None}),
        (good_archive(), {"requires": {"torch": "9.0", "python": "3.99"}}),
    ],
)
def test_the_words_are_those_of_the_delivery(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    archive: bytes,
    changes: dict[str, Any],
) -> None:
    s3 = FakeS3()
    settings = Settings(
        aws_region="us-west-2",
        model_bucket=BUCKET,
        model_name=NAME,
        endpoint_stack=STACK,
        minimum_macro_f1=0.6,
    )
    judge = Judge(settings, HOST, s3=s3, cloudformation=FakeCloudFormation(Platform()))
    answer = judge.judge(publish(s3, archive, **changes).event, now=datetime.now(UTC))
    assert check(lay(tmp_path, archive, **changes), "-c", "dev") == 1
    told = [line.strip() for line in capsys.readouterr().out.splitlines()[1:]]
    # The delivery opens no archive whose manifest it cannot read.
    assert answer["problems"] == told[: len(answer["problems"])]
    assert changes.get("labels") == [] or answer["problems"] == told


def test_what_cannot_be_checked_is_one_line_and_another_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    huge = tmp_path / "huge.tar.gz"
    with huge.open("wb") as file:
        file.truncate(MAXIMUM_ARCHIVE + 1)
    for given, said in (
        (tmp_path, "is a folder; give the model.tar.gz in it"),
        (tmp_path / "none", "does not exist"),
        (Path("/dev/null"), "is no plain file"),
        (huge, "one upload takes at most 5368709120 (5 GiB)"),
    ):
        assert check(given) == 2
        output = capsys.readouterr().out
        assert said in output
        assert output.count("\n") == 1
    assert check(lay(tmp_path, good_archive()), "-c", "no-such-environment") == 2
    assert "no-such-environment" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "reason"), [(b"", "archive-empty"), (b"no archive", "archive-not-gzip")]
)
def test_what_is_no_archive_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, reason: str
) -> None:
    file = tmp_path / "model.tar.gz"
    file.write_bytes(content)
    assert check(file) == 1
    assert f"  {reason}: " in capsys.readouterr().out
