"""What ParallelCluster itself would deploy for us; needs `.venv-render`, which `make test-render` makes."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.resolved import stringified
from tests.support.synth import ROOT, synthesize

PYTHON = ROOT / ".venv-render" / "bin" / "python"

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="no .venv-render: `make test-render` makes it and runs this"
)


@pytest.fixture(scope="module", params=["dev", "examples/many-nodes"])
def rendered(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    app = synthesize(request.param, tmp_path_factory.mktemp("app"))
    given = dataclasses.asdict(app.world())
    question = {
        "name": app.properties["ClusterName"],
        "configuration": stringified(app.configuration),
        "world": given | {"policies": sorted(given["policies"])},
    }
    node = Path(os.environ["JSII_NODE"]).parent if "JSII_NODE" in os.environ else None
    path = os.pathsep.join([*([str(node)] if node else []), os.environ["PATH"]])
    result = subprocess.run(
        [PYTHON, "-m", "tests.support.render"],
        cwd=ROOT,
        input=json.dumps(question),
        env=os.environ | {"PATH": path, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    templates: list[dict[str, Any]] = json.loads(result.stdout)
    return templates


def of_type(rendered: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [
        resource["Properties"]
        for template in rendered
        for resource in template["Resources"].values()
        if resource["Type"] == kind
    ]


def test_templates_stay_below_cloudformations_limits(rendered: list[dict[str, Any]]) -> None:
    for template in rendered:
        assert len(json.dumps(template)) < 1_000_000
        assert len(template["Resources"]) < 500


def test_efa_nodes_have_an_interface_on_each_card_and_no_public_address(
    rendered: list[dict[str, Any]],
) -> None:
    launch = [
        one["LaunchTemplateData"]
        for one in of_type(rendered, "AWS::EC2::LaunchTemplate")
        if one["LaunchTemplateData"].get("InstanceType") == "trn1.32xlarge"
    ]
    assert launch
    for data in launch:
        kinds = [one.get("InterfaceType") for one in data["NetworkInterfaces"]]
        assert kinds.count("efa-only") == 8
        assert len(kinds) == 9
        assert not any(one.get("AssociatePublicIpAddress") for one in data["NetworkInterfaces"])
        assert data["MetadataOptions"]["HttpTokens"] == "required"


def test_no_group_of_the_cluster_is_open_to_the_world(rendered: list[dict[str, Any]]) -> None:
    rules = [
        rule
        for group in of_type(rendered, "AWS::EC2::SecurityGroup")
        for rule in group.get("SecurityGroupIngress", [])
    ] + of_type(rendered, "AWS::EC2::SecurityGroupIngress")
    assert rules
    assert all(rule.get("CidrIp") != "0.0.0.0/0" for rule in rules)


def test_roles_are_bounded_by_path_and_get_our_rights(rendered: list[dict[str, Any]]) -> None:
    roles = of_type(rendered, "AWS::IAM::Role")
    assert roles
    assert all(json.dumps(role["Path"]).count("/parallelcluster/") == 1 for role in roles)
    text = json.dumps(of_type(rendered, "AWS::IAM::Policy"))
    assert "/boot/*" in text
    assert "/models/sentiment/*" in text


def test_the_head_node_has_its_time(rendered: list[dict[str, Any]]) -> None:
    (condition,) = of_type(rendered, "AWS::CloudFormation::WaitCondition")
    assert str(condition["Timeout"]) == "2100"
