"""`Custom::PclusterCluster`: the CloudFormation side of the provider."""

from __future__ import annotations

import json
import logging
import re
import secrets
import urllib.request
from typing import Any

from .clusters import Clusters, ProviderError

logger = logging.getLogger(__name__)

# CloudFormation takes no answer that is longer; a reason leaves room for the rest of it.
_MOST_BYTES = 4096
_MOST_REASON = 2000
# Not handed to ParallelCluster; every other property is, as AWS's provider does.
_OWN_PROPERTIES = ("ServiceToken", "DeletionPolicy")
_DELETION_POLICIES = ("Retain", "Delete")


def handle(event: dict[str, Any], context: Any) -> None:
    """Answer one request of CloudFormation, whatever happens."""
    properties = event["ResourceProperties"]
    known = event.get("PhysicalResourceId")
    answer: dict[str, Any] = {"Status": "SUCCESS", "Data": {}}
    try:
        answer["PhysicalResourceId"], answer["Data"] = _carry_out(event, properties, known)
    except ProviderError as error:
        answer |= {"Status": "FAILED", "Reason": str(error)}
    except Exception as error:
        logger.exception("the request could not be carried out")
        answer |= {"Status": "FAILED", "Reason": f"{type(error).__name__}: {error}"}
    answer.setdefault("PhysicalResourceId", known or _generated_id(event))
    _respond(event, answer)


def _carry_out(
    event: dict[str, Any], properties: dict[str, Any], known: str | None
) -> tuple[str, dict[str, str]]:
    clusters = Clusters()
    policy = properties.get("DeletionPolicy", "Delete")
    if event["RequestType"] == "Delete":
        # As AWS's provider does it, by name and not by id: the roll-back of a creation that was
        # refused because the name is taken deletes the cluster that has the name.
        if policy != "Retain":
            clusters.delete(properties.get("ClusterName", ""))
        return known or _generated_id(event), {}
    if policy not in _DELETION_POLICIES:
        raise ProviderError(
            f"DeletionPolicy must be one of {json.dumps(_DELETION_POLICIES)}, got {policy!r}."
        )
    arguments = {
        _snake_case(name): value
        for name, value in properties.items()
        if name not in _OWN_PROPERTIES
    }
    name: str = properties.get("ClusterName", "")
    if event["RequestType"] == "Create":
        return name, clusters.create(arguments)
    if known != name:
        raise ProviderError("Cannot update the ClusterName in the properties.")
    return name, clusters.update(arguments)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _generated_id(event: dict[str, Any]) -> str:
    stack = event["StackId"].split("/")[1]
    return f"{stack}_{event['LogicalResourceId']}_{secrets.token_hex(4).upper()}"


def _respond(event: dict[str, Any], answer: dict[str, Any]) -> None:
    if "Reason" in answer:
        logger.error("%s", answer["Reason"])
        answer["Reason"] = _shortened(answer["Reason"])
    body = json.dumps(
        answer | {name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")}
    ).encode()
    if len(body) > _MOST_BYTES:
        raise ValueError(f"an answer of {len(body)} bytes, CloudFormation takes {_MOST_BYTES}")
    request = urllib.request.Request(  # noqa: S310 - the URL is CloudFormation's own
        event["ResponseURL"], data=body, method="PUT", headers={"Content-Type": ""}
    )
    urllib.request.urlopen(request).close()  # noqa: S310


def _shortened(reason: str) -> str:
    if len(reason) <= _MOST_REASON:
        return reason
    return f"{reason[:_MOST_REASON]} ... (the rest is in the function's log)"
