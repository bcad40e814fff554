"""Tests of statistics over REST, as metrics, and of plans made from samples."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from anabranch_contract import codec
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.measurements import (
    EdgeStatistics,
    FrequentValues,
    Snapshot,
    StoreStatistics,
    StreamSample,
    StreamStatistics,
)
from anabranch_contract.protocol.progress import Boundary, Progress
from anabranch_contract.protocol.reads import Reads
from anabranch_runtime.control import Control
from tests.service.conftest import PAIR
from tests.support.worlds.service import Service

READS = {
    "customer_id:bigint": Reads(
        1000, 250, 300, by_partition=2000, by_time=500, filtered=300, looked=200
    )
}
FREQUENT = FrequentValues((9, 1 << 63), ("7", "8"), (0.3, 0.1), (0.2, 0.15), 0.001, 0.4, 0.5)
SNAPSHOT = Snapshot(
    0,
    4,
    4,
    arrivals={"orders": 4000, "customers": 100},
    distincts={"orders": {"customer_id": 90.0}},
    streams={
        "orders": {"input": 4000, "late": 0, "invalid": 0},
        "customers": {"input": 100, "late": 0, "invalid": 0},
    },
    edges={"orders>customers": EdgeStatistics(4000, 3900, 0.5, 8000, 3900, 2500)},
    stores={"orders/2": StoreStatistics(4000, 65536, 3, {"customer_id": 90.0}, READS)},
    measured={"orders": StreamStatistics(4000, 3, 1, 8.0, 100.0, (3000, 0, 900, 99))},
    values={"orders": {"customer_id": FREQUENT}},
)  # fmt: skip

SAMPLE = StreamSample(
    4000,
    8,
    {
        "order_id": ("bigint", list(range(8))),
        "total": ("double", ["1.0", "1.0", "1.0", "4.5", "8.0", "9.0", "90.0", None]),
    },
)


def measured(shop: Service) -> None:
    """End an epoch with statistics and a sample, as the runtime reports them."""
    shop.plan(-1)
    document = codec.to_json(SNAPSHOT)
    shop.redis.set(shop.keys.statistics(0), json.dumps(document))
    shop.redis.hset(shop.keys.samples, "orders", SAMPLE.dumps())
    shop.plan(0, snapshot=SNAPSHOT)


def test_long_measurements_are_kept_packed(shop: Service) -> None:
    shop.plan(-1)
    arrivals = {**SNAPSHOT.arrivals, **{f"gone_{n}": n for n in range(5_000)}}
    control = Control(shop.settings.redis_url, shop.keys.namespace)
    found = replace(SNAPSHOT, arrivals=arrivals)
    control.report_boundary(Boundary(0, 4, codec.dumps(found)))
    control.report_interim(Interim(4.0, 3.0, 0, 0, 4, 4, arrivals))
    for kept in (shop.redis.get(shop.keys.statistics(0)), shop.redis.lindex(shop.keys.interims, 0)):
        assert len(str(kept)) < len(codec.dumps(found)) / 2
    shop.plan(0, snapshot=found)
    assert shop.get("/v1/epochs/0/statistics")["batches"] == 4
    assert [one["batches"] for one in shop.get("/v1/series")["periods"]] == [4]


def test_an_epochs_statistics(shop: Service) -> None:
    assert shop.get("/v1/epochs/0/statistics", 404)["code"] == "no-statistics"
    measured(shop)
    found = shop.get("/v1/epochs/0/statistics")
    assert (found["epoch"], found["batches"]) == (0, 4)
    orders = found["streams"]["orders"]
    assert orders["tuples_per_second"] == 500
    assert orders["tuples_per_event_second"] == pytest.approx(39.99)
    assert (orders["late"], orders["invalid"]) == (3, 1)
    assert [d["tuples"] for d in orders["delays"]] == [3000, 0, 900, 99]
    assert [d["below_us"] for d in orders["delays"]] == [1, 2, 4, 8]
    assert orders["delay_us"] == {"p50": 0, "p90": 3, "p99": 7, "max": 7}
    assert found["stores"]["orders/2"] == {
        "tuples": 4000, "rows": 4000, "mir": "", "bytes": 65536, "segments": 3,
        "keys": {"customer_id": 90.0},
        "reads": {"customer_id:bigint": {
            "probes": 1000, "found": 250, "matches": 300, "by_batch": 0, "by_partition": 2000,
            "by_time": 500, "filtered": 300, "looked": 200, "hit_rate": 0.25,
            "read_amplification": 0.2, "filtered_share": 0.6, "passed_share": 2500 / 3000,
        }},
    }  # fmt: skip
    assert found["edges"]["orders>customers"] == {
        "probes": 4000, "found": 2500, "hits": 3900, "matches": 3900, "pairs": 8000,
        "nanoseconds": 500_000_000,
        "seconds": 0.5,
        "calls": 0,
        "looked": 0,
        "made": 0,
        "sent": 0,
        "sent_bytes": 0,
        "predicted_sent": None,
        "predicted_sent_bytes": None,
        "asked": 0,
        "dropped": 0,
    }  # fmt: skip
    assert found["distinct"] == {"orders": {"customer_id": 90.0}}
    assert found["values"] == {"orders": {"customer_id": {
        "values": [
            {"value": "7", "arriving": 0.3, "stored": 0.2},
            {"value": "8", "arriving": 0.1, "stored": 0.15},
        ],
        "error": 0.001,
        "null_arriving": 0.4,
        "null_stored": 0.5,
    }}}  # fmt: skip


def test_statistics_of_an_earlier_release_have_no_values(shop: Service) -> None:
    shop.plan(-1)
    document = codec.to_json(SNAPSHOT)
    del document["values"]
    shop.redis.set(shop.keys.statistics(0), json.dumps(document))
    shop.plan(0, snapshot=SNAPSHOT)
    assert shop.get("/v1/epochs/0/statistics")["values"] == {}


def test_a_stream_says_what_it_did_last(shop: Service) -> None:
    assert shop.get("/v1/streams/orders")["statistics"] is None
    measured(shop)
    assert shop.get("/v1/streams/orders")["statistics"]["tuples_per_second"] == 500
    listed = {s["name"]: s["statistics"] for s in shop.get("/v1/streams")["items"]}
    assert listed["orders"]["late"] == 3
    assert listed["customers"] is None


def test_a_streams_sample(shop: Service) -> None:
    assert shop.get("/v1/streams/orders/sample", 404)["code"] == "no-sample"
    assert shop.get("/v1/streams/nothing/sample", 404)["code"] == "unknown-stream"
    measured(shop)
    found = shop.get("/v1/streams/orders/sample")
    assert (found["seen"], found["size"]) == (4000, 8)
    total = found["columns"]["total"]
    assert total["nulls"] == 0.125
    assert total["top"] == [{"value": 1.0, "share": 0.375}]
    assert total["quantiles"] == [1.0, 1.0, 4.5, 8.0, 90.0]


def test_metrics_of_the_last_epoch(shop: Service) -> None:
    measured(shop)
    text = shop.http.get("/metrics").text
    for line in (
        'anabranch_stream_tuples_per_second{stream="orders"} 500.0',
        'anabranch_stream_delay_seconds{quantile="0.9",stream="orders"} 3e-06',
        'anabranch_store_tuples{store="orders/2"} 4000.0',
        'anabranch_store_bytes{store="orders/2"} 65536.0',
        'anabranch_store_hit_rate{store="orders/2"} 0.25',
        'anabranch_store_read_amplification{store="orders/2"} 0.2',
        'anabranch_probe_segments_total{how="filtered"} 300.0',
        'anabranch_probe_segments_total{how="by_partition"} 2000.0',
        "anabranch_probes_total 4000.0",
        "anabranch_probe_seconds_total 0.5",
    ):
        assert line in text.splitlines()


def test_a_new_filter_is_estimated_from_the_sample(shop: Service) -> None:
    measured(shop)
    few = {"id": "few", "sql": f"{PAIR} WHERE o.total > 50"}
    plan = shop.post("/v1/plans:dry-run", {"add": [few]}, 200)
    (relation,) = plan["estimated"]
    assert relation.startswith("orders[")
    assert plan["estimated"][relation] == pytest.approx(1.5 / 9)
    assert plan["assumed"] == []
    whole = shop.post("/v1/plans:dry-run", {"add": [{"id": "all", "sql": PAIR}]}, 200)
    assert whole["estimated"] == {}
    assert plan["cost"] < whole["cost"]

    shop.post("/v1/queries", few)
    shop.plan(1, snapshot=SNAPSHOT)
    assert shop.get("/v1/epochs/2")["estimated"] == plan["estimated"]
    assert shop.get("/v1/epochs/2")["assumed"] == []


def test_a_filter_on_a_column_that_was_not_sampled_is_assumed(shop: Service) -> None:
    measured(shop)
    query = {"id": "late", "sql": f"{PAIR} WHERE o.ts > timestamp '2024-01-01 00:00:00'"}
    plan = shop.post("/v1/plans:dry-run", {"add": [query]}, 200)
    assert plan["estimated"] == {}
    assert len(plan["assumed"]) == 1


def test_unreadable_samples_and_statistics_hide_nothing_else(shop: Service) -> None:
    measured(shop)
    shop.redis.hset(shop.keys.samples, "items", "{}")
    shop.redis.set(shop.keys.statistics(3), "[]")
    assert shop.get("/v1/streams/items/sample", 404)["code"] == "no-sample"
    assert shop.get("/v1/epochs/3/statistics", 404)["code"] == "no-statistics"
    shop.progress(Progress("running"))
    shop.plan(1, snapshot=SNAPSHOT)
    assert shop.get("/v1/epochs/2")["fallback"] == ""
