"""Runs a state machine in JSONata, as far as the delivery's uses the language.

JSONata itself is evaluated by the `jsonata` package, a port of the reference engine.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jsonata  # type: ignore[import-untyped]

Task = Callable[[Any], Any]


class TaskError(Exception):
    """An error with a name and a cause of its own, as a person or a time limit gives it."""

    def __init__(self, error: str, cause: str) -> None:
        super().__init__(cause)
        self.error = error
        self.cause = cause


@dataclass
class Execution:
    """One execution; iterate over it, and it stops at each Wait with the state's name."""

    definition: dict[str, Any]
    tasks: dict[str, Task]
    event: dict[str, Any]
    name: str
    status: str = "RUNNING"
    output: Any = None
    error: str = ""
    cause: str = ""
    visited: list[str] = field(default_factory=list)
    variables: dict[str, Any] = field(default_factory=dict)

    def __iter__(self) -> Iterator[str]:
        name, data = self.definition["StartAt"], self.event
        while True:
            state = self.definition["States"][name]
            self.visited.append(name)
            match state["Type"]:
                case "Succeed":
                    self.status, self.output = "SUCCEEDED", data
                    return
                case "Fail":
                    self.status, self.error = "FAILED", state["Error"]
                    self.cause = self._value(state["Cause"], {"input": data})
                    return
                case "Wait":
                    assert isinstance(state["Seconds"], int)
                    yield name
                    self._assign(state, {"input": data})
                    name = state["Next"]
                case "Pass":
                    self._assign(state, {"input": data})
                    data = self._fill(state, data)
                    if state.get("End"):
                        self.status, self.output = "SUCCEEDED", data
                        return
                    name = state["Next"]
                case "Choice":
                    name = self._choose(state, data)
                case "Task":
                    name, data = self._invoke(state, data)
                case kind:
                    raise AssertionError(f"{kind} is not used")

    def run(self, on_wait: Callable[[], None], *, limit: int = 10_000) -> Execution:
        """Run to the end; `on_wait` moves the world on while the execution waits."""
        for count, _ in enumerate(self):
            assert count < limit, "the execution waits without end"
            on_wait()
        return self

    def _choose(self, state: dict[str, Any], data: Any) -> str:
        for rule in state["Choices"]:
            if self._value(rule["Condition"], {"input": data}) is True:
                self._assign(rule, {"input": data})
                return str(rule["Next"])
        self._assign(state, {"input": data})
        return str(state["Default"])

    def _invoke(self, state: dict[str, Any], data: Any) -> tuple[str, Any]:
        arguments = self._value(state["Arguments"], {"input": data})
        task = self.tasks[_service(state)]
        given = arguments.get("Payload", arguments)
        retries = [
            item["MaxAttempts"]
            for item in state.get("Retry", [])
            if item["ErrorEquals"] == ["States.TaskFailed"]
        ]
        for attempt in range(sum(retries) + 1):
            try:
                answer = json.loads(json.dumps(task(json.loads(json.dumps(given)))))
                break
            except TaskError as error:
                return self._caught(state, data, error.error, error.cause)
            except Exception as error:
                if attempt < sum(retries):
                    continue
                kind = type(error).__name__
                cause = json.dumps({"errorMessage": str(error), "errorType": kind})
                return self._caught(state, data, kind, cause)
        result = {"StatusCode": 200, "Payload": answer} if "Payload" in arguments else answer
        output = self._fill(state, data, result)
        self._assign(state, {"input": data, "result": result})
        return state["Next"], output

    def _caught(self, state: dict[str, Any], data: Any, error: str, cause: str) -> tuple[str, Any]:
        catch = next(
            item
            for item in state["Catch"]
            if error in item["ErrorEquals"] or item["ErrorEquals"] == ["States.ALL"]
        )
        caught = {"Error": error, "Cause": cause}
        self._assign(catch, {"input": data, "errorOutput": caught})
        return catch["Next"], caught

    def _fill(self, state: dict[str, Any], data: Any, result: Any = None) -> Any:
        if "Output" not in state:
            return data
        return self._value(state["Output"], {"input": data, "result": result})

    def _assign(self, holder: dict[str, Any], states: dict[str, Any]) -> None:
        values = {
            name: self._value(value, states) for name, value in holder.get("Assign", {}).items()
        }
        self.variables |= values

    def _value(self, template: Any, states: dict[str, Any]) -> Any:
        if isinstance(template, dict):
            return {key: self._value(value, states) for key, value in template.items()}
        if not (isinstance(template, str) and template.startswith("{%")):
            return template
        arn = f"arn:aws:states:us-west-2:000000000000:execution:delivery:{self.name}"
        context = {
            "Execution": {"Id": arn, "Name": self.name, "Input": self.event},
            "Task": {"Token": f"token-of-{self.name}"},
        }
        value = _expression(template[2:-2].strip()).evaluate(
            None, {**self.variables, "states": {**states, "context": context}}
        )
        # AWS refuses an expression that yields nothing; null is not used.
        assert value is not None, f"{template} yields nothing"
        return value


@functools.cache
def _expression(text: str) -> Any:
    return jsonata.Jsonata.jsonata(text)


def _service(state: dict[str, Any]) -> str:
    """A function's name, or the service that a state calls itself."""
    arguments = state["Arguments"]
    if "FunctionName" in arguments:
        return str(arguments["FunctionName"])
    return str(state["Resource"]).partition(":states:::")[2]
