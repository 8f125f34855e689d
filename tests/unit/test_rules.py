"""What AWS would refuse, or bill for nothing, is told before a deploy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ultracluster.environment import load_environment
from ultracluster.rules import Level
from ultracluster.settings import SettingsError

AWS = '[aws]\nregion = "us-west-2"\n'
NETWORK = '[network]\naccelerator_az_id = "usw2-az4"\n'
QUEUE = '[[cluster.queues]]\nname = "train"\n'
RESERVATION = (
    '[cluster.queues.reservation]\nid = "cr-0123456789abcdef0"\ncount = 2\naz_id = "usw2-az4"\n'
)
IMPORTED = (
    '[network.imported]\nvpc_id = "vpc-0123456789abcdef0"\n'
    'private_subnet_id = "subnet-0123456789abcdef0"\nprivate_subnet_cidr = "10.0.8.0/22"\n'
)


def told(
    folder: Path,
    *,
    top: str = "",
    aws: str = AWS,
    network: str = NETWORK,
    queue: str = QUEUE,
    more: str = "",
    name: str = "team",
) -> dict[Level, str]:
    """Everything that is said about settings, by its level."""
    (folder / f"{name}.toml").write_text(top + aws + network + queue + more, encoding="utf-8")
    try:
        found = load_environment(name, folder).findings
    except SettingsError as error:
        return {Level.ERROR: str(error), Level.WARNING: "", Level.NOTE: ""}
    return {level: "\n".join(str(f) for f in found if f.level is level) for level in Level}


def errors(folder: Path, **parts: str) -> str:
    return told(folder, **parts)[Level.ERROR]


def warnings(folder: Path, **parts: str) -> str:
    found = told(folder, **parts)
    assert found[Level.ERROR] == "", found[Level.ERROR]
    lines = found[Level.WARNING].splitlines()
    # Told of the default image whatever else there is.
    return "\n".join(line for line in lines if "is patched until" not in line)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        pytest.param(
            {"network": NETWORK.replace("az4", "az2")},
            r"got 'usw2-az2', which does not offer trn1.32xlarge .* usw2-az1, usw2-az4 "
            r"\(catalog as of \d{4}-\d\d-\d\d; refresh with: aws ec2 describe-instance-type-off",
            marks=[pytest.mark.case("N01"), pytest.mark.case("N03")],
        ),
        pytest.param(
            {"network": NETWORK.replace("usw2-az4", "us-west-2d")},
            r"got 'us-west-2d'; .* an AZ \*id\* such as usw2-az4: AZ names differ from account",
            marks=pytest.mark.case("N02"),
        ),
        ({"network": NETWORK.replace("usw2", "use1")}, "AZ ids of us-west-2 start with usw2-az"),
        pytest.param(
            {"network": NETWORK + 'second_az_id = "usw2-az4"\n'},
            "network.second_az_id: got 'usw2-az4', the accelerators' own zone",
            marks=pytest.mark.case("N12"),
        ),
        ({"network": NETWORK + 'cidr = "10.0.0.1/16"\n'}, "network.cidr: .* host bits set"),
        (
            {"network": NETWORK + 'cidr = "10.0.0.0/22"\nprivate_mask = 22\n'},
            r"1 private subnet\(s\) of 1024 addresses .* do not fit into 10.0.0.0/22",
        ),
        (
            {"queue": QUEUE + "max_count = 600\n"},
            r"got /23, 507 addresses in usw2-az4; .* need 604: /22 or larger",
        ),
        (
            {"queue": QUEUE + "max_count = 100\nefa = false\n"},
            r"got /23, 507 addresses in usw2-az4; .* need 804: /22 or larger",
        ),
        pytest.param(
            {"network": NETWORK + IMPORTED},
            "dns_confirmed: got false; .* enableDnsSupport and enableDnsHostnames",
            marks=pytest.mark.case("N11"),
        ),
        pytest.param(
            {
                "network": NETWORK + IMPORTED + "dns_confirmed = true\n",
                "more": "[cluster.head_node]\npublic = true\n",
            },
            "public_subnet_id: missing; a public head node needs",
            marks=pytest.mark.case("N07"),
        ),
        (
            {"network": NETWORK + IMPORTED.replace("10.0.8", "10.9.8") + "dns_confirmed = true\n"},
            "got '10.9.8.0/22', which is no part of network.cidr '10.0.0.0/16'",
        ),
        (
            {
                "network": NETWORK
                + 'second_az_id = "usw2-az1"\n'
                + IMPORTED
                + "dns_confirmed = true\n"
            },
            "second_private_subnet_id: missing; network.second_az_id = 'usw2-az1'",
        ),
        pytest.param(
            {"network": NETWORK + "nat = false\n"},
            "cluster.custom_ami: missing; with network.nat = false no package can be fetched",
            marks=pytest.mark.case("N09"),
        ),
        pytest.param(
            {"queue": QUEUE + 'instance_type = "trn1.2xlarge"\nefa = true\n'},
            "efa: got true; trn1.2xlarge has no EFA",
            marks=pytest.mark.case("E03"),
        ),
        pytest.param(
            {
                "network": NETWORK + 'second_az_id = "usw2-az1"\n',
                "queue": QUEUE + 'az_ids = ["usw2-az4", "usw2-az1"]\n',
            },
            "az_ids: got 2 zones; EFA works within one",
            marks=pytest.mark.case("E04"),
        ),
        pytest.param(
            {
                "network": NETWORK + 'second_az_id = "usw2-az1"\n',
                "queue": QUEUE
                + 'instance_type = "trn1.2xlarge"\nplacement_group = true\n'
                + 'az_ids = ["usw2-az4", "usw2-az1"]\n',
            },
            "placement_group: got true with 2 zones",
            marks=pytest.mark.case("E04"),
        ),
        ({"queue": QUEUE + 'az_ids = ["usw2-az1"]\n'}, "got 'usw2-az1', where the network has no"),
        ({"queue": QUEUE + 'az_ids = ["usw2-az4", "usw2-az4"]\n'}, "name each zone once"),
        pytest.param(
            {
                "queue": QUEUE
                + 'capacity_type = "capacity-block"\nmin_count = 2\nplacement_group = true\n'
                + RESERVATION
            },
            "placement_group: got true; a capacity block has its own placement",
            marks=pytest.mark.case("E05"),
        ),
        pytest.param(
            {"queue": QUEUE + RESERVATION.replace("usw2-az4", "usw2-az1")},
            "reservation.az_id: got 'usw2-az1'; the queue's nodes are in usw2-az4",
            marks=pytest.mark.case("E07"),
        ),
        *(
            pytest.param(
                {"queue": QUEUE + RESERVATION.replace("cr-0123456789abcdef0", bad)},
                "reservation.id: got ",
                marks=pytest.mark.case("E08"),
            )
            for bad in ("NA", "", "none", "${CAPACITY_RESERVATION_ID}", "cr-012345678")
        ),
        pytest.param(
            {
                "queue": QUEUE
                + 'capacity_type = "capacity-block"\nmin_count = 4\nmax_count = 4\n'
                + RESERVATION
            },
            "max_count: got 4, above the 2 instances of reservation",
            marks=pytest.mark.case("E09"),
        ),
        pytest.param(
            {
                "queue": QUEUE
                + 'instance_type = "trn1.32xlarge"\nalternatives = ["trn1n.32xlarge"]\n'
                + RESERVATION
            },
            "alternatives: .* a reservation holds one type",
            marks=pytest.mark.case("E09"),
        ),
        (
            {"queue": QUEUE + 'capacity_type = "capacity-block"\nmin_count = 2\n'},
            "reservation: mis",
        ),
        (
            {"queue": QUEUE + 'capacity_type = "capacity-block"\n' + RESERVATION},
            "set it to max_cou",
        ),
        (
            {
                "queue": QUEUE
                + 'capacity_type = "capacity-block"\ninstance_type = "trn1n.32xlarge"\n'
                + "min_count = 2\n"
                + RESERVATION
            },
            "trn1n.32xlarge is not sold so",
        ),
        (
            {"queue": QUEUE + 'capacity_type = "spot"\n' + RESERVATION},
            "a reservation is used on de",
        ),
        (
            {"queue": QUEUE + 'alternatives = ["trn1.2xlarge"]\n'},
            "got trn1.2xlarge with 8 vCPUs; trn1.32xlarge has 128",
        ),
        ({"queue": QUEUE + 'instance_type = "c7g.4xlarge"\n'}, "is arm64; choose an x86_64 type"),
        ({"queue": QUEUE + QUEUE}, "got 'train' a second time"),
        ({"queue": QUEUE.replace("train", "default")}, "Slurm keeps for itself"),
        ({"queue": QUEUE + "min_count = 3\n"}, "got 3, above max_count 2"),
        *(
            pytest.param(
                {"queue": QUEUE + f"spot_price = 3\n{kind}"},
                "spot_price: got 3.0 with capacity_type 'ondemand'",
                marks=pytest.mark.case("K02"),
            )
            for kind in ("", 'capacity_type = "ondemand"\n')
        ),
        pytest.param(
            {"more": "[cluster]\nbootstrap_minutes = 75\n"},
            "bootstrap_minutes: got 75; .* CloudFormation's hour: at most 45",
            marks=pytest.mark.case("P02"),
        ),
        pytest.param(
            {"queue": QUEUE + "min_count = 1\n", "more": "[cluster]\nbootstrap_minutes = 45\n"},
            "bootstrap_minutes: got 45; .* at most 40",
            marks=pytest.mark.case("P02"),
        ),
        *(
            pytest.param(
                {"more": f'[cluster]\nversion = "{version}"\n'},
                r"its helper functions use a Lambda runtime .*issues/7287\); choose 3.14.1 or newer",
                marks=pytest.mark.case("P06"),
            )
            for version in ("3.7.2", "3.12.0", "3.13.2")
        ),
        ({"more": '[cluster]\nversion = "4.0.0"\n'}, "known: 3.14.1, .*3.16.1"),
        ({"more": '[cluster]\nversion = "latest"\n'}, "version: got 'latest'; known"),
        pytest.param(
            {"more": '[cluster.head_node]\ninstance_type = "t3.micro"\n'},
            "got 't3.micro'; ubuntu2404 needs small or larger",
            marks=pytest.mark.case("P07"),
        ),
        pytest.param(
            {"more": '[cluster]\nos = "ubuntu2004"\n'},
            "cluster.os: got 'ubuntu2004'",
            marks=pytest.mark.case("P07"),
        ),
        ({"more": '[cluster]\nos = "rocky9"\n'}, "there is no official image of rocky9"),
        (
            {"more": '[cluster]\nos = "alinux2023"\n'},
            "Neuron 2.28.1 .* takes ubuntu2204, ubuntu2404",
        ),
        (
            {"more": '[cluster]\nos = "ubuntu2204"\nneuron = "2.31.1"\n'},
            "got 'ubuntu2204' with Python 3.10; Neuron 2.31.1 takes 3.11, 3.12, 3.13",
        ),
        ({"more": '[cluster]\nneuron = "2.32.0"\n'}, "known: 2.28.1, 2.29.1, 2.30.0, 2.31.1"),
        (
            {
                "network": NETWORK + "private_mask = 20\n",
                "queue": QUEUE + "max_count = 102\n",
                "more": '[cluster.head_node]\ninstance_type = "t3.small"\n',
            },
            "got 't3.small' with 2 GB of memory; 102 nodes need 4.68 GB",
        ),
        (
            {"more": '[cluster.head_node]\ninstance_type = "m7g.xlarge"\n'},
            "which is arm64; the nodes",
        ),
        (
            {"more": '[cluster.head_node]\ninstance_type = "m99.xlarge"\n'},
            "add a row to an own cata",
        ),
        (
            {"more": '[cluster.login_nodes]\ninstance_type = "m7g.large"\n'},
            "x86_64 type of the cat",
        ),
        pytest.param(
            {"more": '[cluster.head_node]\nssh_key = "team"\n'},
            "ssh_from: missing; ssh_key needs the CIDR",
            marks=pytest.mark.case("P22"),
        ),
        pytest.param(
            {"more": '[cluster.head_node]\nssh_key = "team"\nssh_from = "0.0.0.0/0"\n'},
            "got '0.0.0.0/0', the whole world; .* ssh_from_anywhere = true",
            marks=pytest.mark.case("P22"),
        ),
        (
            {"more": '[cluster.head_node]\nssh_key = "team"\nssh_from = "office"\n'},
            "allowed: a CIDR",
        ),
        ({"more": '[cluster.head_node]\nssh_from = "10.0.0.0/8"\n'}, "ssh_key: missing; ssh_from"),
        pytest.param(
            {"more": '[cluster.head_node]\nssh_key = "g4.pem"\nssh_from = "10.0.0.0/8"\n'},
            "name the key pair, 'g4', not its file",
            marks=pytest.mark.case("P20"),
        ),
        *(
            pytest.param(
                {"more": f"[cluster.overrides.{table}]\n{line}\n"},
                message,
                marks=pytest.mark.case("P20"),
            )
            for table, line, message in (
                ("HeadNode.Dcv", 'AllowedIps = "${IPS}"', r"AllowedIps: got '\$\{IPS\}'; replace"),
                ("HeadNode.Dcv", 'AllowedIps = "<your-ip>"', "replace the placeholder '<your-ip>'"),
                ("HeadNode.Dcv", 'AllowedIps = "{{ ips }}"', "replace the placeholder"),
                ("HeadNode.Dcv", 'AllowedIps = "{ips}"', "replace the placeholder '{ips}'"),
                ("HeadNode.Ssh", 'KeyName = "a.pem"', "name the key pair, not its file"),
                ("A", 'MountDir = "/neuron_shared /efs"', "absolute and has no blanks"),
                ("A", 'MountDir = "scratch"', "absolute and has no blanks"),
                ("A", 'MountDir = "/fsx/efs"', "/fsx is the file system's own"),
                ("A", 'MaxCount = "$NUM"', "write a number"),
            )
        ),
        pytest.param(
            {"more": '[endpoint]\nmodel_name = "${MODEL}"\n'},
            "endpoint.model_name: got '\\$\\{MODEL\\}'",
            marks=pytest.mark.case("P20"),
        ),
        (
            {"aws": AWS.replace("us-west-2", "ap-southeast-4")},
            "aws.region: .* ParallelCluster suppo",
        ),
        pytest.param(
            {"name": "team-cluster"},
            "its cluster would have the name of the cluster stack of environment 'team'",
            marks=[pytest.mark.case("P09"), pytest.mark.case("L11")],
        ),
        pytest.param(
            {"top": 'name = "a-name-of-20-letters"\n', "name": "an-environment-of-20"},
            "41 characters together with the environment; at most 40",
            marks=pytest.mark.case("P09"),
        ),
        pytest.param(
            {"top": f'name = "{"a" * 70}"\n'},
            "name: got 'a{70}'",
            marks=pytest.mark.case("P09"),
        ),
        ({"more": "[monitoring]\nmonthly_budget_usd = 9\n"}, "monitoring.email: missing; monthly"),
        ({"top": 'tags = {"aws:x" = "1"}\n'}, "tags.aws:x: got a reserved prefix"),
        ({"top": f'tags = {{long = "{"v" * 257}"}}\n'}, "values at most 256"),
        (
            {"top": "tags = {" + ", ".join(f'k{n} = "v"' for n in range(31)) + "}\n"},
            "tags: got 31; at most 30",
        ),
    ],
)
def test_errors(tmp_path: Path, parts: dict[str, str], message: str) -> None:
    assert re.search(message, errors(tmp_path, **parts))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        pytest.param(
            {"queue": QUEUE + "max_count = 4\n" + RESERVATION},
            "max_count: got 4, above the 2 instances .* bill on demand",
            marks=pytest.mark.case("E09"),
        ),
        pytest.param(
            {"queue": QUEUE + RESERVATION + 'match = "open"\n'},
            "reservation.match: got 'open'",
            marks=pytest.mark.case("E07"),
        ),
        pytest.param(
            {"queue": QUEUE + "placement_group = true\n" + RESERVATION},
            "placement_group: got true; nodes may find no capacity beside the group",
            marks=pytest.mark.case("E05"),
        ),
        pytest.param(
            {"queue": QUEUE + "efa = false\n"},
            "efa: got false; jobs",
            marks=pytest.mark.case("E03"),
        ),
        pytest.param(
            {"queue": QUEUE + "min_count = 2\n"},
            "2 nodes always on, 256 vCPUs, 48 node-hours a day, 1,032.00 USD a day .* creation itself",
            marks=pytest.mark.case("K03"),
        ),
        pytest.param(
            {"more": "[cluster]\nscaledown_minutes = 61\n"},
            "scaledown_minutes: got 61",
            marks=pytest.mark.case("K03"),
        ),
        pytest.param(
            {
                "more": '[cluster.overrides.DevSettings]\nScript = "https://raw.githubusercontent.com/a/b/main/x"\n'
            },
            "changes under its name: pin a version or a commit",
            marks=pytest.mark.case("P05"),
        ),
        (
            {"network": NETWORK + IMPORTED + "dns_confirmed = true\n"},
            "private_route_table_id: missing; .* S3 and DynamoDB gateway endpoints",
        ),
        ({"more": '[cluster]\nversion = "3.16.0"\n'}, "known vulnerabilities .*issues/7601"),
        (
            {"top": 'retention = "destroy"\ntermination_protection = true\n'},
            "got 'destroy' with termination_protection",
        ),
        (
            {"more": "[delivery]\napproval_hours = 24\n"},
            "delivery.approval_hours: got 24, and no address is told",
        ),
    ],
)
def test_warnings(tmp_path: Path, parts: dict[str, str], message: str) -> None:
    assert re.search(message, warnings(tmp_path, **parts))


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"more": '[cluster]\nversion = "3.14.1"\n'},
        pytest.param(
            {"more": "[cluster]\nbootstrap_minutes = 45\n"}, marks=pytest.mark.case("P02")
        ),
        {"more": '[cluster]\nos = "ubuntu2204"\n'},
        {"more": '[cluster]\nos = "rocky9"\nversion = "3.16.1"\ncustom_ami = "ami-01234567"\n'},
        pytest.param(
            {
                "more": '[cluster.head_node]\nssh_key = "k"\nssh_from = "0.0.0.0/0"\n'
                "ssh_from_anywhere = true\n"
            },
            marks=pytest.mark.case("P22"),
        ),
        {"more": '[cluster.head_node]\nssh_key = "k"\nssh_from = "pl-0123456789abcdef0"\n'},
        {"queue": QUEUE + 'capacity_type = "spot"\nspot_price = 9\n'},
        {"queue": QUEUE + RESERVATION},
        {
            "network": NETWORK + 'second_az_id = "usw2-az1"\n',
            "queue": QUEUE + 'instance_type = "trn1.2xlarge"\naz_ids = ["usw2-az4", "usw2-az1"]\n',
        },
        {"network": NETWORK + "nat = false\n", "more": '[cluster]\ncustom_ami = "ami-01234567"\n'},
        pytest.param(
            {"queue": QUEUE + "max_count = 4\nalternatives = []\n"}, marks=pytest.mark.case("E08")
        ),
    ],
)
def test_accepted_without_a_warning(tmp_path: Path, parts: dict[str, str]) -> None:
    found = told(tmp_path, **parts)
    assert found[Level.ERROR] == ""
    lines = found[Level.WARNING].splitlines()
    known = ("known vulnerabilities", "is patched until")
    assert [line for line in lines if not any(words in line for words in known)] == []


@pytest.mark.case("N12")
def test_the_second_zone_is_always_another(tmp_path: Path) -> None:
    zones = [f"usw2-az{number}" for number in range(1, 5)]
    own = (f'[az_offerings.offerings."trn1.32xlarge"]\nus-west-2 = {zones}\n').replace("'", '"')
    (tmp_path / "catalog.toml").write_text(own)
    for first in zones:
        for second in zones:
            text = f'[network]\naccelerator_az_id = "{first}"\nsecond_az_id = "{second}"\n'
            refused = errors(tmp_path, network=text)
            assert bool(refused) == (first == second), (first, second)


def test_the_fleet_is_told_as_a_note(tmp_path: Path) -> None:
    notes = told(tmp_path, queue=QUEUE + "max_count = 16\n")[Level.NOTE]
    assert "at most 16 x trn1.32xlarge: 2048 vCPUs" in notes
    assert "Running On-Demand Trn instances" in notes
    assert "344.00 USD an hour" in notes


def test_ten_mistakes_are_ten_messages(tmp_path: Path) -> None:
    message = errors(
        tmp_path,
        top='retention = "keep"\n',
        network=NETWORK.replace("az4", "az2") + "nat = false\n",
        queue=QUEUE + "max_cuont = 4\nspot_price = 1\nefa = true\ninstance_type = 'trn1.2xlarge'\n",
        more="[lustre]\ncapacity_gib = 1300\nthroughput_mb_per_tib = 125\n"
        '[cluster.head_node]\nssh_key = "a.pem"\n[endpoint]\ninstance_type = "ml.m5.large"\n',
    )
    for start in (
        "retention:",
        "network.accelerator_az_id:",
        "cluster.custom_ami:",
        "cluster.queues[0].max_cuont:",
        "cluster.queues[0].spot_price:",
        "cluster.queues[0].efa:",
        "lustre.capacity_gib:",
        "lustre.throughput_mb_per_tib:",
        "cluster.head_node.ssh_key:",
        "cluster.head_node.ssh_from:",
        "endpoint.instance_type:",
    ):
        assert f"\n  {start} " in message
    assert "11 problem(s)" in message
