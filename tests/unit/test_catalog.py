"""The catalog: dated, consistent, and a user's own rows come first."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import ultracluster.catalog
from tests.unit.test_rules import AWS, NETWORK, QUEUE, errors, told, warnings
from ultracluster.catalog import PARALLELCLUSTER_VERSION, Catalog, CatalogError, load_catalog
from ultracluster.environment import load_environment
from ultracluster.rules import Level

FOLDER = Path(ultracluster.catalog.__file__).parent


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_every_table_has_a_date_and_a_refresh_command(path: Path, catalog: Catalog) -> None:
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    assert len(table["date"]) == 10
    assert table["refresh"]
    assert table["refresh"] in catalog.source(path.stem)


def test_every_offered_type_has_a_row_and_every_accelerator_is_offered(catalog: Catalog) -> None:
    offered = set(catalog.tables["az_offerings"]["offerings"])
    assert offered <= set(catalog.accelerator_names())
    assert set(catalog.accelerator_names()) == offered


def test_rows_of_trn1_are_those_of_the_user_guide(catalog: Catalog) -> None:
    rows = {
        name: catalog.instance_type(name)
        for name in ("trn1.2xlarge", "trn1.32xlarge", "trn1n.32xlarge")
    }
    facts = {
        name: (row.vcpus, row.memory_gib, row.accelerators, row.cores, row.efa_interfaces)
        for name, row in rows.items()
        if row
    }
    assert facts == {
        "trn1.2xlarge": (8, 32, 1, 2, 0),
        "trn1.32xlarge": (128, 512, 16, 32, 8),
        "trn1n.32xlarge": (128, 512, 16, 32, 16),
    }


def test_nodes_take_an_address_for_each_card_without_efa(catalog: Catalog) -> None:
    row = catalog.instance_type("trn1n.32xlarge")
    assert row is not None
    assert (row.addresses(efa=True), row.addresses(efa=False)) == (1, 16)


def test_neuron_sets_are_whole(catalog: Catalog) -> None:
    names = catalog.neuron_set_names()
    assert names == ["2.28.1", "2.29.1", "2.30.0", "2.31.1"]
    for name in names:
        release = catalog.neuron_set(name)
        assert release is not None
        assert release.framework.startswith(release.torch)
        for part in (release.driver, release.runtime, release.collectives, release.tools):
            assert part.count(".") == 2
        assert set(release.os) <= set(catalog.cluster_versions()[PARALLELCLUSTER_VERSION])


def test_quotas_are_named_by_family(catalog: Catalog) -> None:
    names = {}
    for name in ("trn1.2xlarge", "p4d.24xlarge", "g6.xlarge", "c5.xlarge"):
        row = catalog.instance_type(name)
        assert row is not None
        names[name] = catalog.quota(row).removeprefix("Running On-Demand ")
    assert list(names.values()) == [
        "Trn instances",
        "P instances",
        "G and VT instances",
        "Standard instances",
    ]


@pytest.mark.case("P07")
def test_every_known_bad_combination_is_refused_with_its_issue(tmp_path: Path) -> None:
    for row in load_catalog().known_bad():
        version = row.versions[-1] if row.versions else PARALLELCLUSTER_VERSION
        version += ".0" * (2 - version.count("."))
        os = row.os[0] if row.os else "ubuntu2404"
        kind = {"p4d": "p4d.24xlarge"}.get(row.families[0] if row.families else "", "trn1.32xlarge")
        found = told(
            tmp_path,
            queue=QUEUE + f'instance_type = "{kind}"\n',
            more=f'[cluster]\nversion = "{version}"\nos = "{os}"\n',
        )
        assert row.issue in found[Level(row.level)] + found[Level.ERROR], row


@pytest.mark.case("P06")
def test_versions_from_the_minimum_on_pass(tmp_path: Path) -> None:
    for version in load_catalog().cluster_versions():
        assert errors(tmp_path, more=f'[cluster]\nversion = "{version}"\n') == ""


@pytest.mark.case("N03")
@pytest.mark.case("N01")
def test_own_rows_admit_a_zone_with_a_warning(tmp_path: Path) -> None:
    network = NETWORK.replace("az4", "az3")
    assert "usw2-az3" in errors(tmp_path, network=network)
    own = '[az_offerings.offerings."trn1.32xlarge"]\nus-west-2 = ["usw2-az3"]\n'
    (tmp_path / "catalog.toml").write_text(own)
    text = warnings(tmp_path, network=network)
    assert f"which offers trn1.32xlarge by {tmp_path / 'catalog.toml'} alone" in text
    assert "describe-instance-type-offerings" in text


def test_own_file_may_have_another_name_and_its_date_is_shown(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        '[az_offerings]\ndate = "2027-01-02"\nrefresh = "ask Ada"\n'
        '[instance_types.types."trn9.xlarge"]\nvcpus = 4\nmemory_gib = 16\n'
        "price_usd_per_hour = 1.5\naccelerators = 1\n"
    )
    top = 'catalog = "mine.toml"\n'
    assert errors(tmp_path, top=top, queue=QUEUE + 'instance_type = "trn9.xlarge"\n') == ""
    refused = errors(tmp_path, top=top, network=NETWORK.replace("az4", "az2"))
    assert "catalog as of 2027-01-02; refresh with: ask Ada" in refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[instance_type]\n", r"got the table(s) instance_type; allowed: instance_types, az_off"),
        ("x = \n", "cannot be read as TOML"),
        ('[instance_types.types."a.b"]\nvcpus = 1\n', "row 'a.b' has wrong fields"),
        ('[neuron.sets."9"]\ndriver = "1"\n', "row '9' has wrong fields"),
    ],
)
def test_wrong_own_rows_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "catalog.toml").write_text(text)
    assert message in errors(tmp_path)
    with pytest.raises(CatalogError):
        load_catalog(tmp_path / "catalog.toml")


def test_missing_own_file_is_named(tmp_path: Path) -> None:
    assert "none.toml: cannot be read" in errors(tmp_path, top='catalog = "none.toml"\n')


def test_types_that_are_offered_widely_are_not_checked(tmp_path: Path) -> None:
    (tmp_path / "team.toml").write_text(
        AWS + NETWORK.replace("az4", "az2") + QUEUE + 'instance_type = "c6i.32xlarge"\n'
    )
    assert load_environment("team", tmp_path).settings.cluster.queues[0].max_count == 2


def test_zones_carry_the_short_form_of_their_region(catalog: Catalog) -> None:
    for regions in catalog.tables["az_offerings"]["offerings"].values():
        for region, zones in regions.items():
            prefixes = {zone.rsplit("-az", 1)[0] for zone in zones}
            assert len(prefixes) == 1, (region, zones)
            assert prefixes.pop()[:2] == region[:2]
