"""Values that keep one host busy are dealt to three in a replay as people run it; it is exact."""

from __future__ import annotations

import datetime as dt
import json
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract import codec
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.progress import Boundary
from tests.support.worlds.hosted_replay import begin

if TYPE_CHECKING:
    from pathlib import Path

    from anabranch_contract.plans.ruleset import Ruleset
    from tests.support.worlds.hosts import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]
BEGIN = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
BATCHES, ROWS, EVERY = 10, 300, 2
#: Every so many-th row of R and of S has the one value.
HOT, VALUES = 4, 300
NEAR = "BETWEEN r.ts - INTERVAL '2' MINUTE AND r.ts + INTERVAL '2' MINUTE"
QUERIES = {
    "pair": f"SELECT r.n, s.n AS m FROM r JOIN s ON r.k = s.k AND s.ts {NEAR}",
    "three": f"SELECT r.n, s.n AS m, t.n AS o FROM r JOIN s ON r.k = s.k AND s.ts {NEAR} "
    f"JOIN t ON r.k = t.k AND t.ts {NEAR}",
}


def write(folder: Path) -> Path:
    """A scenario of three streams in which one value is a fourth of two; its file."""
    folder.mkdir()
    streams = {}
    for number, name in enumerate("rst"):
        rng = Random(number)
        count = BATCHES * ROWS
        keys = [
            7 if name != "t" and rng.randrange(HOT) == 0 else rng.randrange(VALUES)
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
        }
    scenario = folder / "scenario.yaml"
    queries = {name: {"sql": sql} for name, sql in QUERIES.items()}
    document = {"streams": streams, "queries": queries, "parallelism": 12}
    scenario.write_text(json.dumps({**document, "epochs": {"every": EVERY}}))
    return scenario


def published(world: Cluster, epoch: int) -> Ruleset:
    """The rules of an epoch; of so few queries they are no patch."""
    with world.redis() as server:
        (name,) = server.scan_iter(f"anabranch-*:ruleset:{epoch}")
        return rulesets.loads(str(server.get(name)))


def measured(world: Cluster) -> Snapshot:
    """What the last epoch that has ended measured."""
    with world.redis() as server:
        (name,) = server.scan_iter("anabranch-*:boundaries")
        boundary = Boundary.loads(str(server.lindex(name, -1)))
    return codec.from_json(boundary.snapshot, Snapshot)


def test_hot_values_are_dealt_and_results_exact(world: Cluster, tmp_path: Path) -> None:
    replay = begin(world, write(tmp_path / "hot"))
    try:
        replay.await_commits(3 * EVERY + 1)
        snapshot = measured(world)
        hot = {str(s.id): s.hot for s in published(world, snapshot.epoch).stores if s.hot}
        assert {one.hosts for values in hot.values() for one in values} == {3}, snapshot
        sent = {edge: one.sent / one.probes for edge, one in snapshot.edges.items()}
        # Of even values two thirds would be sent.
        assert max(sent.values()) > 0.8, sent
        verdict = replay.verdict()
        assert not verdict.problems, f"{verdict}\n{replay.log[-3000:]}"
    finally:
        replay.close()
