"""Tests of stored state over REST."""

from __future__ import annotations

from dataclasses import replace

from anabranch_contract import codec
from anabranch_contract.protocol.measurements import EdgeStatistics, Snapshot, StoreStatistics
from anabranch_contract.protocol.reads import Reads
from anabranch_contract.protocol.state_report import (
    EdgeReport,
    IndexReport,
    LevelReport,
    SegmentReport,
    StateReport,
    StoreParts,
    StoreReport,
)
from tests.service.conftest import PAIR
from tests.support.worlds.service import Service


def store(name: str, rows: int) -> StoreReport:
    """Return a report of a store with two levels."""
    levels = (LevelReport(0, 2, 10, 100), LevelReport(1, 1, rows - 10, 900))
    return StoreReport(
        store=name,
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
        disk_bytes=0,
        indexes=(),
    )


def report(*stores: StoreReport, epoch: int = 0) -> StateReport:
    """Return a state report with ``stores``."""
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
        revision=0,
    )


def test_a_report_is_read_as_it_was_written() -> None:
    found = report(store("a", 100), store("b", 20))
    assert StateReport.loads(found.dumps()) == found


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


def test_state_tells_what_the_last_epoch_asked(shop: Service) -> None:
    reads = {"a:int": Reads(100, 25, 30, looked=150, filtered=50), "b:int": Reads(100, looked=50)}
    stores = {
        "a": StoreStatistics(90, 900, 2, reads=reads),
        "idle": StoreStatistics(5, 50, 1),
    }
    snapshot = Snapshot(0, 4, 4, stores=stores)
    shop.redis.set(shop.keys.statistics(0), codec.dumps(snapshot))
    life = tuple(
        IndexReport(key, 90, 800, 100, found + found + found) for key, found in reads.items()
    )
    told = report(replace(store("a", 100), indexes=life, disk_bytes=1300), store("idle", 20))
    shop.redis.set(shop.keys.state, replace(told, epoch=1).dumps())
    one, idle = shop.get("/v1/state")["stores"]
    assert (one["probes"], one["matches"]) == (200, 30)
    assert one["reads"]["hit_rate"] == 0.125
    assert one["reads"]["read_amplification"] == 1.0
    assert one["reads"]["filtered_share"] == 0.2
    assert (one["life"]["probes"], one["life"]["hit_rate"]) == (600, 0.125)
    # 100 bytes that were written once, 900 that were written twice.
    assert (one["space_amplification"], one["write_amplification"]) == (1.3, 1.9)
    assert [(i["key"], i["entries"], i["bytes"], i["filter_bytes"]) for i in one["indexes"]] == [
        ("a:int", 90, 800, 100),
        ("b:int", 90, 800, 100),
    ]
    assert one["indexes"][0]["life"]["hit_rate"] == 0.25
    assert (idle["probes"], idle["reads"], idle["space_amplification"]) == (None, None, None)
    assert (idle["life"]["probes"], idle["life"]["hit_rate"]) == (0, None)


def test_one_store_with_its_segments_readers_and_history(shop: Service) -> None:
    assert shop.get("/v1/state/stores/orders/1", 404)["code"] == "no-state"
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    rules = shop.get("/v1/epochs/0/ruleset")["rules"]["probe"]
    rule = next(r for r in rules if r["mir"] == "orders")
    name = rule["store"]
    for epoch in range(4):
        known = {name: StoreStatistics(9, 900 + epoch, 2, reads={"k": Reads(10 * epoch, epoch)})}
        edges = {rule["out"]: EdgeStatistics(40, 30, 0.5, 800, 40)}
        # Epoch 1 had no batch.
        snapshot = Snapshot(epoch, 4 * (epoch != 1), 4, stores=known, edges=edges)
        shop.redis.set(shop.keys.statistics(epoch), codec.dumps(snapshot))
    shop.redis.set(shop.keys.state, report(store(name, 100), epoch=4).dumps())

    missing = shop.get("/v1/state/stores/nothing/1", 404)
    assert missing["code"] == "unknown-store"
    early = shop.get(f"/v1/state/stores/{name}")
    assert (early["parts"], early["parts_batch"], early["readers"]) == ([], None, [])

    parts = StoreParts(
        name,
        9,
        (SegmentReport(0, 1, 90, 900, (0, 5), (5, 70)), SegmentReport(1, 0, 10, 100, (6, 6), None)),
        3,
        (EdgeReport(rule["out"], ("pair",), fill=False), EdgeReport("gone", (), fill=True)),
        7,
    )
    assert StoreParts.loads(parts.dumps()) == parts
    shop.redis.hset(shop.keys.state_parts, name, parts.dumps())
    found = shop.get(f"/v1/state/stores/{name.replace('/', '%2F')}")
    assert (found["store"], found["rows"], found["next_batch"]) == (name, 100, 10)
    assert (found["parts_batch"], found["parts_omitted"], found["readers_omitted"]) == (9, 3, 7)
    assert found["parts"][0] == {
        "partition": 0, "level": 1, "rows": 90, "bytes": 900, "batches": [0, 5],
        "event_time": [5, 70],
    }  # fmt: skip
    assert found["parts"][1]["event_time"] is None
    reader, gone = found["readers"]
    assert (reader["start"], reader["mir"], reader["queries"]) == ("customers", "orders", ["pair"])
    assert reader["key"] == ["customers.customer_id = orders.customer_id"]
    assert reader["statistics"]["probes"] == 40
    assert (gone["start"], gone["fill"], gone["statistics"]) == (None, True, None)
    assert [(e["epoch"], e["bytes"]) for e in found["history"]] == [(0, 900), (2, 902), (3, 903)]
    assert [e["reads"]["hit_rate"] for e in found["history"]] == [None, 0.1, 0.1]
    latest = shop.get(f"/v1/state/stores/{name}?epochs=1")["history"]
    assert [e["epoch"] for e in latest] == [3]
    shop.get(f"/v1/state/stores/{name}?epochs=61", 422)
    shop.redis.hset(shop.keys.state_parts, name, "[1")
    assert shop.get(f"/v1/state/stores/{name}")["parts"] == []
    shop.redis.hset(shop.keys.state_parts, name, '{"segments": [[1]], "edges": []}')
    assert shop.get(f"/v1/state/stores/{name}")["parts_batch"] is None
