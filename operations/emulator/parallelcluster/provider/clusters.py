"""Clusters of the emulated account: each is a stack of its name, as ParallelCluster makes it.

The stack's template remembers the configuration; the stack has no instances.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import secrets
import time
from typing import Any

import boto3
from botocore.exceptions import ClientError

from .configuration import ConfigurationError, check, refused_changes, version

_VERSION_TAG = "parallelcluster:version"
_NAME_TAG = "parallelcluster:cluster-name"
_MOST_MESSAGES = 2048
_STACK_SECONDS = 45.0
_REQUIRED = {"cluster_name", "cluster_configuration"}
_OPTIONAL = {"region", "suppress_validators", "validation_failure_level", "dryrun"}
_CREATE = _REQUIRED | _OPTIONAL | {"rollback_on_failure"}
_UPDATE = _REQUIRED | _OPTIONAL | {"force_update"}


class ProviderError(Exception):
    """A request that cannot be carried out; the text is for the stack's events."""


class Clusters:
    """What ParallelCluster's library offers to the provider."""

    def __init__(self) -> None:
        self._cloudformation = boto3.client("cloudformation")
        self._ec2 = boto3.client("ec2")
        self._region = os.environ["AWS_REGION"]

    def create(self, arguments: dict[str, Any]) -> dict[str, str]:
        """Check the configuration and make the cluster; returns the resource's attributes."""
        _check_arguments("create-cluster", arguments, _CREATE)
        name, configuration = arguments["cluster_name"], arguments["cluster_configuration"]
        if self._stack(name):
            raise ProviderError(f"Bad Request: Cluster {name} already exists.")
        messages = _checked(arguments)
        now = _now()
        facts = {
            "created": now,
            "updated": now,
            "head_node": f"i-0{secrets.token_hex(8)}",
            "address": self._free_address(configuration),
        }
        self._cloudformation.create_stack(
            StackName=name,
            TemplateBody=_template(name, configuration, facts),
            Tags=[
                {"Key": _NAME_TAG, "Value": name},
                {"Key": _VERSION_TAG, "Value": version()},
            ],
        )
        stack = self._wait(name, "CREATE_COMPLETE")
        return self._attributes(stack, configuration, facts, messages)

    def update(self, arguments: dict[str, Any]) -> dict[str, str]:
        """Check the change and record it; no change at all is a success."""
        _check_arguments("update-cluster", arguments, _UPDATE)
        name, configuration = arguments["cluster_name"], arguments["cluster_configuration"]
        stack = self._own_stack(name)
        if not stack:
            raise ProviderError(f"Bad Request: Cluster '{name}' does not exist.")
        body = self._cloudformation.get_template(StackName=name)["TemplateBody"]
        metadata = (json.loads(body) if isinstance(body, str) else body)["Metadata"]
        facts = metadata["Facts"]
        messages = _checked(arguments)
        if configuration == metadata["Config"]:
            return self._attributes(stack, configuration, facts, messages)
        refused = refused_changes(name, metadata["Config"], configuration)
        if refused and arguments.get("force_update") != "true":
            raise ProviderError(f"Bad Request: Update failure: {'; '.join(refused)}")
        facts |= {"updated": _now()}
        self._cloudformation.update_stack(
            StackName=name, TemplateBody=_template(name, configuration, facts), Tags=stack["Tags"]
        )
        stack = self._wait(name, "UPDATE_COMPLETE")
        return self._attributes(stack, configuration, facts, messages)

    def delete(self, name: str) -> None:
        """Delete the cluster of this name; what is no cluster, or gone, is left alone."""
        if self._own_stack(name):
            self._cloudformation.delete_stack(StackName=name)
            self._wait(name, "DELETE_COMPLETE")

    def _stack(self, name: str) -> dict[str, Any] | None:
        try:
            stack: dict[str, Any] = self._cloudformation.describe_stacks(StackName=name)["Stacks"][
                0
            ]
        except ClientError as error:
            if "does not exist" not in str(error):
                raise
            return None
        return None if stack["StackStatus"] == "DELETE_COMPLETE" else stack

    def _own_stack(self, name: str) -> dict[str, Any] | None:
        stack = self._stack(name) if name else None
        tags = {tag["Key"]: tag["Value"] for tag in stack["Tags"]} if stack else {}
        return stack if tags.get(_VERSION_TAG) == version() else None

    def _wait(self, name: str, wanted: str) -> dict[str, Any]:
        end = time.monotonic() + _STACK_SECONDS
        while time.monotonic() < end:
            stack = self._stack(name) or {"StackStatus": "DELETE_COMPLETE"}
            status = stack["StackStatus"]
            if status == wanted:
                return stack
            if not status.endswith("_IN_PROGRESS"):
                break
            time.sleep(0.2)
        raise ProviderError(f"the stack of cluster {name} is {status}, it should be {wanted}")

    def _free_address(self, configuration: dict[str, Any]) -> str:
        subnet = configuration["HeadNode"]["Networking"]["SubnetId"]
        found = self._ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]
        # AWS keeps the first four addresses of a subnet.
        return str(ipaddress.ip_network(found["CidrBlock"])[4])

    def _attributes(
        self,
        stack: dict[str, Any],
        configuration: dict[str, Any],
        facts: dict[str, str],
        messages: list[dict[str, str]],
    ) -> dict[str, str]:
        said = json.dumps(messages)
        if len(said) > _MOST_MESSAGES:
            said = f"TRUNCATED:{said[: _MOST_MESSAGES - 10]}"
        status = stack["StackStatus"]
        # A private head node has no headNode.publicIpAddress, so asking for it fails the stack.
        return {
            "clusterName": stack["StackName"],
            "clusterStatus": status,
            "cloudFormationStackStatus": status,
            "cloudformationStackArn": stack["StackId"],
            "cloudformationStackStatus": status,
            "computeFleetStatus": "RUNNING",
            "creationTime": facts["created"],
            "lastUpdatedTime": facts["updated"],
            "region": self._region,
            "version": version(),
            "headNode.instanceId": facts["head_node"],
            "headNode.instanceType": configuration["HeadNode"]["InstanceType"],
            "headNode.launchTime": facts["created"],
            "headNode.privateIpAddress": facts["address"],
            "headNode.state": "running",
            "validationMessages": said,
        }


