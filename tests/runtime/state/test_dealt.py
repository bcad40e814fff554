"""Tests of where rows of hot (dealt) values are stored, and where probes look for them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from anabranch_contract.plans.ruleset import home_partition
from anabranch_runtime.index.keys import partition_of
from anabranch_runtime.state.dealt import Dealt, dealt_rows

PARTITIONS = 7


def drawn(seed: int) -> tuple[Dealt, ...]:
    """Return random entries; an entry's home partition may or may not receive its new rows."""
    rng = Random(seed)
    found = []
    for value in sorted(rng.getrandbits(64) for _ in range(rng.randint(1, 6))):
        away = rng.sample(range(PARTITIONS), rng.randint(0, PARTITIONS))
        now = rng.sample([*away, home_partition(value, PARTITIONS)], rng.randint(0, len(away)))
        found.append(Dealt(value, tuple(sorted(away)), tuple(now), 0, 0))
    return tuple(found)


def test_the_contract_and_the_runtime_say_the_same_home() -> None:
    hashes = np.array([0, 1, 2**32 - 1, 2**32, 2**63 + 11, 2**64 - 1], np.uint64)
    for partitions in (1, 2, 3, 7, 8, 1000):
        found = [home_partition(value, partitions) for value in hashes.tolist()]
        assert partition_of(hashes, partitions).tolist() == found


@pytest.mark.parametrize("seed", range(20))
def test_a_row_is_looked_for_where_it_has_been_written(seed: int) -> None:
    entries = drawn(seed)
    rows = dealt_rows(entries, PARTITIONS)
    rng = np.random.default_rng(seed)
    every = [entry.hash for entry in entries]
    hashes = np.concatenate(
        [rng.choice(np.array(every, np.uint64), 200), rng.integers(0, 2**63, 50, dtype=np.uint64)]
    )
    homes = partition_of(hashes, PARTITIONS)
    arrived = rng.integers(0, 2**62, len(hashes))
    written = rows.written(hashes, homes, lambda: arrived)
    known = {entry.hash: entry for entry in entries}
    for value, home, partition in zip(hashes.tolist(), homes, written, strict=True):
        entry = known.get(value)
        assert partition in ([home] if entry is None or not entry.now else entry.now)
    masks = np.array(rows.by_partition(hashes, homes))
    assert masks[written, np.arange(len(hashes))].all()
    for partition, mask in enumerate(masks):
        for value, home, may in zip(hashes.tolist(), homes, mask, strict=True):
            entry = known.get(value)
            away = entry is not None and partition in entry.partitions
            assert may == (partition == home or away)
    owners = rng.integers(0, 3, PARTITIONS)
    by_host = rows.by_host(hashes, owners, 3)
    for host, mask in enumerate(by_host):
        there = masks[owners == host].any(axis=0)
        dealt = np.array([value in known for value in hashes.tolist()])
        assert (mask == (there & dealt)).all()


def test_rows_are_dealt_evenly_and_alike_every_time() -> None:
    rows = dealt_rows((Dealt(5, (0, 2), (0, 2, 5), 0, 0),), PARTITIONS)
    hashes = np.full(30_000, 5, np.uint64)
    homes = partition_of(hashes, PARTITIONS)
    # The rows of a hot value are often adjacent, or at regular distances in a batch.
    for step in (1, 2, 3, 7, 1000):
        arrived = (9 << 32) + np.arange(30_000) * step
        written = rows.written(hashes, homes, lambda a=arrived: a)  # type: ignore[misc]
        assert (written == rows.written(hashes, homes, lambda a=arrived: a)).all()  # type: ignore[misc]
        counts = np.bincount(written, minlength=PARTITIONS)
        assert set(np.flatnonzero(counts)) == {0, 2, 5}
        assert counts[[0, 2, 5]].max() < 1.05 * counts[[0, 2, 5]].mean()
