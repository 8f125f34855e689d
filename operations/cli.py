"""The `ultracluster` command."""

from __future__ import annotations

import argparse
import functools
import io
import os
import select
import sys
from collections.abc import Sequence
from pathlib import Path

NODE = Path(sys.prefix) / "bin" / "node"


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run one command; ends with its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal need not know the CDK CLI's symbols
    chosen = _parser().parse_args(arguments)
    if NODE.exists():  # set-up puts one there when the machine's is too old for CDK
        os.environ.setdefault("JSII_NODE", str(NODE))
    sys.exit(_status(chosen))


def _status(chosen: argparse.Namespace) -> int:
    """What one command ends with; 130 and 141 are what shells know as stopped and unread."""
    try:
        status = _run(chosen)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        if not _reader_has_gone():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status


def _reader_has_gone() -> bool:
    """Whether who read the output has seen enough, as `head` has."""
    look = select.poll()
    look.register(sys.stdout, 0)
    return bool(look.poll(0))


def _run(chosen: argparse.Namespace) -> int:
    # Imported here: aws_cdk starts its node as soon as it is imported.
    from operations import commands
    from operations.models import models, roll_back
    from operations.package_check import package_check
    from operations.predict import predict
    from operations.rehearsal.rehearse import rehearse
    from operations.rehearsal.road import FROM_TEXT, FULL

    if chosen.command == "rehearse":
        return rehearse(
            recipe=FROM_TEXT if chosen.from_text else FULL,
            exit_with_parent=chosen.exit_with_parent,
        )
    if chosen.command == "lint":
        return commands.lint(chosen.environment)
    if chosen.command == "changes":
        return commands.changes(chosen.environment)
    if chosen.command == "deploy-policy":
        return commands.deploy_policy(
            chosen.environment, account=chosen.account, output=chosen.output
        )
    if chosen.command == "predict":
        return predict(
            chosen.environment,
            chosen.texts,
            as_json=chosen.json,
            stdin=sys.stdin.buffer,
            show_error=functools.partial(print, file=sys.stderr),
        )
    if chosen.command == "package":
        return package_check(chosen.file, chosen.environment)
    if chosen.command == "models" and chosen.action == "roll-back":
        return roll_back(
            chosen.environment, chosen.digest, yes=chosen.yes, wait_for_end=chosen.wait
        )
    if chosen.command == "models":
        return models(chosen.environment)
    return commands.settings()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ultracluster", description="Train on Trainium clusters, serve on Graviton."
    )
    subparsers = parser.add_subparsers(dest="command", required=True)
    rehearsal = subparsers.add_parser(
        "rehearse", help="play the whole road on an emulated AWS account"
    )
    rehearsal.add_argument(
        "--exit-with-parent",
        action="store_true",
        help="stop when the process that started this one is gone",
    )
    rehearsal.add_argument(
        "--from-text",
        action="store_true",
        help="pre-train a BERT from plain text before, for the first model; some minutes more",
    )
    lint = subparsers.add_parser("lint", help="say all that can be known before a deploy")
    changes = subparsers.add_parser(
        "changes", help="say what the deployed environment would refuse of its settings"
    )
    policy = subparsers.add_parser(
        "deploy-policy", help="write the least rights that a deploy of an environment needs"
    )
    listing = subparsers.add_parser("models", help="list what was published, refused and served")
    asking = subparsers.add_parser("predict", help="ask the endpoint of an environment")
    for command in (lint, changes, policy, listing, asking):
        _add_environment(command, default="dev")
    actions = listing.add_subparsers(dest="action")
    back = actions.add_parser("roll-back", help="put an earlier model back")
    _add_environment(back, default=argparse.SUPPRESS)
    back.add_argument(
        "digest", nargs="?", help="its first digits; default is the one that served before"
    )
    back.add_argument("--yes", action="store_true", help="do not ask")
    back.add_argument("--wait", action="store_true", help="wait for the end and say how it went")
    package = subparsers.add_parser("package", help="look at a package").add_subparsers(
        required=True, metavar="check"
    )
    check = package.add_parser("check", help="say why the delivery would refuse it")
    check.add_argument("file", type=Path, help="model.tar.gz; a manifest.json beside it counts")
    _add_environment(check, default=None)
    policy.add_argument("--account", help="twelve digits; default is aws.account of the settings")
    policy.add_argument(
        "--output", type=Path, default=Path("deploy-policy"), help="folder of the policies"
    )
    asking.add_argument("--json", action="store_true", help="one JSON object a text")
    asking.add_argument(
        "texts",
        nargs="*",
        metavar="TEXT",
        help="what to classify; without one, a text or a JSON object a line on standard input",
    )
    subparsers.add_parser("settings", help="show every option of the settings")
    return parser


def _add_environment(command: argparse.ArgumentParser, *, default: str | None) -> None:
    command.add_argument(
        "-c",
        "--environment",
        default=default,
        type=lambda text: text.removeprefix("environment="),
        help="name or path of a settings file, as `cdk -c environment=` takes it",
    )


if __name__ == "__main__":
    main()
