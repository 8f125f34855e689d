"""All orders in which announcements, functions and CloudFormation can take turns.

A `Moment` is everything that a delivery knows and has asked for; `after(moment, turn)` is a pure
function to the next one. In between, the real functions run in the real state machine over
in-memory services, which are set to the moment first.
"""

from __future__ import annotations

import copy
import functools
import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tests.unit.lambdas.account import Account
from tests.unit.lambdas.asl import Execution
from tests.unit.lambdas.fakes import Stored
from tests.unit.lambdas.models import BUCKET

# They grow while nothing else changes; each names a call to CloudFormation once.
_COUNTS = ("turns", "looks", "rollBackTurns", "rollBackLooks")
_NUMBERED = re.compile(r"(-(?:out|back)-)\d+")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One execution between two tasks."""

    event: dict[str, Any]
    at: str
    data: Any
    variables: dict[str, Any]
    status: str = "RUNNING"


@dataclass(frozen=True, kw_only=True)
class Update:
    """An update that CloudFormation accepted."""

    token: str
    leaves: str
    target: str


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What is there at one time; never changed."""

    runs: tuple[Run, ...]
    platform: dict[str, Any]
    verdicts: dict[str, bytes] = field(default_factory=dict)
    messages: tuple[str, ...] = ()
    updates: tuple[Update, ...] = ()
    deaths: int = 0
    deploys: int = 0

    @property
    def done(self) -> bool:
        """Whether nothing more will happen by itself."""
        going = any(run.status == "RUNNING" for run in self.runs)
        return not going and not self.platform["status"].endswith("_IN_PROGRESS")

    @property
    def key(self) -> str:
        """Equal for moments from which the same can follow."""
        runs = [
            (run.at, run.status, {k: v for k, v in run.variables.items() if k not in _COUNTS})
            for run in self.runs
        ]
        verdicts = {
            digest: {k: v for k, v in json.loads(content).items() if k != "recorded"}
            for digest, content in self.verdicts.items()
        }
        told = [message.partition("\n")[0] for message in self.messages]
        whole = (runs, self.platform, verdicts, told, self.deaths, self.deploys)
        return _NUMBERED.sub(r"\1n", json.dumps(whole, sort_keys=True))


Turn = tuple[str, int]


