"""Stacks: an update shows its clean-up phase, and keeps others away while it runs."""

from __future__ import annotations

from typing import Any

from ministack.services import cloudformation
from ministack.services.cloudformation import handlers, helpers, stacks

_CLEANING = "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"
_UPDATABLE = (
    "CREATE_COMPLETE",
    "UPDATE_COMPLETE",
    "UPDATE_ROLLBACK_COMPLETE",
    "IMPORT_COMPLETE",
    "IMPORT_ROLLBACK_COMPLETE",
)


def apply() -> None:
    """Apply the corrections."""
    _show_clean_up()
    _refuse_updates_in_the_words_of_aws()
    _refuse_deletion_during_an_update()


def _show_clean_up() -> None:
    """MiniStack deletes what an update replaced or dropped while it says UPDATE_IN_PROGRESS."""
    delete = stacks._delete_resource

    def deleted(
        kind: str, physical_id: str, properties: Any, stack_name: str, logical_id: str
    ) -> None:
        stack = cloudformation._stacks.get(stack_name) or {}
        cleaning = stack.get("StackStatus") in ("UPDATE_IN_PROGRESS", _CLEANING)
        if not cleaning:
            delete(kind, physical_id, properties, stack_name, logical_id)
            return
        identifier = stack["StackId"]
        if stack["StackStatus"] != _CLEANING:
            stack["StackStatus"] = _CLEANING
            stacks._add_event(
                identifier,
                stack_name,
                stack_name,
                "AWS::CloudFormation::Stack",
                _CLEANING,
                physical_id=identifier,
            )
        resource = (identifier, stack_name, logical_id, kind)
        stacks._add_event(*resource, "DELETE_IN_PROGRESS", physical_id=physical_id)
        delete(kind, physical_id, properties, stack_name, logical_id)
        stacks._add_event(*resource, "DELETE_COMPLETE", physical_id=physical_id)

    stacks._delete_resource = deleted


def _refuse_updates_in_the_words_of_aws() -> None:
    update = handlers._ACTION_HANDLERS["UpdateStack"]

    def updated(params: dict[str, list[str]]) -> Any:
        stack = handlers._resolve_stack(helpers._p(params, "StackName"))
        status = stack.get("StackStatus", "") if stack else ""
        if stack and status != "DELETE_COMPLETE" and status not in _UPDATABLE:
            return helpers._error(
                "ValidationError",
                f"Stack:{stack['StackId']} is in {status} state and can not be updated.",
            )
        return update(params)

    handlers._ACTION_HANDLERS["UpdateStack"] = updated


def _refuse_deletion_during_an_update() -> None:
    """MiniStack deletes the resources beside the update that makes them."""
    delete = handlers._ACTION_HANDLERS["DeleteStack"]

    def deleted(params: dict[str, list[str]]) -> Any:
        stack = handlers._resolve_stack(helpers._p(params, "StackName"))
        status = stack.get("StackStatus", "") if stack else ""
        if stack and status.startswith("UPDATE_") and status.endswith("_IN_PROGRESS"):
            return helpers._error(
                "ValidationError",
                f"Stack [{stack['StackId']}] cannot be deleted while in status {status}",
            )
        return delete(params)

    handlers._ACTION_HANDLERS["DeleteStack"] = deleted
