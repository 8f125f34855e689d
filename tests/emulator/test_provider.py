"""The stand-in for ParallelCluster's CloudFormation provider, deployed in the emulated account."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from operations.emulator import Emulator
from tests.emulator.conftest import Stacks, outputs
from tests.support.clusters import (
    NETWORK,
    NETWORK_OUTPUTS,
    QUEUE,
    REGION,
    asking,
    changed,
    cluster,
    configuration,
    new_name,
    queue,
)

pytestmark = pytest.mark.emulator


@pytest.fixture(scope="module")
def network(emulator: Emulator) -> Iterator[dict[str, str]]:
    """What a cluster stands on: the outputs of one stack."""
    made = Stacks(emulator)
    stack = made.create(NETWORK, Outputs=NETWORK_OUTPUTS)
    assert stack["StackStatus"] == "CREATE_COMPLETE", made.reasons(stack)
    yield outputs(stack)
    made.clean_up()


def exists(stacks: Stacks, name: str) -> bool:
    listed = stacks.api.describe_stacks()["Stacks"]
    return any(
        stack["StackName"] == name and stack["StackStatus"] != "DELETE_COMPLETE" for stack in listed
    )


def test_the_template_has_the_outputs_of_the_real_one(network: dict[str, str]) -> None:
    assert ":function:pcluster-cfn-" in network["ServiceToken"]
    assert ":log-group:/aws/lambda/pcluster-cfn-" in network["LogGroupArn"]
    assert ":layer:PCLayer-" in network["LambdaLayerArn"]


def test_a_cluster_lives_as_a_stack_of_its_name(stacks: Stacks, network: dict[str, str]) -> None:
    name = new_name()
    wanted = asking(
        "clusterName",
        "clusterStatus",
        "headNode.instanceId",
        "headNode.privateIpAddress",
        "headNode.instanceType",
        "version",
        "validationMessages",
    )
    stack = stacks.create(
        cluster(network, name, configuration(network)),
        Outputs={**wanted, "Reference": {"Value": {"Ref": "Cluster"}}},
    )
    assert stack["StackStatus"] == "CREATE_COMPLETE", stacks.reasons(stack)
    found = outputs(stack)
    assert found["Reference"] == found["clusterName"] == name
    assert found["clusterStatus"] == "CREATE_COMPLETE"
    assert found["headNodeinstanceId"].startswith("i-0")
    assert found["headNodeprivateIpAddress"] == "10.0.16.4"
    assert found["headNodeinstanceType"] == "m6i.xlarge"
    assert found["version"] == "3.16.1"
    types = {message["type"] for message in json.loads(found["validationMessages"])}
    assert "KeyPairValidator" in types
    (own,) = stacks.api.describe_stacks(StackName=name)["Stacks"]
    tags = {tag["Key"]: tag["Value"] for tag in own["Tags"]}
    assert tags == {"parallelcluster:cluster-name": name, "parallelcluster:version": "3.16.1"}

    assert stacks.delete(stack)["StackStatus"] == "DELETE_COMPLETE"
    assert not exists(stacks, name)


def test_a_private_head_node_has_no_public_address(stacks: Stacks, network: dict[str, str]) -> None:
    name = new_name()
    stack = stacks.create(
        cluster(network, name, configuration(network)), Outputs=asking("headNode.publicIpAddress")
    )
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    assert not exists(stacks, name)


BAD: dict[str, tuple[str, Any, str]] = {
    "a system that is gone": ("Image.Os", "alinux2", "Image.Os: Must be one of: alinux2023"),
    "a missing key": (
        "HeadNode.InstanceType",
        None,
        "HeadNode.InstanceType: Missing data for required field.",
    ),
    "an unknown key": ("HeadNode.Nettworking", {}, "HeadNode.Nettworking: Unknown field."),
    "a name that is not allowed": (f"{QUEUE}.Name", "Trn1", "NameValidator: Invalid name 'Trn1'."),
    "a made-up type": (
        f"{QUEUE}.ComputeResources.0.InstanceType",
        "trn1.64xlarge",
        "The following supplied instance types do not exist: [trn1.64xlarge]",
    ),
    "another architecture": (
        "HeadNode.InstanceType",
        "m7g.xlarge",
        "ArchitectureCompatibilityValidator",
    ),
    "a zone without the type": (
        f"{QUEUE}.Networking.SubnetIds.0",
        "OtherZone",
        "Your requested instance type (trn1.32xlarge) is not supported in the Availability Zone "
        "(us-west-2b)",
    ),
    "a subnet that is not there": (
        "HeadNode.Networking.SubnetId",
        "subnet-0123456789abcdef0",
        "subnet-0123456789abcdef0",
    ),
    "a policy that is not there": (
        "HeadNode.Iam.AdditionalIamPolicies.0.Policy",
        "arn:aws:iam::aws:policy/NoSuchPolicy",
        "IamPolicyValidator",
    ),
    "EFA without a word on placement": (
        f"{QUEUE}.Networking.PlacementGroup",
        None,
        "EfaPlacementGroupValidator",
    ),
    "a file system that is not there": (
        "SharedStorage.0.FsxLustreSettings.FileSystemId",
        "fs-0123456789abcdef0",
        "fs-0123456789abcdef0",
    ),
    "a setting that Slurm's users may not touch": (
        "Scheduling.SlurmSettings.CustomSlurmSettings",
        [{"GresTypes": "neuron"}],
        "CustomSlurmSettingsValidator",
    ),
}


@pytest.mark.parametrize("title", BAD)
def test_a_bad_configuration_fails_with_parallelclusters_reason(
    stacks: Stacks, network: dict[str, str], title: str
) -> None:
    path, value, text = BAD[title]
    name = new_name()
    config = changed(configuration(network), path, network.get(str(value), value))
    stack = stacks.create(cluster(network, name, config))
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    reasons = stacks.reasons(stack)
    assert "Bad Request: Invalid cluster configuration: " in reasons
    assert text in reasons
    assert not exists(stacks, name)


def test_every_problem_of_a_configuration_is_named_at_once(
    stacks: Stacks, network: dict[str, str]
) -> None:
    config = changed(configuration(network), "Image.Os", "centos7")
    config = changed(config, f"{QUEUE}.ComputeResources.0.MaxCount", "many")
    stack = stacks.create(cluster(network, new_name(), config))
    reasons = stacks.reasons(stack)
    assert "Image.Os: " in reasons
    assert "Scheduling.SlurmQueues.0.ComputeResources.0.MaxCount: Not a valid integer." in reasons


def test_a_validator_may_be_left_out_by_name(stacks: Stacks, network: dict[str, str]) -> None:
    config = changed(configuration(network), f"{QUEUE}.Networking.PlacementGroup", None)
    stack = stacks.create(
        cluster(network, new_name(), config, SuppressValidators=["type:EfaPlacementGroupValidator"])
    )
    assert stack["StackStatus"] == "CREATE_COMPLETE", stacks.reasons(stack)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        (
            {"ServiceTimeout": 60, "Tags": []},
            "<create-cluster> got unexpected arguments: ['service_timeout', 'tags']",
        ),
        ({"ForceUpdate": True}, "got unexpected arguments: ['force_update']"),
        ({"Dryrun": True}, "Request would have succeeded, but DryRun flag is set."),
        (
            {"DeletionPolicy": "Keep"},
            'DeletionPolicy must be one of ["Retain", "Delete"], got \'Keep\'.',
        ),
        ({"ValidationFailureLevel": "FATAL"}, "it must be one of INFO, WARNING, ERROR"),
        ({"SuppressValidators": "ALL"}, "it must be a list"),
        ({"ValidationFailureLevel": "WARNING"}, "KeyPairValidator: "),
    ],
)
def test_a_property_that_the_provider_does_not_take_fails_the_cluster(
    stacks: Stacks, network: dict[str, str], properties: dict[str, Any], text: str
) -> None:
    stack = stacks.create(cluster(network, new_name(), configuration(network), **properties))
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    assert text in stacks.reasons(stack)


def test_updates_follow_parallelclusters_rules(stacks: Stacks, network: dict[str, str]) -> None:
    name, config = new_name(), configuration(network)
    wanted = asking("headNode.instanceId", "clusterStatus")
    stack = stacks.create(cluster(network, name, config), Outputs=wanted)
    before = outputs(stack)

    larger = changed(config, f"{QUEUE}.ComputeResources.0.MaxCount", 4)
    stack = stacks.update(stack, cluster(network, name, larger), Outputs=wanted)
    assert stack["StackStatus"] == "UPDATE_COMPLETE", stacks.reasons(stack)
    assert outputs(stack) == {**before, "clusterStatus": "UPDATE_COMPLETE"}

    other_head = changed(larger, "HeadNode.InstanceType", "m6i.2xlarge")
    stack = stacks.update(stack, cluster(network, name, other_head), Outputs=wanted)
    assert stack["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert "HeadNode.InstanceType from m6i.xlarge to m6i.2xlarge: " in stacks.reasons(stack)

    stack = stacks.update(stack, cluster(network, new_name(), larger), Outputs=wanted)
    assert stack["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert "Cannot update the ClusterName in the properties." in stacks.reasons(stack)

    stack = stacks.update(
        stack, cluster(network, name, larger, RollbackOnFailure=False), Outputs=wanted
    )
    assert "<update-cluster> got unexpected arguments: ['rollback_on_failure']" in stacks.reasons(
        stack
    )
    assert outputs(stack)["headNodeinstanceId"] == before["headNodeinstanceId"]


def test_the_end_of_a_refused_creation_deletes_the_cluster_of_that_name_as_on_aws(
    emulator: Emulator, stacks: Stacks, network: dict[str, str]
) -> None:
    name = new_name()
    stacks.create(cluster(network, name, configuration(network)))
    resource = cluster(network, name, configuration(network))["Cluster"]["Properties"]
    refused = ask_provider(emulator, "Create", resource)
    assert refused["Status"] == "FAILED"
    assert refused["Reason"] == f"Bad Request: Cluster {name} already exists."
    assert refused["PhysicalResourceId"].startswith("second_Cluster_")
    assert exists(stacks, name)

    ended = ask_provider(
        emulator, "Delete", resource, PhysicalResourceId=refused["PhysicalResourceId"]
    )
    assert ended["Status"] == "SUCCESS"
    assert ended["PhysicalResourceId"] == refused["PhysicalResourceId"]
    assert not exists(stacks, name)


def ask_provider(
    emulator: Emulator, kind: str, properties: dict[str, Any], **rest: str
) -> dict[str, Any]:
    """Send the provider's function one request as CloudFormation does; what it answered."""
    answers: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            answers.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        event = {
            "RequestType": kind,
            "RequestId": "request",
            "StackId": f"arn:aws:cloudformation:{REGION}:000000000000:stack/second/1",
            "LogicalResourceId": "Cluster",
            "ResourceType": "Custom::PclusterCluster",
            "ResponseURL": f"http://127.0.0.1:{server.server_port}/answer",
            "ResourceProperties": properties,
            **rest,
        }
        emulator.client("lambda").invoke(
            FunctionName=properties["ServiceToken"], Payload=json.dumps(event)
        )
        server.shutdown()
    (answer,) = answers
    echoed = {name: answer[name] for name in ("StackId", "RequestId", "LogicalResourceId")}
    assert echoed == {name: event[name] for name in echoed}
    return answer