class World:
    """The account that moments are played in.

    Args:
        account: with the models published.
        deaths: how many functions may be killed, before or after what they do.
        deploys: how many times a person may deploy other settings of the endpoint.
    """

    def __init__(self, account: Account, *, deaths: int, deploys: int) -> None:
        self._account = account
        self._deaths = deaths
        self._deploys = deploys
        self._killed = ""

    def first(self, *events: dict[str, Any]) -> Moment:
        """The account as it is, and an execution for each announcement, before its first task."""
        runs = [
            _Stepper(self._account, event, f"run_{number}").to_the_next_task()
            for number, event in enumerate(events, start=1)
        ]
        return Moment(
            runs=tuple(runs),
            platform=copy.deepcopy(vars(self._account.platform)),
            verdicts=self._verdicts(),
        )

    def turns(self, moment: Moment) -> Iterator[Turn]:
        """What can happen next."""
        for index, run in enumerate(moment.runs):
            if run.status == "RUNNING":
                yield "go on", index
                if moment.deaths < self._deaths:
                    yield "die before", index
                    yield "die after", index
        busy = moment.platform["status"].endswith("_IN_PROGRESS")
        if busy:
            yield "cloudformation", 0
        elif moment.deploys < self._deploys:
            yield "deploy", 0
        if moment.platform["alarm"] == "ALARM" and not busy:
            yield "the alarm falls silent", 0

    def after(self, moment: Moment, turn: Turn) -> Moment:
        """The moment that follows."""
        what, index = turn
        self._set(moment)
        if what == "cloudformation":
            self._account.platform.tick()
            return self._moment(moment)
        if what == "deploy":
            self._account.platform.begin(self._account.platform.url, "of-a-person")
            return self._moment(replace(moment, deploys=moment.deploys + 1))
        if what == "the alarm falls silent":
            self._account.platform.alarm = "OK"
            return self._moment(moment)
        self._killed = what.partition(" ")[2] if what.startswith("die") else ""
        stepper = _Stepper(self._account, moment.runs[index].event, f"run_{index + 1}")
        run = stepper.step(moment.runs[index], self._mortal)
        runs = (*moment.runs[:index], run, *moment.runs[index + 1 :])
        deaths = moment.deaths + what.startswith("die")
        return self._moment(replace(moment, runs=runs, deaths=deaths))

    def _mortal(self, task: Callable[[Any], Any], event: Any) -> Any:
        """Call a function, and lose it once before or after that."""
        when, self._killed = self._killed, ""
        if when == "before":
            raise RuntimeError("the function was killed")
        answer = task(event)
        if when == "after":
            raise RuntimeError("the function was killed")
        return answer

    def _set(self, moment: Moment) -> None:
        vars(self._account.platform).update(copy.deepcopy(moment.platform))
        objects = self._account.s3.objects
        for place in [place for place in objects if place[1].startswith("verdicts/")]:
            del objects[place]
        for key, content in moment.verdicts.items():
            objects[BUCKET, key] = Stored(content)
        for service in (self._account.sns, self._account.cloudformation):
            service.calls.clear()

    def _moment(self, moment: Moment) -> Moment:
        leaves = moment.platform["url"]
        updates = [
            Update(
                token=request["ClientRequestToken"],
                leaves=leaves,
                target=request["Parameters"][0]["ParameterValue"],
            )
            for name, request in self._account.cloudformation.calls
            if name == "UpdateStack" and self._account.platform.url != leaves
        ]
        return replace(
            moment,
            platform=copy.deepcopy(vars(self._account.platform)),
            verdicts=self._verdicts(),
            messages=(*moment.messages, *self._account.sns.messages),
            updates=(*moment.updates, *updates),
        )

    def _verdicts(self) -> dict[str, bytes]:
        return {
            key: stored.body
            for (_, key), stored in self._account.s3.objects.items()
            if key.startswith("verdicts/")
        }


class _Stepper(Execution):
    """An execution that goes from one task to the next."""

    def __init__(self, account: Account, event: dict[str, Any], name: str) -> None:
        plain = account.execution(event)
        super().__init__(plain.definition, plain.tasks, event, name)

    def to_the_next_task(self) -> Run:
        return self._on(self.definition["StartAt"], self.event)

    def step(self, run: Run, call: Callable[[Callable[[Any], Any], Any], Any]) -> Run:
        """Do one task, or end one wait."""
        self.variables = dict(run.variables)
        state = self.definition["States"][run.at]
        if state["Type"] == "Wait":
            self._assign(state, {"input": run.data})
            return self._on(state["Next"], run.data)
        whole = self.tasks
        self.tasks = {name: functools.partial(call, task) for name, task in whole.items()}
        return self._on(*self._invoke(state, run.data))

    def _on(self, name: str, data: Any) -> Run:
        """Through choices and assignments, which nothing can come between."""
        while True:
            state = self.definition["States"][name]
            match state["Type"]:
                case "Choice":
                    name = self._choose(state, data)
                    continue
                case "Pass":
                    self._assign(state, {"input": data})
                    data = self._fill(state, data)
                    if not state.get("End"):
                        name = state["Next"]
                        continue
                    status = "SUCCEEDED"
                case "Succeed":
                    status = "SUCCEEDED"
                case "Fail":
                    status = "FAILED"
                case _:
                    status = "RUNNING"
            return Run(
                event=self.event, at=name, data=data, variables=self.variables, status=status
            )


def search(world: World, start: Moment) -> Iterator[tuple[Moment, tuple[Turn, ...]]]:
    """Every moment that can come about, once, with the shortest way to it."""
    seen = {start.key}
    queue: deque[tuple[Moment, tuple[Turn, ...]]] = deque([(start, ())])
    while queue:
        moment, way = queue.popleft()
        yield moment, way
        for turn in world.turns(moment):
            following = world.after(moment, turn)
            if following.key not in seen:
                seen.add(following.key)
                queue.append((following, (*way, turn)))
