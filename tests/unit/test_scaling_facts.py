"""What the scaling estimate says of instances is what the catalog says of them."""

from __future__ import annotations

import tomllib
from pathlib import Path

from ultracluster.catalog import load_catalog

TABLE = Path(__file__).parents[2] / "training" / "scaling" / "published.toml"
EFA_GIGABIT = 100  # of one interface of Trn1


def test_instances_of_the_estimate_are_those_of_the_catalog() -> None:
    catalog = load_catalog()
    instances = tomllib.loads(TABLE.read_text(encoding="utf-8"))["instances"]
    assert instances
    for name, row in instances.items():
        known = catalog.instance_type(name)
        assert known is not None
        assert row["price_usd_per_hour"] == known.price_usd_per_hour
        assert row["price_date"] == catalog.prices_date()
        assert row["workers"] == known.cores
        assert row["gigabit_per_second"] == known.efa_interfaces * EFA_GIGABIT
