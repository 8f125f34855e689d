"""What FSx for Lustre would refuse, and what would lose data, is told before a deploy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.test_rules import AWS, NETWORK, errors, warnings


def lustre(**values: str | int | bool) -> str:
    lines = []
    for key, value in values.items():
        text = str(value).lower() if isinstance(value, bool) else repr(value)
        lines.append(f"{key} = {text}")
    return "[lustre]\n" + "\n".join(lines) + "\n"


def links(count: int, *, path: str = "/l{}", prefix: str = "p{}") -> str:
    return "".join(
        f'[[lustre.links]]\npath = "{path.format(n)}"\nprefix = "{prefix.format(n)}"\n'
        for n in range(count)
    )


@pytest.mark.case("F01")
@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ({"deployment_type": "SCRATCH_2"}, (1200, 2400, 4800), (100, 1201, 3600, 65536, 0, -1)),
        ({"deployment_type": "SCRATCH_1"}, (1200, 2400, 3600, 7200), (4800, 1201)),
        (
            {"deployment_type": "PERSISTENT_2", "throughput_mb_per_tib": 250},
            (1200, 2400, 96000),
            (3600,),
        ),
        (
            {"deployment_type": "PERSISTENT_1", "storage_type": "HDD", "throughput_mb_per_tib": 12},
            (6000, 12000),
            (1800, 1200),
        ),
        (
            {"deployment_type": "PERSISTENT_1", "storage_type": "HDD", "throughput_mb_per_tib": 40},
            (1800, 3600),
            (6000, 1200),
        ),
    ],
)
def test_capacity(
    tmp_path: Path,
    kind: dict[str, str | int],
    good: tuple[int, ...],
    bad: tuple[int, ...],
) -> None:
    network = NETWORK + "private_mask = 20\n"
    none = "links = []\n"
    for capacity in good:
        text = lustre(capacity_gib=capacity, **kind) + none
        assert errors(tmp_path, network=network, more=text) == ""
    for capacity in bad:
        text = lustre(capacity_gib=capacity, **kind) + none
        assert f"lustre.capacity_gib: got {capacity}; nearest allowed: " in errors(
            tmp_path, network=network, more=text
        )


@pytest.mark.case("F01")
@pytest.mark.parametrize(
    ("capacity", "nearest"), [(100, "1200"), (1201, "1200 or 2400"), (65536, "64800 or 67200")]
)
def test_nearest_capacities_are_named(tmp_path: Path, capacity: int, nearest: str) -> None:
    text = errors(tmp_path, more=lustre(capacity_gib=capacity))
    assert f"got {capacity}; nearest allowed: {nearest}\n" in text + "\n"


@pytest.mark.case("F02")
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"deployment_type": "PERSISTENT_2", "throughput_mb_per_tib": 200}, "takes 125, 250, 500"),
        ({"deployment_type": "PERSISTENT_1", "throughput_mb_per_tib": 125}, "SSD takes 50, 100, 2"),
        ({"deployment_type": "PERSISTENT_2"}, "missing; PERSISTENT_2 takes 125, 250, 500, 1000"),
        ({"deployment_type": "SCRATCH_2", "throughput_mb_per_tib": 125}, "SCRATCH_2 takes none"),
        ({"deployment_type": "SCRATCH_2", "customer_key": True}, "customer_key: got true; SCRATCH"),
        (
            {
                "deployment_type": "PERSISTENT_2",
                "storage_type": "HDD",
                "throughput_mb_per_tib": 125,
            },
            "storage_type: got 'HDD'; PERSISTENT_2 has SSD alone",
        ),
        ({"deployment_type": "PERSISTENT_2", "throughput_mb_per_tib": 250}, ""),
    ],
)
def test_throughput_and_key(
    tmp_path: Path, values: dict[str, str | int | bool], message: str
) -> None:
    text = errors(tmp_path, more=lustre(**values))
    assert message in text if message else text == ""


@pytest.mark.case("F03")
def test_nine_links_are_refused_and_import_paths_are_no_option(tmp_path: Path) -> None:
    assert errors(tmp_path, more=links(8)) == ""
    assert "lustre.links: got 9; FSx takes at most 8" in errors(tmp_path, more=links(9))
    for key in ("import_path", "export_path", "auto_import_policy"):
        text = errors(tmp_path, more=lustre(**{key: "s3://b"}) + links(1))
        assert f"lustre.{key}: unknown key" in text


@pytest.mark.case("F04")
def test_region_without_persistent_2(tmp_path: Path) -> None:
    network = NETWORK.replace("usw2-az4", "euw3-az1")
    queue = '[[cluster.queues]]\nname = "train"\ninstance_type = "g5.12xlarge"\n'
    aws = AWS.replace("us-west-2", "eu-west-3")

    def refusal(kind: str, throughput: int) -> str:
        more = lustre(deployment_type=kind, throughput_mb_per_tib=throughput)
        return errors(tmp_path, aws=aws, network=network, queue=queue, more=more)

    message = refusal("PERSISTENT_2", 125)
    assert "which eu-west-3 does not offer: choose PERSISTENT_1" in message
    assert "50, 100 or 200" in message
    assert "catalog as of" in message
    assert refusal("PERSISTENT_1", 50) == ""


@pytest.mark.case("F07")
def test_old_lustre_is_refused(tmp_path: Path) -> None:
    assert "lustre.version: got '2.10'" in errors(tmp_path, more=lustre(version="2.10"))


@pytest.mark.case("F08")
def test_another_zone_is_told(tmp_path: Path) -> None:
    network = NETWORK + 'second_az_id = "usw2-az1"\n'
    more = lustre(az_id="usw2-az1")
    assert "cross-AZ traffic" in warnings(tmp_path, network=network, more=more)
    assert "where the network has no subnet" in errors(tmp_path, more=more)


@pytest.mark.case("F09")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (links(1, path="/") + links(1, path="/data", prefix="x"), "overlaps '/' of links[0]"),
        (
            links(1, path="/data") + links(1, path="/data/sub", prefix="x"),
            "got '/data/sub', which overlaps '/data'",
        ),
        (links(2, prefix="same"), "got 'same', which overlaps 'same' of links[0] in the same bu"),
        (links(2, prefix="a").replace('prefix = "a"\n[[', 'prefix = "a/b"\n[[', 1), "overlaps"),
        (links(1, path="/data") + links(1, path="/database", prefix="x"), ""),
    ],
)
def test_links_do_not_overlap(tmp_path: Path, text: str, message: str) -> None:
    found = errors(tmp_path, more=text)
    assert message in found if message else found == ""


@pytest.mark.case("F12")
def test_deletions_do_not_cross(tmp_path: Path) -> None:
    exporting = links(1) + 'export_events = ["NEW", "CHANGED", "DELETED"]\n'
    assert "removing a file removes the object" in warnings(tmp_path, more=exporting)
    root = '[[lustre.links]]\npath = "/data"\n'
    refused = errors(tmp_path, top='retention = "destroy"\n', more=root)
    assert "the whole data bucket, which is emptied on destroy" in refused
    assert errors(tmp_path, more=root) == ""


@pytest.mark.case("F14")
@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (lustre(backup_days=7), True),
        (lustre(backup_days=7) + "links = []\n", True),
        (
            lustre(deployment_type="PERSISTENT_2", throughput_mb_per_tib=125, backup_days=7),
            True,
        ),
        (
            lustre(deployment_type="PERSISTENT_2", throughput_mb_per_tib=125, backup_days=7)
            + "links = []\n",
            False,
        ),
    ],
)
def test_backups(tmp_path: Path, text: str, refused: bool) -> None:
    assert ("lustre.backup_days: got 7" in errors(tmp_path, more=text)) == refused


@pytest.mark.case("S09")
def test_linked_bucket_of_another_region_is_refused(tmp_path: Path) -> None:
    text = links(1) + 'bucket = "corpus"\nbucket_region = "eu-west-1"\n'
    assert "bucket_region: got 'eu-west-1'; FSx links buckets of its own region" in errors(
        tmp_path, more=text
    )
    assert errors(tmp_path, more=text.replace("eu-west-1", "us-west-2")) == ""


def test_scratch_1_takes_no_links(tmp_path: Path) -> None:
    text = errors(tmp_path, more=lustre(deployment_type="SCRATCH_1"))
    assert "SCRATCH_1 takes none: set links = []" in text


def test_kept_file_system_keeps_its_subnet(tmp_path: Path) -> None:
    kept = lustre(keep=True)
    assert "lustre.keep: got true; its subnet would go" in errors(tmp_path, more=kept)
    assert errors(tmp_path, network=NETWORK + "keep = true\n", more=kept) == ""
