"""The command line of packaging: package, check, publish, fetch."""

import argparse
from pathlib import Path

from training.command import InputError, Parser, run
from training.packaging import vendor
from training.packaging.archive import COMPRESSOR
from training.packaging.inspection import problems
from training.packaging.package import INFERENCE, Request, package
from training.packaging.publish import publish, read_platform, s3_client

CACHE = Path(".cache/serving-wheels")


def main(arguments: list[str] | None = None) -> int:
    """Run a subcommand and return the exit code: 0, 2 for bad input, 130 for Ctrl-C."""
    options = _parser().parse_args(arguments)
    return run(lambda: options.action(options))


def _package(options: argparse.Namespace) -> None:
    none = options.serving_platform == "none"
    manifest = package(
        Request(
            model=options.model,
            results=options.results,
            output=options.output,
            model_name=options.model_name,
            inference=options.inference,
            platform=None if none else options.serving_platform,
            cache=options.cache,
            load_check=not options.skip_load_check,
        )
    )
    archive = manifest["archive"]
    print(f"{options.output / 'model.tar.gz'}: {archive['bytes'] / 1e6:.1f} MB, by {COMPRESSOR}")
    print(f"sha256 {archive['sha256']}")
    if options.skip_load_check:
        print("not loaded: the smoke labels come from the weights, not from the packed code")
    for smoke in manifest["smoke"]:
        print(f"  {smoke['label']:>8}  {smoke['text']}")


def _check(options: argparse.Namespace) -> None:
    if found := problems(options.archive):
        raise InputError(f"{options.archive}: {'; '.join(found)}")
    print(f"{options.archive}: the layout is right")


def _publish(options: argparse.Namespace) -> None:
    platform = read_platform(options.platform)
    published = publish(options.package, platform, s3=s3_client(platform))
    print(f"{published.url}{'' if published.uploaded else ' (was there already)'}")
    print(f"{published.manifest_url} (announces it)")


def _fetch(options: argparse.Namespace) -> None:
    folder = vendor.fetch(options.serving_platform, cache=options.cache)
    print(f"{folder}: {len(list(folder.glob('*.whl')))} wheels")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m training.packaging", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    pack = commands.add_parser("package", help="make model.tar.gz and manifest.json")
    pack.set_defaults(action=_package)
    pack.add_argument("--model", type=Path, required=True, help="folder of a fine-tuned model")
    pack.add_argument("--results", type=Path, required=True, help="results.json of its run")
    pack.add_argument("--output", type=Path, required=True, help="new folder for the package")
    pack.add_argument("--model-name", default="sentiment", help="name it is served under")
    pack.add_argument("--inference", type=Path, default=INFERENCE, help="code to serve it with")
    pack.add_argument(
        "--serving-platform",
        choices=(*vendor.PIP_PLATFORM, "none"),
        default="cp312-aarch64",
        help="pack transformers for this Python and processor; none where the image has it",
    )
    pack.add_argument("--cache", type=Path, default=CACHE, help=f"of wheels ({CACHE})")
    pack.add_argument(
        "--skip-load-check",
        action="store_true",
        help="do not load the finished archive, to rehearse a failure",
    )

    check = commands.add_parser("check", help="say what is wrong with an archive's layout")
    check.set_defaults(action=_check)
    check.add_argument("archive", type=Path)

    push = commands.add_parser("publish", help="upload a package to the model bucket")
    push.set_defaults(action=_publish)
    push.add_argument("--package", type=Path, required=True, help="folder of the package")
    push.add_argument("--platform", type=Path, required=True, help="platform.json of the cluster")

    fetch = commands.add_parser("fetch", help="download the serving packages into the cache")
    fetch.set_defaults(action=_fetch)
    fetch.add_argument("--serving-platform", choices=tuple(vendor.PIP_PLATFORM), required=True)
    fetch.add_argument("--cache", type=Path, default=CACHE, help=f"of wheels ({CACHE})")
    return parser
