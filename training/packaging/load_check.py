"""Loads a finished archive once, apart from everything that made it, before anyone relies on it."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.command import InputError

PROBE = Path(__file__).with_name("probe.py")
SECONDS = 300
KEPT = ("PATH", "LD_LIBRARY_PATH")


@dataclass(frozen=True)
class Answer:
    """What a model says about a text: its label, and how sure it is (0 to 1)."""

    label: str
    score: float


def ask(archive: Path, texts: Sequence[str]) -> list[Answer]:
    """What the packed model answers to texts, in a clean process.

    Raises:
        InputError: it does not load, or does not answer as it should, in its exception's words.
    """
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        request, answer = base / "request", base / "answer"
        request.write_text(json.dumps(list(texts)))
        # Of the caller's environment, only what finds programs and libraries.
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        environment = kept | {
            "LANG": "C.UTF-8",
            "HOME": folder,
            "TMPDIR": folder,
            "SAGEMAKER_BASE_DIR": folder,
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        }
        paths = (PROBE, archive.resolve(), base, request, answer)
        command = [sys.executable, "-I", *map(str, paths)]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise InputError(f"the packed model did not answer in {SECONDS} s") from None
        if not answer.is_file():
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise InputError(f"the packed model ends its process ({done.returncode}): {last}")
        outcome = json.loads(answer.read_text())
    if "error" in outcome:
        raise InputError(f"the packed model does not serve: {' '.join(outcome['error'].split())}")
    return [Answer(one["label"], one["score"]) for one in outcome["answers"]]
