"""The delivery's state machine as a graph: every way ends, and every loop is counted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.delivery_stack import definition, template


def edges(name: str) -> Iterator[tuple[str, str]]:
    """Where a state leads, each with the condition of that way."""
    state = definition()["States"][name]
    for rule in state.get("Choices", []):
        yield rule["Next"], rule["Condition"]
    for catch in state.get("Catch", []):
        yield catch["Next"], "error"
    for key in ("Next", "Default"):
        if key in state:
            yield state[key], ""


def reachable(start: str, *, without: frozenset[tuple[str, str]] = frozenset()) -> set[str]:
    found, todo = {start}, [start]
    while todo:
        here = todo.pop()
        for there, _ in edges(here):
            if (here, there) not in without and there not in found:
                found.add(there)
                todo.append(there)
    return found


def test_every_state_is_reached_and_every_way_ends() -> None:
    states = definition()["States"]
    assert reachable(definition()["StartAt"]) == set(states)
    ends = {
        name
        for name, state in states.items()
        if state["Type"] in ("Succeed", "Fail") or state.get("End")
    }
    for name in states:
        assert reachable(name) & ends, name
        assert list(edges(name)) or name in ends, name


def test_every_task_catches_every_error_and_every_choice_has_a_default() -> None:
    for name, state in definition()["States"].items():
        if state["Type"] == "Task":
            assert [catch["ErrorEquals"] for catch in state["Catch"]] == [["States.ALL"]], name
            assert all(retry["MaxAttempts"] <= 6 for retry in state["Retry"]), name
        if state["Type"] == "Choice":
            assert "Default" in state, name


@pytest.mark.case("M10")
def test_every_loop_waits_and_has_a_bound() -> None:
    """A way into a wait needs a count below a bound, the wait raises that count, and without
    these ways the machine has no loop at all."""
    states = definition()["States"]
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
        for there, condition in edges(name):
            if there in counts and f"${counts[there]} < 240 " in condition:
                bounded.add((name, there))
    # The ways into the waits that carry no bound are taken once: right after an update began.
    for name in states:
        assert name not in reachable_from_next(name, frozenset(bounded)), name
    begin = states[definition()["StartAt"]]["Assign"]
    assert all(begin[count] == 0 for count in counts.values())
    assigned = [
        key
        for name, state in states.items()
        for holder in (state, *state.get("Choices", []), *state.get("Catch", []))
        for key in holder.get("Assign", {})
        if name != definition()["StartAt"]
    ]
    assert all(assigned.count(count) == 1 for count in counts.values())


def reachable_from_next(name: str, without: frozenset[tuple[str, str]]) -> set[str]:
    return {
        state
        for there, _ in edges(name)
        if (name, there) not in without
        for state in reachable(there, without=without)
    }


def test_the_machine_as_a_whole_ends_too() -> None:
    assert definition()["TimeoutSeconds"] == 10 * 60 * 60
    assert definition()["QueryLanguage"] == "JSONata"


@pytest.mark.parametrize(("poll_seconds", "looks"), [(1, 500), (30, 240), (300, 24)])
def test_waits_are_bounded_in_time_and_in_history(poll_seconds: int, looks: int) -> None:
    found = template(poll_seconds).find_resources("AWS::StepFunctions::StateMachine")
    assert f"$looks < {looks} " in str(found)
    # Four waits of ten events a look, within the 25,000 that an execution's history holds.
    assert looks * 10 * 4 < 25_000
