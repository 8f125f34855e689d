"""The command line: vocabulary, build, check, reshard, pretrain."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from training.command import InputError, Parser, run
from training.core.settings import assign, build, parse_assignments
from training.core.stop import Stop

# Options that stand for a setting, in place of --set.
BUILD = {
    "vocabulary_size": "vocabulary_size",
    "sequence": "sequence",
    "predictions": "predictions",
    "copies": "copies",
    "shards": "shards",
    "documents": "documents",
    "seed": "seed",
}
PRETRAIN = {
    "text": "text",
    "data": "data",
    "output": "output",
    "vocab": "vocab",
    "start_from": "start_from",
    "platform": "platform",
    "epochs": "train.epochs",
    "max_steps": "train.max_steps",
    "batch_size": "train.batch_size",
    "learning_rate": "train.learning_rate",
    "seed": "train.seed",
    "device": "speed.device",
    "precision": "speed.precision",
    "compile": "speed.compile",
    "checkpoints": "checkpoint.folder",
}


def main(arguments: list[str] | None = None) -> int:
    """Do what a command says and return the exit code: 0, 2 for bad input, 75 after a stop.

    One of several workers of a training does not return: it ends its process.
    """
    options = _parser().parse_args(arguments)
    # Read when the libraries are imported, so set before that.
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    # Waiting threads that spin take the cores of those that work, where others use them too.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    action: Callable[[argparse.Namespace], int] = options.action
    code = 0

    def act() -> None:
        nonlocal code
        code = action(options)

    code = run(act) or code
    if code and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from training.core.backend import stop_hard

        stop_hard(code)
    return code


def _say(line: str) -> None:
    print(line, flush=True)


def _vocabulary(options: argparse.Namespace) -> int:
    from training.bert_pretraining.builder import make_vocabulary
    from training.bert_pretraining.corpus import find_texts
    from training.files import write_bytes

    settings = _build_settings(options)
    if options.output.exists():
        raise InputError(f"{options.output} is there already; give another --output")
    corpus = find_texts(options.text, documents=settings.documents)
    vocabulary = make_vocabulary(corpus, settings)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(options.output, vocabulary.content)
    _say(f"{options.output}: {len(vocabulary)} tokens")
    return 0


def _build(options: argparse.Namespace) -> int:
    from training.bert_pretraining.builder import Request, build_shards

    request = Request(
        texts=tuple(options.text),
        output=options.output,
        vocab=options.vocab,
        build=_build_settings(options),
        processes=options.processes,
        part=options.part,
        parts=options.parts,
    )
    build_shards(request, _say)
    return 0


def _check(options: argparse.Namespace) -> int:
    from training.bert_pretraining.checker import check_shards
    from training.bert_pretraining.vocabulary import FILE, read_vocabulary

    check_shards(options.data, read_vocabulary(options.vocab or options.data / FILE), _say)
    return 0


def _reshard(options: argparse.Namespace) -> int:
    from training.bert_pretraining.resharder import reshard

    reshard(options.data, options.output, count=options.shards, say=_say)
    return 0


def _pretrain(options: argparse.Namespace) -> int:
    from training.bert_pretraining.settings import read_settings

    settings = read_settings(_given(options, PRETRAIN), options.settings)
    if settings.text is not None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise InputError("--text is for one worker; build the shards first, and give --data")
        from training.bert_pretraining.builder import Request, build_shards
        from training.files import check_free

        check_free(Path(settings.output), holds="model")
        build_shards(
            Request(
                texts=(Path(settings.text),),
                output=settings.shards,
                vocab=Path(settings.vocab) if settings.vocab else None,
                build=settings.build,
                processes=os.cpu_count() or 1,
            ),
            _say,
        )
    with Stop() as stop:
        # Seconds of imports, which a wrong argument need not wait for.
        from training.bert_pretraining.pretrain import pretrain

        return pretrain(settings, stop)


def _build_settings(options: argparse.Namespace) -> Any:
    from training.bert_pretraining.settings import Build

    return build(Build, _given(options, BUILD))


def _given(options: argparse.Namespace, short: dict[str, str]) -> dict[str, Any]:
    """Nested settings from --set and the options that were given; the options win."""
    given = parse_assignments(options.set)
    for name, path in short.items():
        if (value := getattr(options, name, None)) is not None:
            assign(given, path, value)
    return given


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m training.bert_pretraining")
    parser.description = "Pre-train BERT: from plain text to shards, from shards to a model."
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, action, fill, meaning in (
        (
            "vocabulary",
            _vocabulary,
            _add_vocabulary,
            "learn a WordPiece vocabulary from plain text",
        ),
        ("build", _build, _add_build, "make shards from plain text; goes on after a kill"),
        ("check", _check, _add_check, "read all shards and tell everything that is wrong"),
        ("reshard", _reshard, _add_reshard, "write shards anew in another number of files"),
        ("pretrain", _pretrain, _add_pretrain, "train; goes on after a stop or a kill"),
    ):
        command = commands.add_parser(name, help=meaning, description=f"{meaning.capitalize()}.")
        command.set_defaults(action=action)
        fill(command.add_argument)
    return parser


def _add_texts(add: Callable[..., Any]) -> None:
    add("--text", type=Path, nargs="+", required=True, metavar="PLACE", help="files or folders")
    add("--documents", choices=("file", "blank-line"), help="what a document is (file)")
    add("--vocabulary-size", type=int, help="tokens to learn (8192)")
    _add_set(add)


def _add_vocabulary(add: Callable[..., Any]) -> None:
    _add_texts(add)
    add("--output", type=Path, required=True, help="new file vocab.txt")


def _add_build(add: Callable[..., Any]) -> None:
    _add_texts(add)
    add("--output", type=Path, required=True, help="folder for the shards")
    add("--vocab", type=Path, help="vocab.txt; else one is learnt")
    add("--sequence", type=int, help="tokens a sample (128)")
    add("--predictions", type=int, help="most tokens to predict a sample (20)")
    add("--copies", type=int, help="times that the text is masked anew (5)")
    add("--shards", type=int, help="files to make (8)")
    add("--seed", type=int, help="of all chance (12345)")
    add("--processes", type=int, default=os.cpu_count() or 1, help="at a time (one a core)")
    add("--part", type=int, default=0, help="share of this machine among --parts, from 0")
    add("--parts", type=int, default=1, help="machines that share the work (1)")


def _add_check(add: Callable[..., Any]) -> None:
    add("data", type=Path, metavar="SHARDS", help="folder of shards")
    add("--vocab", type=Path, help="vocab.txt; else that beside the shards")


def _add_reshard(add: Callable[..., Any]) -> None:
    add("data", type=Path, metavar="SHARDS", help="folder of shards")
    add("--output", type=Path, required=True, help="new folder for the shards")
    add("--shards", type=int, required=True, help="files to make")


def _add_pretrain(add: Callable[..., Any]) -> None:
    add("--text", help="plain text to build the shards from, a file or folder")
    add("--data", help="folder of shards; with --text, where they are built (OUTPUT.shards)")
    add("--output", help="new folder for the model")
    add("--vocab", help="vocab.txt; else that beside the shards")
    add("--start-from", help="folder of a BERT to go on from, of phase 1 say")
    add("--settings", metavar="RECIPE", help="a recipe by its name, or a TOML file")
    _add_set(add)
    add("--epochs", type=int, help="passes over the data")
    add("--max-steps", type=int, help="batches, in place of epochs")
    add("--batch-size", type=int, help="samples a step, over all workers")
    add("--learning-rate", type=float, help="at its peak")
    add("--seed", type=int, help="of weights, order and dropout")
    add("--device", choices=("auto", "cpu", "cuda", "xla"), help="what computes")
    add("--precision", choices=("auto", "bf16", "fp32"), help="of the forward pass")
    add("--compile", action=argparse.BooleanOptionalAction, help="torch.compile, for a GPU")
    add("--checkpoints", metavar="PLACE", help="a folder, or s3://bucket/prefix")
    add("--platform", metavar="FILE", help="platform.json, where it is not /etc/ultracluster's")


def _add_set(add: Callable[..., Any]) -> None:
    add(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one setting; may be repeated",
    )
