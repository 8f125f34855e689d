"""Code that is served: the two functions that SageMaker's PyTorch serving toolkit calls.

It travels inside the model archive and runs in the serving image, so it imports torch, the toolkit
and transformers only. Client mistakes answer 4xx; a 5xx means that the model is at fault, and
feeds the alarm that rolls a deployment back. No answer tells a path or a traceback: those go to
the log alone.
"""

import json
import logging
import os
import platform
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from http import HTTPStatus
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

_TORCHSERVE = b"org.pytorch.serve.ModelServer"


@contextmanager
def ending_the_server() -> Iterator[None]:
    """What fails in here ends the model server.

    TorchServe 0.12 starts a worker that cannot load its model again and again, and its ping says
    Healthy all the while, for five minutes: enough for an endpoint to become InService.
    """
    try:
        yield
    except BaseException:
        log.exception("the model cannot be loaded; the server ends")
        command = Path(f"/proc/{os.getppid()}/cmdline")
        if command.is_file() and _TORCHSERVE in command.read_bytes():
            os.kill(os.getppid(), signal.SIGTERM)
        raise


# The image has no transformers. The archive may carry it, as unpacked wheels for one interpreter.
TAG = f"cp{sys.version_info.major}{sys.version_info.minor}-{platform.machine()}"
VENDORED = Path(__file__).resolve().parent / "vendor" / TAG
if VENDORED.is_dir():
    sys.path.insert(0, str(VENDORED))
os.environ["HF_HUB_OFFLINE"] = "1"

with ending_the_server():
    import torch
    from sagemaker_inference import content_types
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

# Bodies of these types are decoded by the toolkit, which answers 500 where one is not UTF-8.
content_types.UTF8_TYPES.clear()

JSON = "application/json"
CHARSETS = ("utf-8", "utf-16", "utf-32", "us-ascii", "iso-8859-1", "windows-1252")
MAX_TEXTS = 64
ROWS = 8
# SageMaker's own limit for a request; the name of the variable is TorchServe's.
MAX_BYTES = int(os.environ.get("TS_MAX_REQUEST_SIZE", "6291456"))


class Refusal(Exception):
    """A request that the client must change, with its HTTP status."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


@ending_the_server()
def model_fn(model_dir: str) -> tuple[Any, Any]:
    """Load the tokenizer and the model, and run them once in every way that requests will.

    Raises:
        Exception: whatever keeps the model from answering, before the first request does.
    """
    if threads := os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(threads))
    disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
    model = (
        AutoModelForSequenceClassification.from_pretrained(model_dir, local_files_only=True)
        .float()
        .eval()
    )
    longest, positions = tokenizer.model_max_length, model.config.max_position_embeddings
    if longest > positions:
        raise ValueError(
            f"the tokenizer allows {longest} tokens and the model has {positions} positions; "
            "set model_max_length in tokenizer_config.json"
        )
    for texts in (["warm-up"], ["warm-up", "a second, longer text"], ["word " * longest]):
        predict(texts, (tokenizer, model))
    log.info("model ready: %s, %s threads", TAG, torch.get_num_threads())
    return tokenizer, model


def transform_fn(
    loaded: tuple[Any, Any], body: Any, content_type: Any, accept: Any, context: Any
) -> tuple[str, str]:
    """Answer one request, mistakes included; returns the body and its content type.

    An exception that reached the toolkit would be sent to the client with its traceback.
    """
    status = HTTPStatus.OK
    try:
        texts = texts_of(body, content_type)
        check_accept(accept)
        return json.dumps(predict(texts, loaded)), JSON
    except Refusal as refusal:
        status, said = refusal.status, str(refusal)
    except Exception as error:
        log.exception("the model failed on a request")
        status = HTTPStatus.INTERNAL_SERVER_ERROR
        said = f"the model failed with {type(error).__name__}; the endpoint's log says why"
    context.set_response_status(status.value, status.phrase)
    return said, "text/plain"


def texts_of(body: Any, content_type: Any) -> list[str]:
    """Texts of a request: `{"inputs": text or [texts]}`, or the text or the list alone."""
    header = Message()
    header["content-type"] = content_type if isinstance(content_type, str) else ""
    if header.get_content_type() != JSON:
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the content type must be {JSON}")
    charset = header.get_content_charset("utf-8")
    raw = bytes(body or b"")
    if len(raw) > MAX_BYTES:
        raise Refusal(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"{len(raw)} bytes; at most {MAX_BYTES} are allowed",
        )
    content = _parse(raw, charset)
    if isinstance(content, dict):
        if set(content) != {"inputs"}:
            raise _unprocessable('the object must have the one key "inputs"')
        content = content["inputs"]
    texts = [content] if isinstance(content, str) else content
    if not isinstance(texts, list) or not texts or not all(_is_text(text) for text in texts):
        raise _unprocessable(
            "inputs must be a text or a list of texts, in valid Unicode and not empty"
        )
    if len(texts) > MAX_TEXTS:
        raise Refusal(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"{len(texts)} texts; at most {MAX_TEXTS} a request",
        )
    return texts


def check_accept(accept: Any) -> None:
    """Refuse a client that does not accept JSON; `;q=0` is a refusal too."""
    for part in (accept or "*/*").lower().split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        refused = any(re.fullmatch(r"q=0(\.0*)?", piece) for piece in parameters)
        if media in (JSON, "application/*", "*/*") and not refused:
            return
    raise Refusal(HTTPStatus.NOT_ACCEPTABLE, f"the answer can only be {JSON}")


def predict(texts: list[str], loaded: tuple[Any, Any]) -> list[dict[str, Any]]:
    """Label and probability of each text; a text over the model's limit is cut."""
    tokenizer, model = loaded
    if getattr(model.config, "names_and_links", "keep") == "replace":
        texts = [plain(text) for text in texts]
    # Texts of a like length together: padding to the longest of 64 can take ten times as long.
    by_length = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    answers: dict[int, dict[str, Any]] = {}
    for start in range(0, len(texts), ROWS):
        rows = by_length[start : start + ROWS]
        batch = tokenizer(
            [texts[row] for row in rows], padding=True, truncation=True, return_tensors="pt"
        )
        with torch.inference_mode():
            scores, best = model(**batch).logits.softmax(-1).max(-1)
        for row, index, score in zip(rows, best.tolist(), scores.tolist(), strict=True):
            answers[row] = {"label": model.config.id2label[index], "score": score}
    return [answers[row] for row in range(len(texts))]


def plain(text: str) -> str:
    """User names as `@user`, links as `http`, as the training did it."""
    return " ".join(
        "@user" if len(word) > 1 and word[0] == "@" else "http" if word[:4] == "http" else word
        for word in text.split(" ")
    )


def _parse(raw: bytes, charset: str) -> Any:
    """The JSON in a body. Other charsets than these can take minutes to decode."""
    if charset not in CHARSETS:
        allowed = ", ".join(CHARSETS)
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the charset must be one of {allowed}")
    try:
        return json.loads(raw.decode(charset).removeprefix("\ufeff"))
    except UnicodeError:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"the body is not in {charset}") from None
    except (ValueError, RecursionError):
        raise Refusal(HTTPStatus.BAD_REQUEST, "the body is not JSON") from None


def _unprocessable(message: str) -> Refusal:
    return Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, message)


def _is_text(value: object) -> bool:
    """Whether this is a text with something in it, and no half of a surrogate pair."""
    if not isinstance(value, str) or not value.strip():
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
