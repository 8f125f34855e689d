"""Plain text as documents of sentences, cut into parts that need not know of each other.

Where a file is a document, a part has as many files as another, give or take one. Where blank lines
end documents, the files are one row of bytes, cut into equal parts, and a document belongs to the
part in which it starts. So a part is the same whoever makes it, and on whatever machine.
"""

import hashlib
import mmap
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Literal

from training.command import InputError
from training.files import sha256_of

SUFFIXES = (".txt", ".rst", ".md")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
LONGEST = 2000  # characters of what a tokenizer takes at once

Documents = Literal["file", "blank-line"]


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Files of text. `starts` are their places in the row of bytes, and its end."""

    files: tuple[Path, ...]
    starts: tuple[int, ...]
    documents: Documents

    @property
    def size(self) -> int:
        """Bytes in all."""
        return self.starts[-1]

    @property
    def digest(self) -> str:
        """What tells it from another: names and content of the files, wherever they lie."""
        facts = [f"{path.name} {sha256_of(path)}" for path in self.files]
        # The names of files are bytes, which need not be text.
        return hashlib.sha256(os.fsencode("\n".join(facts))).hexdigest()

    def part(self, number: int, parts: int) -> Iterator[list[str]]:
        """The documents of one part, each as its sentences.

        Raises:
            InputError: a file is not UTF-8, or cannot be read.
        """
        total = len(self.files) if self.documents == "file" else self.size
        low, high = (total * edge // parts for edge in (number, number + 1))
        if self.documents == "file":
            for path in self.files[low:high]:
                if found := list(_prose(_read(path))):
                    yield found
            return
        for path, start, end in zip(self.files, self.starts, self.starts[1:], strict=False):
            if start < high and low < end:
                yield from _between(path, low=max(0, low - start), high=high - start)


def find_texts(places: Sequence[Path], *, documents: Documents) -> Corpus:
    """The text files among some files and folders; a folder's are those that end in SUFFIXES.

    Raises:
        InputError: a place is not there, or there is no text in any of them.
    """
    missing = [str(place) for place in places if not place.exists()]
    if missing:
        raise InputError(f"no text at {', '.join(missing)}")
    found = [
        path
        for place in places
        for path in ([place] if place.is_file() else sorted(place.rglob("*")))
        if path.is_file() and (path == place or path.suffix in SUFFIXES)
    ]
    files = [path for path in dict.fromkeys(found) if path.stat().st_size]
    if not files:
        raise InputError(
            f"no text in {', '.join(map(str, places))}: give files of plain text, or folders with "
            f"files that end in {', '.join(SUFFIXES)}"
        )
    starts = accumulate((path.stat().st_size for path in files), initial=0)
    return Corpus(files=tuple(files), starts=tuple(starts), documents=documents)


def _read(path: Path) -> str:
    try:
        return _decoded(path.read_bytes(), path=path, at=0)
    except OSError as error:
        raise InputError(f"cannot read the text {path}: {error.strerror}") from error


def _decoded(content: bytes, *, path: Path, at: int) -> str:
    """Text from bytes at a place in a file."""
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8: byte {at + error.start}: {error.reason}; convert it first, with "
            "iconv say"
        ) from error


def _prose(text: str) -> Iterator[str]:
    """Sentences of running text, in which a line's end means nothing and a blank line ends one."""
    for paragraph in re.split(r"\n\s*\n", text.replace("\r\n", "\n")):
        for sentence in SENTENCE_END.split(" ".join(paragraph.split())):
            yield from _pieces(sentence)


def _between(path: Path, *, low: int, high: int) -> Iterator[list[str]]:
    """Documents that start in a range of a file; a line is a sentence, a blank line ends them."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        # From the line before, since what starts here depends on whether that one is blank.
        at = content.rfind(b"\n", 0, low - 1) + 1 if low else 0
        content.seek(at)
        document: list[str] = []
        ours, after_blank = False, low == 0
        for line in iter(content.readline, b""):
            text = _decoded(line, path=path, at=at).strip()
            if text and after_blank:
                if at >= high:
                    break
                ours = at >= low
            if ours and text:
                document += _pieces(text)
            if not text:
                if document:
                    yield document
                document, ours = [], False
            after_blank = not text
            at += len(line)
        if document:
            yield document


def _pieces(sentence: str) -> Iterator[str]:
    """A sentence in pieces that a tokenizer takes at once, cut at a space where there is one."""
    sentence = sentence.strip()
    while len(sentence) > LONGEST:
        cut = sentence.rfind(" ", 1, LONGEST)
        cut = cut if cut > 0 else LONGEST
        yield sentence[:cut]
        sentence = sentence[cut:].strip()
    if sentence:
        yield sentence
