"""Loads an archive as a serving container does, and asks it for labels.

Runs on its own, by path, in a fresh isolated interpreter: it may see the archive and the installed
packages, and neither this repository nor the network.

    python -I probe.py ARCHIVE BASE REQUEST ANSWER

ARCHIVE is unpacked to BASE/model; REQUEST is a JSON list of texts; ANSWER gets
{"answers": [{"label": ..., "score": ...}, ...]} or {"error": "..."}.
"""

import json
import socket
import sys
import tarfile
from importlib import import_module
from pathlib import Path
from typing import Any


class _Context:
    """The part of a model server's request context that the toolkit uses."""

    def __init__(self, model_dir: Path) -> None:
        self.model_name = "model"
        self.system_properties = {"model_dir": str(model_dir)}
        self.request_processor = [self]
        self.status = 200

    def get_request_properties(self) -> dict[str, str]:
        return {"Content-Type": "application/json", "Accept": "application/json"}

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        self.status = code

    def set_response_content_type(self, request_id: int, value: str) -> None:
        pass


def _refuse_network(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: an endpoint in network isolation reaches nothing."""
    remote = event == "socket.getaddrinfo" or (
        event == "socket.connect" and arguments[0].family != socket.AF_UNIX
    )
    if remote:
        raise PermissionError(
            "the served code opens a network connection, and the endpoint has none"
        )


def _answers(archive: Path, model_dir: Path, texts: list[str]) -> list[Any]:
    with tarfile.open(archive) as tar:
        tar.extractall(model_dir, filter="data")
    sys.path.insert(0, str(model_dir / "code"))  # as the toolkit does, through PYTHONPATH
    inference = import_module("inference")
    handlers = ["input_fn", "predict_fn", "output_fn"]
    if hasattr(inference, "transform_fn"):
        handlers = ["transform_fn"]
    # For a missing one the toolkit takes its own, which looks for a .pt file and speaks tensors.
    if missing := [name for name in ("model_fn", *handlers) if not hasattr(inference, name)]:
        raise AttributeError(f"code/inference.py defines no {' and no '.join(missing)}")
    from sagemaker_inference.transformer import Transformer

    transformer = Transformer()
    context = _Context(model_dir)
    transformer.validate_and_initialize(model_dir=str(model_dir), context=context)
    body = json.dumps({"inputs": texts}).encode()
    answer = transformer.transform([{"body": body}], context)[0]
    if context.status != 200:
        raise ValueError(f"it answers {context.status} to good texts: {answer.splitlines()[0]}")
    content = json.loads(answer)
    if not isinstance(content, list) or len(content) != len(texts):
        raise ValueError(f"it does not answer one object a text: {answer[:200]}")
    for one in content:
        if not isinstance(one, dict) or not isinstance(one.get("label"), str):
            raise ValueError(f"an answer has no label: {json.dumps(one)[:200]}")
        if not isinstance(one.get("score"), float) or not 0 <= one["score"] <= 1:
            raise ValueError(f"an answer has no score from 0 to 1: {json.dumps(one)[:200]}")
    return content


def main() -> None:
    """Write the answers, or what went wrong in the words of the exception."""
    archive, base, request, answer = (Path(argument) for argument in sys.argv[1:])
    # What trains and packs must not be needed to serve, not even where it is installed.
    for name in ("training", "torch_xla", "torch_neuronx"):
        sys.modules[name] = None  # type: ignore[assignment]
    sys.addaudithook(_refuse_network)
    try:
        outcome: dict[str, object] = {
            "answers": _answers(archive, base / "model", json.loads(request.read_text()))
        }
    except BaseException as error:  # the archive's code may raise anything, SystemExit too
        outcome = {"error": f"{type(error).__name__}: {error}"}
    answer.write_text(json.dumps(outcome))


if __name__ == "__main__":
    main()
