"""The compile job: the first steps of a run, for the programs that they make the compiler build."""

import shutil
import time
from pathlib import Path

from training.command import InputError
from training.core.stop import STOPPED
from training.slurm.compile_cache import shared_folder, waiting_lock
from training.slurm.job import Job, Signals, describe
from training.slurm.node import neuron_packages
from training.slurm.plan import read_plan
from training.slurm.status import newest_step

# The second step has the programs that the first one's new state leads to; a third proves it.
STEPS = 3
POLL = 0.5


def compile_programs(folder: Path, *, patience: float) -> int:
    """Compile what the run will need and share it; the exit code of the batch script.

    The ranks are those of the run, on as many nodes, since a program depends on their number. Of
    two such jobs at once, one waits, and finds then what the other one has compiled.

    Args:
        folder: of the run.
        patience: seconds that another job may compile for the same versions.

    Raises:
        InputError: the nodes are not fit, or the ranks have failed.
    """
    signals = Signals()
    plan = read_plan(folder)
    job = Job(plan)
    output = folder / f"compile-{job.number}"
    if problems := job.check():
        raise InputError(describe(problems))
    lock = shared_folder(Path(plan.cache), neuron_packages()) / ".compiling"
    with waiting_lock(lock, patience):
        if problems := job.prepare():
            raise InputError(describe(problems))
        work = Path(f"{output}.run")
        ranks = job.launch(output)
        try:
            while (code := ranks.poll()) is None:
                time.sleep(POLL)
                if newest_step(work) >= STEPS:
                    (work / "stop").touch()
                if signals.time_is_up or signals.ending:
                    job.end_ranks(ranks)
        finally:
            job.share_programs()
            shutil.rmtree(work, ignore_errors=True)
            shutil.rmtree(output, ignore_errors=True)
    if code not in (0, STOPPED):
        raise InputError(f"compiling ended with exit code {code}, see {job.logs}/rank-0.txt")
    return 0
