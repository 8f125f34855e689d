"""The order in which CloudFormation deletes things, as far as the templates fix it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.environments import Synthesized

Node = tuple[str, str]  # stack, logical id


class DeletionOrder:
    """What needs what: a resource goes before everything that it needs."""

    def __init__(self, environment: Synthesized) -> None:
        self._environment = environment
        self._exports = {
            _text(output["Export"]["Name"]): (stack, target)
            for stack, template in environment.templates.items()
            for output in template.get("Outputs", {}).values()
            if "Export" in output
            for target in _references(output["Value"], template)
        }
        self._needs: dict[Node, set[Node]] = {
            (stack, name): set(self._needed(stack, resource))
            for stack, name, resource in environment.resources()
        }
        self._stacks = self._stack_needs()

    def goes_before(self, first: Node, second: Node) -> bool:
        """Whether `first` is always deleted before `second`."""
        if second[0] in self._stacks[first[0]]:
            return True
        todo, seen = [first], set()
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            todo.extend(self._needs[node])
        return second in seen - {first}

    def _needed(self, stack: str, resource: Mapping[str, Any]) -> Iterator[Node]:
        template = self._environment.templates[stack]
        depends = resource.get("DependsOn", [])
        for name in [depends] if isinstance(depends, str) else depends:
            yield stack, name
        for name in _references(resource.get("Properties", {}), template):
            yield stack, name
        for value in _imports(resource.get("Properties", {})):
            yield self._exports[value]

    def _stack_needs(self) -> dict[str, set[str]]:
        manifest = json.loads((self._environment.folder / "manifest.json").read_text())
        prefix = f"{self._environment.prefix}-"
        direct = {
            name.removeprefix(prefix): {
                needed.removeprefix(prefix)
                for needed in artifact.get("dependencies", [])
                if not needed.endswith(".assets")
            }
            for name, artifact in manifest["artifacts"].items()
            if artifact["type"] == "aws:cloudformation:stack"
        }

        def all_of(stack: str) -> set[str]:
            found = set(direct[stack])
            for needed in direct[stack]:
                found |= all_of(needed)
            return found

        return {stack: all_of(stack) for stack in direct}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _references(value: Any, template: dict[str, Any]) -> Iterator[str]:
    """Logical ids of the template's resources that a value names."""
    resources = template["Resources"]
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "Ref" and item in resources:
                yield item
            elif key == "Fn::GetAtt":
                yield item[0] if isinstance(item, list) else item.split(".")[0]
            elif key == "Fn::Sub":
                text = item if isinstance(item, str) else item[0]
                yield from (n for n in re.findall(r"\$\{([A-Za-z0-9]+)", text) if n in resources)
                yield from _references(item, template)
            else:
                yield from _references(item, template)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item, template)


def _imports(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "Fn::ImportValue":
                yield _text(item)
            else:
                yield from _imports(item)
    elif isinstance(value, list):
        for item in value:
            yield from _imports(item)
