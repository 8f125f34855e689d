"""What a deploy would be refused for, told before it begins: deployed stacks against new ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

from shared.stack import NEVER_DEPLOYED

Template = Mapping[str, Any]
_TARGET = "AWS::ApplicationAutoScaling::ScalableTarget"
_CONFIG = "AWS::SageMaker::EndpointConfig"
_NO_MODEL = "none"


class ForeignStack(Exception):
    """A stack of one of our names that something else has made."""


def refused_changes(
    deployed: Mapping[str, Template], wanted: Mapping[str, Template], *, model_url: str
) -> list[str]:
    """Changes that the deployed stacks do not take in one deploy, and the way there.

    Args:
        deployed: templates of the stacks that are there, by stack name.
        wanted: templates of the same environment's settings as they are now.
        model_url: the deployed Endpoint stack's parameter; `none` where nothing serves.
    """
    return [
        *_other_instance_type(deployed, wanted, model_url),
        *_exports_taken_back(deployed, wanted),
    ]


def _other_instance_type(
    deployed: Mapping[str, Template], wanted: Mapping[str, Template], model_url: str
) -> Iterator[str]:
    """While auto scaling holds a variant, SageMaker refuses another instance type for it.

    CloudFormation removes what a template leaves out only after its updates, so that scaling must
    be gone before.
    """
    for name, old in deployed.items():
        new = wanted.get(name, {})
        before, after = _instance_type(old), _instance_type(new)
        scaled = any(True for _ in _of_type(old, _TARGET)) and model_url != _NO_MODEL
        if scaled and after is not None and before != after:
            yield (
                f"{name}: endpoint.instance_type: {before} cannot become {after} while auto "
                "scaling is registered, which takes two deploys: take [endpoint.scaling] out and "
                f"deploy with {before}, then put it back and deploy with {after}"
            )


def _exports_taken_back(
    deployed: Mapping[str, Template], wanted: Mapping[str, Template]
) -> Iterator[str]:
    """CloudFormation keeps an export that a deployed stack imports."""
    for name, old in deployed.items():
        for export in sorted(_exports(old) - _exports(wanted.get(name, {}))):
            users = [other for other, used in deployed.items() if export in _imports(used)]
            for user in users:
                yield (
                    f"{name}: the export {export} is taken back while {user} uses it, which takes "
                    f"two deploys: `npx cdk deploy --exclusively {user}`, then all"
                )


def deployed_stacks(client: Any, names: Iterator[str]) -> tuple[dict[str, Template], str]:
    """Templates of those stacks that are there, and what the Endpoint stack serves.

    Args:
        client: boto3's client of CloudFormation.
        names: of the stacks.

    Raises:
        ForeignStack: one of the names is taken by another application.
    """
    templates: dict[str, Template] = {}
    model_url = _NO_MODEL
    for name in names:
        try:
            (stack,) = client.describe_stacks(StackName=name)["Stacks"]
        except ClientError as error:
            if "does not exist" in error.response["Error"].get("Message", ""):
                continue
            raise
        if stack["StackStatus"] == NEVER_DEPLOYED:
            continue
        body = client.get_template(StackName=name)["TemplateBody"]
        # boto3 has read a template in JSON; one in YAML comes as a text.
        if isinstance(body, str):
            raise ForeignStack(f"stack {name} is not of this application: its template is YAML")
        templates[name] = body
        for parameter in stack.get("Parameters", []):
            if parameter["ParameterKey"] == "ModelUrl":
                model_url = parameter["ParameterValue"]
    return templates, model_url


def _of_type(template: Template, kind: str) -> Iterator[Mapping[str, Any]]:
    return (one for one in template.get("Resources", {}).values() if one["Type"] == kind)


def _instance_type(template: Template) -> str | None:
    for config in _of_type(template, _CONFIG):
        kind: str = config["Properties"]["ProductionVariants"][0]["InstanceType"]
        return kind
    return None


def _exports(template: Template) -> set[str]:
    return {
        output["Export"]["Name"]
        for output in template.get("Outputs", {}).values()
        if "Export" in output
    }


def _imports(template: Template) -> set[str]:
    return set(re.findall(r'"Fn::ImportValue": "([^"]+)"', json.dumps(template)))
