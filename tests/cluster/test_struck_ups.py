"""Test of ``anabranch up`` on hosts with random faults: no results are lost or duplicated."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.struck_ups import ALL, Blow, run
from tests.support.worlds.hosts import Cluster
from tests.support.worlds.strikes import only

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("seed", range(3))
def test_a_pipeline_on_struck_hosts_is_exact(seed: int, world: Cluster, tmp_path: Path) -> None:
    outcome = run(world, tmp_path / "up", seed, 30)
    assert not outcome.ended
    assert not outcome.wrong
    assert outcome.results


@pytest.mark.parametrize("blow", [Blow.LONG, Blow.WORKERS_LONG, Blow.AWAY, Blow.SECOND])
def test_a_pipeline_survives(blow: Blow, world: Cluster, tmp_path: Path) -> None:
    outcome = run(world, tmp_path / "up", 10, 2, {blow: 1.0})
    assert not outcome.ended
    assert not outcome.wrong
    assert outcome.results


@pytest.mark.parametrize("seed", range(2))
def test_a_pipeline_is_exact_whose_hosts_come_and_go(
    seed: int, world: Cluster, tmp_path: Path
) -> None:
    kinds = only(ALL, "ADDED,REMOVED,HOST,RESCALED,REGISTERED")
    outcome = run(world, tmp_path / "up", seed, 12, kinds)
    assert not outcome.ended
    assert not outcome.wrong
    assert outcome.results
