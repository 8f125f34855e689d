"""Overrides of the wrong shape, and catalog files of the wrong form, are one clear line each."""

from __future__ import annotations

from pathlib import Path

import pytest

from ultracluster.environment import load_environment
from ultracluster.settings import SettingsError

GOOD = """
[aws]
region = "us-west-2"
[network]
accelerator_az_id = "usw2-az4"
[[cluster.queues]]
name = "train"
"""


def refusal(tmp_path: Path, text: str) -> str:
    (tmp_path / "team.toml").write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        load_environment("team", tmp_path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ('Scheduling = "x"', "Scheduling: got 'x'; it should be a table"),
        ("HeadNode = 1", "HeadNode: got 1; it should be a table"),
        ('Tags = "x"', "Tags: got 'x'; it should be a list of tables"),
        ('Scheduling = {SlurmQueues = "x"}', "SlurmQueues: each item should be a table whose Name"),
        (
            "Scheduling = {SlurmQueues = [{}]}",
            "SlurmQueues: each item should be a table whose Name",
        ),
        ('Scheduling = {SlurmQueues = [{Name = ["a"]}]}', "each item should be a table whose Name"),
        ("Foo = {Bar = 1}", "Foo: unknown to ParallelCluster; allowed: AdditionalPackages"),
        ('Region = "eu-west-1"', "Region: unknown to ParallelCluster"),
        ("DevSettings = {A = nan}", "DevSettings.A: got nan; allowed: text, numbers"),
        ("DevSettings = {A = [inf]}", "DevSettings.A[0]: got inf; allowed: text, numbers"),
        ("DevSettings = {A = 2020-01-01}", "DevSettings.A: got datetime.date(2020, 1, 1); allowed"),
    ],
)
def test_overrides_that_parallelcluster_cannot_take(
    tmp_path: Path, override: str, told: str
) -> None:
    assert told in refusal(tmp_path, f"{GOOD}[cluster.overrides]\n{override}\n")


def test_overrides_in_the_schema_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "team.toml").write_text(
        GOOD
        + '[[cluster.overrides.Scheduling.SlurmQueues]]\nName = "train"\nJobExclusiveAllocation = false\n'
        + "[cluster.overrides.DevSettings.Timeouts]\nHeadNodeBootstrapTimeout = 1800\n",
        encoding="utf-8",
    )
    assert load_environment("team", tmp_path).settings.cluster.overrides


@pytest.mark.parametrize(
    ("rows", "path"),
    [
        ("instance_types = [1]", "instance_types"),
        ("[instance_types]\ntypes = []", "instance_types.types"),
        ("[az_offerings]\nofferings = 1", "az_offerings.offerings"),
        (
            '[az_offerings.offerings]\n"trn1.32xlarge" = ["a"]',
            "az_offerings.offerings.trn1.32xlarge",
        ),
        ('[az_offerings.offerings."trn1.32xlarge"]\nus-west-2 = [1, 2]', "trn1.32xlarge.us-west-2"),
        ("[fsx.types]\nSCRATCH_2 = 1", "fsx.types.SCRATCH_2"),
        ('[fsx]\nmost_links = "x"', "fsx.most_links"),
        ("[fsx]\nmost_links = -5", "fsx.most_links"),
        ("[parallelcluster]\nversions = 1", "parallelcluster.versions"),
        ('[parallelcluster]\nregions = "us-west-2"', "parallelcluster.regions"),
        ('[instance_types.types."trn1.32xlarge"]\naccelerators = -1', "trn1.32xlarge.accelerators"),
        ('[instance_types.types."trn1.32xlarge"]\nprice_usd_per_hour = nan', "price_usd_per_hour"),
    ],
)
def test_rows_of_an_own_catalog_have_the_form_of_ours(tmp_path: Path, rows: str, path: str) -> None:
    (tmp_path / "own.toml").write_text(rows, encoding="utf-8")
    message = refusal(tmp_path, 'catalog = "own.toml"\n' + GOOD)
    assert path in message
    assert "own.toml" in message


@pytest.mark.parametrize("bucket", ["a..b", "-ab", "ab-.c"])
def test_a_bucket_that_cannot_exist_is_refused(tmp_path: Path, bucket: str) -> None:
    link = f'[[lustre.links]]\npath = "/a"\nbucket = "{bucket}"\nbucket_region = "us-west-2"\n'
    assert "lustre.links[0].bucket: got" in refusal(tmp_path, GOOD + link)
