"""Submits the jobs of a run, each after the one before it has ended well."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

from training.command import InputError
from training.core.settings import parse_assignments, read_toml
from training.files import check_free, locked
from training.slurm.plan import Plan, problems_of
from training.slurm.scheduler import ask, in_queue, nodes_of
from training.slurm.status import read_jobs, read_status, write_jobs

HERE = Path(__file__).parent
CODE = HERE.parents[1]


@dataclass(frozen=True, kw_only=True)
class Request:
    """A plan, and what its jobs are told beside it.

    Attributes:
        time: limit of each start, in one of sbatch's forms.
        notice: seconds before the limit at which a start writes its last checkpoint.
        partition: None for Slurm's default one.
        helper_partition: for the jobs that need no accelerator; None for the same.
        hydrate: files and folders that are linked to S3.
        compile: whether a job before the training compiles its programs.
        publish: whether a job after it packages and publishes the model.
        platform: platform.json for the publishing.
    """

    plan: Plan
    time: str
    notice: int
    partition: str | None
    helper_partition: str | None
    hydrate: list[str]
    compile: bool
    publish: bool
    platform: str


def submit(request: Request) -> dict[str, int]:
    """Submit a run; the number of each of its jobs.

    Raises:
        InputError: names everything that is wrong; nothing was submitted.
    """
    plan = request.plan
    if problems := _problems(request):
        raise InputError("; ".join(problems))
    check_free(Path(plan.output), holds="model")
    try:
        (plan.folder / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {plan.folder}: {error.strerror}") from error
    refusal = f"{plan.output} is just being submitted by somebody else"
    with locked(plan.folder / "lock", refusal=refusal):
        _refuse_second(plan)
        plan.save()
        return _chain(request)


def _problems(request: Request) -> list[str]:
    """What can be known to be wrong before Slurm is asked for nodes."""
    plan = request.plan
    problems = problems_of(plan, time=request.time, notice=request.notice)
    problems += [
        f"--hydrate {path} does not exist" for path in request.hydrate if not Path(path).exists()
    ]
    if request.publish and not Path(request.platform).is_file():
        problems.append(
            f"--platform {request.platform} does not exist: publishing needs its bucket"
        )
    problems += _module_problems(plan.module)
    for partition in {request.partition, request.helper_partition or request.partition}:
        found = nodes_of(partition)
        if found is None:
            problems.append(
                f"no partition {partition}; see sinfo"
                if partition
                else "give --partition: Slurm has no default one"
            )
        elif partition == request.partition and found[1] < plan.nodes:
            problems.append(f"partition {found[0]} has {found[1]} nodes, --nodes is {plan.nodes}")
    return problems


def _module_problems(module: Sequence[str]) -> list[str]:
    """A module that is not there, and settings that cannot be read."""
    name, *arguments = module
    problems = []
    try:
        found = find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is None:
        problems.append(f"no module {name}; give one such as training.roberta_sentiment")
    if any(word.partition("=")[0] == "--output" for word in arguments):
        problems.append("--output stands before the module, and is handed on to it")
    for option, value in itertools.pairwise(arguments):
        try:
            if option == "--settings":
                read_toml(_recipe(value, found))
            elif option == "--set":
                parse_assignments([value])
        except InputError as error:
            problems.append(str(error))
    return problems


def _recipe(value: str, module: ModuleSpec | None) -> Path:
    """The file that `--settings` means: a file, or the name of one of the module's recipes.

    Raises:
        InputError: the module has no such recipe; names those that it has.
    """
    places = (module and module.submodule_search_locations) or []
    recipes = {path.stem: path for place in places for path in Path(place).glob("recipes/*.toml")}
    path = Path(value)
    if path.suffix == ".toml" or path.exists() or not recipes:
        return path
    if value not in recipes:
        raise InputError(f"no recipe {value!r}; known: {', '.join(sorted(recipes))}, or a file")
    return recipes[value]


def _refuse_second(plan: Plan) -> None:
    """Refuse a run whose jobs still wait or run."""
    if queued := in_queue(read_jobs(plan.folder).values()):
        told = ", ".join(f"{job} ({state})" for job, state in queued.items())
        status = read_status(plan.folder)
        raise InputError(
            f"{plan.output} has jobs in the queue: {told}; "
            f"{f'it is at step {status.step}; ' if status else ''}scancel them first, or wait"
        )


def _chain(request: Request) -> dict[str, int]:
    """Submit each job after the one before; all or none."""
    plan = request.plan
    run = (plan.python, str(CODE), str(plan.folder))
    size = (f"--nodes={plan.nodes}", f"--time={request.time}", *_partition(request.partition))
    helper = _partition(request.helper_partition or request.partition)
    jobs: list[tuple[str, Sequence[str], Sequence[str]]] = []
    if request.hydrate:
        jobs.append(("hydrate", helper, (plan.python, str(CODE), *request.hydrate)))
    if request.compile:
        jobs.append(("compile", size, run))
    jobs.append(("train", (*size, f"--signal=B:USR1@{request.notice}"), run))
    if request.publish:
        arguments = (plan.python, str(CODE), plan.output, request.platform)
        jobs.append(("publish", helper, arguments))
    numbers: dict[str, int] = {}
    before = read_jobs(plan.folder)
    try:
        for name, options, given in jobs:
            after = (f"--dependency=afterok:{[*numbers.values()][-1]}",) if numbers else ()
            log = plan.folder / "logs" / f"{name}-%j.txt"
            told = ask(
                *("sbatch", "--parsable", f"--job-name={name}-{Path(plan.output).name}"),
                *(f"--output={log}", f"--chdir={Path.cwd()}", *options, *after),
                *(str(HERE / f"{name}.sbatch"), *given),
            )
            numbers[name] = _number(told)
            write_jobs(plan.folder, numbers)
    except BaseException:  # Ctrl-C too
        if numbers:
            ask("scancel", *map(str, numbers.values()))
            write_jobs(plan.folder, before)
        raise
    return numbers


def _number(told: str) -> int:
    """The job in what `sbatch --parsable` says: a number, and a cluster's name perhaps.

    Raises:
        InputError: there is none.
    """
    number = told.strip().partition(";")[0]
    if not number.isdecimal():
        raise InputError(f"sbatch says {told.strip()!r}, and no Slurm that is known does")
    return int(number)


def _partition(name: str | None) -> tuple[str, ...]:
    return (f"--partition={name}",) if name else ()
