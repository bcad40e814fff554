"""Test that hot key values, which keep one host busy, are distributed to three in a replay, with
exact results.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.ruleset import Ruleset
from tests.support.scenarios.keyed_streams import write
from tests.support.worlds.hosted_replay import begin
from tests.support.worlds.hosts import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]
#: The first batches may run before all executors are available.
BATCHES, ROWS, EVERY = 24, 120, 2
#: Every so many-th row of R and of S has the hot value.
HOT, VALUES = 4, 300


def key(stream: int, rng: Random) -> int:
    """Return a row's key: in two streams, a fourth of the rows has the hot value."""
    return 7 if stream < 2 and rng.randrange(HOT) == 0 else rng.randrange(VALUES)


def published(world: Cluster, epoch: int) -> Ruleset:
    """Return the ruleset of an epoch; with so few queries it is no patch."""
    with world.redis() as server:
        (name,) = server.scan_iter(f"anabranch-*:ruleset:{epoch}")
        return rulesets.loads(str(server.get(name)))


def test_hot_values_are_dealt_and_results_exact(world: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "hot"
    scenario = write(folder, key, batches=BATCHES, rows=ROWS, every=EVERY, parallelism=12)
    replay = begin(world, scenario)
    try:
        replay.await_commits(10 * EVERY + 1)
        *_, snapshot = replay.snapshots()
        hot = {str(s.id): s.hot for s in published(world, snapshot.epoch).stores if s.hot}
        assert {one.hosts for values in hot.values() for one in values} == {3}, snapshot
        sent = {edge: one.sent / one.probes for edge, one in snapshot.edges.items()}
        # With evenly distributed values two thirds would be sent.
        assert max(sent.values()) > 0.8, sent
        verdict = replay.verdict()
        assert not verdict.problems, f"{verdict}\n{replay.log[-3000:]}"
    finally:
        replay.close()
