"""The whole chain in one command: text to BERT, to a sentiment model, to a package, published.

Each link is a command of its own, and leaves a folder under the output. What is there is not done
again, so the same command goes on after a stop, a kill or a mistake.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from training.bert_pretraining import cli as pretraining
from training.command import InputError, Parser, run
from training.files import read_json, sha256_of, write_json
from training.packaging import cli as packaging
from training.packaging.vendor import PIP_PLATFORM
from training.roberta_sentiment import cli as sentiment

RECORD = "made-from.json"  # beside the folders: the options that each was made with


@dataclass(frozen=True, kw_only=True)
class Link:
    """One command of the chain.

    Attributes:
        leaves: the folder that it makes.
        command: what it is a call of, with `given`.
        asked: the options of the chain that decide what it makes.
    """

    title: str
    leaves: Path | None
    command: Callable[[list[str]], int]
    given: list[str]
    asked: dict[str, object]


def main(arguments: list[str] | None = None) -> int:
    """Do what is left to do and return the exit code of the link that ended it.

    It is 0, 2 for bad input, 75 after a stop.
    """
    options = _parser().parse_args(arguments)
    code = 0

    def action() -> None:
        nonlocal code
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise InputError(
                "this command is for one worker; run its links by themselves, as "
                "docs/pre-train.md has them"
            )
        code = _go_on(_links(options), options.output / RECORD)

    return run(action) or code


def _go_on(links: list[Link], record: Path) -> int:
    """Run the links that have left nothing yet, until one fails; its exit code.

    Raises:
        InputError: a folder that is there was made with other options.
    """
    made = read_json(record) if record.is_file() else {}
    if different := [
        f"{link.leaves} was made with {_told(was)}, and not with {_told(link.asked)}"
        for link in links
        if link.leaves is not None and link.leaves.exists()
        if (was := made.get(link.title, link.asked)) != link.asked
    ]:
        raise InputError(f"{'; '.join(different)}; remove it, or give another --output")
    for link in links:
        if link.leaves is not None and link.leaves.exists():
            print(f"{link.title}: {link.leaves} is there", flush=True)
            continue
        print(f"{link.title}: {' '.join(link.given)}", flush=True)
        if code := link.command(link.given):
            return code
        made = made | {link.title: link.asked}
        write_json(record, made)
    return 0


def _told(asked: object) -> str:
    return json.dumps(asked, ensure_ascii=False)


def _links(options: argparse.Namespace) -> list[Link]:
    """The commands, each with what it and those before it depend on."""
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
    of_bert = {
        "--text": str(Path(options.text).resolve()),
        "--pretrain-settings": _settings(options.pretrain_settings),
    }
    of_model = of_bert | {
        "--data": str(Path(options.data).resolve()),
        "--fine-tune-settings": _settings(options.fine_tune_settings),
    }
    of_package = of_model | {
        "--model-name": options.model_name,
        "--serving-platform": options.serving_platform,
    }
    links = [
        ("pre-train", bert, pretraining.main, pretrain, of_bert),
        ("fine-tune", model, sentiment.main, fine_tune, of_model),
        ("package", package, packaging.main, pack, of_package),
    ]
    found = [
        Link(title=title, leaves=leaves, command=command, given=given, asked=asked)
        for title, leaves, command, given, asked in links
    ]
    if options.platform:
        publish = ["publish", "--package", str(package), "--platform", options.platform]
        found.append(
            Link(title="publish", leaves=None, command=packaging.main, given=publish, asked={})
        )
    return found


def _settings(name: str | None) -> str | None:
    """A recipe's name, or what is in a file of settings, by its digest."""
    if name is None or not Path(name).is_file():
        return name
    return f"{Path(name).name} {sha256_of(Path(name))[:12]}"


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
