"""The delivery's state machine as a graph: every way ends, and every loop is counted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.delivery_stack import definition, template

APPROVAL_HOURS = 24
# Events that a state writes into an execution's history.
EVENTS = {"Task": 5, "Choice": 2, "Wait": 2, "Pass": 2}
MOST_EVENTS = 25_000
PATIENCE = 2 * 60 * 60


def edges(name: str, hours: int | None = None) -> Iterator[tuple[str, str]]:
    """Where a state leads, each with the condition of that way."""
    state = definition(hours)["States"][name]
    for rule in state.get("Choices", []):
        yield rule["Next"], rule["Condition"]
    for catch in state.get("Catch", []):
        yield catch["Next"], "error"
    for key in ("Next", "Default"):
        if key in state:
            yield state[key], ""


def reachable(
    start: str,
    hours: int | None = None,
    *,
    without: frozenset[tuple[str, str]] = frozenset(),
) -> set[str]:
    found, todo = {start}, [start]
    while todo:
        here = todo.pop()
        for there, _ in edges(here, hours):
            if (here, there) not in without and there not in found:
                found.add(there)
                todo.append(there)
    return found


@pytest.mark.parametrize("hours", [None, APPROVAL_HOURS])
def test_every_state_is_reached_and_every_way_ends(hours: int | None) -> None:
    states = definition(hours)["States"]
    assert reachable(definition(hours)["StartAt"], hours) == set(states)
    ends = {
        name
        for name, state in states.items()
        if state["Type"] in ("Succeed", "Fail") or state.get("End")
    }
    for name in states:
        assert reachable(name, hours) & ends, name
        assert list(edges(name, hours)) or name in ends, name


def test_every_task_catches_every_error_and_every_choice_has_a_default() -> None:
    for name, state in definition(APPROVAL_HOURS)["States"].items():
        if state["Type"] == "Task":
            assert state["Catch"][-1]["ErrorEquals"] == ["States.ALL"], name
            assert all(retry["MaxAttempts"] <= 6 for retry in state.get("Retry", [])), name
        if state["Type"] == "Choice":
            assert "Default" in state, name


@pytest.mark.case("M10")
@pytest.mark.case("M23")
@pytest.mark.parametrize("hours", [None, APPROVAL_HOURS])
def test_every_loop_waits_and_has_a_bound(hours: int | None) -> None:
    """A way into a wait needs a count below a bound, the wait raises that count, and without
    these ways the machine has no loop at all."""
    states = definition(hours)["States"]
    bounded: set[tuple[str, str]] = set()
    counts: dict[str, str] = {}
    for name, state in states.items():
        if state["Type"] == "Wait":
            ((count, value),) = state["Assign"].items()
            assert value == f"{{% ${count} + 1 %}}"
            counts[name] = count
            assert state["Seconds"] == 30
    assert len(set(counts.values())) == len(counts)
    for name in states:
        for there, condition in edges(name, hours):
            if there in counts and f"${counts[there]} < 240 " in condition:
                bounded.add((name, there))
            if there == "Approve" and condition == "{% $not($approved) %}":
                bounded.add((name, there))
    # The ways into the waits that carry no bound are taken once: right after an update began.
    for name in states:
        assert name not in reachable_from_next(name, hours, frozenset(bounded)), name
    begin = states[definition(hours)["StartAt"]]["Assign"]
    assert all(begin[count] == 0 for count in counts.values())
    assigned = [
        (key, value)
        for name, state in states.items()
        for holder in (state, *state.get("Choices", []), *state.get("Catch", []))
        for key, value in holder.get("Assign", {}).items()
        if name != definition(hours)["StartAt"]
    ]
    keys = [key for key, _ in assigned]
    assert all(keys.count(count) == 1 for count in counts.values())
    # Approved once, approved for good.
    assert [value for key, value in assigned if key == "approved"] == [True] * bool(hours)


def reachable_from_next(
    name: str, hours: int | None, without: frozenset[tuple[str, str]]
) -> set[str]:
    return {
        state
        for there, _ in edges(name, hours)
        if (name, there) not in without
        for state in reachable(there, hours, without=without)
    }


@pytest.mark.case("M10")
@pytest.mark.parametrize("hours", [None, APPROVAL_HOURS])
def test_the_machine_as_a_whole_ends_too_but_not_before_its_waits(hours: int | None) -> None:
    machine = definition(hours)
    waits = [state for state in machine["States"].values() if state["Type"] == "Wait"]
    person = [
        state["TimeoutSeconds"]
        for state in machine["States"].values()
        if "waitForTaskToken" in state.get("Resource", "")
    ]
    assert person == ([hours * 3600] if hours else [])
    assert machine["TimeoutSeconds"] > len(waits) * PATIENCE + sum(person)
    assert machine["TimeoutSeconds"] <= (len(waits) + 1) * PATIENCE + sum(person)
    assert machine["QueryLanguage"] == "JSONata"


def round_trips(wait: str) -> Iterator[list[str]]:
    """The ways from a wait back to it that pass no other wait."""
    states = definition(APPROVAL_HOURS)["States"]
    todo = [[wait]]
    while todo:
        way = todo.pop()
        for there, _ in edges(way[-1], APPROVAL_HOURS):
            if there == wait:
                yield way
            elif there not in way and states[there]["Type"] != "Wait":
                todo.append([*way, there])


@pytest.mark.parametrize(("poll_seconds", "looks"), [(1, 400), (30, 240), (300, 24)])
def test_waits_are_bounded_in_time_and_in_history(poll_seconds: int, looks: int) -> None:
    found = template(poll_seconds).find_resources("AWS::StepFunctions::StateMachine")
    assert f"$looks < {looks} " in str(found)
    assert looks * poll_seconds <= PATIENCE
    states = definition(APPROVAL_HOURS)["States"]
    rounds = [
        max(sum(EVENTS.get(states[name]["Type"], 0) for name in way) for way in round_trips(wait))
        for wait, state in states.items()
        if state["Type"] == "Wait"
    ]
    assert len(rounds) == 4
    assert looks * sum(rounds) < MOST_EVENTS
