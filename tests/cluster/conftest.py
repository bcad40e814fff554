"""Fixtures of clusters of hosts, exclusive or shared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.surroundings.network import unavailable
from tests.support.worlds.hosts import Cluster, cluster


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skip the test if hosts can't be created here."""
    why = unavailable()
    if why:
        pytest.skip(why)


@pytest.fixture(scope="module")
def world(namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with three workers, shared by a module's tests; each has to leave three."""
    with cluster(tmp_path_factory.mktemp("hosts") / "cluster") as found:
        yield found
