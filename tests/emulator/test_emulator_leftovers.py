"""The list of left-overs against an account with something of every kind in it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from operations import leftovers
from operations.emulator import Emulator
from operations.processes import run
from tests.emulator.conftest import ROOT

pytestmark = pytest.mark.emulator

PREFIX = "ultracluster-dev"
ROLE_ARN = "arn:aws:iam::000000000000:role/r"
IMAGE = "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-inference-arm64:2.6"


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """An account of its own: the shared one holds what other tests are at work on."""
    with Emulator(
        run_directory=tmp_path_factory.mktemp("leftovers"),
        model_server_python=ROOT / ".venv-training" / "bin" / "python",
        settle_seconds=0.0,
    ) as running:
        yield running


def test_the_bootstrap_and_what_comes_with_an_account_may_stay(
    account: Emulator, tmp_path: Path
) -> None:
    path = f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    status = run(
        [ROOT / "node_modules" / ".bin" / "cdk", "bootstrap", "aws://000000000000/us-west-2"],
        env={**account.environment(), "PATH": path},
        cwd=tmp_path,
        log=tmp_path / "bootstrap.log",
    )
    assert status == 0, (tmp_path / "bootstrap.log").read_text()
    found = leftovers.find(account.client, prefix=PREFIX)
    assert [str(item) for item in found if not item.expected] == []
    kinds = {item.kind for item in found}
    assert {"stack", "s3 bucket", "iam role", "ecr repository", "ssm parameter"} <= kinds
    assert all(item.reason for item in found)


def vpc_parts(client: Any) -> dict[str, str]:
    vpc = client.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnet = client.create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/24")["Subnet"]["SubnetId"]
    address = client.allocate_address(Domain="vpc")["AllocationId"]
    gateway = client.create_nat_gateway(SubnetId=subnet, AllocationId=address)["NatGateway"]
    return {
        "vpc": vpc,
        "subnet": subnet,
        "elastic ip": address,
        "nat gateway": gateway["NatGatewayId"],
        "internet gateway": client.create_internet_gateway()["InternetGateway"][
            "InternetGatewayId"
        ],
        "security group": client.create_security_group(
            GroupName="nodes", Description="nodes", VpcId=vpc
        )["GroupId"],
        "route table": client.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"],
        "vpc endpoint": client.create_vpc_endpoint(
            VpcId=vpc, ServiceName="com.amazonaws.us-west-2.s3"
        )["VpcEndpoint"]["VpcEndpointId"],
        "flow log": client.create_flow_logs(
            ResourceIds=[vpc], ResourceType="VPC", TrafficType="ALL", LogGroupName="flow"
        )["FlowLogIds"][0],
    }


def storage_parts(account: Emulator, subnet: str) -> dict[str, str]:
    fsx, s3 = account.client("fsx"), account.client("s3")
    s3.create_bucket(
        Bucket="forgotten", CreateBucketConfiguration={"LocationConstraint": account.region}
    )
    files = fsx.create_file_system(
        FileSystemType="LUSTRE", StorageCapacity=1200, SubnetIds=[subnet]
    )["FileSystem"]["FileSystemId"]
    link = fsx.create_data_repository_association(
        FileSystemId=files, FileSystemPath="/data", DataRepositoryPath="s3://forgotten"
    )["Association"]["AssociationId"]
    return {"s3 bucket": "forgotten", "fsx file system": files, "fsx association": link}


def serving_parts(account: Emulator) -> dict[str, str]:
    sagemaker, scaling = account.client("sagemaker"), account.client("application-autoscaling")
    account.client("s3").put_object(Bucket="forgotten", Key="model.tar.gz", Body=b"no archive")
    container = {"Image": IMAGE, "ModelDataUrl": "s3://forgotten/model.tar.gz"}
    sagemaker.create_model(ModelName="m", ExecutionRoleArn=ROLE_ARN, PrimaryContainer=container)
    sagemaker.create_endpoint_config(
        EndpointConfigName="c",
        ProductionVariants=[
            {
                "VariantName": "main",
                "ModelName": "m",
                "InstanceType": "ml.c7g.large",
                "InitialInstanceCount": 1,
            }
        ],
    )
    sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")  # fails, and stays
    where = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": "endpoint/e/variant/main",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }
    scaling.register_scalable_target(**where, MinCapacity=1, MaxCapacity=2)
    scaling.put_scaling_policy(
        **where,
        PolicyName="p",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": 10.0,
            "PredefinedMetricSpecification": {
                "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
            },
        },
    )
    return {
        "sagemaker model": "m",
        "sagemaker endpoint config": "c",
        "sagemaker endpoint": "e",
        "scaling target": "endpoint/e/variant/main",
        "scaling policy": "p",
    }


def other_parts(account: Emulator) -> dict[str, str]:
    trust = json.dumps({"Version": "2012-10-17", "Statement": []})
    account.client("iam").create_role(RoleName="r", AssumeRolePolicyDocument=trust)
    account.client("logs").create_log_group(logGroupName="flow")
    account.client("ssm").put_parameter(Name="/forgotten", Type="String", Value="x")
    account.client("events").put_rule(Name="rule", ScheduleExpression="rate(1 day)")
    account.client("cloudwatch").put_metric_alarm(
        AlarmName="alarm",
        Namespace="N",
        MetricName="M",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1,
        Statistic="Sum",
        ComparisonOperator="GreaterThanThreshold",
    )
    account.client("cloudwatch").put_dashboard(
        DashboardName="board", DashboardBody='{"widgets": []}'
    )
    account.client("budgets").create_budget(
        AccountId="000000000000",
        Budget={
            "BudgetName": "budget",
            "BudgetType": "COST",
            "TimeUnit": "MONTHLY",
            "BudgetLimit": {"Amount": "1", "Unit": "USD"},
        },
    )
    machine = account.client("stepfunctions").create_state_machine(
        name="machine",
        roleArn=ROLE_ARN,
        definition='{"StartAt": "S", "States": {"S": {"Type": "Succeed"}}}',
    )
    return {
        "iam role": "r",
        "log group": "flow",
        "ssm parameter": "/forgotten",
        "event rule": "rule",
        "alarm": "alarm",
        "dashboard": "board",
        "budget": "budget",
        "sqs queue": account.client("sqs").create_queue(QueueName="queue")["QueueUrl"],
        "sns topic": account.client("sns").create_topic(Name="topic")["TopicArn"],
        "kms key": account.client("kms").create_key()["KeyMetadata"]["KeyId"],
        "state machine": machine["stateMachineArn"],
    }


def test_whatever_is_forgotten_is_found(account: Emulator) -> None:
    made = vpc_parts(account.client("ec2"))
    made |= storage_parts(account, made["subnet"])
    made |= serving_parts(account)
    made |= other_parts(account)
    found = leftovers.find(account.client, prefix=PREFIX)
    left = {item.kind: item.identifier for item in found if not item.expected}
    assert left == made
