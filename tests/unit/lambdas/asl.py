"""Runs a state machine in JSONata, as far as the delivery's uses the language.

JSONata itself is evaluated by the `jsonata` package, a port of the reference engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jsonata  # type: ignore[import-untyped]

Task = Callable[[Any], Any]


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
        payload = self._value(state["Arguments"]["Payload"], {"input": data})
        retry = next(
            item for item in state["Retry"] if item["ErrorEquals"] == ["States.TaskFailed"]
        )
        function = state["Arguments"]["FunctionName"]
        for attempt in range(retry["MaxAttempts"] + 1):
            try:
                answer = json.loads(
                    json.dumps(self.tasks[function](json.loads(json.dumps(payload))))
                )
                break
            except Exception as error:
                if attempt < retry["MaxAttempts"]:
                    continue
                (catch,) = state["Catch"]
                cause = json.dumps({"errorMessage": str(error), "errorType": type(error).__name__})
                caught = {"Error": type(error).__name__, "Cause": cause}
                self._assign(catch, {"input": data, "errorOutput": caught})
                return catch["Next"], caught
        result = {"StatusCode": 200, "Payload": answer}
        output = self._fill(state, data, result)
        self._assign(state, {"input": data, "result": result})
        return state["Next"], output

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
        context = {"Execution": {"Id": arn, "Name": self.name, "Input": self.event}}
        expression = jsonata.Jsonata.jsonata(template[2:-2].strip())
        value = expression.evaluate(
            None, {**self.variables, "states": {**states, "context": context}}
        )
        # AWS refuses an expression that yields nothing; null is not used.
        assert value is not None, f"{template} yields nothing"
        return value
