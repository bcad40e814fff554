"""Clusters of hosts, for tests that are given their own or share one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.surroundings.network import unavailable
from tests.support.worlds.hosts import Cluster, cluster


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skips where there can be no hosts."""
    why = unavailable()
    if why:
        pytest.skip(why)


@pytest.fixture(scope="module")
def world(namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three workers, whom tests of a module share; each has to leave three."""
    with cluster(tmp_path_factory.mktemp("hosts") / "cluster") as found:
        yield found
