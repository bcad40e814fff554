"""Stored state over REST."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch_planner.exchange import EdgeStatistics, Snapshot
from anabranch_planner.state_report import LevelReport, StateReport, StoreReport
from tests.service.conftest import PAIR

if TYPE_CHECKING:
    from tests.support.service import Service


def store(name: str, rows: int) -> StoreReport:
    """A store with two levels."""
    levels = (LevelReport(0, 2, 10, 100), LevelReport(1, 1, rows - 10, 900))
    return StoreReport(
        store=name,
        kind="stream",
        mir=name,
        members=(),
        streams=("orders",),
        filter=("total > 5",),
        partition="orders.customer_id",
        partitions=2,
        batches=((0, 3), (6, 9)),
        growing=True,
        queries=("pair",),
        rows=rows,
        bytes=1000,
        index_bytes=400,
        segments=3,
        levels=levels,
        expired_below=(1_700_000_000_000_000, None),
        backfill=False,
        ttl=(3_600_000_000, None),
    )


def report(*stores: StoreReport, epoch: int = 0) -> StateReport:
    """A state with ``stores``."""
    return StateReport(
        next_batch=10,
        epoch=epoch,
        ruleset_epoch=0,
        bytes=sum(s.bytes for s in stores),
        packs=7,
        disk_bytes=2600,
        space_amplification=1.3,
        inserted_bytes=2000,
        merged_bytes=1000,
        write_amplification=1.5,
        stores=stores,
    )


def test_a_report_is_read_as_it_was_written() -> None:
    found = report(store("a", 100), store("b", 20))
    assert StateReport.loads(found.dumps()) == found


def test_a_report_of_an_earlier_release_is_read() -> None:
    older = report(replace(store("a", 100), ttl=()))
    document = json.loads(older.dumps())
    del document["stores"][0]["ttl"]
    assert StateReport.loads(json.dumps(document)) == older


def test_state_before_and_after_the_runtime_has_told_of_it(shop: Service) -> None:
    missing = shop.get("/v1/state", 404)
    assert missing["code"] == "no-state"
    assert missing["remedy"]
    told = report(store("a", 100), store("b", 20))
    shop.redis.set(shop.keys.state, told.dumps())
    found = shop.get("/v1/state")
    assert [s["store"] for s in found["stores"]] == ["a", "b"]
    assert (found["write_amplification"], found["space_amplification"]) == (1.5, 1.3)
    one = found["stores"][0]
    assert one["batches"] == [[0, 3], [6, 9]]
    assert one["levels"][1] == {"level": 1, "segments": 1, "rows": 90, "bytes": 900}
    assert one["expired_below"] == [1_700_000_000_000_000, None]
    assert one["ttl"] == [3_600_000_000, None]
    assert (one["probes"], one["matches"]) == (None, None)
    shop.redis.set(shop.keys.state, "{}")
    assert shop.get("/v1/state", 404)["code"] == "no-state"


def test_state_tells_what_the_last_epoch_probed(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    rules = shop.get("/v1/epochs/0/ruleset")["rules"]["probe"]
    edges = {r["out"]: EdgeStatistics(100, 30, 0.5, 800, 40) for r in rules}
    snapshot = Snapshot(0, 4, 4, edges=edges)
    shop.redis.set(shop.keys.statistics(0), json.dumps(snapshot.to_json()))
    probed = {r["store"] for r in rules}
    stores = [store(name, 100) for name in sorted(probed)]
    shop.redis.set(shop.keys.state, report(*stores, store("unused", 20), epoch=1).dumps())
    found = {s["store"]: s for s in shop.get("/v1/state")["stores"]}
    assert len(probed) == 2
    for name in probed:
        assert found[name]["probes"] == 100
        assert found[name]["matches"] == edges[rules[0]["out"]].matches
    assert found["unused"]["probes"] is None