def test_a_stack_that_is_no_cluster_is_left_alone(stacks: Stacks, network: dict[str, str]) -> None:
    other = stacks.create(
        {"Topic": {"Type": "AWS::SNS::Topic"}},
    )
    failed = stacks.create(cluster(network, other["StackName"], configuration(network)))
    assert "already exists." in stacks.reasons(failed)
    assert exists(stacks, other["StackName"])


def test_a_retained_cluster_outlives_its_stack(stacks: Stacks, network: dict[str, str]) -> None:
    name = new_name()
    stack = stacks.create(
        cluster(network, name, configuration(network), DeletionPolicy="Retain"),
    )
    assert stacks.delete(stack)["StackStatus"] == "DELETE_COMPLETE"
    assert exists(stacks, name)
    stacks.api.delete_stack(StackName=name)


def test_a_cluster_that_was_deleted_by_hand_does_not_stop_its_stack(
    stacks: Stacks, network: dict[str, str]
) -> None:
    name = new_name()
    stack = stacks.create(cluster(network, name, configuration(network)))
    stacks.api.delete_stack(StackName=name)
    assert stacks.delete(stack)["StackStatus"] == "DELETE_COMPLETE"


def test_a_large_cluster_with_many_warnings_fits_into_the_answer(
    stacks: Stacks, network: dict[str, str]
) -> None:
    queues = [queue(network, f"queue-{number}", efa=False) for number in range(24)]
    config = changed(configuration(network), "Scheduling.SlurmQueues", queues)
    assert len(json.dumps(config)) > 8192
    stack = stacks.create(
        cluster(network, new_name(), config), Outputs=asking("validationMessages")
    )
    assert stack["StackStatus"] == "CREATE_COMPLETE", stacks.reasons(stack)
    messages = outputs(stack)["validationMessages"]
    assert len(messages) == 2048
    assert messages.startswith("TRUNCATED:[")
