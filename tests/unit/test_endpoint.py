"""The Endpoint stack: every option as SageMaker gets it, and the order of what depends on it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.deletion import DeletionOrder
from tests.environments import ENVIRONMENTS, ROOT, Synthesized, synthesize
from tests.unit.test_deletion_order import Get, nodes
from ultracluster.catalog import load_catalog
from ultracluster.environment import load_environment
from ultracluster.platform import platform_facts

DEV = (ROOT / "config" / "dev.toml").read_text(encoding="utf-8")


def made(folder: Path, endpoint: str) -> Synthesized:
    (folder / "team.toml").write_text(DEV + endpoint, encoding="utf-8")
    return synthesize(str(folder / "team.toml"), folder / "out")


def properties(environment: Synthesized, kind: str) -> dict[str, Any]:
    """Properties of the one resource of a type in the Endpoint stack."""
    (found,) = [r for stack, _, r in environment.resources(kind) if stack == "endpoint"]
    body: dict[str, Any] = found["Properties"]
    return body


def alarms(environment: Synthesized) -> dict[str, dict[str, Any]]:
    """The stack's alarms by the end of their names."""
    return {
        resource["Properties"]["AlarmName"].rsplit("-", 1)[1]: resource["Properties"]
        for stack, _, resource in environment.resources("AWS::CloudWatch::Alarm")
        if stack == "endpoint"
    }


def granted(environment: Synthesized) -> set[str]:
    """Actions of the execution role."""
    (policy,) = [
        r
        for stack, logical_id, r in environment.resources("AWS::IAM::Policy")
        if stack == "endpoint" and logical_id.startswith("GravitonExecutionRole")
    ]
    found: set[str] = set()
    for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
        actions = statement["Action"]
        found.update([actions] if isinstance(actions, str) else actions)
    return found


@pytest.mark.case("M01")
@pytest.mark.case("M02")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_image_and_instance_are_of_one_architecture(name: str, synthesized: Get) -> None:
    environment = synthesized(name)
    catalog = load_catalog()
    (variant,) = properties(environment, "AWS::SageMaker::EndpointConfig")["ProductionVariants"]
    assert catalog.serving_instance(variant["InstanceType"]) is not None
    image = properties(environment, "AWS::SageMaker::Model")["PrimaryContainer"]["Image"]
    repository, _, tag = image.partition("/")[2].partition(":")
    if name != "examples/serving-linear":
        images = catalog.graviton_images(repository)
        assert images is not None and tag in images
    else:
        assert (repository, tag) == ("serving", "2.8.0-cpu-py312")


@pytest.mark.case("M03")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_no_image_is_built_by_a_deploy(name: str, synthesized: Get) -> None:
    """So none is built for the architecture of somebody's laptop."""
    for path in synthesized(name).folder.glob("*.assets.json"):
        assert json.loads(path.read_text()).get("dockerImages", {}) == {}


@pytest.mark.case("M02")
def test_an_own_image_s_versions_reach_the_gate_and_the_jobs(synthesized: Get) -> None:
    environment = synthesized("examples/serving-linear")
    variables = [
        resource["Properties"]["Environment"]["Variables"]
        for stack, _, resource in environment.resources("AWS::Lambda::Function")
        if stack == "delivery" and resource["Properties"]["Handler"].startswith("validate.")
    ]
    ((torch, python),) = [(one["SERVING_TORCH"], one["SERVING_PYTHON"]) for one in variables]
    assert (torch, python) == ("2.8.0", "3.12")
    loaded = load_environment("examples/serving-linear", ROOT / "config")
    facts = platform_facts(
        loaded.settings, catalog=loaded.catalog, model_bucket="models", node_type=None
    )
    assert facts["serving"] == {
        "image": "111122223333.dkr.ecr.us-west-2.amazonaws.com/serving:2.8.0-cpu-py312",
        "torch": "2.8.0",
        "python": "3.12",
        "architecture": "arm64",
        "instance_type": "ml.c8g.4xlarge",
    }


@pytest.mark.case("M08")
@pytest.mark.case("M09")
def test_limits_follow_from_the_largest_package(synthesized: Get, tmp_path: Path) -> None:
    def limits(environment: Synthesized) -> tuple[int, int]:
        (variant,) = properties(environment, "AWS::SageMaker::EndpointConfig")["ProductionVariants"]
        return (
            variant["ModelDataDownloadTimeoutInSeconds"],
            variant["ContainerStartupHealthCheckTimeoutInSeconds"],
        )

    assert limits(synthesized("dev")) == (469, 384)
    small = made(tmp_path, "[endpoint]\nlargest_package_mib = 500\nstartup_seconds = 900\n")
    assert limits(small) == (110, 900)


