"""One emulated account for all tests of this folder, and stacks that are cleaned up."""

from __future__ import annotations

import io
import itertools
import json
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from operations.emulator import Emulator

ROOT = Path(__file__).parents[2]
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with Emulator(
        run_directory=tmp_path_factory.mktemp("emulator"),
        model_server_python=ROOT / ".venv-training" / "bin" / "python",
        settle_seconds=0.2,
    ) as running:
        yield running


class Stacks:
    """CloudFormation through boto3: each call waits until the stack has settled."""

    def __init__(self, emulator: Emulator) -> None:
        self.api = emulator.client("cloudformation")
        self._made: list[str] = []

    def create(self, resources: Mapping[str, Any], **rest: Any) -> dict[str, Any]:
        """Create a stack and return its description; `rest` are further sections."""
        name = f"test-{next(_numbers)}"
        template = {"Resources": resources, **rest}
        answer = self.api.create_stack(
            StackName=name, TemplateBody=json.dumps(template), Capabilities=["CAPABILITY_IAM"]
        )
        self._made.append(answer["StackId"])
        return self.settled(answer["StackId"])

    def update(self, stack: dict[str, Any], resources: Mapping[str, Any], **rest: Any) -> Any:
        """Update a stack with another template."""
        self.api.update_stack(
            StackName=stack["StackName"],
            TemplateBody=json.dumps({"Resources": resources, **rest}),
            Capabilities=["CAPABILITY_IAM"],
        )
        return self.settled(stack["StackId"])

    def set_parameters(self, stack: dict[str, Any], **values: str) -> dict[str, Any]:
        """Update a stack with its template and other parameter values."""
        self.start_update(stack, **values)
        return self.settled(stack["StackId"])

    def start_update(self, stack: dict[str, Any], **values: str) -> None:
        parameters = [
            {"ParameterKey": known["ParameterKey"], "UsePreviousValue": True}
            if known["ParameterKey"] not in values
            else {
                "ParameterKey": known["ParameterKey"],
                "ParameterValue": values[known["ParameterKey"]],
            }
            for known in stack["Parameters"]
        ]
        self.api.update_stack(
            StackName=stack["StackName"],
            UsePreviousTemplate=True,
            Parameters=parameters,
            Capabilities=["CAPABILITY_IAM"],
        )

    def delete(self, stack: dict[str, Any]) -> dict[str, Any]:
        self.api.delete_stack(StackName=stack["StackName"])
        return self.settled(stack["StackId"])

    def settled(self, stack_id: str) -> dict[str, Any]:
        while True:
            found: dict[str, Any] = self.api.describe_stacks(StackName=stack_id)["Stacks"][0]
            if not found["StackStatus"].endswith("IN_PROGRESS"):
                return found
            time.sleep(0.1)

    def resource(self, stack: dict[str, Any], logical_id: str) -> str:
        """Physical id of a resource."""
        answer = self.api.describe_stack_resource(
            StackName=stack["StackName"], LogicalResourceId=logical_id
        )
        physical: str = answer["StackResourceDetail"]["PhysicalResourceId"]
        return physical

    def reasons(self, stack: dict[str, Any]) -> str:
        """What the stack's events say of failures."""
        events = self.api.describe_stack_events(StackName=stack["StackId"])["StackEvents"]
        return "\n".join(
            event.get("ResourceStatusReason", "")
            for event in events
            if "FAILED" in event["ResourceStatus"]
        )

    def clean_up(self) -> None:
        for stack_id in reversed(self._made):
            self.settled(stack_id)
            self.api.delete_stack(StackName=stack_id)
            self.settled(stack_id)


@pytest.fixture
def stacks(emulator: Emulator) -> Iterator[Stacks]:
    made = Stacks(emulator)
    yield made
    made.clean_up()


def outputs(stack: Mapping[str, Any]) -> dict[str, str]:
    """The outputs of a stack by their keys."""
    return {item["OutputKey"]: item["OutputValue"] for item in stack.get("Outputs", [])}


def model_archive(answer: str, *, broken: bool = False) -> bytes:
    """A model.tar.gz whose model answers one word, or cannot be loaded; `crash` makes it fail."""
    load = 'raise RuntimeError("the weights are torn")' if broken else f"return {answer!r}"
    program = (
        f"def model_fn(folder):\n    {load}\n"
        "def input_fn(body, kind):\n    return body\n"
        "def predict_fn(data, model):\n    assert 'crash' not in str(data)\n    return model\n"
        "def output_fn(word, accept):\n    return word\n"
    ).encode()
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        member = tarfile.TarInfo("code/inference.py")
        member.size = len(program)
        archive.addfile(member, io.BytesIO(program))
    return target.getvalue()
