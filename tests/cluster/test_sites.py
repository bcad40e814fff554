"""Test that streams are read at their sites, and partitions move to where tuples arrive, with exact
results.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from tests.support.scenarios.keyed_streams import write
from tests.support.worlds.hosted_replay import begin
from tests.support.worlds.hosts import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]
#: The first batches may run before all executors are available.
BATCHES, ROWS, EVERY, PARTITIONS = 30, 300, 2, 48
#: Number of values of a key; each stream has a third of them, except for one row in OTHERS.
VALUES, OTHERS = 300, 10


def key(stream: int, rng: Random) -> int:
    """Return a row's key; each stream has other frequent values."""
    if rng.randrange(OTHERS) == 0:
        return rng.randrange(VALUES)
    return stream * VALUES // 3 + int(rng.random() ** 3 * VALUES / 3)


def scenario(folder: Path, sites: Mapping[str, str]) -> Path:
    """Write a scenario of three streams at ``sites``."""
    sizes = {"batches": BATCHES, "rows": ROWS, "every": EVERY, "parallelism": PARTITIONS}
    return write(folder, key, sites=sites, **sizes)


def test_streams_at_sites_are_read_there_and_sent_less(world: Cluster, tmp_path: Path) -> None:
    sites = dict(zip("rst", sorted(world.workers)[:3], strict=True))
    replay = begin(world, scenario(tmp_path / "sites", sites))
    try:
        replay.await_commits(14 * EVERY + 1)
        *_, last = replay.snapshots()
        verdict = replay.verdict()
        assert not verdict.problems, f"{verdict}\n{replay.log[-3000:]}"
    finally:
        replay.close()
    assert last.on_hosts == 3
    # With random placement a third of the arriving tuples would be local.
    assert last.locality is not None
    assert last.locality > 0.55
    assert "no executor is at the site" not in replay.log.partition('"hosts": 3')[2]


def test_a_stream_whose_site_is_nowhere_is_read_all_the_same(
    world: Cluster, tmp_path: Path
) -> None:
    replay = begin(world, scenario(tmp_path / "nowhere", {"r": "atlantis"}))
    try:
        verdict = replay.verdict()
        assert not verdict.problems, f"{verdict}\n{replay.log[-3000:]}"
        assert "atlantis" in replay.log
    finally:
        replay.close()