@pytest.mark.case("M20")
def test_one_limit_of_a_request_holds_for_the_server_and_its_answers(tmp_path: Path) -> None:
    environment = made(tmp_path, "[endpoint]\nmax_request_bytes = 1000000\nresponse_seconds = 30\n")
    container = properties(environment, "AWS::SageMaker::Model")["PrimaryContainer"]
    variables = container["Environment"]
    assert variables["TS_MAX_REQUEST_SIZE"] == variables["TS_MAX_RESPONSE_SIZE"] == "1000000"
    assert variables["SAGEMAKER_TS_RESPONSE_TIMEOUT"] == "30"


@pytest.mark.parametrize(
    ("name", "routing", "bake", "limit"),
    [
        ("dev", {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}, 600, 3300),
        (
            "examples/serving",
            {
                "Type": "CANARY",
                "WaitIntervalInSeconds": 300,
                "CanarySize": {"Type": "INSTANCE_COUNT", "Value": 1},
            },
            900,
            3900,
        ),
        (
            "examples/serving-linear",
            {
                "Type": "LINEAR",
                "WaitIntervalInSeconds": 600,
                "LinearStepSize": {"Type": "INSTANCE_COUNT", "Value": 1},
            },
            600,
            5100,
        ),
    ],
)
def test_traffic_moves_as_the_settings_say_and_every_alarm_ends_it(
    name: str, routing: dict[str, Any], bake: int, limit: int, synthesized: Get
) -> None:
    environment = synthesized(name)
    deployment = properties(environment, "AWS::SageMaker::Endpoint")["DeploymentConfig"]
    policy = deployment["BlueGreenUpdatePolicy"]
    assert policy["TrafficRoutingConfiguration"] == routing
    assert policy["TerminationWaitInSeconds"] == bake
    assert policy["MaximumExecutionTimeoutInSeconds"] == limit
    named = {
        alarm["AlarmName"]["Ref"] for alarm in deployment["AutoRollbackConfiguration"]["Alarms"]
    }
    there = {
        logical_id
        for stack, logical_id, _ in environment.resources("AWS::CloudWatch::Alarm")
        if stack == "endpoint"
    }
    assert named == there and len(there) == 3


def test_errors_and_latency_are_shares_of_enough_requests(synthesized: Get) -> None:
    found = alarms(synthesized("examples/serving"))
    assert set(found) == {"errors", "latency", "smoke"}
    expressions = {
        name: next(m["Expression"] for m in alarm["Metrics"] if "Expression" in m)
        for name, alarm in found.items()
        if "Metrics" in alarm
    }
    assert expressions == {
        "errors": "IF(requests >= 20, 100 * errors / requests, 0)",
        "latency": "IF(requests >= 20, latency / 1000, 0)",
    }
    assert (found["errors"]["Threshold"], found["latency"]["Threshold"]) == (2, 1000)
    smoke = found["smoke"]
    assert (smoke["Namespace"], smoke["MetricName"], smoke["Statistic"]) == (
        "UltraCluster",
        "SmokeFailures",
        "Sum",
    )
    assert smoke["Dimensions"] == [{"Name": "EndpointName", "Value": "ultracluster-serving"}]
    assert (smoke["Period"], smoke["EvaluationPeriods"], smoke["Threshold"]) == (60, 1, 1)
    for alarm in found.values():
        assert alarm["TreatMissingData"] == "notBreaching"
        assert "former model back" in alarm["AlarmDescription"]


@pytest.mark.case("M14")
def test_a_roll_out_keeps_the_count_only_where_scaling_owns_it(
    synthesized: Get, tmp_path: Path
) -> None:
    scaled = properties(synthesized("examples/serving"), "AWS::SageMaker::Endpoint")
    assert scaled["RetainAllVariantProperties"] is True
    assert "ExcludeRetainedVariantProperties" not in scaled
    # Without scaling a new count in the settings is meant: nothing may hold the old one.
    fixed = made(tmp_path, "[endpoint]\ninstance_count = 3\n")
    assert "RetainAllVariantProperties" not in properties(fixed, "AWS::SageMaker::Endpoint")
    (variant,) = properties(fixed, "AWS::SageMaker::EndpointConfig")["ProductionVariants"]
    assert variant["InitialInstanceCount"] == 3
    assert list(fixed.resources("AWS::ApplicationAutoScaling::ScalableTarget")) == []


