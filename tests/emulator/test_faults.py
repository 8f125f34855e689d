"""Faults of a delivery, one after the other in one account; docs/faults.md is what they came to.

`--renew-snapshots` writes the page. Without it, the test fails where a run and the page differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from operations.emulator import Emulator
from tests.emulator.test_delivery import ROOT
from tests.support import plays
from tests.support.faults import NOBODY, Row, Stage, plain, staged

pytestmark = pytest.mark.emulator

PAGE = ROOT / "docs" / "faults.md"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault: how it is brought about, and how many executions of which kinds it leaves.

    `either` holds how what is told may begin, where it depends on which execution is quicker.
    """

    happens: str
    play: Callable[[Stage], None]
    ends: tuple[str, ...] = ("SUCCEEDED",)
    serves: str = "the new model"
    named: bool = True
    either: tuple[str, ...] = ()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("faults")
    with (
        Emulator(
            run_directory=folder / "emulator",
            model_server_python=ROOT / ".venv-training" / "bin" / "python",
            settle_seconds=0.2,
        ) as emulator,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in emulator.environment().items():
            patch.setenv(name, value)
        with staged(emulator, folder / "cdk.out") as made:
            yield made


FAULTS = {
    "the first endpoint fails": Fault(
        happens="CloudFormation takes the endpoint away again", play=plays.torn, serves=NOBODY
    ),
    "the same event five times at once": Fault(
        happens="one execution rolls out, four find that there is nothing to do",
        play=plays.five_times,
        ends=("SUCCEEDED",) * 5,
    ),
    "an event in mid-update": Fault(
        happens="it waits for its turn, then replaces the model before it",
        play=plays.in_mid_update,
        ends=("SUCCEEDED",) * 2,
        either=("serves", "was left out; why: overtaken"),
    ),
    "two models at once": Fault(
        happens="the newer one serves in the end, whichever goes first",
        play=plays.two_at_once,
        ends=("SUCCEEDED",) * 2,
        either=(
            "serves",
            "was left out; why: older-than-served",
            "was left out; why: overtaken",
        ),
    ),
    "a model comes during `cdk deploy`": Fault(
        happens="the deploy goes first, with the model that serves; the new one waits",
        play=plays.deploy_before,
    ),
    "`cdk deploy` during a roll-out": Fault(
        happens="CloudFormation refuses the deploy, and says so to who deploys",
        play=plays.deploy_during,
    ),
    "the function is killed before `UpdateStack`": Fault(
        happens="it is asked again, and updates", play=plays.killed_before
    ),
    "the function is killed after `UpdateStack`": Fault(
        happens="it is asked again, and finds its own update", play=plays.killed_after
    ),
    "CloudFormation refuses the update": Fault(
        happens="the execution fails; its event is in the dead-letter queue",
        play=plays.cloudformation_refuses,
        ends=("FAILED",),
        serves="the former model",
    ),
    "CloudFormation throttles": Fault(happens="every call is made again", play=plays.throttled),
    "the new fleet never gets healthy": Fault(
        happens="CloudFormation rolls back; these bytes are not tried again",
        play=plays.torn,
        serves="the former model",
    ),
    "SageMaker rolls back in silence": Fault(
        happens="the endpoint names another configuration than the stack: it is put back",
        play=plays.silent,
        serves="the former model",
    ),
    "the roll-back itself fails": Fault(
        happens="SageMaker has gone back to what CloudFormation has deleted, which bars every update",
        play=plays.roll_back_fails,
        ends=("FAILED",),
        serves="the former model",
        named=False,
    ),
    "a person mends that": Fault(
        happens="sets `ModelUrl` to `none`, then asks for the former model",
        play=plays.mended,
        serves="the former model",
    ),
    "the ping lies": Fault(
        happens="the texts fail in the bake, and SageMaker goes back by its alarm",
        play=plays.lying_ping,
        serves="the former model",
    ),
}
rows: dict[str, Row] = {}


@pytest.mark.case("L07")
@pytest.mark.case("L08")
@pytest.mark.case("M23")
@pytest.mark.parametrize("title", FAULTS)
def test_after_a_fault_one_model_serves_and_a_person_knows(stage: Stage, title: str) -> None:
    fault = FAULTS[title]
    stage.begin()
    fault.play(stage)
    assert tuple(stage.ended(len(fault.ends))) == fault.ends
    assert stage.middleman.pending == []
    serves = stage.serving()
    expected = {"the new model": stage.newest, "the former model": stage.former, NOBODY: NOBODY}
    assert serves == expected[fault.serves]
    assert (stage.named() == serves) is fault.named
    # Nothing comes to the queue but what is expected, and that takes a moment.
    lost = fault.ends.count("FAILED")
    failed = stage.messages(stage.account.queue, wait=20 if lost else 0)
    assert [one["detail"]["status"] for one in failed] == ["FAILED"] * lost
    told = told_of_all(stage)
    assert len(told) == max(1, stage.published)
    assert not fault.either or all(one.startswith(fault.either) for one in told)
    stage.former = serves
    rows[title] = Row(
        title=title,
        happens=fault.happens,
        serves=fault.serves
        if fault.named
        else f"{fault.serves}, which the parameter does not name",
        told="<br>or ".join(fault.either) or "<br>".join(sorted(set(told))),
    )


@pytest.mark.case("M17")
def test_a_destroy_in_mid_update_waits_for_the_model_that_comes(stage: Stage) -> None:
    stage.begin()
    stage.until_under_way(stage.publish())
    stage.account.remove("delivery")
    assert stage.serving() == stage.named() == stage.newest
    rows["`cdk destroy` during a roll-out"] = Row(
        title="`cdk destroy` during a roll-out",
        happens="the delivery goes when the roll-out has ended",
        serves="the new model, until the endpoint's stack goes too",
        told="<br>".join(told_of_all(stage)),
    )


def told_of_all(stage: Stage) -> list[str]:
    """What a person was told, which is of every new model."""
    messages = [one["Message"] for one in stage.messages(stage.inbox)]
    assert stage.untold(messages) == []
    return [headline(message) for message in messages]


def headline(message: str) -> str:
    """What became of the model, and why where it does not serve."""
    first, why, *_ = message.splitlines()
    outcome = first.partition(": ")[2]
    return outcome if outcome == "serves" else plain(f"{outcome}; {why}")[:300]


def test_the_page_is_what_the_faults_came_to(request: pytest.FixtureRequest) -> None:
    lines = [
        "| fault | what happens | what serves then | what a person is told |",
        "|---|---|---|---|",
    ]
    lines += [str(row) for row in rows.values()]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition("<!-- faults -->\n")
    table, _, after = rest.partition("<!-- end -->\n")
    if request.config.getoption("--renew-snapshots"):
        made = "\n".join(lines)
        PAGE.write_text(f"{before}<!-- faults -->\n{made}\n<!-- end -->\n{after}", encoding="utf-8")
    elif len(rows) == len(FAULTS) + 1:
        assert table.splitlines() == lines, "renew the page with --renew-snapshots, and read it"
    else:
        assert set(lines) <= set(table.splitlines())
