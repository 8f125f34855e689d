"""One cluster of four nodes for all tests that need no other."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.slurm.cluster import SlurmCluster, reason_to_skip
from tests.slurm.scenarios import Scenarios, begin


@pytest.fixture(scope="session")
def slurm_here() -> None:
    """Skips where no cluster can be made, with the reason."""
    if reason := reason_to_skip():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def shared_cluster(
    slurm_here: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SlurmCluster]:
    """Four nodes."""
    with SlurmCluster(tmp_path_factory.mktemp("cluster") / "run") as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """The four nodes, idle before and after the test."""
    yield shared_cluster
    shared_cluster.shell("scancel --user=root")
    shared_cluster.wait(
        lambda: shared_cluster.idle() == set(shared_cluster.names), "all nodes idle again"
    )


@pytest.fixture(scope="session")
def scenarios(slurm_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenarios]:
    """Runs beside the tests that ask for them later."""
    with ThreadPoolExecutor(5) as pool:
        yield begin(pool, tmp_path_factory.mktemp("scenarios"))