@pytest.mark.case("M15")
@pytest.mark.case("M17")
def test_scaling_comes_after_the_endpoint_and_goes_before_it(synthesized: Get) -> None:
    environment = synthesized("examples/serving")
    order = DeletionOrder(environment)
    chain = [
        "AWS::ApplicationAutoScaling::ScalingPolicy",
        "AWS::ApplicationAutoScaling::ScalableTarget",
        "AWS::SageMaker::Endpoint",
        "AWS::SageMaker::EndpointConfig",
        "AWS::SageMaker::Model",
    ]
    for first, second in itertools.pairwise(chain):
        ((a,), (b,)) = nodes(environment, first), nodes(environment, second)
        assert order.goes_before(a, b), f"{a} may outlive {b}"
    target = properties(environment, "AWS::ApplicationAutoScaling::ScalableTarget")
    assert target["ResourceId"] == "endpoint/ultracluster-serving/variant/main"
    assert (target["MinCapacity"], target["MaxCapacity"]) == (2, 8)
    for kind in chain:
        ((_, _, resource),) = environment.resources(kind)
        assert resource["Condition"] == "HasModel"


@pytest.mark.case("M22")
def test_endpoint_precedes_its_group_and_the_subnets(synthesized: Get) -> None:
    environment = synthesized("examples/serving")
    vpc = properties(environment, "AWS::SageMaker::Model")["VpcConfig"]
    assert len(vpc["Subnets"]) == 2 and len(vpc["SecurityGroupIds"]) == 1
    order = DeletionOrder(environment)
    (endpoint,) = nodes(environment, "AWS::SageMaker::Endpoint")
    groups = [n for n in nodes(environment, "AWS::EC2::SecurityGroup") if n[0] == "endpoint"]
    assert len(groups) == 1
    (guard,) = nodes(environment, "Custom::InterfaceGuard")
    for first, then in [
        (endpoint, guard),
        *((guard, other) for other in groups),
        *((guard, other) for other in nodes(environment, "AWS::EC2::Subnet", "AWS::EC2::VPC")),
    ]:
        assert order.goes_before(first, then), f"{first} may outlive {then}"
    assert "ec2:CreateNetworkInterface" in granted(environment)


def test_what_is_not_asked_for_is_not_there(synthesized: Get) -> None:
    environment = synthesized("dev")
    assert "VpcConfig" not in properties(environment, "AWS::SageMaker::Model")
    assert properties(environment, "AWS::SageMaker::Model")["EnableNetworkIsolation"] is True
    assert "DataCaptureConfig" not in properties(environment, "AWS::SageMaker::EndpointConfig")
    rights = granted(environment)
    assert not any(right.startswith(("ec2:", "s3:Put", "kms:")) for right in rights)
    assert {"logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"} <= set(rights)
    # A late line would bring the log group back, without its retention.
    assert "logs:CreateLogGroup" not in rights


def captured(environment: Synthesized) -> Mapping[str, Any]:
    config: Mapping[str, Any] = properties(environment, "AWS::SageMaker::EndpointConfig")
    capture: Mapping[str, Any] = config["DataCaptureConfig"]
    return capture


def test_capture_goes_to_the_data_bucket_or_to_one_s_own(synthesized: Get, tmp_path: Path) -> None:
    environment = synthesized("examples/serving")
    capture = captured(environment)
    assert (capture["EnableCapture"], capture["InitialSamplingPercentage"]) == (True, 10)
    assert [one["CaptureMode"] for one in capture["CaptureOptions"]] == ["Input", "Output"]
    assert json.dumps(capture["DestinationS3Uri"]).count("ultracluster-serving-storage") == 1
    assert "KmsKeyId" not in capture
    assert "s3:PutObject" in granted(environment)

    key = "arn:aws:kms:us-west-2:111122223333:key/0123"
    own = made(
        tmp_path, f'[endpoint.capture]\nbucket = "kept"\nprefix = "a/b"\nkey_arn = "{key}"\n'
    )
    assert captured(own)["DestinationS3Uri"] == "s3://kept/a/b"
    assert captured(own)["KmsKeyId"] == key
    assert "kms:GenerateDataKey*" in granted(own)


def test_what_the_containers_say_ends_as_the_settings_say(synthesized: Get) -> None:
    for name in ("dev", "prod"):
        environment = synthesized(name)
        group = properties(environment, "AWS::Logs::LogGroup")
        assert group["LogGroupName"] == f"/aws/sagemaker/Endpoints/{environment.prefix}"
        assert group["RetentionInDays"] == {"dev": 90, "prod": 365}[name]


@pytest.mark.case("M22")
def test_the_service_role_reads_the_outputs_that_the_template_names(synthesized: Get) -> None:
    for name, named in (("dev", {"storage"}), ("examples/serving", {"storage", "network"})):
        environment = synthesized(name)
        template = json.dumps(environment.templates["endpoint"])
        for stack in ("network", "storage", "cluster"):
            assert (f'"StackName": "{environment.prefix}-{stack}"' in template) == (stack in named)
        (role,) = [
            json.dumps(r)
            for stack, logical_id, r in environment.resources("AWS::IAM::Policy")
            if stack == "storage" and logical_id.startswith("EndpointRole")
        ]
        for stack in ("network", "storage"):
            assert (f":stack/{environment.prefix}-{stack}/*" in role) == (stack in named)
