"""Plain text becomes shards; shards are read, checked and written anew."""

from __future__ import annotations

import fcntl
import filecmp
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.training.conftest import build_arguments
from training.bert_pretraining.cli import main
from training.bert_pretraining.corpus import find_texts
from training.bert_pretraining.samples import Samples
from training.bert_pretraining.shards import KEYS, find_shards, inspect, read_shard, unpack
from training.bert_pretraining.vocabulary import CLS, MASK, PAD, SEP, read_vocabulary
from training.command import InputError

pytestmark = pytest.mark.training

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "training.bert_pretraining")


def same(one: Path, other: Path) -> bool:
    """Whether two folders hold the same bytes under the same names.

    What they were made from tells also whether the vocabulary was given.
    """
    names, others = (
        sorted(path.name for path in folder.iterdir() if path.name != "build.json")
        for folder in (one, other)
    )
    assert names == others
    return not any(filecmp.cmpfiles(one, other, names, shallow=False)[1:])


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command with bad input ends with."""
    capsys.readouterr()
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    return error


def training(folder: Path) -> dict[str, Any]:
    """The arrays of all training shards."""
    parts = [read_shard(path) for path in find_shards(folder, "training")]
    return {key: np.concatenate([part[key] for part in parts]) for key in KEYS}


def test_the_samples_are_as_bert_wants_them(shards: Path) -> None:
    vocabulary = read_vocabulary(shards / "vocab.txt")
    start, end, mask = (vocabulary.id_of(token) for token in (CLS, SEP, MASK))
    found = training(shards)
    ids, lengths = found["input_ids"], found["input_mask"].sum(1)
    assert len(vocabulary) == 800
    assert (ids[:, 0] == start).all()
    assert (np.take_along_axis(ids, lengths[:, None] - 1, 1) == end).all()
    assert ((ids == end).sum(1) >= 2).all()  # a random token may be a [SEP] too
    there = found["masked_lm_positions"] > 0
    wanted = np.clip(np.rint(lengths * 0.15), 1, 10)
    assert (there.sum(1) == wanted).all()
    hidden = np.take_along_axis(ids, found["masked_lm_positions"], 1)[there]
    was = found["masked_lm_ids"][there]
    assert np.mean(hidden == mask) == pytest.approx(0.8, abs=0.02)
    assert np.mean(hidden == was) == pytest.approx(0.1, abs=0.02)
    assert not np.isin(was, (start, end)).any()
    assert 0.4 < np.mean(found["next_sentence_labels"]) < 0.65
    assert np.mean(lengths == 64) > 0.7


def test_a_second_sentence_follows_the_first_unless_the_label_says_otherwise(
    tmp_path: Path,
) -> None:
    for document in range(6):  # sentences of one token each, which is in no other place
        signs = [chr(0x4E00 + 64 * document + place) for place in range(64)]
        (tmp_path / f"{document}.txt").write_text("\n\n".join(signs), encoding="utf-8")
    output = tmp_path / "shards"
    more = ("--sequence", "24", "--predictions", "1", "--shards", "1", "--set", "held_out=0")
    assert main(build_arguments(tmp_path, output, "--vocabulary-size", "2000", *more)) == 0
    vocabulary = read_vocabulary(output / "vocab.txt")
    found = training(output)
    labels = Counter(found["next_sentence_labels"].tolist())
    assert len(labels) == 2
    for row, unrelated in enumerate(found["next_sentence_labels"]):
        ids = found["input_ids"][row]
        ids[found["masked_lm_positions"][row, 0]] = found["masked_lm_ids"][row, 0]
        second = int(found["segment_ids"][row].argmax())
        before, after = (
            ord(vocabulary.tokens[ids[place]]) - 0x4E00 for place in (second - 2, second)
        )
        assert unrelated == (after != before + 1)
        assert unrelated == (after // 64 != before // 64)


@pytest.mark.parametrize("documents", ["file", "blank-line"])
def test_parts_of_a_corpus_are_all_of_it_once(prose: Path, documents: Any) -> None:
    corpus = find_texts([prose], documents=documents)
    whole = list(corpus.part(0, 1))
    assert len(whole) > 50
    for parts in (2, 7, 50):
        assert [one for part in range(parts) for one in corpus.part(part, parts)] == whole


def test_every_cut_of_small_documents_keeps_them_whole(tmp_path: Path) -> None:
    text = "\n\none\r\ntwo\n \r\n\nthree\n\n\nfour\n\tfive\nsix\n\nx"
    (tmp_path / "a.txt").write_text(text, encoding="utf-8", newline="")
    (tmp_path / "b.txt").write_text("seven\n\neight", encoding="utf-8")
    corpus = find_texts([tmp_path], documents="blank-line")
    expected = [["one", "two"], ["three"], ["four", "five", "six"], ["x"], ["seven"], ["eight"]]
    for parts in range(1, corpus.size + 1):
        assert [one for part in range(parts) for one in corpus.part(part, parts)] == expected


def test_any_number_of_processes_and_machines_makes_the_same_bytes(
    prose: Path, shards: Path, tmp_path: Path
) -> None:
    assert main(build_arguments(prose, tmp_path / "two", "--processes", "2")) == 0
    assert same(shards, tmp_path / "two")
    vocab = ("--vocab", str(shards / "vocab.txt"))
    for part in ("1", "0"):
        more = ("--part", part, "--parts", "2", *vocab)
        assert main(build_arguments(prose, tmp_path / "array", *more)) == 0
    assert same(shards, tmp_path / "array")
    assert main(build_arguments(prose, tmp_path / "other", "--seed", "1", *vocab)) == 0
    assert not same(shards, tmp_path / "other")


def test_a_killed_build_goes_on_and_the_end_is_the_same(prose: Path, tmp_path: Path) -> None:
    arguments = ("--shards", "12", "--copies", "6")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(build_arguments(prose, whole, *arguments)) == 0
    with subprocess.Popen(
        [*COMMAND, *build_arguments(prose, parts, *arguments)], cwd=ROOT, stdout=subprocess.PIPE
    ) as build:
        while not list(parts.glob("*_training_*.hdf5")):
            assert build.poll() is None
            time.sleep(0.01)
        build.send_signal(signal.SIGKILL)
    made = {path: path.stat().st_mtime_ns for path in parts.glob("*_training_*.hdf5")}
    assert 0 < len(made) < 12
    assert main(build_arguments(prose, parts, *arguments)) == 0
    assert all(path.stat().st_mtime_ns == time for path, time in made.items())
    assert same(whole, parts)


def test_other_text_or_settings_do_not_mix_with_the_shards_that_are_there(
    prose: Path, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(shards.iterdir())
    error = refusal(build_arguments(prose, shards, "--copies", "9", "--seed", "3"), capsys)
    assert "shards of another build: copies was 2 and is 9; seed was 12345 and is 3" in error
    error = refusal(build_arguments(prose, shards, "--vocabulary-size", "700"), capsys)
    assert "vocabulary_size was 800 and is 700" in error
    edited = shutil.copytree(prose, tmp_path / prose.name)
    path = min(edited.iterdir())
    path.write_bytes(path.read_bytes().swapcase())  # as many bytes as before
    assert "text_sha256 was " in refusal(build_arguments(edited, shards), capsys)
    assert sorted(shards.iterdir()) == before


def test_of_two_builds_at_once_one_is_refused_and_parts_are_not(
    prose: Path, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    output.mkdir()
    vocab = ("--vocab", str(shards / "vocab.txt"))
    part = build_arguments(prose, output, *vocab, "--part", "1", "--parts", "2")
    with (output / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for arguments in (build_arguments(prose, output), part):
            assert "another build is writing to" in refusal(arguments, capsys)
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert "another build is writing to" in refusal(build_arguments(prose, output), capsys)
        assert main(part) == 0


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_disk_that_takes_no_shard_is_told_in_one_line(
    prose: Path, shards: Path, tmp_path: Path, processes: str
) -> None:
    """Stands in for a full disk: a limit on the size of files, which the processes inherit."""
    vocab = ("--vocab", str(shards / "vocab.txt"))
    build = build_arguments(prose, tmp_path / "out", "--processes", processes, *vocab)
    result = subprocess.run(
        ["bash", "-c", 'ulimit -f 64; exec "$@"', "-", *COMMAND, *build],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 2
    assert re.fullmatch(r"error: cannot write \S+: File too large(; .*)?\n", result.stderr)
    assert main(build_arguments(prose, tmp_path / "out", *vocab)) == 0


def test_ctrl_c_ends_a_build_of_several_processes_in_one_line(prose: Path, tmp_path: Path) -> None:
    build = build_arguments(prose, tmp_path / "out", "--processes", "2", "--copies", "40")
    with subprocess.Popen(
        [*COMMAND, *build],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        while "shards to make" not in (line := process.stdout.readline()):
            assert line
        time.sleep(0.5)  # while the processes start
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate()
    assert (process.returncode, error) == (130, "stopped by Ctrl-C\n")


@pytest.mark.parametrize(
    ("content", "more", "message"),
    [
        (None, (), "no text at "),
        (b"", (), "no text in "),
        (b" \n\n \n", (), "the text of shard 0 gives no sample"),
        (b"w", (), "the text of shard 0 gives no sample"),
        (b"fine. good.\n" * 50 + b"caf\xe9", (), "is not UTF-8: byte 603: unexpected end of data"),
        (b"a b. c d." * 9, ("--shards", "2"), "1 files, a document each, cannot fill 2 shards"),
        (b"a b. c d." * 9, ("--shards", "0"), "shards is 0, needs to be 1 or more"),
        (b"a b. c d." * 9, ("--predictions", "64"), "predictions is 64, needs to be below build.s"),
        (
            b"a b. c d." * 9,
            ("--part", "2", "--parts", "2"),
            "part 2 of 2: parts are counted from 0",
        ),
        (b"a b. c d." * 9, ("--part", "0", "--parts", "2"), "make it first with the command vocab"),
        (b"a b. c d." * 9, ("--vocab", "none/vocab.txt"), "no vocabulary none/vocab.txt"),
        (b"a b. c d." * 9, ("--processes", "0"), "--processes is 0, needs to be 1 or more"),
        (b"a b. c d." * 9, ("--sequence", "99999999"), "sequence is 99999999, needs to be below"),
        (b"a b. c d." * 9, ("--set", "copys=2"), "copys is not a setting; did you mean copies?"),
    ],
)
def test_text_that_cannot_be_used_is_told(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: bytes | None,
    more: tuple[str, ...],
    message: str,
) -> None:
    text = tmp_path / "text.txt"
    if content is not None:
        text.write_bytes(content)
    error = refusal(build_arguments(text, tmp_path / "out", "--shards", "1", *more), capsys)
    assert message in error
    assert not list(tmp_path.rglob("*.hdf5"))


def test_odd_text_is_no_trouble(tmp_path: Path) -> None:
    """One-line documents, a byte order mark, CRLF, NUL, huge lines, names that are odd."""
    (tmp_path / "one.txt").write_text("\ufeffA single line of a few words.", encoding="utf-8")
    (tmp_path / "two.txt").write_bytes(b"First line.\r\nSecond line.\r\n\r\nA third one.\r\n" * 20)
    (tmp_path / "huge.txt").write_text("many words on one line " * 20_000, encoding="utf-8")
    (tmp_path / "solid.txt").write_text("x" * 50_000, encoding="utf-8")
    (tmp_path / "nul.txt").write_bytes(bytes(1000))
    Path(os.fsdecode(bytes(tmp_path) + b"/\xff.txt")).write_text("A name that is no text. Fine.")
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    (tmp_path / "self").symlink_to(".")
    output = tmp_path / "out"
    arguments = build_arguments(tmp_path, output, "--shards", "1", "--set", "held_out=0")
    assert main(arguments) == 0
    assert main(["check", str(output)]) == 0
    vocabulary = read_vocabulary(output / "vocab.txt")
    assert not [token for token in vocabulary.tokens if "\ufeff" in token or "\r" in token]


def test_tokens_of_the_model_in_the_text_are_text(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Use [MASK] or [SEP] here. Then [PAD] it, or [CLS].\n" * 99)
    output = tmp_path / "out"
    assert main(build_arguments(tmp_path / "text.txt", output, "--shards", "1")) == 0
    vocabulary, found = read_vocabulary(output / "vocab.txt"), training(output)
    special = [vocabulary.id_of(token) for token in (PAD, CLS, SEP, MASK)]
    assert not np.isin(found["masked_lm_ids"][found["masked_lm_positions"] > 0], special).any()
    assert ((found["input_ids"] == vocabulary.id_of(SEP)).sum(1) == 2).all()


def test_the_reference_reads_our_shards_and_we_read_the_references(
    shards: Path, tmp_path: Path
) -> None:
    """NVIDIA's writer compresses, and leaves no trace of its vocabulary."""
    ours = find_shards(shards, "training")[0]
    arrays = read_shard(ours)
    theirs = tmp_path / "x_training_0.hdf5"
    with h5py.File(theirs, "w") as file:
        for key, kind in zip(KEYS, ("i4", "i1", "i1", "i4", "i4", "i1"), strict=True):
            file.create_dataset(key, data=arrays[key], dtype=kind, compression="gzip")
    packed, plain = inspect(theirs), inspect(ours)
    assert packed.places is None
    assert plain.places is not None
    assert packed.vocabulary == ""
    unpack(theirs, tmp_path / "copy.hdf5")
    rows = [5, 0, 5, plain.samples - 1]
    found = Samples([inspect(tmp_path / "copy.hdf5")], tokens=800).take(rows)
    with h5py.File(ours) as file:
        assert {key: file[key].dtype for key in KEYS} == {key: np.dtype(KEYS[key]) for key in KEYS}
        for key in KEYS:
            assert np.array_equal(found[key], file[key][:][rows])


