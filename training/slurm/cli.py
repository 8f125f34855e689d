"""The command line: submit a run, see how it stands, and what its jobs call on their nodes."""

import argparse
import json
import os
import shutil
import socket
import sys
from pathlib import Path

from training.command import InputError, Parser, run
from training.slurm.compile import compile_programs
from training.slurm.compile_cache import fetch, shared_folder
from training.slurm.job import cache_folder
from training.slurm.node import look, neuron_packages, problems_of
from training.slurm.plan import Plan, folder_of, read_plan
from training.slurm.show import show
from training.slurm.staging import hydrate, stage
from training.slurm.submit import Request, submit
from training.slurm.supervise import train

COMPILE_PATIENCE = 3600
HYDRATE_PATIENCE = 1800


def main(arguments: list[str] | None = None) -> int:
    """Run a subcommand and return its exit code: 0, 2 for bad input, or what the run ended with."""
    options = _parser().parse_args(arguments)
    code = 0

    def action() -> None:
        nonlocal code
        code = options.action(options) or 0

    return run(action) or code


def _submit(options: argparse.Namespace) -> None:
    if not options.module:
        raise InputError(
            "give a module to run after the options, such as training.roberta_sentiment"
        )
    plan = Plan(
        output=str(options.output.resolve()),
        module=options.module,
        python=sys.executable,
        nodes=options.nodes,
        ranks_per_node=options.ranks_per_node,
        network=options.network,
        retries=options.retries,
        back_off=options.back_off,
        stuck_after=options.stuck_after,
        cache=str(options.cache.resolve()),
        scratch=str(options.scratch),
        stage=[str(path.resolve()) for path in options.stage],
    )
    jobs = submit(
        Request(
            plan=plan,
            time=options.time,
            notice=options.notice,
            partition=options.partition,
            helper_partition=options.helper_partition,
            hydrate=[str(path.resolve()) for path in options.hydrate],
            compile=options.compile,
            publish=options.publish,
            platform=str(options.platform.resolve()),
        )
    )
    for name, number in jobs.items():
        print(f"{name:<8} job {number}")
    print(f"status and logs are in {plan.folder}; python -m training.slurm status {plan.output}")


def _status(options: argparse.Namespace) -> None:
    print(show(folder_of(options.output.resolve())), end="")


def _train(options: argparse.Namespace) -> int:
    return train(options.folder)


def _compile(options: argparse.Namespace) -> int:
    return compile_programs(options.folder, patience=COMPILE_PATIENCE)


def _hydrate(options: argparse.Namespace) -> None:
    print(f"fetched {hydrate(options.paths, patience=HYDRATE_PATIENCE)} files from S3")


def _node(options: argparse.Namespace) -> None:
    """Tell the batch script, in one line, what is wrong with this node."""
    plan = read_plan(options.folder)
    problems = []
    try:
        if options.what == "check":
            problems = problems_of(plan, look())
        else:
            _prepare(plan)
    except InputError as error:
        problems = [str(error)]
    name = os.environ.get("SLURMD_NODENAME", socket.gethostname())
    print(json.dumps({"node": name, "problems": problems}), flush=True)


def _prepare(plan: Plan) -> None:
    private = cache_folder(plan, int(os.environ["SLURM_JOB_ID"]))
    for old in private.parent.glob("cache-*"):  # of jobs before: nodes are for one job at a time
        if old != private:
            shutil.rmtree(old, ignore_errors=True)
    count = fetch(shared_folder(Path(plan.cache), neuron_packages()), private)
    print(f"{count} programs from the compile cache {plan.cache}", file=sys.stderr)
    for path in plan.stage:
        print(f"{path} is at {stage(Path(path), Path(plan.scratch))}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m training.slurm", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    send = commands.add_parser("submit", help="submit a run, from a node that has sbatch")
    send.set_defaults(action=_submit)
    add = send.add_argument
    add("--output", type=Path, required=True, help="new folder for the model")
    add("--nodes", type=int, required=True)
    add("--time", required=True, help="limit of each start: hours:minutes:seconds, days-hours")
    add("--partition", help="Slurm's default one without")
    add("--helper-partition", metavar="NAME", help="for jobs that need no accelerator")
    add("--ranks-per-node", type=int, help="one a NeuronCore or GPU without")
    add("--network", choices=("auto", "efa", "tcp"), default="auto", help="what ranks talk by")
    add("--notice", type=int, default=300, help="seconds for the last checkpoint (300)")
    add(
        "--retries",
        type=int,
        default=3,
        help="starts in a row that may fail and get no further (3)",
    )
    add("--back-off", type=int, default=120, help="seconds after such a start, then doubled (120)")
    add("--stuck-after", type=float, default=30.0, help="minutes without a step (30)")
    add("--cache", type=Path, default=Path("/fsx/cache/neuron"), help="of compiled programs")
    add("--scratch", type=Path, default=Path("/scratch"), help="the nodes' own disk (/scratch)")
    add("--stage", type=Path, action="append", default=[], help="copy this to the nodes' own disk")
    add("--hydrate", type=Path, action="append", default=[], help="fetch this from S3 first")
    add("--compile", action="store_true", help="compile in a job before the training")
    add("--publish", action="store_true", help="package and publish in a job after it")
    add("--platform", type=Path, default=Path("/etc/ultracluster/platform.json"))
    add("module", nargs=argparse.REMAINDER, help="the training module and its arguments")

    tell = commands.add_parser("status", help="how a run stands, and why it waits")
    tell.set_defaults(action=_status)
    tell.add_argument("output", type=Path)

    for name, action in (("train", _train), ("compile", _compile)):
        inner = commands.add_parser(name, help=f"the batch script {name}.sbatch")
        inner.set_defaults(action=action)
        inner.add_argument("folder", type=Path)
    fetcher = commands.add_parser("hydrate", help="the batch script hydrate.sbatch")
    fetcher.set_defaults(action=_hydrate)
    fetcher.add_argument("paths", type=Path, nargs="+")
    node = commands.add_parser("node", help="what each node of a job does first")
    node.set_defaults(action=_node)
    node.add_argument("what", choices=("check", "prepare"))
    node.add_argument("folder", type=Path)
    return parser
