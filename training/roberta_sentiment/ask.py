"""Asks a model folder, to try it out before it is packed."""

import argparse
import sys
from pathlib import Path

from training.command import InputError, Parser, first_line, run


def main(arguments: list[str] | None = None) -> int:
    """The command `python -m training.roberta_sentiment.ask`."""
    parser = Parser(prog="python -m training.roberta_sentiment.ask", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="folder of a trained model")
    parser.add_argument("texts", nargs="+", metavar="TEXT", help="what to label")
    options: argparse.Namespace = parser.parse_args(arguments)

    def action() -> None:
        if not (options.model / "config.json").is_file():
            raise InputError(f"no model folder {options.model}")
        from training.roberta_sentiment.model import ask

        try:
            answers = ask(options.model, options.texts)
        except Exception as error:  # many libraries read these files, each with its own errors
            raise InputError(
                f"cannot load the model in {options.model}: {first_line(error)}"
            ) from error
        for text, (label, score) in zip(options.texts, answers, strict=True):
            print(f"{label:8}  {score:.3f}  {text}")

    return run(action)


if __name__ == "__main__":
    sys.exit(main())
