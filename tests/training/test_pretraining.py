"""A pre-training run as a user sees it: from text to a model, killed, stopped, refused."""

from __future__ import annotations

import csv
import fcntl
import json
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, BertForPreTraining

from tests.training import ranks
from tests.training.conftest import pretrain_arguments
from training.bert_pretraining import samples as sample_files
from training.bert_pretraining.cli import main
from training.bert_pretraining.shards import KEYS, find_shards, inspect, read_shard
from training.command import InputError
from training.core.results import SCHEMA
from training.files import check_schema
from training.packaging.cli import main as packaging

pytestmark = pytest.mark.training

ROOT = Path(__file__).parents[2]


def losses(folder: Path) -> list[float]:
    with (folder / "steps.csv").open(encoding="utf-8", newline="") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return found


def equal(one: Path, other: Path) -> bool:
    first, second = (load_file(folder / "model.safetensors") for folder in (one, other))
    return all(torch.equal(first[name], second[name]) for name in first | second)


def refusal(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    return error


@pytest.fixture(scope="module")
def bert(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a short run leaves."""
    output = tmp_path_factory.mktemp("runs") / "bert"
    assert main(pretrain_arguments(shards, output)) == 0
    return output


def test_the_model_is_a_bert_for_pretraining_with_its_tokenizer(bert: Path, shards: Path) -> None:
    model, facts = BertForPreTraining.from_pretrained(bert, output_loading_info=True)
    assert not facts["missing_keys"]
    assert not facts["unexpected_keys"]
    embeddings = model.bert.embeddings.word_embeddings.weight
    assert torch.equal(model.cls.predictions.decoder.weight, embeddings)
    assert {tensor.dtype for tensor in model.state_dict().values()} <= {torch.float32, torch.int64}
    tokenizer = AutoTokenizer.from_pretrained(bert)
    found = tokenizer("Return the Value", "of an array")
    arrays = read_shard(find_shards(shards, "training")[0])
    assert found["input_ids"][0] == arrays["input_ids"][0, 0]
    assert found["token_type_ids"][-1] == 1
    assert tokenizer.model_max_length == 64
    assert tokenizer.decode(found["input_ids"], skip_special_tokens=True).startswith("return the v")


def test_results_tell_what_was_trained_and_how_well(bert: Path, shards: Path) -> None:
    content = results(bert)
    check_schema(content, schema=SCHEMA, name="results.json")
    assert content["task"] == "bert_pretraining"
    assert content["dataset"]["shards"] == 3
    assert content["dataset"]["test_samples"] > 0
    assert content["metrics"]["evaluation_set"] == "shards/test"
    assert content["metrics"]["mlm_loss"] < content["baselines"]["uniform_mlm_loss"]
    assert content["settings"]["train"]["optimizer"] == "adamw"
    assert content["parallel"]["batch_size"] == 16
    assert content["time"]["samples"] == 8 * 16
    assert len(losses(bert)) == 8
    assert (bert / "tensorboard").is_dir()
    broken = content | {"confusion": [[1]]}
    with pytest.raises(InputError):
        check_schema(broken, schema=SCHEMA, name="results.json")


def test_from_text_to_a_loss_under_that_of_guessing_by_frequency(
    prose: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One command, which also goes on where it was stopped."""
    # fmt: off
    command = [
        "pretrain", "--text", str(prose), "--output", str(tmp_path / "bert"), "--precision", "fp32",
        "--max-steps", "260", "--batch-size", "32", "--learning-rate", "5e-3",
        *(part for one in (
            "build.shards=2", "build.copies=1", "build.sequence=32", "build.predictions=5",
            "build.vocabulary_size=800", "model.layers=1", "model.hidden=64", "model.heads=2",
            "model.intermediate=64", "model.positions=32", "model.dropout=0",
        ) for part in ("--set", one)),
    ]
    # fmt: on
    (tmp_path / "bert.run").mkdir()
    (tmp_path / "bert.run" / "stop").touch()
    assert main(command) == 75
    assert "stopped after step 0 of 260" in capsys.readouterr().out
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "0 of 2 shards to make" in shown
    content = results(tmp_path / "bert")
    unigram = content["baselines"]["unigram_mlm_loss"]
    assert re.search(rf"nats a masked token, and {unigram:.2f} by how often", shown)
    assert content["metrics"]["mlm_loss"] < unigram
    assert sum(losses(tmp_path / "bert")[-20:]) / 20 < unigram + 0.7


def test_a_killed_run_goes_on_and_its_weights_are_equal_bit_by_bit(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("--max-steps", "150", "--set", "checkpoint.every=10")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(pretrain_arguments(shards, whole, *more)) == 0
    command = [sys.executable, "-m", "training.bert_pretraining"]
    with subprocess.Popen(
        [*command, *pretrain_arguments(shards, parts, *more)], cwd=ROOT, stdout=subprocess.PIPE
    ) as run:
        while not list(tmp_path.glob("parts.run/checkpoints/step-*[0-9]/done.json")):
            assert run.poll() is None
            time.sleep(0.005)
        run.send_signal(signal.SIGKILL)
    assert not parts.exists()
    capsys.readouterr()
    assert main(pretrain_arguments(shards, parts, *more)) == 0
    assert "going on after step" in capsys.readouterr().out
    assert losses(parts) == losses(whole)
    assert equal(parts, whole)


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_two_workers_train_on_what_one_does(shards: Path, tmp_path: Path, optimizer: str) -> None:
    more = ("--set", "train.micro_batch_size=4", "--set", f"train.optimizer={optimizer}")
    assert main(pretrain_arguments(shards, tmp_path / "one", *more)) == 0
    workers = ranks.start(2, main, pretrain_arguments(shards, tmp_path / "two", *more))
    assert [worker.code() for worker in workers] == [0, 0]
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-4)
    one, two = results(tmp_path / "one"), results(tmp_path / "two")
    assert two["parallel"]["workers"] == 2
    assert two["parallel"]["accumulate"] == 2
    assert two["metrics"]["mlm_loss"] == pytest.approx(one["metrics"]["mlm_loss"], rel=1e-3)
    assert two["metrics"]["nsp_accuracy"] == pytest.approx(one["metrics"]["nsp_accuracy"], abs=0.02)


def test_phase_two_starts_from_the_weights_of_phase_one(
    bert: Path, prose: Path, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.training.conftest import build_arguments

    longer, more = tmp_path / "longer", ("--max-steps", "1", "--learning-rate", "1e-9")
    vocab = ("--vocab", str(shards / "vocab.txt"))
    assert main(build_arguments(prose, longer, "--sequence", "48", *vocab)) == 0
    output = tmp_path / "phase2"
    arguments = pretrain_arguments(longer, output, "--start-from", str(bert), *more)
    assert main(arguments) == 0
    assert results(output)["model"]["base_model"] == "bert"
    first, second = (load_file(folder / "model.safetensors") for folder in (bert, output))
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, rtol=0, atol=1e-7)
    too_long = tmp_path / "too-long"
    assert main(build_arguments(prose, too_long, "--sequence", "128", *vocab)) == 0
    error = refusal(pretrain_arguments(too_long, tmp_path / "x", "--start-from", str(bert)), capsys)
    assert "samples of 128 tokens, and the model takes 64" in error


def test_compressed_shards_and_staged_ones_train_the_same(
    bert: Path, shards: Path, tmp_path: Path
) -> None:
    packed = tmp_path / "packed"
    packed.mkdir()
    shutil.copy(shards / "vocab.txt", packed)
    count = len(list(shards.glob("*.hdf5")))
    for path in shards.glob("*.hdf5"):
        with h5py.File(packed / path.name, "w") as file:
            for key, values in read_shard(path).items():
                file.create_dataset(key, data=values, compression="gzip", chunks=True)
    assert main(pretrain_arguments(packed, tmp_path / "a")) == 0
    assert equal(tmp_path / "a", bert)
    assert len(list((packed / "unpacked").rglob("*.hdf5"))) == count
    staged = ("--set", f"stage={tmp_path / 'nvme'}")
    assert main(pretrain_arguments(packed, tmp_path / "b", *staged)) == 0
    assert main(pretrain_arguments(shards, tmp_path / "c", *staged)) == 0
    assert equal(tmp_path / "b", bert)
    assert equal(tmp_path / "c", bert)
    assert len(list((tmp_path / "nvme").rglob("*.hdf5"))) == 2 * count


@pytest.mark.case("T12")
def test_the_limit_of_open_files_is_raised_or_told(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = [inspect(path) for path in find_shards(shards, "training")]
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    sample_files.Samples(opened * 400, tokens=800)
    assert asked == [(1200 + sample_files.SPARE_FILES, 4096)]

    def refuse(*_: object) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    with pytest.raises(InputError, match=r"1200 shards need 1456 open files, and this machine al"):
        sample_files.Samples(opened * 400, tokens=800)


def test_other_settings_do_not_go_on_from_a_checkpoint(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = pretrain_arguments(shards, tmp_path / "out")
    (tmp_path / "out.run").mkdir()
    (tmp_path / "out.run" / "stop").touch()
    assert main(arguments) == 75
    changed = [*arguments, "--set", "train.optimizer=lamb", "--seed", "5"]
    error = refusal(changed, capsys)
    assert "train.optimizer was 'adamw' and is 'lamb'; train.seed was 0 and is 5" in error


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--data", "{tmp}/none"), "no vocabulary {tmp}/none/vocab.txt"),
        (("--data", "{tmp}/none", "--vocab", "{shards}/vocab.txt"), "no folder of shards"),
        (("--data", "{tmp}/empty"), "has no shard *_training_*.hdf5"),
        (("--data", "{tmp}/torn"), "is no whole HDF5 file: "),
        (("--data", "{tmp}/mixed"), "have 64 tokens with 9 predictions and 64 tokens with 10 p"),
        (("--data", "{tmp}/other"), "was made with another vocabulary than the one given"),
        (("--data", "{tmp}/ids"), "has input_ids outside of 0 to 799; check tells all"),
        (("--data", "{tmp}/blank"), "the samples have nothing to predict; check tells"),
        (("--start-from", "{tmp}/renamed"), "has another vocabulary than the shards"),
        (("--start-from", "{tmp}/none"), "cannot start from {tmp}/none"),
        (("--start-from", "{encoder}"), "is roberta, and bert is needed"),
        (
            ("--set", "model.heads=3"),
            "model.hidden is 32, needs to be a multiple of model.heads, 3",
        ),
        (("--set", "model.positions=32"), "samples of 64 tokens, and the model takes 32"),
        (("--set", "train.micro_batch_size=5"), "a batch of 16 cannot be cut evenly over 1 worker"),
        (("--settings", "bert-huge"), "no recipe 'bert-huge'; give a .toml file, or one of bert-l"),
        (("--output", "{shards}"), "holds something already; give a new folder for the model"),
        (("--output", "/"), "/ holds something already; give a new folder for the model"),
        (("--set", "train.optimizer=sgd"), "train.optimizer is 'sgd', allowed: adamw, lamb"),
    ],
)
def test_a_run_that_cannot_work_is_refused(
    shards: Path,
    bert: Path,
    encoder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, ...],
    message: str,
) -> None:
    (tmp_path / "empty").mkdir()
    shutil.copy(shards / "vocab.txt", tmp_path / "empty")
    for name in ("torn", "mixed", "other", "ids", "blank"):
        shutil.copytree(shards, tmp_path / name)
    for name, key, value in (("ids", "input_ids", 800), ("blank", "masked_lm_positions", 0)):
        for path in (tmp_path / name).glob("*.hdf5"):
            with h5py.File(path, "r+") as file:
                file[key][:] = value
    renamed = shutil.copytree(bert, tmp_path / "renamed") / "vocab.txt"
    renamed.write_text(renamed.read_text(encoding="utf-8").replace("##a\n", "##ab-\n"), "utf-8")
    torn = find_shards(tmp_path / "torn", "training")[1]
    torn.write_bytes(torn.read_bytes()[:5000])
    with h5py.File(find_shards(tmp_path / "mixed", "training")[2], "r+") as file:
        for key in ("masked_lm_positions", "masked_lm_ids"):
            values = file[key][:, :9]
            del file[key]
            file.create_dataset(key, data=values, dtype=KEYS[key])
    tokens = (shards / "vocab.txt").read_text(encoding="utf-8").splitlines()
    (tmp_path / "other" / "vocab.txt").write_text("\n".join(tokens[:-1]) + "\n", encoding="utf-8")
    names = {"tmp": tmp_path, "shards": shards, "encoder": encoder}
    given = [one.format(**names) for one in more]
    error = refusal(pretrain_arguments(shards, tmp_path / "out", *given), capsys)
    assert message.format(**names) in error
    assert not (tmp_path / "out").exists()


def test_runs_that_share_a_place_for_checkpoints_are_told(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    with (place / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        arguments = pretrain_arguments(shards, tmp_path / "out", "--checkpoints", str(place))
        assert f"another run keeps its checkpoints in {place}" in refusal(arguments, capsys)
    (tmp_path / "file").touch()
    arguments = pretrain_arguments(shards, tmp_path / "out", "--checkpoints", f"{tmp_path}/file/x")
    assert f"cannot write checkpoints to {tmp_path}/file/x" in refusal(arguments, capsys)


def test_a_run_removes_no_files_of_others(shards: Path, tmp_path: Path) -> None:
    work = tmp_path / "out.run"
    work.mkdir()
    (work / "notes.txt").write_text("mine", encoding="utf-8")
    assert main(pretrain_arguments(shards, tmp_path / "out", "--max-steps", "1")) == 0
    assert [path.name for path in work.iterdir()] == ["notes.txt"]


def test_a_run_leaves_a_model_alone_that_has_the_name_of_its_folder(
    shards: Path, bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = shutil.copytree(bert, tmp_path / "out.run")
    before = {path: path.read_bytes() for path in model.rglob("*") if path.is_file()}
    error = refusal(pretrain_arguments(shards, tmp_path / "out"), capsys)
    assert f"{model}, where this run would keep its state, is the output of another" in error
    assert {path: path.read_bytes() for path in model.rglob("*") if path.is_file()} == before


def test_a_used_output_is_told_before_shards_are_built_for_it(
    prose: Path, bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = shutil.copytree(bert, tmp_path / "out")
    arguments = ["pretrain", "--text", str(prose), "--output", str(output)]
    assert "holds something already" in refusal(arguments, capsys)
    assert not (tmp_path / "out.shards").exists()


def test_text_is_for_one_worker(
    prose: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[int] = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("training.core.backend.stop_hard", ended.append)
    error = refusal(["pretrain", "--text", str(prose), "--output", str(tmp_path / "o")], capsys)
    assert "--text is for one worker; build the shards first" in error
    assert ended == [2]


def test_a_pre_trained_model_is_not_packaged_as_it_is(
    bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["package", "--model", str(bert), "--results", str(bert / "results.json")]
    assert packaging([*arguments, "--output", str(tmp_path / "package")]) == 2
    assert "is about bert_pretraining, whose model gives no labels" in capsys.readouterr().err
