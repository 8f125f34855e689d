"""What a resource type is here, and how it enters MiniStack's CloudFormation engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ministack.services.cloudformation import provisioners, stacks

Properties = Mapping[str, Any]
Created = tuple[str, dict[str, Any]]  # physical id (what Ref gives), attributes (what GetAtt gives)


class ResourceType:
    """One CloudFormation resource type, carried out by calls to the service's API.

    Attributes:
        name: The type's name.
        create_only: Properties whose change makes CloudFormation replace the resource. The new
            one is made first; the old one is deleted after the whole update has succeeded, or the
            new one when it has failed.
        custom_name: The property that names the resource, where it has one. A resource named in
            the template cannot be replaced under the same name.
    """

    name: ClassVar[str]
    create_only: ClassVar[tuple[str, ...]] = ()
    custom_name: ClassVar[str | None] = None

    def create(self, logical_id: str, properties: Properties, stack: str) -> Created:
        """Make the resource and wait until it is ready."""
        raise ValueError(f"{self.name} cannot be created")

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Created:
        """Change the resource in place and wait until the change has settled."""
        changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
        raise ValueError(f"the emulator cannot change {', '.join(changed)} of {self.name} in place")

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete the resource and wait until it is gone; one that is gone already is fine."""
        raise ValueError(f"{self.name} cannot be deleted")


def physical_name(stack: str, logical_id: str, *, longest: int) -> str:
    """A name as CloudFormation makes one; a replacement gets another."""
    name: str = provisioners._physical_name(stack, logical_id, max_len=longest)
    return name


def replace(
    resource: ResourceType, physical_id: str, old: Properties, new: Properties, stack: str
) -> Created:
    """Replace a resource for a reason that `create_only` cannot express."""
    created: Created = provisioners._replace_resource(
        resource.name, physical_id, dict(old), dict(new), stack, None
    )
    return created


def register(resource: ResourceType, *, tagged: bool = False) -> None:
    """Make a type known to the engine.

    Args:
        resource: The type.
        tagged: Whether the stack's own tags are merged into its `Tags` property.
    """
    provisioners._RESOURCE_HANDLERS[resource.name] = {
        "create": resource.create,
        "update": resource.update,
        "delete": resource.delete,
    }
    provisioners._REPLACING_PROPERTIES[resource.name] = resource.create_only
    if resource.custom_name is not None:
        provisioners._CUSTOM_NAME_REPLACEMENT[resource.name] = {"name": resource.custom_name}
    if tagged:
        provisioners._STACK_TAG_PROPERTY[resource.name] = ("Tags", "list")
    run_on_worker_thread(resource.name)


_on_worker_thread: set[str] = set()
_blocks = stacks._runs_on_worker_thread


def run_on_worker_thread(name: str) -> None:
    """Have the engine provision a type on a thread: its code calls our own API and waits."""
    _on_worker_thread.add(name)
    stacks._runs_on_worker_thread = lambda kind: kind in _on_worker_thread or _blocks(kind)
