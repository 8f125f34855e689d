"""Code that is served: the four functions that SageMaker's PyTorch serving toolkit calls.

It travels inside the model archive and runs in the serving image, so it imports torch, the toolkit
and transformers only. Client mistakes answer 4xx; a 5xx means that the model is at fault, and
feeds the alarm that rolls a deployment back.
"""

import json
import logging
import os
import platform
import sys
from email.message import Message
from pathlib import Path
from typing import Any

# The image has no transformers. The archive may carry it, as unpacked wheels for one interpreter.
TAG = f"cp{sys.version_info.major}{sys.version_info.minor}-{platform.machine()}"
VENDORED = Path(__file__).resolve().parent / "vendor" / TAG
if VENDORED.is_dir():
    sys.path.insert(0, str(VENDORED))
os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402
from sagemaker_inference.errors import GenericInferenceToolkitError  # noqa: E402
from transformers import AutoModelForSequenceClassification, AutoTokenizer  # noqa: E402
from transformers.utils.logging import disable_progress_bar  # noqa: E402

log = logging.getLogger(__name__)

JSON = "application/json"
MAX_TEXTS = 64
# SageMaker's own limit for a request; the name of the variable is TorchServe's.
MAX_BYTES = int(os.environ.get("TS_MAX_REQUEST_SIZE", "6291456"))


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
        predict_fn(texts, (tokenizer, model))
    log.info("model ready: %s, %s threads", TAG, torch.get_num_threads())
    return tokenizer, model


def input_fn(body: str | bytes, content_type: str | None) -> list[str]:
    """Texts of a request: `{"inputs": text or [texts]}`, or the text or the list alone."""
    header = Message()
    header["content-type"] = content_type or ""
    if header.get_content_type() != JSON:
        raise GenericInferenceToolkitError(415, f"the content type must be {JSON}")
    raw = body.encode() if isinstance(body, str) else bytes(body)
    if len(raw) > MAX_BYTES:
        raise GenericInferenceToolkitError(
            413, f"{len(raw)} bytes; at most {MAX_BYTES} are allowed"
        )
    charset = "utf-8" if isinstance(body, str) else header.get_content_charset("utf-8")
    content = _parse(raw, charset)
    if isinstance(content, dict):
        if set(content) != {"inputs"}:
            raise GenericInferenceToolkitError(400, 'the object must have the one key "inputs"')
        content = content["inputs"]
    texts = [content] if isinstance(content, str) else content
    if not isinstance(texts, list) or not texts or not all(_is_text(text) for text in texts):
        raise GenericInferenceToolkitError(
            400, "inputs must be a text or a list of texts, in valid Unicode and not empty"
        )
    if len(texts) > MAX_TEXTS:
        raise GenericInferenceToolkitError(
            413, f"{len(texts)} texts; at most {MAX_TEXTS} a request"
        )
    return texts


def predict_fn(texts: list[str], loaded: tuple[Any, Any]) -> list[dict[str, Any]]:
    """Label and probability of each text; a text over the model's limit is cut."""
    tokenizer, model = loaded
    if getattr(model.config, "names_and_links", "keep") == "replace":
        texts = [plain(text) for text in texts]
    batch = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        scores, best = model(**batch).logits.softmax(-1).max(-1)
    return [
        {"label": model.config.id2label[index], "score": score}
        for index, score in zip(best.tolist(), scores.tolist(), strict=True)
    ]


def plain(text: str) -> str:
    """User names as `@user`, links as `http`, as the training did it."""
    return " ".join(
        "@user" if len(word) > 1 and word[0] == "@" else "http" if word[:4] == "http" else word
        for word in text.split(" ")
    )


def output_fn(prediction: list[dict[str, Any]], accept: str | None) -> tuple[str, str]:
    """The answer as JSON, where the client accepts that."""
    accepted = {part.partition(";")[0].strip().lower() for part in (accept or "*/*").split(",")}
    if not accepted & {JSON, "application/*", "*/*"}:
        raise GenericInferenceToolkitError(406, f"the answer can only be {JSON}")
    return json.dumps(prediction), JSON


def _parse(raw: bytes, charset: str) -> Any:
    """The JSON in a body."""
    try:
        return json.loads(raw.decode(charset))
    except LookupError:
        raise GenericInferenceToolkitError(415, "the charset is not known") from None
    except UnicodeError:
        raise GenericInferenceToolkitError(400, "the body is not in its charset") from None
    except (ValueError, RecursionError):
        raise GenericInferenceToolkitError(400, "the body is not JSON") from None


def _is_text(value: object) -> bool:
    """Whether this is a text with something in it, and no half of a surrogate pair."""
    if not isinstance(value, str) or not value.strip():
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
