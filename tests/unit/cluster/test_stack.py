"""Guard, rights and order in the cluster's stack."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.synth import ClusterApp, synthesize
from tests.unit.cluster.conftest import Make

FUNCTION = "AWS::Lambda::Function"


def resources(app: ClusterApp, kind: str) -> dict[str, dict[str, Any]]:
    return {
        name: one
        for name, one in app.templates["cluster"]["Resources"].items()
        if one["Type"] == kind
    }


def test_the_guard_is_made_before_the_cluster_and_deleted_after_it(dev: ClusterApp) -> None:
    (cluster,) = resources(dev, "Custom::PclusterCluster").values()
    (guard,), (files,) = resources(dev, "Custom::ClusterGuard"), resources(dev, "Custom::BootFiles")
    assert {guard, files} <= set(cluster["DependsOn"])
    for policy in resources(dev, "AWS::IAM::Policy"):
        assert policy in cluster["DependsOn"], "a right that goes first leaves a wait without it"


def test_the_guard_knows_the_cluster_by_its_logical_id(dev: ClusterApp) -> None:
    ((_, guard),) = dev.resolved.of_type("Custom::ClusterGuard")
    (cluster,) = resources(dev, "Custom::PclusterCluster")
    assert guard["ClusterResource"] == cluster
    assert guard["ClusterName"] == dev.properties["ClusterName"]
    networking = dev.configuration["HeadNode"]["Networking"]
    assert networking["AdditionalSecurityGroups"] == [guard["SecurityGroup"]]


def test_the_guard_may_call_itself_for_longer_than_a_loop_lives(dev: ClusterApp) -> None:
    guards = [
        function
        for function in resources(dev, FUNCTION).values()
        if function["Properties"]["Handler"] == "cluster_guard.handler.handler"
    ]
    (guard,) = guards
    assert guard["Properties"]["RecursiveLoop"] == "Allow"
    poll = float(guard["Properties"]["Environment"]["Variables"]["POLL_SECONDS"])
    assert poll < guard["Properties"]["Timeout"] < 15 * 60


@pytest.mark.case("L02")
@pytest.mark.case("L10")
@pytest.mark.parametrize("environment", ["dev", "examples/no-nat"])
def test_no_function_is_in_a_vpc(
    environment: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    app = synthesize(environment, tmp_path_factory.mktemp("app"))
    functions = resources(app, FUNCTION)
    assert len(functions) >= 3
    assert all("VpcConfig" not in one["Properties"] for one in functions.values())


@pytest.mark.case("L11")
def test_two_environments_share_no_physical_name(make: Make) -> None:
    def names(app: ClusterApp) -> set[str]:
        found: set[str] = set()
        for kind, key in (
            ("Custom::PclusterCluster", "ClusterName"),
            (FUNCTION, "FunctionName"),
            ("AWS::IAM::Role", "RoleName"),
            ("AWS::IAM::ManagedPolicy", "ManagedPolicyName"),
            ("AWS::S3::Bucket", "BucketName"),
            ("AWS::Logs::LogGroup", "LogGroupName"),
        ):
            found |= {
                json.dumps(one["Properties"][key])
                for one in resources(app, kind).values()
                if key in one["Properties"]
            }
        return found

    one, other = make(name="dev"), make(name="test")
    assert names(one)
    assert names(one).isdisjoint(names(other))


@pytest.mark.parametrize("environment", ["prod", "examples/trainium-and-gpu"])
def test_parallelcluster_may_attach_every_policy_it_is_given(
    environment: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its provider's rights end at names and paths that begin with parallelcluster."""
    app = synthesize(environment, tmp_path_factory.mktemp("app"))
    text = json.dumps(app.configuration)
    own = [arn for arn, _ in app.resolved.of_type("AWS::IAM::ManagedPolicy") if arn in text]
    assert own
    assert all(":policy/parallelcluster" in arn for arn in own)


def test_nodes_that_publish_may_use_the_buckets_key(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    app = synthesize("prod", tmp_path_factory.mktemp("app"))
    policies = dict(app.resolved.of_type("AWS::IAM::ManagedPolicy"))

    def may_use_a_key(iam: dict[str, Any]) -> bool:
        attached = [one["Policy"] for one in iam["AdditionalIamPolicies"]]
        return "kms:GenerateDataKey" in json.dumps([policies.get(arn) for arn in attached])

    configuration = app.configuration
    assert all(may_use_a_key(one["Iam"]) for one in configuration["Scheduling"]["SlurmQueues"])
    assert not may_use_a_key(configuration["HeadNode"]["Iam"])


def provider_policies(app: ClusterApp) -> list[str]:
    ((_, provider),) = app.resolved.of_type("AWS::CloudFormation::Stack")
    arns: str = provider["Parameters"]["AdditionalIamPolicies"]
    return arns.split(",")


def test_the_provider_may_check_scripts_and_the_databases_secret(make: Make) -> None:
    secret = "arn:aws:secretsmanager:us-west-2:111122223333:secret:slurm-AbCdEf"
    app = make(
        "[cluster.accounting]\nuri = 'db.example.internal'\nuser_name = 'slurm'\n"
        f"password_secret_arn = '{secret}'\n"
    )
    arns = provider_policies(app)
    # Its role holds six already, of ten.
    assert 1 <= len(arns) <= 4
    policies = dict(app.resolved.of_type("AWS::IAM::ManagedPolicy"))
    statements = [one for arn in arns for one in policies[arn]["PolicyDocument"]["Statement"]]
    assert {one["Action"] for one in statements} == {
        "s3:GetObject",
        "secretsmanager:DescribeSecret",
    }
    assert secret in {one["Resource"] for one in statements}


# Actions that know no resource, as the service authorization reference has it.
WITHOUT_RESOURCE = {
    "ec2:DescribeInstances",
    "ec2:DescribeNetworkInterfaces",
    "ecr:GetAuthorizationToken",
}


@pytest.mark.parametrize("environment", ["dev", "prod", "examples/trainium-and-gpu"])
def test_no_right_is_wider_than_its_use(
    environment: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    app = synthesize(environment, tmp_path_factory.mktemp("app"))
    statements = [
        statement
        for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
        for one in resources(app, kind).values()
        for statement in one["Properties"]["PolicyDocument"]["Statement"]
    ]
    assert len(statements) > 6
    for statement in statements:
        actions = statement["Action"]
        actions = [actions] if isinstance(actions, str) else actions
        assert all(not action.endswith(":*") and action != "*" for action in actions)
        if statement["Resource"] == "*":
            assert set(actions) <= WITHOUT_RESOURCE


def test_jobs_are_told_numbers_as_numbers(dev: ClusterApp) -> None:
    ((_, files),) = dev.resolved.of_type("Custom::BootFiles")
    told = json.loads(json.loads(files["Files"])["boot/platform.json"])
    assert told["facts"]["gate"] == {"macro_f1": 0.6}
    assert told["facts"]["model_bucket"] in dict(dev.resolved.of_type("AWS::S3::Bucket"))
    assert told["instances"]["trn1.32xlarge"]["price_usd_per_hour"] == 21.5
