"""A fresh node for each test, and the release that the settings make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.boot.node import Node, publish
from ultracluster.boot_files import boot_environment, instance_facts
from ultracluster.catalog import load_catalog
from ultracluster.settings import Settings

Release = Callable[..., str]


def settings(*, instance_type: str = "trn1.32xlarge", **cluster: Any) -> Settings:
    return Settings.model_validate(
        {
            "environment": "dev",
            "aws": {"region": "us-west-2"},
            "network": {"accelerator_az_id": "usw2-az4"},
            "cluster": {
                "os": "ubuntu2404",
                "neuron": "2.28.1",
                "queues": [{"name": "train", "instance_type": instance_type}],
                **cluster,
            },
        }
    )


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def release(node: Node) -> Release:
    def make(name: str = "r1", **options: Any) -> str:
        chosen, catalog = settings(**options), load_catalog()
        publish(
            node,
            name,
            boot_environment(chosen, catalog),
            {"facts": {"model_bucket": "m"}, "instances": instance_facts(chosen, catalog)},
        )
        return name

    return make
