"""Every order of duplicates, late events, deaths and updates, and the laws that hold in each."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.unit.lambdas.account import Account
from tests.unit.lambdas.fakes import UNHEALTHY, configuration, labels_of
from tests.unit.lambdas.models import BUCKET, Published, good_archive, publish
from tests.unit.lambdas.orders import Moment, World, search

NONE = "none"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Models in the order of their age, and what is announced.

    `faults` says what is wrong with a model: `labels` (it answers otherwise), `failed`
    (CloudFormation rolls back) or `silent` (SageMaker keeps the former one).
    """

    models: int
    events: tuple[int, ...]
    ends: tuple[int, ...]
    serving: int | None = None
    faults: tuple[tuple[int, str], ...] = ()
    asked_for: int | None = None
    deaths: int = 0
    deploys: int = 0
    bake: int = 0


SCENARIOS = {
    "one model, announced three times": Scenario(models=1, events=(0, 0, 0), ends=(0,)),
    "two models at once": Scenario(models=2, events=(0, 1), ends=(1,)),
    "an older model after a newer one serves": Scenario(
        models=2, serving=1, events=(0, 0), ends=(1,)
    ),
    "a model that answers otherwise, announced twice": Scenario(
        models=2, serving=0, events=(1, 1), faults=((1, "labels"),), ends=(0,)
    ),
    "a model that fails, announced twice": Scenario(
        models=2, serving=0, events=(1, 1), faults=((1, "failed"),), ends=(0,)
    ),
    "a silent roll-back, announced twice": Scenario(
        models=2, serving=0, events=(1, 1), faults=((1, "silent"),), ends=(0,)
    ),
    "a model that answers otherwise and a newer one": Scenario(
        models=3, serving=0, events=(1, 2), faults=((1, "labels"),), ends=(2,)
    ),
    "a model that fails and a newer one that answers otherwise": Scenario(
        models=3, serving=0, events=(1, 2), faults=((1, "failed"), (2, "labels")), ends=(0,)
    ),
    "a silent roll-back and a newer model": Scenario(
        models=3, serving=0, events=(1, 2), faults=((1, "silent"),), ends=(2,)
    ),
    "a bake that fails, and a newer model": Scenario(
        models=3, serving=0, events=(1, 2), faults=((1, "labels"),), bake=1, ends=(2,)
    ),
    "a person goes back while a newer model comes": Scenario(
        models=3, serving=1, events=(2,), asked_for=0, ends=(0, 2)
    ),
    "a person deploys while a model comes that answers otherwise": Scenario(
        models=2, serving=0, events=(1,), faults=((1, "labels"),), deploys=2, ends=(0,)
    ),
    "a person deploys while two models come": Scenario(
        models=2, events=(0, 1), deploys=1, ends=(1,)
    ),
    "functions die before and after what they do": Scenario(
        models=2, events=(0, 1), deaths=2, ends=(1,)
    ),
    "functions die around a model that answers otherwise": Scenario(
        models=2, serving=0, events=(1,), faults=((1, "labels"),), deaths=2, ends=(0,)
    ),
}


class Played:
    """A scenario in an account of its own."""

    def __init__(self, scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scenario = scenario
        self.account = Account(monkeypatch)
        self.models = [self._published(number) for number in range(scenario.models)]
        self.number = {model.url: number for number, model in enumerate(self.models)}
        platform = self.account.platform
        platform.ticks, platform.bake = 1 + scenario.bake, scenario.bake
        if scenario.serving is not None:
            platform.url = self.models[scenario.serving].url
            platform.serves = configuration(platform.url)
        wrong = {
            configuration(self.models[at].url) for at, what in scenario.faults if what == "labels"
        }
        self.account.runtime.answer = self._answers(wrong)
        platform.endings |= {
            self.models[at].url: what for at, what in scenario.faults if what != "labels"
        }
        platform.failure = UNHEALTHY
        events = [self.models[at].event for at in scenario.events]
        if scenario.asked_for is not None:
            key = self.models[scenario.asked_for].manifest_key
            events.append({"bucket": BUCKET, "key": key, "intent": "roll-back"})
        self.world = World(self.account, deaths=scenario.deaths, deploys=scenario.deploys)
        self.start = self.world.first(*events)

    def _published(self, number: int) -> Published:
        return publish(
            self.account.s3,
            good_archive(f"model {number}"),
            sequencer=f"sequencer {number}",
            created=f"2026-11-30T1{number}:00:00Z",
        )

    def _answers(self, wrong: set[str]) -> Callable[[list[str]], bytes]:
        def answer(texts: list[str]) -> bytes:
            serves = self.account.platform.answers
            return labels_of(texts, "negative" if serves in wrong else "positive")

        return answer

    def violations(self, moment: Moment) -> list[str]:
        """The laws that a moment breaks."""
        known = {None, *(configuration(model.url) for model in self.models)}
        broken = []
        if moment.platform["serves"] not in known:
            broken.append(f"{moment.platform['serves']} serves, and nobody published it")
        if moment.platform["url"] not in {NONE, *self.number}:
            broken.append(f"the parameter names {moment.platform['url']}")
        tried: list[str] = []
        for update in moment.updates:
            run = int(update.token.rpartition("run-")[2].partition("-")[0]) - 1
            event = moment.runs[run].event
            own = next(
                model.url for model in self.models if model.manifest_key in json.dumps(event)
            )
            if "-back-" in update.token:
                if update.leaves != own:
                    broken.append("a run rolled another's model back")
            elif "intent" not in event:
                tried.append(update.target)
                if self.number[update.target] <= self.number.get(update.leaves, -1):
                    broken.append("an older model replaced a newer one, and nobody had asked")
        if len(tried) != len(set(tried)):
            broken.append("duplicates rolled one model out twice")
        return broken + (self._at_the_end(moment) if moment.done else [])

    def _at_the_end(self, moment: Moment) -> list[str]:
        broken = []
        url = moment.platform["url"]
        serves = None if url == NONE else configuration(url)
        if moment.platform["serves"] != serves:
            broken.append(f"the parameter names {url}, and {moment.platform['serves']} serves")
        if self.number.get(url) not in self.scenario.ends:
            broken.append(f"model {self.number.get(url)} serves in the end")
        for run in moment.runs:
            # A failed execution goes to the dead-letter queue by a rule of its own.
            if run.status != "SUCCEEDED":
                broken.append(f"an execution ended as {run.status} at {run.at}")
        asked = (*self.scenario.events, *filter(None, [self.scenario.asked_for]))
        for number in set(asked) - {self.scenario.serving}:
            digest = self.models[number].digest
            told = sum(digest[:12] in message.partition("\n")[0] for message in moment.messages)
            if told == 0:
                broken.append(f"nobody was told of model {number}")
            if told > 1 + self.scenario.deaths + (number == self.scenario.asked_for):
                broken.append(f"model {number} was told {told} times")
            if f"verdicts/{digest}.json" not in moment.verdicts:
                broken.append(f"model {number} has no verdict")
        return broken


@pytest.mark.case("L07")
@pytest.mark.case("M11")
@pytest.mark.parametrize("title", SCENARIOS)
def test_every_order_keeps_the_laws(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)
    played = Played(SCENARIOS[title], monkeypatch)
    ends = 0
    for moment, way in search(played.world, played.start):
        assert not played.violations(moment), f"{way}: {moment}"
        ends += moment.done
    assert ends > 0
