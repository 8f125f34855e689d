"""The WordPiece vocabulary: read, trained from text, saved in the transformers layout."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tokenizers import BertWordPieceTokenizer
from tokenizers.normalizers import BertNormalizer

from training.command import InputError
from training.files import write_bytes, write_json

FILE = "vocab.txt"
ALPHABET = 1000  # characters to know, as in BERT's own; rarer ones are unknown
PAD, UNKNOWN, CLS, SEP, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True)
class Vocabulary:
    """The tokens by their ids, as in a line each of `vocab.txt`."""

    tokens: tuple[str, ...]

    def __len__(self) -> int:
        """How many tokens."""
        return len(self.tokens)

    def id_of(self, token: str) -> int:
        """The id of a token that is there."""
        return self.tokens.index(token)

    @property
    def content(self) -> bytes:
        """The bytes of `vocab.txt`."""
        return "".join(f"{token}\n" for token in self.tokens).encode()

    @property
    def sha256(self) -> str:
        """What tells it from another."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def lower(self) -> bool:
        """Whether its text was put into lower case: no token but special ones has a capital."""
        return all(token == token.lower() for token in self.tokens if token not in SPECIAL)

    def tokenizer(self) -> BertWordPieceTokenizer:
        """A tokenizer of these tokens."""
        ids = {token: number for number, token in enumerate(self.tokens)}
        return BertWordPieceTokenizer(vocab=ids, lowercase=self.lower)


def read_vocabulary(path: Path) -> Vocabulary:
    """Read `vocab.txt`.

    Raises:
        InputError: it is missing, or is no vocabulary of BERT; names every problem.
    """
    try:
        lines = path.read_bytes().decode("utf-8").replace("\r\n", "\n").removesuffix("\n")
    except OSError as error:
        raise InputError(
            f"no vocabulary {path}: {error.strerror}; build makes one beside the shards, and "
            "--vocab takes another, such as vocab.txt of bert-large-uncased"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no vocabulary: it is not UTF-8: {error.reason}") from error
    tokens = tuple(lines.split("\n"))
    problems = [f"it lacks {token}" for token in SPECIAL if token not in tokens]
    if len(set(tokens)) < len(tokens):
        problems.append(f"{len(tokens) - len(set(tokens))} lines repeat an earlier one")
    if problems:
        raise InputError(f"{path} is no vocabulary of BERT, a token a line: {'; '.join(problems)}")
    return Vocabulary(tokens)


def train_vocabulary(texts: Callable[[], Iterable[str]], *, size: int, lower: bool) -> Vocabulary:
    """Learn at most `size` tokens; the same texts give the same ones.

    The library numbers the pieces inside of words as it meets them, in an order that changes from
    run to run, and settles ties by number. So it is given all of them at the start, and no
    character that it would have to leave out.

    Args:
        texts: gives the texts, each time that it is called.
        size: of the vocabulary.
        lower: whether the texts are put into lower case.
    """
    tokenizer = BertWordPieceTokenizer(lowercase=lower)
    plain = BertNormalizer(lowercase=lower).normalize_str  # the tokenizer is locked while it learns
    counts: Counter[str] = Counter()
    for text in texts():
        counts.update(plain(text))
    ranked = sorted(counts, key=lambda character: (-counts[character], character))
    known = min(ALPHABET, (size - len(SPECIAL)) // 4)
    alphabet = [one for one in ranked if not one.isspace()][:known]
    dropped = dict.fromkeys(map(ord, set(ranked) - set(alphabet) - set(" \n")))
    tokenizer.train_from_iterator(
        (plain(text).translate(dropped) for text in texts()),
        vocab_size=size,
        limit_alphabet=len(ranked),
        special_tokens=[*SPECIAL, *(f"##{character}" for character in sorted(alphabet))],
        show_progress=False,
    )
    ids = tokenizer.get_vocab()
    return Vocabulary(tuple(sorted(ids, key=lambda token: ids[token])))


def save_tokenizer(vocabulary: Vocabulary, folder: Path, *, longest: int) -> None:
    """Write what transformers loads a tokenizer from.

    Args:
        vocabulary: its tokens.
        folder: of the model.
        longest: tokens that the model takes.
    """
    write_bytes(folder / FILE, vocabulary.content)
    write_bytes(folder / "tokenizer.json", json.dumps(_described(vocabulary)).encode())
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": vocabulary.lower,
            "model_max_length": longest,
            **dict(
                zip(
                    ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"),
                    SPECIAL,
                    strict=True,
                )
            ),
        },
    )


def _described(vocabulary: Vocabulary) -> object:
    return json.loads(vocabulary.tokenizer().to_str())
