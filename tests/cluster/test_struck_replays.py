"""Test of replays on hosts with random faults: no results are lost or duplicated."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.struck_replays import run
from tests.support.worlds.hosts import Cluster
from tests.support.worlds.strikes import Kind

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("seed", range(6))
def test_a_replay_on_struck_hosts_is_exact(seed: int, world: Cluster, tmp_path: Path) -> None:
    outcome = run(world, seed, tmp_path / str(seed))
    assert not outcome.verdict.problems, str(outcome.verdict)
    assert len(outcome.strikes) >= 5


@pytest.mark.parametrize("kind", [Kind.VANISHED, Kind.PAUSED, Kind.CUT, Kind.STORE_FAILS])
def test_a_replay_is_exact_under_one_kind_of_strike(
    kind: Kind, world: Cluster, tmp_path: Path
) -> None:
    outcome = run(world, 100, tmp_path / kind.name, {kind: 1.0})
    assert not outcome.verdict.problems, str(outcome.verdict)
    assert {one.kind for one in outcome.strikes} == {kind}
