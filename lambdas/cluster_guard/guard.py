"""Whose a cluster is, and what is left of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

# An instance that is shutting down still holds its interfaces.
_ALIVE = ["pending", "running", "shutting-down", "stopping", "stopped"]
_GONE = "DELETE_COMPLETE"


@dataclass(frozen=True, kw_only=True)
class Guard:
    """Looks after one cluster name.

    Args:
        cluster: the cluster's name, which is also that of the stack ParallelCluster makes.
        security_group: every node's interfaces are in it.
        cloudformation: boto3 client.
        ec2: boto3 client.
    """

    cluster: str
    security_group: str
    cloudformation: Any
    ec2: Any

    def refusal(self, own_stack: str, resource: str) -> str | None:
        """Why the cluster must not be made; None where nothing is in its way.

        A creation that the provider refuses is rolled back by name, which would delete the
        cluster that has the name already.

        Args:
            own_stack: id of the stack that asks.
            resource: logical id that the cluster has in it.
        """
        status = self._status_of_name()
        if status is None or self._is_ours(own_stack, resource):
            return None
        return (
            f"a stack {self.cluster!r} exists ({status}) that this stack did not make; choose "
            "another name or environment in the settings, or delete that stack first"
        )

    def remains(self) -> list[str]:
        """Ids of the instances and network interfaces that are still there."""
        instances = self._pages(
            "describe_instances",
            "Reservations",
            ("tag:parallelcluster:cluster-name", [self.cluster]),
            ("instance-state-name", _ALIVE),
        )
        interfaces = self._pages(
            "describe_network_interfaces",
            "NetworkInterfaces",
            ("group-id", [self.security_group]),
        )
        return [
            *(one["InstanceId"] for reservation in instances for one in reservation["Instances"]),
            *(one["NetworkInterfaceId"] for one in interfaces),
        ]

    def _status_of_name(self) -> str | None:
        try:
            stack = self.cloudformation.describe_stacks(StackName=self.cluster)["Stacks"][0]
        except ClientError as error:
            if "does not exist" in error.response["Error"].get("Message", ""):
                return None
            raise
        status: str = stack["StackStatus"]
        return None if status == _GONE else status

    def _is_ours(self, own_stack: str, resource: str) -> bool:
        """Whether the asking stack holds the cluster: it did before it had a guard."""
        try:
            found = self.cloudformation.describe_stack_resource(
                StackName=own_stack, LogicalResourceId=resource
            )["StackResourceDetail"]
        except ClientError as error:
            if error.response["Error"]["Code"] == "ValidationError":
                return False
            raise
        return bool(
            found.get("PhysicalResourceId") == self.cluster
            and found["ResourceStatus"] in ("CREATE_COMPLETE", "UPDATE_COMPLETE")
        )

    def _pages(
        self, operation: str, key: str, *filters: tuple[str, list[str]]
    ) -> Iterator[dict[str, Any]]:
        wanted = [{"Name": name, "Values": values} for name, values in filters]
        for page in self.ec2.get_paginator(operation).paginate(Filters=wanted):
            yield from page[key]
