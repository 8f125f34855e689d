"""The command line: report finished runs, estimate those to come."""

import argparse
from pathlib import Path

from training.command import Parser, run
from training.files import staged_folder, write_bytes
from training.scaling.estimate import estimate
from training.scaling.estimate_text import as_text
from training.scaling.pictures import draw
from training.scaling.published import read_published
from training.scaling.recipes import read_recipes
from training.scaling.report import as_csv, as_markdown, make_report
from training.scaling.runs import read_runs


def main(arguments: list[str] | None = None) -> int:
    """Run a subcommand and return the exit code: 0, 2 for bad input, 130 for Ctrl-C."""
    options = _parser().parse_args(arguments)
    return run(lambda: options.action(options))


def _report(options: argparse.Namespace) -> None:
    published = read_published()
    link = None if options.link_gbps is None else options.link_gbps * 1e9 / 8
    report = make_report(read_runs(options.results), published=published, link=link)
    with staged_folder(options.output, holds="report") as folder:
        pictures = draw(folder, report, published)
        text = as_markdown(report, published, pictures=pictures)
        write_bytes(folder / "report.md", text.encode())
        write_bytes(folder / "scaling.csv", as_csv(report, published).encode())
    print(text.partition("\n## Published")[0].partition("\n![")[0].strip())
    if not pictures:
        print("no pictures: matplotlib is not installed")
    print(f"{options.output}: report.md, scaling.csv{''.join(f', {name}' for name in pictures)}")


def _estimate(options: argparse.Namespace) -> None:
    published = read_published()
    instance = published.instances[options.instance]
    price = instance.price_usd_per_hour if options.price is None else options.price
    found = estimate(
        sorted(set(options.nodes)),
        instance=instance,
        recipe=options.recipe,
        scaling=options.scaling,
        price=price,
    )
    said = f"{price:.2f} USD an hour and node, " + (
        f"on demand, {instance.price_date}, {instance.price_source}"
        if options.price is None
        else "as given"
    )
    print(
        as_text(
            found,
            published=published,
            instance=options.instance,
            recipe=options.recipe,
            scaling=options.scaling,
            price=said,
        )
    )


def _parser() -> argparse.ArgumentParser:
    published = read_published()
    parser = Parser(prog="python -m training.scaling", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    report = commands.add_parser("report", help="efficiency, time and cost of finished runs")
    report.set_defaults(action=_report)
    report.add_argument(
        "results",
        type=Path,
        nargs="+",
        metavar="RESULTS.json",
        help="of runs with different numbers of workers",
    )
    report.add_argument("--output", type=Path, required=True, help="new folder for the report")
    report.add_argument(
        "--link-gbps",
        type=_positive,
        metavar="GBIT",
        help="Gbit/s of all links of a node, for the model; known by itself on Trn1",
    )

    plan = commands.add_parser(
        "estimate", help=f"time and cost of pre-training {published.model} on some nodes"
    )
    plan.set_defaults(action=_estimate)
    plan.add_argument(
        "--nodes", type=int, nargs="+", required=True, metavar="N", help="one number or more"
    )
    plan.add_argument("--instance", choices=published.instances, default="trn1.32xlarge")
    plan.add_argument("--recipe", choices=read_recipes(), default="lamb")
    plan.add_argument(
        "--scaling",
        choices=("strong", "weak"),
        default="strong",
        help="strong: the recipe's batch, shared by all nodes; weak: that batch on each",
    )
    plan.add_argument(
        "--price",
        type=_positive,
        metavar="USD",
        help="an hour and node, where it is not the on-demand price",
    )
    return parser


def _positive(text: str) -> float:
    """A price or a speed, within what makes sense of either."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1e-6 <= value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0.000001 to 1,000,000")
    return value
