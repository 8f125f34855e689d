"""What the commands say to bad input: one line, exit code 2, no traceback, nothing left behind."""

from __future__ import annotations

import errno
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from training.command import run
from training.files import sha256_of
from training.packaging import cli as packaging
from training.roberta_sentiment import cli as sentiment
from training.roberta_sentiment import tweets as set_up

pytestmark = pytest.mark.training

ROOT = Path(__file__).parents[2]


def refusal(
    main: Callable[[list[str]], int], arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> str:
    """The one line that a command with bad input ends with."""
    capsys.readouterr()
    try:
        code = main(arguments)
    except SystemExit as end:
        code = int(end.code or 0)
    error = capsys.readouterr().err
    assert code == 2
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--model", "missing/folder/here"], "no model folder 'missing/folder/here'"),
        (["--model", "{tmp}"], "has no config.json"),
        (["--model", "{tmp}/broken"], "cannot load the folder broken"),
        (["--model", "package:no_such_package"], "no installed package 'no_such_package'"),
        (["--model", "package:json"], "holds no model folder"),
        (["--model", "nobody/has-this-model"], "cannot load the hub model nobody/has-this-model"),
        (["--model", "~no-such-user/model"], "no model folder '~no-such-user/model': Could not"),
        (["--data", "{tmp}/deep.jsonl"], "1 of 1 rows cannot be used; line 1: no text"),
        (["--seed", "9223372036854775808"], "train.seed is 9223372036854775808, needs to be below"),
        (["--data", "{tmp}/missing.txt"], "cannot read the tweets"),
        (["--data", "{tmp}"], "cannot read the tweets"),
        (["--data", "{tmp}/garbled.txt"], "is not a file of rated tweets"),
        (["--max-steps", "0"], "train.max_steps is 0, needs to be 1 or more"),
        (["--max-length", "9999"], "takes at most 64 tokens"),
        (["--output", "{tmp}/full"], "holds something already; give a new folder for the model"),
        (["--output", "{tmp}/garbled.txt/out"], "cannot write to"),
        (["--batch-size", "some"], "argument --batch-size: invalid int value"),
        (["--precision", "fp8"], "argument --precision: invalid choice"),
        (["--batch-size", "100000"], "texts to train on; the largest train.batch_size that works"),
        (["--what"], "unrecognized arguments: --what"),
        (["--set", "train.sed=1"], "train.sed is not a setting; did you mean train.seed?"),
        (["--platform", "{tmp}/none.json"], "cannot read {tmp}/none.json"),
        (["--platform", "{tmp}/garbled.txt"], "cannot read {tmp}/garbled.txt"),
        (["--checkpoints", "s3://bucket"], "give s3://bucket/prefix"),
        (
            ["--batch-size", "0", "--learning-rate", "0", "--seed", "-1"],
            "train.batch_size is 0, needs to be 1 or more; train.learning_rate is 0.0, needs to be "
            "above 0; train.seed is -1, needs to be 0 or more",
        ),
    ],
)
def test_fine_tuning_refuses(
    encoder: Path,
    tweets: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    run_arguments: Any,
    changes: list[str],
    message: str,
) -> None:
    (tmp_path / "garbled.txt").write_text("<html>not found</html>\n", encoding="utf-8")
    (tmp_path / "deep.jsonl").write_text("[" * 100_000, encoding="utf-8")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{", encoding="utf-8")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "model.safetensors").write_bytes(b"precious")
    before = sorted(tmp_path.rglob("*"))
    given = [value.format(tmp=tmp_path) for value in changes]
    arguments = run_arguments(encoder, tweets, tmp_path / "out", *given)
    assert message.format(tmp=tmp_path) in refusal(sentiment.main, arguments, capsys)
    assert sorted(tmp_path.rglob("*")) == before


def test_epochs_and_steps_exclude_each_other(
    encoder: Path,
    tweets: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    run_arguments: Any,
) -> None:
    arguments = run_arguments(encoder, tweets, tmp_path / "out", "--epochs", "1")
    assert "not allowed with argument" in refusal(sentiment.main, arguments, capsys)


def test_zero_epochs_are_refused(
    encoder: Path, tweets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--model", str(encoder), "--data", str(tweets), "--output", str(tmp_path / "out")]
    message = refusal(sentiment.main, [*arguments, "--epochs", "0"], capsys)
    assert message == "error: train.epochs is 0, needs to be 1 or more\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: COMMAND"),
        (["check", "{tmp}/missing.tar.gz"], "missing.tar.gz: No such file"),
        (["package", "--model", "{tmp}"], "required: --results, --output"),
        (
            ["package", "--model", "{tmp}", "--results", "{tmp}/no.json", "--output", "{tmp}/out"],
            "cannot read",
        ),
        (["publish", "--package", "{tmp}", "--platform", "{tmp}/no.json"], "cannot read"),
        (["publish", "--package", "{tmp}", "--platform", "{tmp}/list.json"], "not a platform.json"),
        (
            ["publish", "--package", "{tmp}", "--platform", "{tmp}/bare.json"],
            "lacks region, model_bucket, model_name",
        ),
    ],
)
def test_packaging_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (tmp_path / "list.json").write_text("[]", encoding="utf-8")
    (tmp_path / "bare.json").write_text('{"schema_version": 1}', encoding="utf-8")
    given = [value.format(tmp=tmp_path) for value in arguments]
    assert message in refusal(packaging.main, given, capsys)


