"""Builds a folder of shards from plain text.

Every shard is made from its part of the text alone, with chance of its own, so the same text and
settings give the same bytes, however many processes or machines share the work. A shard is there
whole or not at all: after a kill, the same call makes those that are missing.
"""

import hashlib
import multiprocessing
import os
import signal
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np

from training.bert_pretraining.corpus import Corpus, find_texts
from training.bert_pretraining.instances import Tokens, arrays, pairs
from training.bert_pretraining.settings import Build
from training.bert_pretraining.shards import write_shard
from training.bert_pretraining.vocabulary import (
    FILE,
    Vocabulary,
    read_vocabulary,
    save_tokenizer,
    train_vocabulary,
)
from training.command import InputError
from training.files import locked, read_json, write_bytes, write_json

MADE_FROM = "build.json"
LOCK = ".lock"
LEARNT_FROM = 1 << 30  # bytes of text that are enough to learn a vocabulary
KINDS = ("test", "training")  # in the order of writing: the last one says that the part is done


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to build. Of several machines, `part` of `parts` makes its share of the shards."""

    texts: tuple[Path, ...]
    output: Path
    vocab: Path | None
    build: Build
    processes: int
    part: int = 0
    parts: int = 1


@dataclass(frozen=True, kw_only=True)
class _Job:
    """What a process needs to make shards."""

    corpus: Corpus
    output: Path
    vocabulary: Vocabulary
    build: Build


def build_shards(request: Request, say: Callable[[str], None]) -> None:
    """Make the vocabulary, where none is given, and the shards that are missing.

    Raises:
        InputError: the text cannot be used, or the folder holds shards of something else.
    """
    build, output = request.build, request.output
    if build.predictions >= build.sequence:
        raise InputError(
            f"build.predictions is {build.predictions}, needs to be below build.sequence, "
            f"{build.sequence}"
        )
    if request.processes < 1:
        raise InputError(f"--processes is {request.processes}, needs to be 1 or more")
    if not 0 <= request.part < request.parts:
        raise InputError(f"part {request.part} of {request.parts}: parts are counted from 0")
    corpus = find_texts(request.texts, documents=build.documents)
    if build.documents == "file" and build.shards > len(corpus.files):
        raise InputError(
            f"{len(corpus.files)} files, a document each, cannot fill {build.shards} shards; make "
            "fewer, or set documents to blank-line where blank lines end the documents of a file"
        )
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {output}: {error.strerror or error}") from error
    refusal = f"another build is writing to {output}; wait for it, or give another folder"
    with locked(output / LOCK, refusal=refusal, shared=request.parts > 1):
        _build(request, corpus, say)


def _build(request: Request, corpus: Corpus, say: Callable[[str], None]) -> None:
    """Make what is missing of this part, with no other build at it."""
    build, output = request.build, request.output
    vocabulary = _vocabulary(request, corpus, say)
    _check_same(output, _origin(corpus, vocabulary, request))
    save_tokenizer(vocabulary, output, longest=build.sequence)
    job = _Job(corpus=corpus, output=output, vocabulary=vocabulary, build=build)
    shards = [
        number
        for number in range(request.part, build.shards, request.parts)
        if not _path(output, "training", number).is_file()
    ]
    say(
        f"{corpus.size / 1e6:.1f} MB of text in {len(corpus.files)} files; "
        f"{len(shards)} of {build.shards} shards to make"
    )
    start, made, problems = time.perf_counter(), 0, []
    for number, count in _make_all(job, shards, processes=request.processes):
        if isinstance(count, str):
            problems.append(count)
        else:
            made += count
            say(f"shard {number}: {count} samples")
    if problems:
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise InputError("; ".join(problems[:5]) + more)
    if shards:
        say(f"{made} samples in {time.perf_counter() - start:.1f} s")


def make_vocabulary(corpus: Corpus, build: Build) -> Vocabulary:
    """Learn a vocabulary from the text, or from an even share of a large one."""
    stride = -(-corpus.size // LEARNT_FROM)

    def sentences() -> Iterator[str]:
        for number, document in enumerate(corpus.part(0, 1)):
            if number % stride == 0:
                yield from document

    return train_vocabulary(sentences, size=build.vocabulary_size, lower=build.lowercase)


def _vocabulary(request: Request, corpus: Corpus, say: Callable[[str], None]) -> Vocabulary:
    """The one that is given, or that of an earlier start, or a new one."""
    path = request.output / FILE
    if request.vocab is not None:
        return read_vocabulary(request.vocab)
    if path.is_file():
        return read_vocabulary(path)
    if request.parts > 1:
        raise InputError(
            "several parts need one vocabulary: make it first with the command vocabulary, and "
            "give it as --vocab"
        )
    say("learning a vocabulary")
    vocabulary = make_vocabulary(corpus, request.build)
    write_bytes(path, vocabulary.content)
    return vocabulary


def _origin(corpus: Corpus, vocabulary: Vocabulary, request: Request) -> dict[str, Any]:
    """What the bytes of the shards follow from."""
    facts = asdict(request.build)
    if request.vocab is not None:
        del facts["vocabulary_size"], facts["lowercase"]  # they are of a vocabulary to learn
    return {"text_sha256": corpus.digest, "vocabulary_sha256": vocabulary.sha256, **facts}


def _check_same(output: Path, origin: dict[str, Any]) -> None:
    """Refuse a folder with shards of another text or other settings; else note what these are."""
    path = output / MADE_FROM
    if path.is_file():
        was = read_json(path)
        if different := [
            f"{name} was {was[name]!r} and is {value!r}"
            for name, value in origin.items()
            if name in was and was[name] != value  # of a vocabulary that was given, none is
        ]:
            raise InputError(
                f"{output} holds shards of another build: {'; '.join(different)}; give another "
                "folder"
            )
    elif any(output.glob("*.hdf5")):
        raise InputError(f"{output} holds shards that build did not make; give another folder")
    else:
        write_json(path, origin)


def _make_all(
    job: _Job, shards: Sequence[int], *, processes: int
) -> Iterator[tuple[int, int | str]]:
    """Make shards; the number of each and its samples, or what is wrong with its text."""
    count = min(processes, len(shards))
    if count <= 1:
        yield from ((number, _make(job, number)) for number in shards)
        return
    context = multiprocessing.get_context("spawn")  # not forked: the tokenizer has threads
    workers: dict[Any, Any] = {}
    try:
        # Inherited: Ctrl-C reaches all of the terminal's processes, and this one ends the others.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            for first in range(count):
                receiver, sender = context.Pipe(duplex=False)
                worker = context.Process(target=_share, args=(job, shards[first::count], sender))
                worker.start()
                sender.close()
                workers[receiver] = worker
        finally:
            signal.signal(signal.SIGINT, before)
        while workers:
            ready: list[Any] = list(wait(list(workers)))
            for receiver in ready:
                try:
                    yield receiver.recv()
                except EOFError:
                    worker = workers.pop(receiver)
                    worker.join()
                    if worker.exitcode:
                        raise InputError(
                            f"a process that made shards ended with {worker.exitcode}, for want of "
                            "memory perhaps; the same command with fewer --processes goes on"
                        ) from None
    finally:
        for worker in workers.values():
            worker.terminate()
            worker.join()


def _share(job: _Job, shards: Sequence[int], sender: Connection) -> None:
    """Make some shards in a process of its own."""
    for number in shards:
        try:
            sender.send((number, _make(job, number)))
        except BrokenPipeError:  # whoever asked is gone
            return


def _make(job: _Job, number: int) -> int | str:
    """Make one shard of each kind; its samples, or what is wrong with its text or the disk."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        return _written(job, number)
    except (InputError, OSError) as error:
        return str(error)


