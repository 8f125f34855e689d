"""One start of a run: check the nodes, start the ranks, watch them, and decide what comes next."""

import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from training.command import InputError
from training.core.stop import STOPPED
from training.slurm.job import NO_ANSWER, Job, Signals, describe
from training.slurm.plan import Plan, read_plan
from training.slurm.scheduler import ask, nodes_of
from training.slurm.status import Status, newest_step, read_status, stamp, write_status

BAD_INPUT = 2
POLL = 1.0
WRITE_EVERY = 10.0
LONGEST_BACK_OFF = 3600
REQUEUE_TRIES = (5, 15, 30, 60, 120, None)  # seconds to wait before the next
TIME_LIMIT = "the time limit was near"


def train(folder: Path) -> int:
    """Run the training of a plan; the exit code of the batch script.

    Started again by Slurm after a lost node, and by itself after a time limit or a failure.

    Raises:
        InputError: the plan or Slurm cannot be read.
    """
    signals = Signals()
    plan = read_plan(folder)
    return Start(plan, Job(plan), signals).run()


class Start:
    """One start."""

    def __init__(self, plan: Plan, job: Job, signals: Signals) -> None:
        self._plan, self._job, self._signals = plan, job, signals
        self._begun = self._written = time.monotonic()
        before = read_status(plan.folder) or Status()
        again = before.job == job.number
        self._not_yet = again and (before.not_before or "") > stamp()
        if not self._not_yet:
            before = _settle(before, newest_step(plan.work), again=again)
        self._hours = before.node_hours
        self._status = replace(
            before,
            job=job.number,
            restart=job.restart,
            nodes=job.node_list,
            ranks=job.ranks,
            starts=[
                *({"ended": before.updated, "end": before.reason} | one for one in before.starts),
                {"restart": job.restart, "nodes": job.node_list, "begun": stamp()},
            ],
        )

    def run(self) -> int:
        """See it through to the end of this start."""
        status, plan = self._status, self._plan
        if self._not_yet:
            return self._again(status.reason)
        if status.failures > plan.retries:
            return self._finish("failed", f"{status.failures} starts in a row: {status.reason}", 1)
        if status.reason == TIME_LIMIT:  # ranks that were killed have left it
            (plan.work / "stop").unlink(missing_ok=True)
        self._write(state="preparing", reason="", not_before=None)
        for look in (self._job.check, self._job.prepare):
            problems = look()
            if self._signals.ending:
                return self._cancelled()
            if problems:
                return self._unfit(problems)
        print(
            f"start {self._job.restart} of job {self._job.number}: {self._job.ranks} ranks on "
            f"{self._job.node_list}, logs in {self._job.logs}",
            flush=True,
        )
        try:
            ranks = self._job.launch(Path(plan.output))
        except InputError as error:
            return self._failed(str(error), {})
        code, stuck = self._watch(ranks)
        try:
            self._write(compile_cache=self._job.share_programs())
        except (InputError, OSError) as error:  # the next start compiles again, and that is all
            print(f"no programs shared: {error}", flush=True)
        return self._decide(code, stuck)

    def _watch(self, ranks: subprocess.Popen[bytes]) -> tuple[int, bool]:
        """Wait for the ranks; their exit code, and whether they were stuck and ended for it."""
        self._write(state="running")
        seen, moved, asked = None, time.monotonic(), False
        while (code := ranks.poll()) is None:
            time.sleep(POLL)
            if (now := self._signs()) != seen:
                seen, moved = now, time.monotonic()
            if time.monotonic() - self._written > WRITE_EVERY:
                self._write()
            if self._signals.time_is_up and not asked:
                asked = True
                self._write(reason=TIME_LIMIT)
                self._plan.work.mkdir(exist_ok=True)
                (self._plan.work / "stop").touch()
            if time.monotonic() - moved > self._plan.stuck_after * 60:
                print(f"no step for {self._plan.stuck_after:g} minutes", flush=True)
                self._job.end_ranks(ranks)
                return ranks.returncode, True
        return code, False

    def _signs(self) -> list[tuple[int, int]]:
        """What changes while the first rank lives: its steps and its words."""
        signs = []
        for path in (self._plan.work / "steps.csv", self._job.logs / "rank-0.txt"):
            try:
                facts = path.stat()
            except OSError:
                continue
            signs.append((facts.st_size, facts.st_mtime_ns))
        return signs

    def _decide(self, code: int, stuck: bool) -> int:
        """What comes after the ranks have ended."""
        step = newest_step(self._plan.work)
        if code == 0:
            return self._finish("done", "", 0)
        if self._signals.ending:
            return self._cancelled()
        if code == STOPPED and self._signals.time_is_up:
            self._write(furthest=max(step, self._status.furthest), failures=0)
            return self._again(TIME_LIMIT)
        if code == STOPPED:
            return self._finish("stopped", "asked for; submit the same run to go on", code)
        first = max(step, self._status.furthest) == 0 and self._job.restart == 0
        if code == BAD_INPUT and first:
            return self._finish("failed", f"see {self._job.logs}/rank-0.txt", code)
        reason = f"no step for {self._plan.stuck_after:g} minutes" if stuck else f"exit code {code}"
        return self._failed(f"{reason}, see {self._job.logs}", self._job.check())

    def _unfit(self, problems: Mapping[str, list[str]]) -> int:
        """Some nodes are not fit. What all of them lack, no other choice of nodes will have."""
        silent = any(NO_ANSWER in found for found in problems.values())
        if len(problems) == len(self._job.nodes) and not silent:
            return self._finish("failed", describe(problems), 1)
        return self._failed("nodes are not fit", problems)

    def _failed(self, reason: str, problems: Mapping[str, list[str]]) -> int:
        """Count a failure, leave bad nodes out, and start again where the budget allows it."""
        if problems:
            reason = f"{reason}; {describe(problems)}"
        self._status = _settle(replace(self._status, reason=reason), newest_step(self._plan.work))
        failures = self._status.failures
        if failures > self._plan.retries:
            return self._finish("failed", f"{failures} starts in a row: {reason}", 1)
        wait = self._plan.back_off * 2 ** max(0, failures - 1)
        self._write(
            excluded=self._leave_out(problems),
            not_before=stamp(timedelta(seconds=min(wait, LONGEST_BACK_OFF))),
        )
        return self._again(reason)

    def _leave_out(self, problems: Mapping[str, list[str]]) -> dict[str, str]:
        """Who is left out next, unless too few nodes would be left."""
        excluded = self._status.excluded_with(problems)
        partition = nodes_of(os.environ.get("SLURM_JOB_PARTITION"))
        if partition and partition[1] - len(excluded) < len(self._job.nodes):
            print(f"too few other nodes in {partition[0]} to leave any out", flush=True)
            return {}
        return excluded

    def _again(self, reason: str) -> int:
        """Have Slurm start this job again; it ends this process on the way."""
        if self._signals.ending:
            return self._cancelled()
        self._close(reason)
        self._write(state="waiting", reason=reason)
        print(f"starting again: {reason}", flush=True)
        try:
            self._requeue()
        except InputError as error:
            return self._finish("failed", f"{reason}; {error}; submit the same run to go on", 1)
        return STOPPED

    def _requeue(self) -> None:
        """Ask Slurm to start this job again; its controller may be away for a while itself.

        Raises:
            InputError: it will not.
        """
        number = str(self._job.number)
        for delay in REQUEUE_TRIES:
            try:
                ask("scontrol", "requeue", number)
                break
            except InputError as error:
                if self._signals.ending:  # it had heard all the same
                    break
                if delay is None:
                    raise
                print(f"{error}; once more in {delay} s", flush=True)
                time.sleep(delay)
        # From here on Slurm is ending this job, and takes its time for what ignores SIGTERM.
        nodes = ",".join(self._status.excluded)
        try:
            ask("scontrol", "update", f"JobId={number}", f"ExcNodeList={nodes}")
        except InputError as error:
            print(f"no node is left out: {error}", flush=True)

    def _cancelled(self) -> int:
        """Slurm has ended this job. To requeue one that a person has cancelled would revive it."""
        return self._finish("stopped", "the job was cancelled, or Slurm starts it again", STOPPED)

    def _finish(self, state: str, reason: str, code: int) -> int:
        """The last words of a run."""
        self._close(reason or state)
        self._write(state=state, reason=reason)
        print(f"{state}{': ' if reason else ''}{reason}", flush=True)
        return code

    def _close(self, reason: str) -> None:
        """Complete the entry of this start."""
        step = newest_step(self._plan.work) or self._status.step
        last = self._status.starts[-1] | {"ended": stamp(), "step": step, "end": reason}
        self._status = replace(self._status, starts=[*self._status.starts[:-1], last])

    def _write(self, **changes: Any) -> None:
        """Write the status with the time and the money so far.

        Raises:
            InputError: a later start has taken over, which a node that was cut off does not know.
        """
        found = read_status(self._plan.folder) or Status()
        mine = (self._job.number, self._job.restart)
        if (found.job, found.restart) > mine:
            raise InputError(f"start {found.restart} of job {found.job} has taken over")
        self._written = time.monotonic()
        hours = len(self._job.nodes) * (self._written - self._begun) / 3600 + self._hours
        price = self._job.node.price
        step = newest_step(self._plan.work) or self._status.step
        usd = round(hours * price, 2) if price is not None else None
        self._status = replace(
            self._status,
            **({"step": step, "node_hours": round(hours, 4), "usd": usd} | changes),
        )
        try:
            write_status(self._plan.folder, self._status)
        except OSError as error:  # a full disk, which must not end ranks that train
            print(f"cannot write the status: {error}", flush=True)


def _settle(before: Status, step: int, *, again: bool = True) -> Status:
    """A status with the start that has ended in its count of failures.

    A start that got further than any before it starts the count anew; one that had told that it
    waits is counted already; a job that was submitted anew begins with none.
    """
    furthest = max(before.furthest, before.step, step)
    if not again:
        return replace(before, failures=0, furthest=furthest, excluded={}, reason="")
    if before.state == "waiting":
        return before
    failures = 0 if furthest > before.furthest else before.failures + 1
    reason = before.reason or "a node was lost, or somebody had Slurm start the job again"
    return replace(before, failures=failures, furthest=furthest, reason=reason)
