"""Streams are read at their sites, and partitions go where tuples arrive; results are exact."""

from __future__ import annotations

import datetime as dt
import json
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract import codec
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.progress import Boundary
from tests.support.worlds.hosted_replay import begin

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.worlds.hosts import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]
BEGIN = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
BATCHES, ROWS, EVERY, PARTITIONS = 12, 300, 2, 48
#: Values of a key, of which each stream has a third nearly to itself.
VALUES, OTHERS = 300, 10
NEAR = "BETWEEN r.ts - INTERVAL '2' MINUTE AND r.ts + INTERVAL '2' MINUTE"
QUERIES = {
    "pair": f"SELECT r.n, s.n AS m FROM r JOIN s ON r.k = s.k AND s.ts {NEAR}",
    "three": f"SELECT r.n, s.n AS m, t.n AS o FROM r JOIN s ON r.k = s.k AND s.ts {NEAR} "
    f"JOIN t ON r.k = t.k AND t.ts {NEAR}",
}


def write(folder: Path, sites: Mapping[str, str]) -> Path:
    """A scenario of three streams at ``sites``; its file."""
    folder.mkdir()
    streams = {}
    for number, name in enumerate("rst"):
        rng = Random(number)
        count = BATCHES * ROWS
        keys = [
            rng.randrange(VALUES)
            if rng.randrange(OTHERS) == 0
            else number * VALUES // 3 + int(rng.random() ** 3 * VALUES / 3)
            for _ in range(count)
        ]
        times = [BEGIN + dt.timedelta(seconds=60 * at / ROWS) for at in range(count)]
        table = pa.table(
            {"n": range(count), "k": keys, "ts": pa.array(times, pa.timestamp("us", "UTC"))}
        )
        pq.write_table(table, folder / f"{name}.parquet")
        streams[name] = {
            "path": f"{name}.parquet",
            "rows_per_batch": ROWS,
            "event_time": "ts",
            "lateness": "1 second",
            "site": sites.get(name, ""),
        }
    scenario = folder / "scenario.yaml"
    queries = {name: {"sql": sql} for name, sql in QUERIES.items()}
    document = {"streams": streams, "queries": queries, "parallelism": PARTITIONS}
    scenario.write_text(json.dumps({**document, "epochs": {"every": EVERY}}))
    return scenario


def measured(world: Cluster) -> dict[int, Snapshot]:
    """Epoch -> what it has measured."""
    with world.redis() as server:
        (name,) = server.scan_iter("anabranch-*:boundaries")
        texts = server.lrange(name, 0, -1)
    boundaries = [Boundary.loads(str(text)) for text in texts]
    found = [codec.from_json(b.snapshot, Snapshot) for b in boundaries if b.snapshot is not None]
    return {snapshot.epoch: snapshot for snapshot in found}


def test_streams_at_sites_are_read_there_and_sent_less(world: Cluster, tmp_path: Path) -> None:
    sites = dict(zip("rst", sorted(world.workers)[:3], strict=True))
    replay = begin(world, write(tmp_path / "sites", sites))
    try:
        replay.await_commits(5 * EVERY + 1)
        found = measured(world)
        verdict = replay.verdict()
        assert not verdict.problems, f"{verdict}\n{replay.log[-3000:]}"
    finally:
        replay.close()
    first, last = found[min(found)], found[max(found)]
    assert first.on_hosts == last.on_hosts == 3
    # What is sent anywhere is at locality by chance, a third of it.
    assert last.locality is not None
    assert last.locality > 0.55, {epoch: one.locality for epoch, one in found.items()}
    assert "no executor is at the site" not in replay.log


def test_a_stream_whose_site_is_nowhere_is_read_all_the_same(
    world: Cluster, tmp_path: Path
) -> None:
    replay = begin(world, write(tmp_path / "nowhere", {"r": "atlantis"}))
    try:
        verdict = replay.verdict()
        assert not verdict.problems, f"{verdict}\n{replay.log[-3000:]}"
        assert "atlantis" in replay.log
    finally:
        replay.close()
