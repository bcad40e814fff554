"""Tests that an epoch on several hosts predicts the traffic between them, and shows the measured
one.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from anabranch_contract import codec
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.ruleset import Ruleset, RulesetId
from anabranch_contract.protocol.measurements import (
    EdgeStatistics,
    FrequentValues,
    Snapshot,
    StreamSample,
)
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.exchange import ARRIVAL
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_service.planning.widths import OFFSET, TEXT_WIDTH, column_widths, with_exchange
from tests.service.conftest import PAIR
from tests.support.worlds.service import Service

BATCHES, ORDERS, HOSTS = 4, 4000, 3
CITIES = ["Bonn", "Köln", None, "Ulm"]
SNAPSHOT = Snapshot(
    0,
    BATCHES,
    BATCHES,
    arrivals={"orders": ORDERS, "customers": 100},
    distincts={"orders": {"customer_id": 100.0}, "customers": {"customer_id": 100.0}},
    streams={
        "orders": {"input": ORDERS, "late": 0, "invalid": 0},
        "customers": {"input": 100, "late": 0, "invalid": 0},
    },
    on_hosts=HOSTS,
)


def report(shop: Service, snapshot: Snapshot) -> None:
    """Report the statistics of an epoch at its end, as the runtime does."""
    shop.redis.set(shop.keys.statistics(snapshot.epoch), json.dumps(codec.to_json(snapshot)))
    shop.plan(snapshot.epoch, next_batch=snapshot.total_batches, snapshot=snapshot)


def test_what_is_sent_is_predicted_edge_by_edge(shop: Service) -> None:
    shop.post("/v1/queries", {"sql": PAIR})
    shop.plan(-1)
    sample = StreamSample(100, 4, {"city": ("string", CITIES)})
    shop.redis.hset(shop.keys.samples, "customers", sample.dumps())
    report(shop, SNAPSHOT)
    explained = shop.get("/v1/epochs/1")["explain"]["exchange"]
    assert explained["hosts"] == HOSTS
    assert explained["edges"].keys() == {"orders>customers", "customers>orders"}
    # Two thirds of a batch's tuples leave their host, with the read columns and the arrival.
    elsewhere = (HOSTS - 1) / HOSTS
    orders = elsewhere * ORDERS / BATCHES
    assert explained["edges"]["orders>customers"] == {
        "tuples": pytest.approx(orders),
        "bytes": pytest.approx(orders * (8 + 8 + ARRIVAL)),
    }
    customers, city = elsewhere * 100 / BATCHES, OFFSET + len("BonnKölnUlm".encode()) / 4
    assert explained["edges"]["customers>orders"] == {
        "tuples": pytest.approx(customers),
        "bytes": pytest.approx(customers * (8 + city + ARRIVAL)),
    }
    edges = {"orders>customers": EdgeStatistics(1000, 1000, 0.5, sent=700, sent_bytes=16_000)}
    report(shop, replace(SNAPSHOT, epoch=1, batches=2, total_batches=6, edges=edges))
    found = shop.get("/v1/epochs/1/statistics")
    assert found["hosts"] == HOSTS
    edge = found["edges"]["orders>customers"]
    assert (edge["sent"], edge["sent_bytes"]) == (700, 16_000)
    assert edge["predicted_sent"] == pytest.approx(2 * orders)
    assert edge["predicted_sent_bytes"] == pytest.approx(2 * orders * (16 + ARRIVAL))


HOT = FrequentValues((7, 9), ("3", "5"), (0.6, 0.1), (0.6, 0.1), 0.0)
FEW = {"orders": {"customer_id": HOT}, "customers": {"customer_id": HOT}}


def published(shop: Service, epoch: int) -> Ruleset:
    """Return the ruleset of an epoch."""
    return rulesets.loads(str(shop.redis.get(shop.keys.ruleset(RulesetId(epoch)))))


def hot(ruleset: Ruleset) -> dict[str, list[int]]:
    """Return store -> hashes of the hot values whose new rows are distributed over hosts."""
    return {str(s.id): [one.hash for one in s.hot] for s in ruleset.stores if s.hot}


def test_rows_of_frequent_values_are_dealt_to_several_hosts(shop: Service) -> None:
    shop.call("PUT", "/v1/settings", 200, {"parallelism": 8})
    shop.post("/v1/queries", {"sql": PAIR})
    shop.plan(-1)
    many = replace(SNAPSHOT, values=FEW, arrivals={"orders": ORDERS, "customers": ORDERS})
    report(shop, many)
    explained = shop.get("/v1/epochs/1")["explain"]["hot_keys"]
    assert (explained["hosts"], explained["values"][0]["value"]) == (HOSTS, "3")
    assert explained["before"] > 1.5 > explained["after"] >= 1.0
    found = published(shop, 1)
    assert hot(found)
    assert {(s, h) for s, hashes in hot(found).items() for h in hashes} == {
        (one["store"], int(one["hash"])) for one in explained["values"]
    }
    # The next plan distributes the same hot values.
    report(shop, replace(many, epoch=1, total_batches=2 * BATCHES))
    assert hot(published(shop, 2)) == hot(found)
    shop.call("PUT", "/v1/settings", 200, {"hot_keys": "never"})
    report(shop, replace(many, epoch=2, total_batches=3 * BATCHES))
    assert hot(published(shop, 3)) == {}
    assert "hot_keys" not in shop.get("/v1/epochs/3")["explain"]


def test_on_one_host_nothing_is_said(shop: Service) -> None:
    shop.post("/v1/queries", {"sql": PAIR})
    shop.plan(-1)
    report(shop, replace(SNAPSHOT, on_hosts=1))
    assert "exchange" not in shop.get("/v1/epochs/1")["explain"]


def test_columns_are_as_wide_as_their_types_or_their_samples_say() -> None:
    kinds = {"a": "int", "b": "bigint", "city": "string", "ok": "boolean"}
    stream = Stream(StreamName("s"), tuple((n, parse_type(k)) for n, k in kinds.items()))
    assert column_widths(stream, None) == {"a": 4.0, "b": 8.0, "city": TEXT_WIDTH, "ok": 1.0}
    long = StreamSample(2, 2, {"city": ("string", ["x" * 10, "y" * 30])})
    assert column_widths(stream, long)["city"] == OFFSET + 20.0


def test_statistics_of_one_host_are_left_as_they_are() -> None:
    statistics = Statistics()
    assert with_exchange(statistics, 1, (), {}, {}) is statistics
    exchange = with_exchange(statistics, 2, (), {}, {}).exchange
    assert exchange is not None
    assert exchange.hosts == 2
