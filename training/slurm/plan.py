"""What a run was asked to be, kept beside its output for every start of it."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from training.command import InputError
from training.files import write_json

Network = Literal["auto", "efa", "tcp"]

MOST_NODES = 10_000
# sbatch's own forms: minutes, minutes:seconds, hours:minutes:seconds, and with days before a dash.
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_TIME_FORMS = "minutes, hours:minutes:seconds, days-hours or days-hours:minutes:seconds"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run. Folders are absolute and, but for `scratch`, on a file system that all nodes share.

    Attributes:
        output: the folder that the training module makes.
        module: the module to run and its arguments, without `--output`.
        python: the interpreter of every rank.
        nodes: machines.
        ranks_per_node: None for one a NeuronCore or GPU, or one where there is neither.
        network: auto is EFA where the instance type and the queue have it.
        retries: starts in a row that may fail without a step further than before.
        back_off: seconds before the second of such starts; doubled for each one after it.
        stuck_after: minutes without a step after which ranks count as stuck.
        cache: compiled programs of all runs.
        scratch: the node's own disk.
        stage: files or folders that each node copies to its own disk.
    """

    output: str
    module: list[str]
    python: str
    nodes: int
    ranks_per_node: int | None
    network: Network
    retries: int
    back_off: int
    stuck_after: float
    cache: str
    scratch: str
    stage: list[str]

    @property
    def folder(self) -> Path:
        """Where plan, status and logs are."""
        return folder_of(Path(self.output))

    @property
    def work(self) -> Path:
        """Where the training module keeps its state while it runs."""
        return Path(f"{self.output}.run")

    def save(self) -> None:
        """Write the plan into its folder."""
        write_json(self.folder / "plan.json", asdict(self))


def folder_of(output: Path) -> Path:
    """The folder of plan, status and logs of a run.

    Raises:
        InputError: the output is the root of all.
    """
    if not output.name:
        raise InputError(f"{output} is no folder that a run can make")
    return output.with_name(f"{output.name}.slurm")


def read_plan(folder: Path) -> Plan:
    """The plan of a run.

    Raises:
        InputError: there is none, or another version has written it.
    """
    try:
        return Plan(**json.loads((folder / "plan.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"cannot read {folder / 'plan.json'}: {error}") from error


def minutes_of(text: str) -> int | None:
    """A time limit in minutes, rounded up; None where it is none of sbatch's forms."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    days, *rest = found.groups()
    parts = [int(part) for part in rest if part is not None]
    if days is None:
        if len(parts) == 3:
            hours, minutes, seconds = parts
        else:
            hours, (minutes, seconds) = 0, (*parts, 0)[:2]
    else:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    whole = int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds
    return -(-whole // 60)


def problems_of(plan: Plan, *, time: str, notice: int) -> list[str]:
    """Everything about a plan that is wrong on any cluster."""
    problems = []
    if odd := sorted(set(plan.output) & set("%\\\n")):
        problems.append(
            f"--output {plan.output!r} has {' '.join(map(repr, odd))}, which means something else "
            "in Slurm's names of logs"
        )
    if not 1 <= plan.nodes <= MOST_NODES:
        problems.append(f"--nodes is {plan.nodes}, needs to be 1 to {MOST_NODES}")
    if plan.ranks_per_node is not None and plan.ranks_per_node < 1:
        problems.append(f"--ranks-per-node is {plan.ranks_per_node}, needs to be 1 or more")
    if plan.retries < 0:
        problems.append(f"--retries is {plan.retries}, needs to be 0 or more")
    if plan.back_off < 0:
        problems.append(f"--back-off is {plan.back_off}, needs to be 0 or more seconds")
    if not plan.stuck_after > 0:
        problems.append(f"--stuck-after is {plan.stuck_after}, needs to be above 0 minutes")
    if notice < 60:
        problems.append(f"--notice is {notice}, needs to be 60 or more: Slurm looks once a minute")
    if not (minutes := minutes_of(time)):
        problems.append(f"--time is {time!r}, needs to be {_TIME_FORMS}, and above 0")
    elif minutes * 60 < notice + 60:
        problems.append(
            f"--time {time} leaves no time to train before the {notice} s of --notice that the "
            "last checkpoint gets"
        )
    problems += [f"--stage {path} does not exist" for path in plan.stage if not Path(path).exists()]
    return problems