def test_samples_are_found_by_their_number_across_shards(shards: Path) -> None:
    opened = [inspect(path) for path in find_shards(shards, "training")]
    samples = Samples(opened, tokens=800)
    whole = training(shards)
    assert len(samples) == len(whole["input_ids"]) == sum(shard.samples for shard in opened)
    rows = np.random.default_rng(0).permutation(len(samples))[:200]
    for key, values in samples.take(rows.tolist()).items():
        assert np.array_equal(values, whole[key][rows])


def test_resharding_keeps_every_sample_in_its_order(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    total = len(training(shards)["input_ids"])
    for count in (1, 7, 50):
        output = tmp_path / str(count)
        assert main(["reshard", str(shards), "--output", str(output), "--shards", str(count)]) == 0
        found, expected = training(output), training(shards)
        assert len(find_shards(output, "training")) == count
        assert all(np.array_equal(found[key], expected[key]) for key in KEYS)
        assert main(["check", str(output)]) == 0
    arguments = ["reshard", str(shards), "--output", str(tmp_path / "9"), "--shards", "9999999"]
    assert f"{total} training samples cannot fill 9999999 shards" in refusal(arguments, capsys)
    for few in ("0", "-1"):
        arguments = ["reshard", str(shards), "--output", str(tmp_path / "9"), "--shards", few]
        assert f"--shards is {few}, needs to be 1 or more" in refusal(arguments, capsys)
    only = shutil.copytree(shards, tmp_path / "only")
    for path in find_shards(only, "test"):
        path.unlink()
    assert main(["reshard", str(only), "--output", str(tmp_path / "2"), "--shards", "2"]) == 0
    with h5py.File(find_shards(only, "training")[0], "r+") as file:
        file.attrs["vocabulary_sha256"] = "0" * 64
    arguments = ["reshard", str(only), "--output", str(tmp_path / "9"), "--shards", "2"]
    assert "were made with several vocabularies" in refusal(arguments, capsys)


def spoil(path: Path, key: str, value: Any) -> None:
    """Set the first sample's first entry of a key."""
    with h5py.File(path, "r+") as file:
        if file[key].ndim == 1:
            file[key][0] = value
        else:
            file[key][0, 0] = value


def test_the_checker_tells_all_that_is_wrong_at_once(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(shards, tmp_path / "shards")
    first, second, third = find_shards(folder, "training")
    test = find_shards(folder, "test")[0]
    for key, value in (
        ("input_ids", 5000),
        ("masked_lm_ids", -4),
        ("input_mask", 0),
        ("segment_ids", 2),
        ("masked_lm_positions", 64),
        ("next_sentence_labels", 7),
    ):
        spoil(first, key, value)
    second.write_bytes(second.read_bytes()[:-1000])
    with h5py.File(third, "r+") as file:
        del file["input_mask"]
        del file["segment_ids"]
    with h5py.File(test, "r+") as file:
        file.attrs["vocabulary_sha256"] = "0" * 64
        del file["next_sentence_labels"]
        file["next_sentence_labels"] = np.zeros(3)
    error = refusal(["check", str(folder)], capsys)
    for text in (
        "with an id that the vocabulary has not, the first is 0",
        "with an id to predict that the vocabulary has not",
        "that do not begin with the vocabulary's [CLS]",
        "whose mask is not ones and then zeros",
        "whose sentences are not numbered 0 and 1",
        "with a position outside of their tokens",
        "whose positions do not rise",
        "whose next_sentence_labels is neither 0 nor 1",
        f"{second} is no whole HDF5 file: ",
        f"{third}: it has no input_mask, no segment_ids",
        "next_sentence_labels holds float64, not whole numbers",
    ):
        assert text in error, text
    assert re.match(r"error: \d+ problems:\n", error)


def test_bytes_that_are_not_what_they_were_are_told(shards: Path, tmp_path: Path) -> None:
    """Of any header, the library has an error, and often another one."""
    whole = find_shards(shards, "training")[0].read_bytes()
    chance, path = random.Random(0), tmp_path / "x_training_0.hdf5"
    refused = 0
    for _ in range(100):
        content = bytearray(whole)
        for _ in range(3):
            content[chance.randrange(4096)] = chance.randrange(256)
        path.write_bytes(content)
        try:
            inspect(path)
            read_shard(path)
        except InputError:
            refused += 1
    assert refused > 10


def test_shards_of_another_vocabulary_are_told(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = (shards / "vocab.txt").read_text(encoding="utf-8").splitlines()
    other = tmp_path / "vocab.txt"
    other.write_text("\n".join([*tokens[1:], tokens[0]]) + "\n", encoding="utf-8")
    error = refusal(["check", str(shards), "--vocab", str(other)], capsys)
    assert "made with another vocabulary" in error
    assert "do not begin with the vocabulary's [CLS]" in error


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it lacks [PAD]; it lacks [UNK]; it lacks [CLS]; it lacks [SEP]; it lacks [MASK]"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\na\n", "1 lines repeat an earlier one"),
        (b"\xff\xfe", "it is not UTF-8"),
    ],
)
def test_a_file_that_is_no_vocabulary_is_told(
    shards: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: bytes,
    message: str,
) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    assert message in refusal(["check", str(shards), "--vocab", str(path)], capsys)
