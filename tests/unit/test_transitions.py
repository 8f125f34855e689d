"""A change of settings never asks CloudFormation to take back what a deployed stack still uses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from operations.changes import ForeignStack, Template, deployed_stacks, refused_changes
from tests.environments import ROOT, Synthesized, synthesize

DEV = (ROOT / "config" / "dev.toml").read_text(encoding="utf-8")
CHANGES = {
    "public head node": "[cluster.head_node]\npublic = true\n",
    "log-in nodes, containers": "[cluster]\ncontainers = true\n[cluster.login_nodes]\n",
    "other links": '[[lustre.links]]\npath = "/corpus"\nprefix = "corpus"\n',
    "alarms, larger endpoint": (
        '[monitoring]\nemail = "a@example.com"\nmonthly_budget_usd = 9\n'
        "[endpoint]\ninstance_count = 2\n"
    ),
}


def made(folder: Path, text: str) -> Synthesized:
    folder.mkdir()
    (folder / "team.toml").write_text(text, encoding="utf-8")
    return synthesize(str(folder / "team.toml"), folder / "out")


def exports(environment: Synthesized) -> set[str]:
    return {
        json.dumps(output["Export"]["Name"])
        for template in environment.templates.values()
        for output in template.get("Outputs", {}).values()
        if "Export" in output
    }


def imports(environment: Synthesized) -> set[str]:
    text = json.dumps(environment.templates)
    return set(re.findall(r'"Fn::ImportValue": ("[^"]+")', text))


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Synthesized:
    return made(tmp_path_factory.mktemp("before") / "dev", DEV)


@pytest.mark.case("C01")
@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_no_export_in_use_is_taken_back(change: str, before: Synthesized, tmp_path: Path) -> None:
    after = made(tmp_path / "after", DEV + change)
    assert len(imports(before)) >= 3
    for old, new in ((before, after), (after, before)):
        removed = exports(old) - exports(new)
        assert removed & imports(old) == set()
        assert imports(new) <= exports(new)


SCALING = "[endpoint.scaling]\nmax_count = 4\nrequests_per_minute = 100\n"
LARGER = '[endpoint]\ninstance_type = "ml.c8g.4xlarge"\n'


def stacks(environment: Synthesized) -> dict[str, Template]:
    return {
        f"ultracluster-dev-{short}": template for short, template in environment.templates.items()
    }


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Template]:
    return stacks(made(tmp_path_factory.mktemp("scaled") / "dev", DEV + SCALING))


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Template]:
    return stacks(made(tmp_path_factory.mktemp("larger") / "dev", DEV + LARGER + SCALING))


@pytest.mark.case("M15")
def test_another_instance_type_under_scaling_is_told_with_its_two_deploys(
    before: Synthesized, scaled: dict[str, Template], larger: dict[str, Template]
) -> None:
    url = "s3://models/model.tar.gz"
    (told,) = refused_changes(scaled, larger, model_url=url)
    assert re.match(
        "ultracluster-dev-endpoint: endpoint.instance_type: ml.c7g.4xlarge cannot become "
        "ml.c8g.4xlarge while auto scaling is registered, which takes two deploys: take "
        r"\[endpoint.scaling\] out",
        told,
    )
    # Nothing serves: there is no variant to hold. Without scaling, before or after: one deploy.
    assert refused_changes(scaled, larger, model_url="none") == []
    for old, new in ((scaled, stacks(before)), (stacks(before), larger), (scaled, scaled)):
        assert refused_changes(old, new, model_url=url) == []


@pytest.mark.case("C01")
def test_an_export_that_is_in_use_is_told_before_it_is_taken_back(
    scaled: dict[str, Template],
) -> None:
    network = scaled["ultracluster-dev-network"]
    kept = {name: one for name, one in network["Outputs"].items() if "Export" not in one}
    without = {**scaled, "ultracluster-dev-network": {**network, "Outputs": kept}}
    told = refused_changes(scaled, without, model_url="none")
    assert len(told) >= 3
    assert all("npx cdk deploy --exclusively ultracluster-dev-" in line for line in told)


def test_stacks_that_are_not_there_yet_refuse_nothing(scaled: dict[str, Template]) -> None:
    class Account:
        def describe_stacks(self, *, StackName: str) -> dict[str, Any]:
            if not StackName.endswith("-endpoint"):
                message = f"Stack with id {StackName} does not exist"
                raise ClientError(
                    {"Error": {"Code": "ValidationError", "Message": message}}, "DescribeStacks"
                )
            parameter = {"ParameterKey": "ModelUrl", "ParameterValue": "s3://models/x"}
            return {"Stacks": [{"Parameters": [parameter], "StackStatus": "UPDATE_COMPLETE"}]}

        def get_template(self, *, StackName: str) -> dict[str, Any]:
            return {"TemplateBody": scaled[StackName]}

    templates, model_url = deployed_stacks(Account(), iter(scaled))
    assert templates == {"ultracluster-dev-endpoint": scaled["ultracluster-dev-endpoint"]}
    assert model_url == "s3://models/x"


def test_a_stack_that_was_never_carried_out_is_not_there_and_a_foreign_one_is_named() -> None:
    client = boto3.client("cloudformation", region_name="us-west-2")
    with Stubber(client) as aws:
        for status in ("REVIEW_IN_PROGRESS", "CREATE_COMPLETE"):
            stack = {"StackName": "one", "CreationTime": 0, "StackStatus": status}
            aws.add_response("describe_stacks", {"Stacks": [stack]})
        aws.add_response("get_template", {"TemplateBody": "Resources: {}"})
        assert deployed_stacks(client, iter(["one"])) == ({}, "none")
        with pytest.raises(ForeignStack, match="stack one is not of this application"):
            deployed_stacks(client, iter(["one"]))
