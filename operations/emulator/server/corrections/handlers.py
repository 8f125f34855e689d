"""Wrap the handlers of a resource type that MiniStack has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ministack.services.cloudformation import provisioners

Properties = Mapping[str, Any]
Created = tuple[str, dict[str, Any]]
Finish = Callable[[str, dict[str, Any], Properties, Properties], dict[str, Any]]


def after_change(kind: str, finish: Finish) -> None:
    """Have `finish` complete each creation and update of a type.

    It gets the physical id, the attributes, the old properties (empty at creation) and the new
    ones, and returns the attributes.
    """
    handlers = provisioners._RESOURCE_HANDLERS[kind]
    create, update = handlers["create"], handlers["update"]
    with_logical_id = handlers.get("update_with_logical_id", False)

    def created(logical_id: str, properties: Properties, stack: str) -> Created:
        identifier, attributes = create(logical_id, properties, stack)
        return identifier, finish(identifier, attributes, {}, properties)

    def updated(
        physical_id: str, old: Properties, new: Properties, stack: str, *rest: str
    ) -> Created:
        identifier, attributes = update(physical_id, old, new, stack, *rest)
        before = old if identifier == physical_id else {}
        return identifier, finish(identifier, attributes, before, new)

    provisioners._RESOURCE_HANDLERS[kind] = {
        **handlers,
        "create": created,
        "update": updated,
        "update_with_logical_id": with_logical_id,
    }


def before_deletion(kind: str, check: Callable[[str], None]) -> None:
    """Have `check` refuse deletions, by raising, that AWS refuses; it gets the physical id."""
    handlers = provisioners._RESOURCE_HANDLERS[kind]
    delete = handlers["delete"]

    def deleted(physical_id: str, properties: Properties, *rest: str) -> None:
        check(physical_id)
        delete(physical_id, properties, *rest)

    provisioners._RESOURCE_HANDLERS[kind] = {**handlers, "delete": deleted}
