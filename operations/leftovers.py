"""What an account still holds after `cdk destroy`: all that bills, or blocks the next deploy.

Meant for an account of its own: whatever nothing explains is a left-over, also where it does not
carry our name. What AWS or the CDK bootstrap keep on purpose is listed too, with the reason.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from operations.leftover_kinds import KINDS, Kind

BOOTSTRAP_STACK = "CDKToolkit"

Clients = Callable[[str], Any]


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """One thing that is still there.

    Attributes:
        kind: What it is, for example `s3 bucket`.
        identifier: Its name, id or ARN.
        ours: Whether it carries our prefix.
        reason: Why it may stay; empty for a left-over.
    """

    kind: str
    identifier: str
    ours: bool
    reason: str

    @property
    def expected(self) -> bool:
        """Whether it may stay."""
        return bool(self.reason)

    def __str__(self) -> str:
        """One line for people."""
        return f"{self.kind} {self.identifier}" + (f" ({self.reason})" if self.reason else "")


def find(client: Clients, *, prefix: str) -> list[Leftover]:
    """List everything that is left, unexpected things first.

    Args:
        client: Makes a boto3 client of a service, for the account and region to look at.
        prefix: What the names of our stacks begin with.

    A service that cannot be asked is a left-over itself: nothing is taken to be gone unseen.
    """
    account = _Account(client, prefix)
    found = [item for kind in KINDS for item in account.look(kind)]
    return sorted(found, key=lambda item: (item.expected, item.kind, item.identifier))


def render(found: Sequence[Leftover]) -> str:
    """The findings as text: left-overs first, then what may stay and why."""
    sections = []
    for title, expected in (("left over", False), ("stays, as it should", True)):
        lines = [f"  {item}" for item in found if item.expected is expected]
        if lines:
            sections.append("\n".join((f"{title}: {len(lines)}", *lines)))
    return "\n".join(sections) or "nothing is left"


class _Account:
    """The account to look at, with what the bootstrap stack and the default VPC hold."""

    def __init__(self, client: Clients, prefix: str) -> None:
        self._client = functools.cache(client)
        self._prefix = prefix
        self._account_id = ""
        self._bootstrap = frozenset(self._ids_of(BOOTSTRAP_STACK))
        self._default_vpcs = frozenset(self._default_vpc_ids())

    def look(self, kind: Kind) -> Iterator[Leftover]:
        """What is left of one kind."""
        try:
            for item in self._list(kind):
                reason = self._explain(kind, item)
                if reason is not None:
                    yield self._leftover(kind, item, reason)
        except (BotoCoreError, ClientError) as error:
            yield Leftover(kind=kind.name, identifier=f"not listed: {error}", ours=False, reason="")

    def _list(self, kind: Kind) -> Iterator[Mapping[str, Any]]:
        calls = self._client(kind.service)
        arguments = dict(kind.arguments)
        if kind.needs_account:
            arguments["AccountId"] = self._id()
        if calls.can_paginate(kind.operation):
            pages: Iterable[Mapping[str, Any]] = calls.get_paginator(kind.operation).paginate(
                **arguments
            )
        else:
            pages = [getattr(calls, kind.operation)(**arguments)]
        for page in pages:
            for group in _at(page, kind.items):
                for item in group:
                    named = item if isinstance(item, Mapping) else {kind.identity[0]: item}
                    yield {**named, **self._details(kind, named)}

    def _details(self, kind: Kind, item: Mapping[str, Any]) -> Mapping[str, Any]:
        if kind.details is None:
            return {}
        operation, argument, place = kind.details
        answer = getattr(self._client(kind.service), operation)(**{argument: item[argument]})
        details: Mapping[str, Any] = answer[place]
        return details

    def _explain(self, kind: Kind, item: Mapping[str, Any]) -> str | None:
        """Why the item may stay; empty for a left-over, None for what is no thing of its own."""
        if kind.ignore(item):
            return None
        if self._bootstrap.intersection(_identities(kind, item)):
            return "part of the CDK bootstrap"
        if kind.with_vpc and any(vpc in self._default_vpcs for vpc in _vpcs(item)):
            return "part of the default VPC"
        return kind.explain(item)

    def _leftover(self, kind: Kind, item: Mapping[str, Any], reason: str) -> Leftover:
        texts = [*_identities(kind, item), *_tag_values(item)]
        return Leftover(
            kind=kind.name,
            identifier=str(item[kind.identity[0]]),
            ours=any(
                text.rpartition("/")[2].startswith(self._prefix)
                or text.rpartition(":")[2].startswith(self._prefix)
                for text in texts
            ),
            reason=reason,
        )

    def _ids_of(self, stack: str) -> Iterator[str]:
        pages = self._client("cloudformation").get_paginator("list_stack_resources")
        try:
            yield stack
            for page in pages.paginate(StackName=stack):
                for resource in page["StackResourceSummaries"]:
                    yield resource.get("PhysicalResourceId", "")
        except ClientError as error:
            if "does not exist" not in str(error):
                raise

    def _default_vpc_ids(self) -> Iterator[str]:
        for vpc in self._client("ec2").describe_vpcs()["Vpcs"]:
            if vpc.get("IsDefault"):
                yield vpc["VpcId"]

    def _id(self) -> str:
        if not self._account_id:
            self._account_id = self._client("sts").get_caller_identity()["Account"]
        return self._account_id


def _at(page: Mapping[str, Any], path: str) -> Iterator[Any]:
    """The values at a dotted path; a step that ends in [] goes through a list."""
    values: list[Any] = [page]
    for step in path.split("."):
        name = step.removesuffix("[]")
        values = [value[name] for value in values if value.get(name) is not None]
        if step.endswith("[]"):
            values = [item for value in values for item in value]
    yield from values


def _identities(kind: Kind, item: Mapping[str, Any]) -> list[str]:
    return [str(item[field]) for field in kind.identity if item.get(field)]


def _vpcs(item: Mapping[str, Any]) -> list[str]:
    attached = [
        one.get("VpcId", "") for one in item.get("Attachments", ()) if isinstance(one, Mapping)
    ]
    return [item.get("VpcId", ""), *attached]


def _tag_values(item: Mapping[str, Any]) -> list[str]:
    tags = item.get("Tags") or ()
    return [str(tag.get("Value", "")) for tag in tags if isinstance(tag, Mapping)]
