"""Templates as CloudFormation would resolve them, with made-up ids of the right form."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

ACCOUNT, REGION = "111122223333", "us-west-2"
_PSEUDO = {
    "AWS::AccountId": ACCOUNT,
    "AWS::Region": REGION,
    "AWS::Partition": "aws",
    "AWS::URLSuffix": "amazonaws.com",
}
_PREFIXES = {
    "AWS::EC2::VPC": "vpc-",
    "AWS::EC2::Subnet": "subnet-",
    "AWS::EC2::SecurityGroup": "sg-",
    "AWS::FSx::FileSystem": "fs-",
}
_ARNS = {
    "AWS::IAM::ManagedPolicy": f"arn:aws:iam::{ACCOUNT}:policy",
    "AWS::KMS::Key": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/",
    "AWS::Lambda::Function": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:",
    "AWS::S3::Bucket": "arn:aws:s3:::",
}

Template = dict[str, Any]


class Resolved:
    """Every stack of an app, by its name.

    `value` raises LookupError on a function that it does not know, so nothing stays unresolved.
    """

    def __init__(self, templates: dict[str, Template]) -> None:
        self.templates = templates
        self._exports = {
            output["Export"]["Name"]: (stack, output["Value"])
            for stack, template in templates.items()
            for output in template.get("Outputs", {}).values()
            if "Export" in output
        }

    def of_type(self, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Id and resolved properties of every resource of a type."""
        for stack, template in self.templates.items():
            for name, resource in template["Resources"].items():
                if resource["Type"] == kind:
                    properties = resource.get("Properties", {})
                    yield self._reference(stack, name), self.value(stack, properties)

    def value(self, stack: str, value: Any) -> Any:
        """A value of a stack's template."""
        if isinstance(value, list):
            return [self.value(stack, item) for item in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            (name, argument), *_ = value.items()
            if name == "Ref" or name.startswith("Fn::"):
                return self._function(stack, name, argument)
        return {key: self.value(stack, item) for key, item in value.items()}

    def _function(self, stack: str, name: str, argument: Any) -> Any:
        if name == "Ref":
            return _PSEUDO.get(argument) or self._reference(stack, argument)
        if name == "Fn::GetAtt":
            return self._attribute(stack, *argument)
        if name == "Fn::ImportValue":
            return self.value(*self._exports[argument])
        if name == "Fn::GetStackOutput":
            other = argument["StackName"]
            output = self.templates[other]["Outputs"][argument["OutputName"]]
            return self.value(other, output["Value"])
        if name == "Fn::Join":
            separator, parts = argument
            return separator.join(str(part) for part in self.value(stack, parts))
        if name == "Fn::Sub" and isinstance(argument, str):
            return re.sub(
                r"\$\{([^}]+)\}",
                lambda found: str(self._function(stack, "Ref", found[1])),
                argument,
            )
        raise LookupError(f"{stack}: no value for {name} {argument}")

    def _reference(self, stack: str, name: str) -> str:
        resource = self.templates[stack]["Resources"][name]
        digest = hashlib.sha256(f"{stack}.{name}".encode()).hexdigest()
        kind = resource["Type"]
        if kind in _PREFIXES:
            return f"{_PREFIXES[kind]}{digest[:17]}"
        if kind == "AWS::IAM::ManagedPolicy":
            path = resource["Properties"].get("Path", "/")
            return f"{_ARNS[kind]}{path}{stack}-{name}"
        return f"{stack}-{name}".lower()[:63]

    def _attribute(self, stack: str, name: str, attribute: str) -> str:
        kind = self.templates[stack]["Resources"][name]["Type"]
        reference = self._reference(stack, name)
        if attribute == "GroupId":
            return reference
        if attribute == "Arn" and kind in _ARNS:
            return f"{_ARNS[kind]}{reference}"
        return f"{reference}.{attribute}"


def stringified(value: Any) -> Any:
    """As a custom resource's function gets it: CloudFormation makes strings of all scalars."""
    if isinstance(value, dict):
        return {key: stringified(item) for key, item in value.items()}
    if isinstance(value, list):
        return [stringified(item) for item in value]
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
