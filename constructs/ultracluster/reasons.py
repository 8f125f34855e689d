"""Why a finding of cdk-nag is accepted, said at the construct that it is about."""

from __future__ import annotations

import json

from constructs import IConstruct

METADATA = "ultracluster:accepted"


def accept(construct: IConstruct, rule: str, reason: str, *details: str) -> None:
    """Accept a rule's findings at a construct and below.

    Args:
        construct: the smallest one that the reason holds for.
        rule: the rule's id, such as `AwsSolutions-S1`.
        reason: why it is right here.
        details: for rules that name what they found, `Action::ec2:Describe*` or `Resource::*` as
            cdk-nag writes it; `...` stands for anything. None accepts findings without details.
    """
    text = json.dumps({"rule": rule, "reason": reason, "details": list(details)})
    construct.node.add_metadata(METADATA, text)
