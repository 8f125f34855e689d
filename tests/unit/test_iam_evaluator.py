"""The judge of the service role's policy does not say yes too easily."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.iam import Need, allows, without

PASS: dict[str, Any] = {
    "Effect": "Allow",
    "Action": ["iam:PassRole", "iam:Get?ole"],
    "Resource": "arn:aws:iam::1:role/uc/*",
    "Condition": {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
}
GOOD = Need(
    action="iam:passrole",
    resource="arn:aws:iam::1:role/uc/x",
    context={"iam:PassedToService": "sagemaker.amazonaws.com"},
)


def test_a_right_that_is_given_is_seen() -> None:
    assert allows([PASS], GOOD)


@pytest.mark.parametrize(
    "changed",
    [
        {"action": "iam:PassRoles"},
        {"action": "iam:GetXRole"},
        {"resource": "arn:aws:iam::1:role/other"},
        {"resource": "x:arn:aws:iam::1:role/uc/x"},
        {"context": {}},
        {"context": {"iam:PassedToService": "ec2.amazonaws.com"}},
    ],
)
def test_anything_else_is_not(changed: dict[str, Any]) -> None:
    need = Need(
        **{"action": GOOD.action, "resource": GOOD.resource, "context": GOOD.context, **changed}
    )
    assert not allows([PASS], need)
    assert not allows(without([PASS], "iam:PassRole"), GOOD)


@pytest.mark.parametrize(
    "changed",
    [
        {"Effect": "Deny"},
        {"NotAction": "iam:*"},
        {"Condition": {"StringLike": {"iam:PassedToService": "*"}}},
    ],
)
def test_what_it_cannot_judge_is_an_error(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cannot evaluate"):
        allows([{**PASS, **changed}], GOOD)
