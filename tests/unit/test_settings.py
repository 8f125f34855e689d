"""A platform engineer's mistakes in the settings are named, all at once, with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from ultracluster.environment import load_environment
from ultracluster.settings import Settings, SettingsError, load_settings

ROOT = Path(__file__).parents[2]
GOOD = """
[aws]
region = "us-west-2"
[network]
accelerator_az_id = "usw2-az4"
[[cluster.queues]]
name = "train"
"""


def load(tmp_path: Path, text: str) -> Settings:
    (tmp_path / "team.toml").write_text(text, encoding="utf-8")
    return load_environment("team", tmp_path).settings


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, text)
    return str(caught.value)


@pytest.mark.parametrize("environment", ["dev", "rehearsal"])
def test_settings_of_the_repository_are_accepted(environment: str) -> None:
    load_environment(environment, ROOT / "config")


def test_least_settings_are_accepted(tmp_path: Path) -> None:
    settings = load(tmp_path, GOOD)
    assert settings.prefix == "ultracluster-team"
    assert settings.retention == "retain"


@pytest.mark.case("C06")
def test_missing_file_is_one_line_with_its_path_and_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "dev.toml").touch()
    with pytest.raises(SettingsError) as caught:
        load_settings("prod", tmp_path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(tmp_path / "prod.toml") in message
    assert "environments here: dev" in message


@pytest.mark.case("C06")
def test_broken_toml_names_line_and_column(tmp_path: Path) -> None:
    message = refusal(tmp_path, GOOD + "\nname = \n")
    assert "line 9" in message
    assert "column" in message


@pytest.mark.case("C06")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nmae = 'x'\n" + GOOD, "nmae: unknown key; did you mean 'name'?"),
        (
            GOOD + "max_cuont = 3\n",
            "cluster.queues[0].max_cuont: unknown key; did you mean 'max_count'?",
        ),
        (
            GOOD + "[endpoint]\nqq = 3\n",
            "endpoint.qq: unknown key; allowed: model_name, instance_type",
        ),
        (
            GOOD + "[lustre]\ncapacity = 3\n",
            "lustre.capacity: unknown key; did you mean 'capacity_gib'?",
        ),
    ],
)
def test_unknown_key_is_refused_with_the_nearest(tmp_path: Path, text: str, told: str) -> None:
    assert told in refusal(tmp_path, text)


def test_environment_is_the_name_of_the_file(tmp_path: Path) -> None:
    assert "environment: unknown key; it is" in refusal(tmp_path, 'environment = "b"\n' + GOOD)


def test_repeated_key_is_refused(tmp_path: Path) -> None:
    assert "not valid TOML" in refusal(tmp_path, 'name = "a"\nname = "b"\n' + GOOD)


def test_all_problems_are_named_at_once(tmp_path: Path) -> None:
    message = refusal(
        tmp_path,
        """
