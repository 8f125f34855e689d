"""The least rights that CloudFormation needs to deploy one environment."""

from __future__ import annotations

import json
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ultracluster.settings import Settings

RIGHTS = Path(__file__).with_name("deploy_rights.toml")
# A managed policy holds 6,144 characters; CloudFormation makes names of at least this much of a
# stack's name.
POLICY_LIMIT = 6144
NAME_LENGTH = 20
GLOBAL_SERVICES = ("iam", "budgets")

Document = dict[str, Any]


class DeployPolicyError(Exception):
    """A template holds a type that the table does not know; the message names it."""


def deploy_policies(
    types: Iterable[str], settings: Settings, *, account: str, partition: str = "aws"
) -> list[Document]:
    """Policy documents for an execution role, each within IAM's size.

    Args:
        types: resource types of the templates.
        settings: of the environment.
        account: twelve digits.
        partition: of the region.

    Raises:
        DeployPolicyError: a type has no row in `deploy_rights.toml`.
    """
    table = tomllib.loads(RIGHTS.read_text(encoding="utf-8"))
    unknown = sorted(set(types) - set(table["types"]))
    if unknown:
        raise DeployPolicyError(
            f"no rights are known for {', '.join(unknown)}; add a row to {RIGHTS.name} "
            f"({table['refresh']})"
        )
    values = {
        "name": settings.prefix[:NAME_LENGTH],
        "prefix": settings.prefix,
        "region": settings.aws.region,
        "account": account,
        "partition": partition,
    }
    rows = [table["always"], *(table["types"][name] for name in sorted(set(types)))]
    return list(_packed(_statements(rows, values)))


def resource_types(assembly: Path) -> set[str]:
    """Types of every resource in the templates of a cloud assembly."""
    return {
        resource["Type"]
        for path in assembly.glob("*.template.json")
        for resource in json.loads(path.read_text(encoding="utf-8"))["Resources"].values()
    } - {"AWS::CDK::Metadata"}


def _statements(rows: Iterable[Mapping[str, Any]], values: Mapping[str, str]) -> Iterator[Document]:
    actions: dict[tuple[str, ...], set[str]] = defaultdict(set)
    passed: set[str] = set()
    services: set[str] = set()
    for row in rows:
        resources = tuple(text.format(**values) for text in row.get("resources", ["*"]))
        actions[resources].update(row.get("actions", []))
        for text in row.get("invokes", []):
            actions[(text.format(**values),)].add("lambda:InvokeFunction")
        passed.update([row["pass_role"]] if "pass_role" in row else [])
        services.update(row.get("service_roles", []))
    for resources, allowed in sorted(actions.items()):
        for everywhere in (True, False):
            chosen = sorted(
                a for a in allowed if (a.split(":")[0] in GLOBAL_SERVICES) == everywhere
            )
            if chosen:
                region = {} if everywhere else {"aws:RequestedRegion": values["region"]}
                yield _allow(chosen, resources, region)
    roles = [
        "arn:{partition}:iam::{account}:role/{name}*".format(**values),
        "arn:{partition}:iam::{account}:role/{prefix}/*".format(**values),
    ]
    if passed:
        yield _allow(["iam:PassRole"], roles, {"iam:PassedToService": sorted(passed)})
    for service in sorted(services):
        role = (
            f"arn:{values['partition']}:iam::{values['account']}:role/aws-service-role/{service}/*"
        )
        yield _allow(
            ["iam:CreateServiceLinkedRole", "iam:AttachRolePolicy", "iam:PutRolePolicy"], [role], {}
        )


def _allow(
    actions: list[str], resources: Iterable[str], equals: Mapping[str, str | list[str]]
) -> Document:
    names = list(resources)
    return {
        "Effect": "Allow",
        "Action": actions,
        "Resource": names[0] if len(names) == 1 else names,
        **({"Condition": {"StringEquals": dict(equals)}} if equals else {}),
    }


def _packed(statements: Iterable[Document]) -> Iterator[Document]:
    """Documents of as many statements as fit; a statement too long is cut between its actions."""
    held: list[Document] = []
    for statement in _short(statements):
        if held and _size([*held, statement]) > POLICY_LIMIT:
            yield _document(held)
            held = []
        held.append(statement)
    if held:
        yield _document(held)


def _short(statements: Iterable[Document]) -> Iterator[Document]:
    for statement in statements:
        actions = statement["Action"]
        if _size([statement]) <= POLICY_LIMIT // 2 or len(actions) == 1:
            yield statement
        else:
            half = len(actions) // 2
            yield from _short(
                {**statement, "Action": part} for part in (actions[:half], actions[half:])
            )


def _document(statements: list[Document]) -> Document:
    return {"Version": "2012-10-17", "Statement": statements}


def _size(statements: list[Document]) -> int:
    return len(json.dumps(_document(statements), separators=(",", ":")))
