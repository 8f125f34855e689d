"""Nested stacks: what one made does not outlive its failure, and what stays is said.

MiniStack leaves the resources of a nested stack that failed to be created, deletes what the
template retains, and reports a nested stack as deleted whatever happened to its resources.
"""

from __future__ import annotations

from typing import Any

from ministack.services import cloudformation
from ministack.services.cloudformation import engine, provisioners, stacks

from operations.emulator.server.corrections.handlers import Created, Properties

_STACK = "AWS::CloudFormation::Stack"


def apply() -> None:
    """Apply the corrections."""
    handlers = provisioners._RESOURCE_HANDLERS[_STACK]
    create = handlers["create"]

    def created(logical_id: str, properties: Properties, stack: str) -> Created:
        before = set(cloudformation._stacks)
        try:
            made: Created = create(logical_id, properties, stack)
        except Exception:
            for name in set(cloudformation._stacks) - before:
                if name.startswith(f"{stack}-{logical_id}-"):
                    _delete(name)
            raise
        return made

    provisioners._RESOURCE_HANDLERS[_STACK] = {**handlers, "create": created, "delete": _deleted}


def _deleted(physical_id: str, properties: Properties) -> None:
    name = provisioners._nested_stack_lookup_name(physical_id)
    if name in cloudformation._stacks:
        _delete(name)


def _delete(name: str) -> None:
    """Delete a nested stack's resources, dependants first.

    Raises:
        ValueError: Some could not be deleted; they stay in the stack, which is DELETE_FAILED.
    """
    stack = cloudformation._stacks[name]
    identifier = stack["StackId"]
    template, resources = stack["_template"], stack["_resources"]
    definitions = template.get("Resources", {})
    conditions = stack.get("_conditions", {})
    place = (
        resources,
        stack["_resolved_params"],
        conditions,
        template.get("Mappings", {}),
        name,
        identifier,
    )
    _set_status(stack, "DELETE_IN_PROGRESS")
    failed = []
    known = engine._topological_sort(definitions, conditions)
    # What the template no longer declares but could not be deleted has no dependants left.
    ordered = [*reversed(known), *(one for one in resources if one not in known)]
    for logical_id in [one for one in ordered if one in resources]:
        resource = resources[logical_id]
        kind, physical_id = resource["ResourceType"], resource["PhysicalResourceId"]
        policy = stacks._resource_policy(definitions.get(logical_id), "DeletionPolicy", *place)
        status, reason = "DELETE_SKIPPED", ""
        if policy not in provisioners._RETAINING_POLICIES:
            try:
                provisioners._delete_resource(
                    kind, physical_id, resource["Properties"], name, logical_id
                )
                status = "DELETE_COMPLETE"
            except Exception as error:
                status, reason = "DELETE_FAILED", str(error)
                failed.append(logical_id)
        stacks._add_event(identifier, name, logical_id, kind, status, reason, physical_id)
        if status != "DELETE_FAILED":
            del resources[logical_id]
    if failed:
        reason = f"The following resource(s) failed to delete: [{', '.join(sorted(failed))}]."
        _set_status(stack, "DELETE_FAILED", reason)
        raise ValueError(f"Embedded stack {identifier} was not successfully deleted: {reason}")
    _set_status(stack, "DELETE_COMPLETE")


def _set_status(stack: dict[str, Any], status: str, reason: str = "") -> None:
    stack.update(StackStatus=status, StackStatusReason=reason)
    name, identifier = stack["StackName"], stack["StackId"]
    stacks._add_event(identifier, name, name, _STACK, status, reason, identifier)