retention = "keep"
[aws]
region = "Oregon"
account = "123"
[network]
cidr = "10.0.0.0/28"
[[cluster.queues]]
name = "Train_1"
max_count = "2"
""",
    )
    assert "7 problem(s)" in message
    for path in (
        "retention: got 'keep'",
        "aws.region: got 'Oregon'",
        "aws.account: got '123'",
        "network.accelerator_az_id: missing",
        "network.cidr: got '10.0.0.0/28'",
        "cluster.queues[0].name: got 'Train_1'",
        "cluster.queues[0].max_count: got '2'",
    ):
        assert path in message
    assert "pydantic" not in message


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("usw2-az4", "usw2-az3", "AZ ids of us-west-2 that do: usw2-az1, usw2-az4 (catalog as of"),
        ("us-west-2", "eu-west-1", "none: choose another region"),
        (
            'name = "train"',
            'name = "train"\ninstance_type = "trn1.31xlarge"',
            "known among others: trn1.32xlarge",
        ),
        ('name = "train"', 'name = "default"', "rename it"),
        ('name = "train"', 'name = "train"\nmin_count = 3', "min_count: got 3, above max_count 2"),
        ('name = "train"', 'name = "a"\n[[cluster.queues]]\nname = "a"', "got 'a' a second time"),
        (
            "[aws]",
            "[lustre]\ncapacity_gib = 3600\n[aws]",
            "got 3600; nearest allowed: 2400 or 4800",
        ),
        ("[aws]", "[lustre]\ncapacity_gib = 100\n[aws]", "got 100; nearest allowed: 1200"),
        ("[aws]", "[lustre]\ncapacity_gib = -1\n[aws]", "got -1; nearest allowed: 1200"),
        (
            "[aws]",
            "[lustre]\ncapacity_gib = 1300\n[aws]",
            "got 1300; nearest allowed: 1200 or 2400",
        ),
        ("[aws]", "[lustre]\nthroughput_mb_per_tib = 125\n[aws]", "SCRATCH_2 takes none"),
        ("[aws]", '[lustre]\ndeployment_type = "PERSISTENT_2"\n[aws]', "PERSISTENT_2 takes 125"),
        ("[aws]", '[endpoint]\ninstance_type = "ml.c5.xlarge"\n[aws]', "the image is arm64"),
        ("[aws]", '[endpoint]\ninstance_type = "c7g.xlarge"\n[aws]', "the image is arm64"),
    ],
)
def test_what_aws_would_refuse_is_refused_before(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    assert told in refusal(tmp_path, GOOD.replace(old, new))


def test_rules_are_all_reported_together(tmp_path: Path) -> None:
    text = GOOD.replace("usw2-az4", "usw2-az9").replace(
        "[aws]", "[lustre]\ncapacity_gib = 5\n[aws]"
    )
    message = refusal(tmp_path, text)
    assert "2 problem(s)" in message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (GOOD + "max_count = " + "9" * 5000, "not valid TOML: Exceeds the limit"),
        ("a = " + "[" * 20_000, "not valid TOML"),
        ("a = " + "{b=" * 20_000, "not valid TOML"),
        (GOOD + "max_count = " + "9" * 40, "max_count: got 9"),
        (
            GOOD + "[endpoint]\ninstance_count = 1000000000000\n",
            "instance_count: got 1000000000000",
        ),
        (GOOD.replace("[aws]", '[aws]\naccount = "١٢٣٤٥٦٧٨٩٠١٢"'), "aws.account: got"),
        (GOOD.replace("[network]", '[network]\ncidr = "999.0.0.0/16"'), "network.cidr: got"),
        (GOOD.replace("[network]", '[network]\ncidr = "10.0.0.1/16"'), "has host bits set"),
        (GOOD.replace("[network]", '[network]\ncidr = "8.8.0.0/16"'), "a part of 10.0.0.0/8"),
        (GOOD.replace("[network]", '[network]\ncidr = "127.0.0.0/16"'), "a part of 10.0.0.0/8"),
        (GOOD + '[endpoint]\ninstance_type = "ml.c7g.bogus"\n', "this family has ml.c7g.large, "),
        ('environment = "dev"\n' + GOOD, "environment: unknown key"),
        ('aws = "x"\n', "aws: got 'x'; it should be a table"),
        ("name = '" + "z" * 5000 + "'\n" + GOOD, "(5002 characters)"),
        ("", "cluster: missing; add it"),
    ],
)
def test_what_no_one_would_write_is_one_clear_line_too(
    tmp_path: Path, text: str, told: str
) -> None:
    message = refusal(tmp_path, text)
    assert told in message
    assert max(map(len, message.splitlines())) < 600


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "team.toml").write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load_settings("team", tmp_path).environment == "team"


@pytest.mark.parametrize("name", ["n" * 300, "folder"])
def test_what_is_no_file_is_said_to_be_none(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(SettingsError, match="does not exist; environments here: none"):
        load_settings(name, tmp_path)
