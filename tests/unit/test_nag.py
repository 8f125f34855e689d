"""cdk-nag's AwsSolutions rules: what they find is mended, or accepted with a reason."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.environments import ENVIRONMENTS, Synthesized
from ultracluster.reasons import METADATA

Get = Callable[[str], Synthesized]


def accepted(environment: Synthesized) -> list[tuple[str, dict[str, Any]]]:
    return [(path, json.loads(text)) for path, text in environment.metadata(METADATA)]


def covers(place: str, entry: dict[str, Any], rule: str, path: str) -> str | None:
    """The detail of an acceptance that covers a finding, or `` for one without details."""
    name, _, detail = rule.partition("[")
    if name != entry["rule"] or not f"{path}/".startswith(f"{place}/"):
        return None
    if not detail:
        return ""
    for known in entry["details"]:
        pattern = ".*".join(map(re.escape, known.split("...")))
        if re.fullmatch(pattern, detail.removesuffix("]")):
            return str(known)
    return None


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_finding_is_accepted_where_it_stands(name: str, synthesized: Get) -> None:
    environment = synthesized(name)
    assert environment.findings, "cdk-nag did not run"
    reasons = accepted(environment)
    open_findings = [
        f"{rule} at {path}"
        for rule, path in environment.findings
        if all(covers(place, entry, rule, path) is None for place, entry in reasons)
    ]
    assert open_findings == []


def test_every_acceptance_is_used_and_says_why(synthesized: Get) -> None:
    used: dict[tuple[str, str, str], bool] = {}
    for name in ENVIRONMENTS:
        environment = synthesized(name)
        for place, entry in accepted(environment):
            assert len(str(entry["reason"])) > 20, place
            where = place.removeprefix(environment.prefix)
            for detail in entry["details"] or [""]:
                key = (where, str(entry["rule"]), detail)
                used[key] = used.get(key, False) or any(
                    covers(place, entry, rule, path) == detail
                    for rule, path in environment.findings
                )
    assert [key for key, seen in used.items() if not seen] == []


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_no_role_may_do_everything_of_a_service(name: str, synthesized: Get) -> None:
    kinds = ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::IAM::Role")
    count = 0
    for stack, logical_id, resource in synthesized(name).resources(*kinds):
        body = resource["Properties"]
        inline = [policy["PolicyDocument"] for policy in body.get("Policies", [])]
        for document in [*inline, *filter(None, [body.get("PolicyDocument")])]:
            for statement in document["Statement"]:
                actions = statement["Action"]
                for action in [actions] if isinstance(actions, str) else actions:
                    count += 1
                    assert not action.endswith(":*") and action != "*", (stack, logical_id)
    assert count > 50
