"""A cluster's configuration under ParallelCluster's own schema, validators and update rules."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from marshmallow import ValidationError
from pcluster import utils
from pcluster.config.common import AllValidatorsSuppressor, TypeMatchValidatorsSuppressor
from pcluster.config.config_patch import ConfigPatch
from pcluster.schemas.cluster_schema import ClusterSchema
from pcluster.validators.common import FailureLevel, ValidatorContext

from .account import connect

# The emulated file systems have no network interfaces whose security groups could be read.
_NOT_EMULATED = {"ExistingFsxNetworkingValidator"}


class ConfigurationError(Exception):
    """A configuration that ParallelCluster refuses; the text names every reason."""


def version() -> str:
    """ParallelCluster's version."""
    installed: str = utils.get_installed_version()
    return installed


def check(
    name: str, configuration: dict[str, Any], *, suppressed: list[str], failure_level: str
) -> list[dict[str, str]]:
    """Validate a configuration, whose scalars may all be strings.

    Args:
        name: the cluster's name.
        configuration: the configuration, as CloudFormation hands it over.
        suppressed: ``ALL`` or ``type:<validator>`` for each validator that is left out.
        failure_level: INFO, WARNING or ERROR; from this level on a finding is a refusal.

    Returns:
        The findings that do not refuse it: level, type and message of each.

    Raises:
        ConfigurationError: it is refused.
    """
    levels = [level.name for level in FailureLevel]
    if failure_level not in levels:
        raise ConfigurationError(
            f"ValidationFailureLevel is {failure_level!r}, it must be one of {', '.join(levels)}"
        )
    if not isinstance(suppressed, list):
        raise ConfigurationError(f"SuppressValidators is {suppressed!r}, it must be a list")
    connect()
    types = {text.removeprefix("type:") for text in suppressed if text.startswith("type:")}
    suppressors = {TypeMatchValidatorsSuppressor(types | _NOT_EMULATED)}
    if "ALL" in suppressed:
        suppressors.add(AllValidatorsSuppressor())
    try:
        cluster = ClusterSchema(cluster_name=name).load(copy.deepcopy(configuration))
        findings = cluster.validate(suppressors, ValidatorContext())
    except ValidationError as error:
        problems = "; ".join(_flat(error.messages))
        raise ConfigurationError(f"Invalid cluster configuration: {problems}") from error
    except Exception as error:
        # ParallelCluster turns whatever comes out of a validator's preparation into this.
        raise ConfigurationError(f"Invalid cluster configuration: {error}") from error
    limit = FailureLevel[failure_level].value
    refusals = [finding for finding in findings if finding.level.value >= limit]
    if refusals:
        problems = "; ".join(f"{each.validator_type}: {each.message}" for each in refusals)
        raise ConfigurationError(f"Invalid cluster configuration: {problems}")
    return [
        {"level": each.level.name, "type": each.validator_type, "message": each.message}
        for each in findings
    ]


class _RunningCluster:
    """What the update rules ask of a cluster: here its fleet always runs."""

    def __init__(self, name: str, *, login_nodes: bool) -> None:
        self.name = name
        self.stack_name = name
        self._login_nodes = login_nodes

    def has_running_capacity(self, updated_value: bool = False) -> bool:
        return True

    def has_running_login_nodes(
        self, updated_value: bool = False, pool_name: str | None = None
    ) -> bool:
        return self._login_nodes


def refused_changes(name: str, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The changes that a running cluster does not take, each with reason and way out."""
    running = _RunningCluster(name, login_nodes="LoginNodes" in old)
    allowed, rows = ConfigPatch(running, old, new).check()
    if allowed:
        return []
    header, *changes = rows
    found = []
    for change in (dict(zip(header, row, strict=True)) for row in changes):
        if change["check"] != "SUCCEEDED":
            path = ".".join([*change["param_path"], change["parameter"]])
            found.append(
                f"{path} from {change['old value']} to {change['new value']}: "
                f"{change['reason']}. {change['action_needed']}"
            )
    return found


def _flat(messages: Any, path: str = "") -> Iterator[str]:
    if isinstance(messages, dict):
        for key, inner in messages.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(messages, list):
        for inner in messages:
            yield from _flat(inner, path)
    else:
        yield f"{path}: {messages}"