def _written(job: _Job, number: int) -> int | str:
    """Write one shard of each kind; its samples, or that its text has none."""
    documents = _tokenized(job, number)
    total = 0
    for kind in KINDS:
        found = _samples(job, number, kind, documents[kind])
        count = len(found["next_sentence_labels"]) if found else 0
        if found:
            path = _path(job.output, kind, number)
            write_shard(path, found, vocabulary=job.vocabulary.sha256)
        elif kind == "training":
            return (
                f"the text of shard {number} gives no sample; make fewer shards than "
                f"{job.build.shards}, or give more text"
            )
        total += count
    return total


def _tokenized(job: _Job, number: int) -> dict[str, list[list[Tokens]]]:
    """The documents of a shard as token ids, by kind: which is held out is a matter of its text."""
    tokenizer = job.vocabulary.tokenizer()
    tokenizer._tokenizer.encode_special_tokens = True  # [SEP] in the text is text like any other
    result: dict[str, list[list[Tokens]]] = {kind: [] for kind in KINDS}
    for sentences in job.corpus.part(number, job.build.shards):
        encoded = tokenizer.encode_batch(sentences, add_special_tokens=False)
        if document := [one.ids for one in encoded if one.ids]:
            lot = zlib.crc32("\n".join(sentences[:20]).encode()) / 2**32
            result["test" if lot < job.build.held_out else "training"].append(document)
    # A part of few documents may hold out all of them.
    return result if result["training"] else {"training": result["test"], "test": []}


def _samples(
    job: _Job, number: int, kind: str, documents: Sequence[list[Tokens]]
) -> dict[str, Any]:
    """The samples of some documents, each copy masked anew, in a random order."""
    seed = hashlib.sha256(f"{job.build.seed}/{number}/{kind}".encode()).digest()
    chance = np.random.Generator(np.random.PCG64(int.from_bytes(seed[:16], "little")))
    found = [pair for _ in range(job.build.copies) for pair in pairs(documents, job.build, chance)]
    if not found:
        return {}
    mixed = [found[place] for place in chance.permutation(len(found))]
    return arrays(mixed, job.build, job.vocabulary, chance)


def _path(output: Path, kind: str, number: int) -> Path:
    return output / f"text_{kind}_{number:05d}.hdf5"