def _check_arguments(operation: str, arguments: dict[str, Any], allowed: set[str]) -> None:
    # The words of ParallelCluster's library, whose TypeError reaches the stack's events.
    missing = _REQUIRED - arguments.keys()
    if missing:
        raise ProviderError(f"<{operation}> missing required arguments: {sorted(missing)}")
    unexpected = arguments.keys() - allowed
    if unexpected:
        raise ProviderError(
            f"<{operation}> got unexpected arguments: {sorted(unexpected)}; "
            f"it takes {', '.join(sorted(allowed))}"
        )
    if arguments.get("dryrun", "false") == "true":
        raise ProviderError("Request would have succeeded, but DryRun flag is set.")


def _checked(arguments: dict[str, Any]) -> list[dict[str, str]]:
    try:
        return check(
            arguments["cluster_name"],
            arguments["cluster_configuration"],
            suppressed=arguments.get("suppress_validators", []),
            failure_level=arguments.get("validation_failure_level", "ERROR"),
        )
    except ConfigurationError as error:
        raise ProviderError(f"Bad Request: {error}") from error


def _template(name: str, configuration: dict[str, Any], facts: dict[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(configuration, sort_keys=True).encode()).hexdigest()
    return json.dumps(
        {
            "AWSTemplateFormatVersion": "2010-09-09",
            "Description": f"AWS ParallelCluster {name}",
            "Metadata": {"Version": version(), "Config": configuration, "Facts": facts},
            "Resources": {
                "ConfigurationVersion": {
                    "Type": "AWS::SSM::Parameter",
                    "Properties": {
                        "Name": f"/parallelcluster/{name}/configuration-version",
                        "Type": "String",
                        "Value": digest,
                    },
                }
            },
        }
    )


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
