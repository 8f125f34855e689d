"""Resource types that the emulated account adds: created, changed, replaced and deleted."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from operations.emulator import Emulator
from tests.emulator.conftest import Stacks, outputs

pytestmark = pytest.mark.emulator

VPC: dict[str, Any] = {
    "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.7.0.0/16"}},
    "Subnet": {
        "Type": "AWS::EC2::Subnet",
        "Properties": {
            "VpcId": {"Ref": "Vpc"},
            "CidrBlock": "10.7.1.0/24",
            "AvailabilityZoneId": "usw2-az4",
        },
    },
}
FILE_SYSTEM: dict[str, Any] = {
    "Type": "AWS::FSx::FileSystem",
    "Properties": {
        "FileSystemType": "LUSTRE",
        "StorageCapacity": "1200",
        "SubnetIds": [{"Ref": "Subnet"}],
        "LustreConfiguration": {
            "DeploymentType": "PERSISTENT_2",
            "PerUnitStorageThroughput": "125",
        },
    },
}


def get(logical_id: str, attribute: str) -> dict[str, Any]:
    return {"Value": {"Fn::GetAtt": [logical_id, attribute]}}


def made(stacks: Stacks, resources: dict[str, Any], **rest: Any) -> dict[str, Any]:
    stack = stacks.create(resources, **rest)
    assert stack["StackStatus"] == "CREATE_COMPLETE", stacks.reasons(stack)
    return stack


def changed(stacks: Stacks, stack: dict[str, Any], resources: dict[str, Any], **rest: Any) -> Any:
    stack = stacks.update(stack, resources, **rest)
    assert stack["StackStatus"] == "UPDATE_COMPLETE", stacks.reasons(stack)
    return stack


def gone(stacks: Stacks, stack: dict[str, Any]) -> None:
    stack = stacks.delete(stack)
    assert stack["StackStatus"] == "DELETE_COMPLETE", stacks.reasons(stack)


def test_everything_is_in_the_region_that_was_asked_for(emulator: Emulator) -> None:
    assert emulator.region == "us-west-2"
    assert emulator.client("ec2").meta.region_name == "us-west-2"
    zones = emulator.client("ec2").describe_availability_zones()["AvailabilityZones"]
    assert [(zone["ZoneName"], zone["ZoneId"]) for zone in zones] == [
        ("us-west-2a", "usw2-az1"),
        ("us-west-2b", "usw2-az2"),
        ("us-west-2c", "usw2-az3"),
        ("us-west-2d", "usw2-az4"),
    ]


def test_a_subnet_goes_where_its_zone_id_says(emulator: Emulator, stacks: Stacks) -> None:
    stack = made(stacks, VPC, Outputs={"Zone": get("Subnet", "AvailabilityZone")})
    subnet = stacks.resource(stack, "Subnet")
    [found] = emulator.client("ec2").describe_subnets(SubnetIds=[subnet])["Subnets"]
    assert found["AvailabilityZoneId"] == "usw2-az4"
    assert found["AvailabilityZone"] == outputs(stack)["Zone"] == "us-west-2d"


def test_the_api_takes_a_zone_id_too(emulator: Emulator, stacks: Stacks) -> None:
    ec2 = emulator.client("ec2")
    stack = made(stacks, {"Vpc": VPC["Vpc"]})
    subnet = ec2.create_subnet(
        VpcId=stacks.resource(stack, "Vpc"),
        CidrBlock="10.7.2.0/24",
        AvailabilityZoneId="usw2-az4",
    )["Subnet"]
    ec2.delete_subnet(SubnetId=subnet["SubnetId"])
    assert subnet["AvailabilityZone"] == "us-west-2d"


def test_a_zone_id_of_another_region_is_refused(stacks: Stacks) -> None:
    wrong = {**VPC["Subnet"]["Properties"], "AvailabilityZoneId": "use1-az4"}
    stack = stacks.create({**VPC, "Subnet": {**VPC["Subnet"], "Properties": wrong}})
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    assert "Value (use1-az4) for parameter availabilityZoneId is invalid" in stacks.reasons(stack)


def test_the_attributes_of_a_vpc(stacks: Stacks) -> None:
    sections = {"Outputs": {
        "Cidr": get("Vpc", "CidrBlock"),
        "Group": get("Vpc", "DefaultSecurityGroup"),
        "Association": {"Value": {"Fn::Select": [
            0, {"Fn::GetAtt": ["Vpc", "CidrBlockAssociations"]}]}},
    }}  # fmt: skip
    stack = made(stacks, {"Vpc": VPC["Vpc"]}, **sections)
    named = {**VPC["Vpc"]["Properties"], "Tags": [{"Key": "Name", "Value": "named"}]}
    stack = changed(stacks, stack, {"Vpc": {**VPC["Vpc"], "Properties": named}}, **sections)
    assert outputs(stack)["Cidr"] == "10.7.0.0/16"
    assert outputs(stack)["Group"].startswith("sg-")
    assert outputs(stack)["Association"].startswith("vpc-cidr-assoc-")


def test_a_nat_gateway_with_its_address(emulator: Emulator, stacks: Stacks) -> None:
    ec2 = emulator.client("ec2")
    tags = [{"Key": "Name", "Value": "outward"}]
    resources = {
        **VPC,
        "Address": {"Type": "AWS::EC2::EIP", "Properties": {"Domain": "vpc", "Tags": tags}},
        "Gateway": {
            "Type": "AWS::EC2::NatGateway",
            "Properties": {
                "SubnetId": {"Ref": "Subnet"},
                "AllocationId": {"Fn::GetAtt": ["Address", "AllocationId"]},
                "Tags": tags,
            },
        },
    }
    stack = made(stacks, resources, Outputs={"Id": get("Gateway", "NatGatewayId")})
    gateway = stacks.resource(stack, "Gateway")
    assert outputs(stack)["Id"] == gateway
    [found] = ec2.describe_nat_gateways(NatGatewayIds=[gateway])["NatGateways"]
    assert tags[0] in found["Tags"]
    address = stacks.resource(stack, "Address")
    assert [one["PublicIp"] for one in ec2.describe_addresses()["Addresses"]] == [address]

    with_new_tag = {
        **resources,
        "Gateway": {
            **resources["Gateway"],
            "Properties": {**resources["Gateway"]["Properties"], "Tags": [
                {"Key": "Team", "Value": "a"}]},
        },
    }  # fmt: skip
    stack = changed(stacks, stack, with_new_tag)
    assert stacks.resource(stack, "Gateway") == gateway
    [found] = ec2.describe_nat_gateways(NatGatewayIds=[gateway])["NatGateways"]
    keys = {tag["Key"] for tag in found["Tags"]}
    assert "Team" in keys
    assert "Name" not in keys

    gone(stacks, stack)
    assert ec2.describe_addresses()["Addresses"] == []


def test_a_flow_log(emulator: Emulator, stacks: Stacks) -> None:
    resources = {
        "Vpc": VPC["Vpc"],
        "Group": {"Type": "AWS::Logs::LogGroup"},
        "Log": {
            "Type": "AWS::EC2::FlowLog",
            "Properties": {
                "ResourceId": {"Ref": "Vpc"},
                "ResourceType": "VPC",
                "TrafficType": "REJECT",
                "LogGroupName": {"Ref": "Group"},
                "DeliverLogsPermissionArn": "arn:aws:iam::000000000000:role/flow",
            },
        },
    }
    stack = made(stacks, resources)
    [log] = emulator.client("ec2").describe_flow_logs()["FlowLogs"]
    assert log["FlowLogId"] == stacks.resource(stack, "Log")
    assert log["TrafficType"] == "REJECT"
    gone(stacks, stack)
    assert emulator.client("ec2").describe_flow_logs()["FlowLogs"] == []


def test_rules_that_stand_apart_from_their_group(emulator: Emulator, stacks: Stacks) -> None:
    ec2 = emulator.client("ec2")
    resources: dict[str, Any] = {
        "Vpc": VPC["Vpc"],
        "Group": {
            "Type": "AWS::EC2::SecurityGroup",
            "Properties": {"GroupDescription": "all to all", "VpcId": {"Ref": "Vpc"}},
        },
        "In": {
            "Type": "AWS::EC2::SecurityGroupIngress",
            "Properties": {
                "GroupId": {"Ref": "Group"},
                "IpProtocol": "-1",
                "SourceSecurityGroupId": {"Ref": "Group"},
                "Description": "from itself",
            },
        },
        "Out": {
            "Type": "AWS::EC2::SecurityGroupEgress",
            "Properties": {
                "GroupId": {"Ref": "Group"},
                "IpProtocol": "tcp",
                "FromPort": "988",
                "ToPort": "988",
                "CidrIp": "10.7.0.0/16",
            },
        },
    }
    stack = made(stacks, resources)
    group = stacks.resource(stack, "Group")

    def described() -> dict[str, Any]:
        [found] = ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"]
        assert isinstance(found, dict)
        return found

    [inward] = described()["IpPermissions"]
    assert inward["UserIdGroupPairs"][0]["GroupId"] == group
    assert 988 in [rule.get("FromPort") for rule in described()["IpPermissionsEgress"]]

    del resources["In"]
    stack = changed(stacks, stack, resources)
    assert described()["IpPermissions"] == []


def test_a_group_that_another_group_names_cannot_be_deleted(
    emulator: Emulator, stacks: Stacks
) -> None:
    group = {
        "Type": "AWS::EC2::SecurityGroup",
        "Properties": {"GroupDescription": "a group", "VpcId": {"Ref": "Vpc"}},
    }
    stack = made(stacks, {"Vpc": VPC["Vpc"], "Named": group, "Other": group})
    emulator.client("ec2").authorize_security_group_ingress(
        GroupId=stacks.resource(stack, "Named"),
        IpPermissions=[
            {
                "IpProtocol": "-1",
                "UserIdGroupPairs": [{"GroupId": stacks.resource(stack, "Other")}],
            }
        ],
    )
    # Nothing tells the engine of the rule, so it begins with the last group by name.
    stack = stacks.delete(stack)
    assert stack["StackStatus"] == "DELETE_FAILED"
    assert "DependencyViolation" in stacks.reasons(stack)
    gone(stacks, stack)


def test_a_file_system_with_its_link_to_a_bucket(emulator: Emulator, stacks: Stacks) -> None:
    fsx = emulator.client("fsx")
    link: dict[str, Any] = {
        "Type": "AWS::FSx::DataRepositoryAssociation",
        "Properties": {
            "FileSystemId": {"Ref": "Files"},
            "FileSystemPath": "/data",
            "DataRepositoryPath": "s3://some-bucket/data",
            "S3": {"AutoImportPolicy": {"Events": ["NEW", "CHANGED"]}},
            "BatchImportMetaDataOnCreate": "true",
        },
    }
    resources = {**VPC, "Files": FILE_SYSTEM, "Link": link}
    sections = {
        "Outputs": {"Mount": get("Files", "LustreMountName"), "Dns": get("Files", "DNSName")}
    }
    stack = made(stacks, resources, **sections)
    identifier = stacks.resource(stack, "Files")
    [files] = fsx.describe_file_systems(FileSystemIds=[identifier])["FileSystems"]
    assert files["Lifecycle"] == "AVAILABLE"
    assert files["StorageCapacity"] == 1200
    assert files["LustreConfiguration"]["MountName"] == outputs(stack)["Mount"]
    assert files["DNSName"] == outputs(stack)["Dns"] == f"{identifier}.fsx.us-west-2.amazonaws.com"
    [association] = fsx.describe_data_repository_associations()["Associations"]
    assert association["AssociationId"] == stacks.resource(stack, "Link")
    assert association["Lifecycle"] == "AVAILABLE"
    assert association["BatchImportMetaDataOnCreate"] is True

    bigger = {**FILE_SYSTEM, "Properties": {**FILE_SYSTEM["Properties"], "StorageCapacity": 2400}}
    stack = changed(stacks, stack, {**resources, "Files": bigger}, **sections)
    assert stacks.resource(stack, "Files") == identifier
    [files] = fsx.describe_file_systems(FileSystemIds=[identifier])["FileSystems"]
    assert files["StorageCapacity"] == 2400

    stack = stacks.update(stack, resources, **sections)
    assert stack["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert "storage capacity can only grow" in stacks.reasons(stack)

    gone(stacks, stack)
    assert fsx.describe_file_systems()["FileSystems"] == []
    assert fsx.describe_data_repository_associations()["Associations"] == []


def test_another_kind_of_lustre_is_another_file_system(emulator: Emulator, stacks: Stacks) -> None:
    stack = made(stacks, {**VPC, "Files": FILE_SYSTEM})
    first = stacks.resource(stack, "Files")
    scratch = {"DeploymentType": "SCRATCH_2"}
    other = {"Properties": {**FILE_SYSTEM["Properties"], "LustreConfiguration": scratch}}
    stack = changed(stacks, stack, {**VPC, "Files": {**FILE_SYSTEM, **other}})
    second = stacks.resource(stack, "Files")
    assert second != first
    left = emulator.client("fsx").describe_file_systems()["FileSystems"]
    assert [one["FileSystemId"] for one in left] == [second]


def test_a_subnet_with_a_file_system_in_it_cannot_be_deleted(
    emulator: Emulator, stacks: Stacks
) -> None:
    stack = made(stacks, VPC)
    fsx = emulator.client("fsx")
    files = fsx.create_file_system(
        FileSystemType="LUSTRE",
        StorageCapacity=1200,
        SubnetIds=[stacks.resource(stack, "Subnet")],
    )["FileSystem"]["FileSystemId"]
    stack = stacks.delete(stack)
    assert stack["StackStatus"] == "DELETE_FAILED"
    assert "has dependencies and cannot be deleted" in stacks.reasons(stack)
    fsx.delete_file_system(FileSystemId=files)
    while fsx.describe_file_systems()["FileSystems"]:
        pass
    gone(stacks, stack)


def test_fsx_refuses_what_it_does_not_know(emulator: Emulator) -> None:
    fsx = emulator.client("fsx")
    with pytest.raises(ClientError, match="FileSystemNotFound"):
        fsx.describe_file_systems(FileSystemIds=["fs-0123456789abcdef0"])
    with pytest.raises(ClientError, match="InvalidNetworkSettings"):
        fsx.create_file_system(FileSystemType="LUSTRE", SubnetIds=["subnet-00000000"])
    with pytest.raises(ClientError, match="the emulator has no CopyBackup"):
        fsx.copy_backup(SourceBackupId="backup-0123456789abcdef0")


def test_scaling_of_an_endpoint(emulator: Emulator, stacks: Stacks) -> None:
    scaling = emulator.client("application-autoscaling")
    resources: dict[str, Any] = {
        "Target": {
            "Type": "AWS::ApplicationAutoScaling::ScalableTarget",
            "Properties": {
                "MinCapacity": "1",
                "MaxCapacity": "3",
                "ResourceId": "endpoint/scaled/variant/main",
                "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
                "ServiceNamespace": "sagemaker",
                "RoleARN": "arn:aws:iam::000000000000:role/scaling",
            },
        },
        "Policy": {
            "Type": "AWS::ApplicationAutoScaling::ScalingPolicy",
            "Properties": {
                "PolicyName": "invocations",
                "PolicyType": "TargetTrackingScaling",
                "ScalingTargetId": {"Ref": "Target"},
                "TargetTrackingScalingPolicyConfiguration": {
                    "TargetValue": "200",
                    "PredefinedMetricSpecification": {
                        "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
                    },
                },
            },
        },
    }
    stack = made(stacks, resources)
    resources["Target"]["Properties"]["MaxCapacity"] = 5
    stack = changed(stacks, stack, resources)
    targets = scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    assert [(one["ResourceId"], one["MaxCapacity"]) for one in targets] == [
        ("endpoint/scaled/variant/main", 5)
    ]
    [policy] = scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
    assert policy["TargetTrackingScalingPolicyConfiguration"]["TargetValue"] == 200
    assert policy["PolicyARN"] == stacks.resource(stack, "Policy")
    gone(stacks, stack)
    assert scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"] == []


def test_a_budget(emulator: Emulator, stacks: Stacks) -> None:
    budgets = emulator.client("budgets")
    budget: dict[str, Any] = {
        "Type": "AWS::Budgets::Budget",
        "Properties": {
            "Budget": {
                "BudgetType": "COST",
                "TimeUnit": "MONTHLY",
                "BudgetLimit": {"Amount": 500, "Unit": "USD"},
            },
            "NotificationsWithSubscribers": [
                {
                    "Notification": {
                        "NotificationType": "ACTUAL",
                        "ComparisonOperator": "GREATER_THAN",
                        "Threshold": "80",
                    },
                    "Subscribers": [{"SubscriptionType": "EMAIL", "Address": "team@example.com"}],
                }
            ],
        },
    }
    stack = made(stacks, {"Budget": budget})
    name = stacks.resource(stack, "Budget")
    budget["Properties"]["Budget"]["BudgetLimit"]["Amount"] = 700
    stack = changed(stacks, stack, {"Budget": budget})
    [found] = budgets.describe_budgets(AccountId="000000000000")["Budgets"]
    assert (found["BudgetName"], found["BudgetLimit"]["Amount"]) == (name, "700")
    notices = budgets.describe_notifications_for_budget(AccountId="000000000000", BudgetName=name)[
        "Notifications"
    ]
    assert [notice["Threshold"] for notice in notices] == [80.0]
    gone(stacks, stack)
    assert budgets.describe_budgets(AccountId="000000000000").get("Budgets", []) == []


def test_an_unknown_type_is_refused_before_anything_is_made(stacks: Stacks) -> None:
    with pytest.raises(ClientError, match=r"Unrecognized resource types: \[AWS::Panorama::Package"):
        stacks.create({"Vpc": VPC["Vpc"], "Odd": {"Type": "AWS::Panorama::Package"}})


def test_unknown_properties_are_refused_all_at_once(emulator: Emulator, stacks: Stacks) -> None:
    properties = {
        **FILE_SYSTEM["Properties"],
        "StorageCapacity": "many",
        "StorageSpeed": 3,
        "LustreConfiguration": {"Deployment": "PERSISTENT_2"},
    }
    stack = stacks.create({**VPC, "Files": {**FILE_SYSTEM, "Properties": properties}})
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    reasons = stacks.reasons(stack)
    assert "#: extraneous key [StorageSpeed] is not permitted, allowed: " in reasons
    assert "#/LustreConfiguration: extraneous key [Deployment] is not permitted" in reasons
    assert '#/StorageCapacity: expected type: integer, found: "many"' in reasons
    assert emulator.client("fsx").describe_file_systems()["FileSystems"] == []


def test_the_stack_s_tags_reach_its_resources(emulator: Emulator, stacks: Stacks) -> None:
    stack = made(stacks, {**VPC, "Files": FILE_SYSTEM})
    [files] = emulator.client("fsx").describe_file_systems()["FileSystems"]
    assert {"Key": "aws:cloudformation:stack-name", "Value": stack["StackName"]} in files["Tags"]