def test_the_tweets_are_not_fetched_twice_nor_over_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = []

    def download() -> bytes:
        fetched.append(1)
        return b"another package"

    monkeypatch.setattr(set_up, "_download", download)
    message = refusal(set_up.main, ["--output", str(tmp_path / "tweets.txt")], capsys)
    assert "vaderSentiment==3.3.2 has sha256" in message
    assert "expected 5d7c06e0" in message
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / "tweets.txt"
    path.write_text("the known file", encoding="utf-8")
    monkeypatch.setattr(set_up, "TWEETS_SHA256", sha256_of(path))
    assert set_up.main(["--output", str(path)]) == 0
    assert fetched == [1]


def test_ctrl_c_stops_a_run_and_the_same_command_ends_it(
    encoder: Path, tweets: Path, tmp_path: Path, run_arguments: Any
) -> None:
    arguments = run_arguments(encoder, tweets, tmp_path / "out", "--max-steps", "100000")
    command = [sys.executable, "-m", "training.roberta_sentiment", *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        for line in run.stdout:
            if line.startswith("step"):
                break
        run.send_signal(signal.SIGINT)
        shown, error = run.communicate(timeout=60)
    assert (run.returncode, error) == (75, "")
    assert re.search(r"^stopped after step \d+ of 100000; the same command goes on$", shown, re.M)
    assert [path.name for path in tmp_path.iterdir()] == ["out.run"]
    (_,) = (tmp_path / "out.run" / "checkpoints").glob("step-*")


def test_an_empty_folder_may_take_the_model(
    encoder: Path, tweets: Path, tmp_path: Path, run_arguments: Any
) -> None:
    output = tmp_path / "out"
    output.mkdir()
    assert sentiment.main(run_arguments(encoder, tweets, output, "--max-steps", "1")) == 0
    assert (output / "model.safetensors").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_full_disk_is_one_line(
    encoder: Path,
    tweets: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    run_arguments: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    arguments = run_arguments(encoder, tweets, tmp_path / "out", "--max-steps", "1")
    with monkeypatch.context() as patch:
        patch.setattr("training.roberta_sentiment.model.save", fail)
        assert "No space left on device" in refusal(sentiment.main, arguments, capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["out.run"]
    # Once there is space, the same command only has to write the model.
    assert sentiment.main(arguments) == 0
    assert "going on after step 1 of 1" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda: torch.empty(10**15),
        lambda: torch.empty(10**9, 10**9, 10**9),
        lambda: bytearray(10**15),
    ],
)
def test_what_does_not_fit_into_memory_is_one_line(
    ask: Callable[[], object], capsys: pytest.CaptureFixture[str]
) -> None:
    def action() -> None:
        ask()

    assert run(action) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: out of memory: ")
    assert line.endswith("; take a smaller batch, micro-batch or model")


def test_a_fault_of_the_code_is_no_bad_input() -> None:
    def action() -> None:
        raise RuntimeError("a fault")

    with pytest.raises(RuntimeError, match="a fault"):
        run(action)
