"""What the emulated SageMaker remembers of models and endpoint configurations, and how it lists."""

from __future__ import annotations

import base64
import binascii
import copy
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from operations.emulator.sagemaker_requests import Json, validation_error

# Lists show newest first, and this many a page, unless the request says otherwise: the API's rule.
_PAGE = 10
_TIME_LIMITS = (
    ("CreationTimeBefore", "CreationTime", -1),
    ("CreationTimeAfter", "CreationTime", 1),
    ("LastModifiedTimeBefore", "LastModifiedTime", -1),
    ("LastModifiedTimeAfter", "LastModifiedTime", 1),
)


@dataclass(frozen=True)
class Record:
    """A model or an endpoint configuration: it never changes once made.

    Attributes:
        name: its name, as given.
        arn: its ARN.
        created: seconds since the epoch.
        settings: the members of the request that made it, without name and tags.
    """

    name: str
    arn: str
    created: float
    settings: Json = field(repr=False)


class Records:
    """The models, or the endpoint configurations, of the account.

    Args:
        arn_prefix: what stands before the name in an ARN; names are lower case there.
        noun: what the service's messages call one of them.
        member: the start of the API's member names, ``Model`` or ``EndpointConfig``.
    """

    def __init__(self, *, arn_prefix: str, noun: str, member: str) -> None:
        self._arn_prefix = arn_prefix
        self._noun = noun
        self._name = f"{member}Name"
        self._arn = f"{member}Arn"
        self._records: dict[str, Record] = {}

    def arn(self, name: str) -> str:
        """The ARN that this name has."""
        return f"{self._arn_prefix}{name.lower()}"

    def arns(self) -> set[str]:
        """The ARNs of all."""
        return {record.arn for record in self._records.values()}

    def refuse_existing(self, name: str) -> None:
        """Raise what a second Create of the name gets."""
        if name.lower() in self._records:
            raise validation_error(
                f'Cannot create already existing {self._noun} "{self.arn(name)}".'
            )

    def add(self, request: Json) -> Record:
        """Make one from a checked Create request."""
        name = request[self._name]
        self.refuse_existing(name)
        settings = copy.deepcopy(
            {key: value for key, value in request.items() if key not in (self._name, "Tags")}
        )
        record = Record(name, self.arn(name), time.time(), settings)
        self._records[name.lower()] = record
        return record

    def find(self, name: str) -> Record:
        """The one of this name.

        Raises:
            ApiError: there is none.
        """
        if name.lower() not in self._records:
            raise validation_error(f'Could not find {self._noun} "{self.arn(name)}".')
        return self._records[name.lower()]

    def remove(self, name: str) -> Record:
        """Forget the one of this name."""
        record = self.find(name)
        del self._records[name.lower()]
        return record

    def describe(self, name: str) -> Json:
        """What a Describe answers."""
        record = self.find(name)
        return {**copy.deepcopy(record.settings), **self._row(record)}

    def listed(self, request: Json) -> Json:
        """What a List answers."""
        rows = [self._row(record) for record in self._records.values()]
        plural = f"{self._name.removesuffix('Name')}s"
        return page(rows, request, result=plural, name=self._name)

    def _row(self, record: Record) -> Json:
        return {self._name: record.name, self._arn: record.arn, "CreationTime": record.created}


def page(rows: Iterable[Json], request: Json, *, result: str, name: str) -> Json:
    """One page of a List operation.

    Args:
        rows: the summaries, as they go on the wire.
        request: a checked List request.
        result: the answer's member that holds the rows, such as ``Endpoints``.
        name: the rows' member that holds their name, such as ``EndpointName``.

    Raises:
        ApiError: the token is not one that this function gave.
    """
    kept = [row for row in rows if _wanted(row, request, name)]
    sort_by = {"Name": name, "Status": "EndpointStatus"}.get(
        request.get("SortBy", ""), "CreationTime"
    )
    kept.sort(
        key=lambda row: (row[sort_by], row[name]),
        reverse=request.get("SortOrder", "Descending") == "Descending",
    )
    start = _offset(request.get("NextToken"))
    end = start + request.get("MaxResults", _PAGE)
    answer: Json = {result: kept[start:end]}
    if end < len(kept):
        answer["NextToken"] = base64.b64encode(str(end).encode()).decode()
    return answer


def _wanted(row: Json, request: Json, name: str) -> bool:
    if request.get("NameContains", "").lower() not in row[name].lower():
        return False
    if request.get("StatusEquals", row.get("EndpointStatus")) != row.get("EndpointStatus"):
        return False
    return all(
        sign * (row[member] - _seconds(request[limit])) > 0
        for limit, member, sign in _TIME_LIMITS
        if limit in request
    )


def _seconds(value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        raise validation_error(
            f"'{value}' is not a time: the JSON protocol gives times in seconds since the epoch"
        ) from None


def _offset(token: str | None) -> int:
    if token is None:
        return 0
    try:
        return int(base64.b64decode(token, validate=True))
    except (binascii.Error, ValueError):
        raise validation_error("The provided pagination token is not valid.") from None
