"""The `ultracluster` command."""

from __future__ import annotations

import argparse
import sys

from operations.rehearsal.rehearse import rehearse


def main() -> None:
    """Parse the command line and run one command."""
    parser = argparse.ArgumentParser(
        prog="ultracluster", description="Train on Trainium clusters, serve on Graviton."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    rehearsal = commands.add_parser(
        "rehearse", help="play the whole road on an emulated AWS account"
    )
    rehearsal.add_argument(
        "--exit-with-parent",
        action="store_true",
        help="stop when the process that started this one is gone",
    )
    arguments = parser.parse_args()
    sys.exit(rehearse(exit_with_parent=arguments.exit_with_parent))
