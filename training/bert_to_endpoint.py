"""The whole chain in one command: text to BERT, to a sentiment model, to a package, published.

Each link is a command of its own, and leaves a folder under the output. What is there is not done
again, so the same command goes on after a stop, a kill or a mistake.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from training.bert_pretraining import cli as pretraining
from training.command import Parser
from training.packaging import cli as packaging
from training.packaging.vendor import PIP_PLATFORM
from training.roberta_sentiment import cli as sentiment

Link = tuple[str, Path | None, Callable[[list[str]], int], list[str]]


def main(arguments: list[str] | None = None) -> int:
    """Do what is left to do and return the exit code of the link that ended it.

    It is 0, 2 for bad input, 75 after a stop.
    """
    options = _parser().parse_args(arguments)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        print(
            "error: this command is for one worker; run its links by themselves, as "
            "docs/pre-train.md has them",
            file=sys.stderr,
        )
        return 2
    for title, leaves, command, given in _links(options):
        if leaves is not None and leaves.exists():
            print(f"{title}: {leaves} is there", flush=True)
            continue
        print(f"{title}: {' '.join(given)}", flush=True)
        if code := command(given):
            return code
    return 0


def _links(options: argparse.Namespace) -> list[Link]:
    """The commands, and the folder that each leaves."""
    bert, model, package = (options.output / name for name in ("bert", "sentiment", "package"))
    pretrain = ["pretrain", "--text", str(options.text), "--output", str(bert)]
    fine_tune = ["--model", str(bert), "--data", str(options.data), "--output", str(model)]
    if options.pretrain_settings:
        pretrain += ["--settings", options.pretrain_settings]
    if options.fine_tune_settings:
        fine_tune += ["--settings", options.fine_tune_settings]
    # fmt: off
    pack = [
        "package", "--model", str(model), "--results", str(model / "results.json"),
        "--output", str(package), "--model-name", options.model_name,
        "--serving-platform", options.serving_platform,
    ]
    # fmt: on
    links: list[Link] = [
        ("pre-train", bert, pretraining.main, pretrain),
        ("fine-tune", model, sentiment.main, fine_tune),
        ("package", package, packaging.main, pack),
    ]
    if options.platform:
        publish = ["publish", "--package", str(package), "--platform", options.platform]
        links.append(("publish", None, packaging.main, publish))
    return links


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m training.bert_to_endpoint", description=__doc__)
    add = parser.add_argument
    add("--text", required=True, help="plain text to pre-train on, a file or folder")
    add("--data", required=True, help="labelled texts to fine-tune on")
    add("--output", type=Path, required=True, help="folder for bert, sentiment and package")
    add("--pretrain-settings", metavar="RECIPE", help="of the pre-training, a name or TOML file")
    add("--fine-tune-settings", metavar="FILE", help="of the fine-tuning, a TOML file")
    add("--model-name", default="sentiment", help="name it is served under")
    add(
        "--serving-platform",
        choices=(*PIP_PLATFORM, "none"),
        default="cp312-aarch64",
        help="pack transformers for this Python and processor; none where the image has it",
    )
    add("--platform", metavar="FILE", help="platform.json of the cluster; publishes to its bucket")
    return parser


if __name__ == "__main__":
    sys.exit(main())
