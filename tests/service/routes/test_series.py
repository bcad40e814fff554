"""Tests of ``GET /v1/series``, the client's method and its command."""

from __future__ import annotations

import pytest

from anabranch_contract.protocol.interims import (
    DriftedRate,
    Drifts,
    Interim,
    StepMeasures,
    StoreSize,
)
from anabranch_contract.protocol.measurements import EdgeStatistics
from anabranch_contract.queries.joins import Label
from anabranch_contract.queries.mirs import MirId
from tests.support.worlds.service import Service

STEP = (MirId("customers,orders"), (Label("orders"),), (Label("customers"),))
INTERIMS = (
    Interim(
        1_790_000_000.25, 3.0, 4, 4, 12, 2, {"orders": 600, "customers": 0},
        (StepMeasures(*STEP, EdgeStatistics(600, 900, 0.006, 9000, 900, 300)),),
        {"orders/2": StoreSize(600, {"customer_id": 90.0})},
    ),
    Interim(
        1_790_000_003.5, 3.25, 5, 4, 13, 1, {"orders": 0, "customers": 13}, (),
        {"orders/2": StoreSize(500, {"customer_id": 80.0}), "customers/1": StoreSize(13)},
        drifted=Drifts((DriftedRate("orders", 0.1),)),
    ),
)  # fmt: skip


def report(shop: Service, *interims: Interim) -> None:
    for one in interims:
        shop.redis.rpush(shop.keys.interims, one.dumps())


def test_figures_period_by_period(shop: Service) -> None:
    empty = shop.get("/v1/series")
    assert empty == {
        "periods": [], "relations": {}, "steps": [], "stores": {}, "forecasts": None,
    }  # fmt: skip
    report(shop, *INTERIMS)
    found = shop.get("/v1/series")
    assert found["periods"] == [
        {"until": "2026-09-21T14:13:20.250000Z", "seconds": 3.0, "epoch": 4, "ruleset_epoch": 4,
         "batches": 2, "drifted": []},
        {"until": "2026-09-21T14:13:23.500000Z", "seconds": 3.25, "epoch": 5, "ruleset_epoch": 4,
         "batches": 1, "drifted": ["orders: 0.1 times the arrivals"]},
    ]  # fmt: skip
    assert found["relations"] == {"customers": [0.0, 4.0], "orders": [200.0, 0.0]}
    (step,) = found["steps"]
    assert (step["joined"], step["head"], step["target"]) == (STEP[0], ["orders"], ["customers"])
    assert step["probes"] == [600, None]
    assert step["hit_ratio"] == [0.5, None]
    assert step["matches_per_hit"] == [3.0, None]
    assert step["cpu_microseconds"] == [pytest.approx(10.0), None]
    assert found["stores"] == {
        "customers/1": {"tuples": [None, 13], "keys": {}},
        "orders/2": {"tuples": [600, 500], "keys": {"customer_id": [90.0, 80.0]}},
    }


def test_what_is_expected_of_rates_and_steps(shop: Service) -> None:
    """A rate that rises by 10 a second, and a step whose ratio does not change."""
    assert shop.get("/v1/series?forecast=true")["forecasts"] == {}
    counts = EdgeStatistics(100, 150, 0.001, 900, 150, 50)
    for number in range(20):
        arrived = {"orders": 3 * (100 + 30 * number)}
        step = StepMeasures(*STEP, counts)
        report(shop, Interim(1e9 + 3.0 * number, 3.0, 0, 0, number, 1, arrived, (step,)))
    found = shop.get("/v1/series?forecast=true")
    rate = found["forecasts"]["orders"]
    assert rate["value"] == pytest.approx(100 + 30 * (19 + 2))
    assert (rate["method"], rate["error"]) == ("trend", pytest.approx(0, abs=1e-6))
    assert rate["error_of_last"] == pytest.approx(60)
    step_forecast = found["steps"][0]["forecast"]
    assert step_forecast["hit_ratio"]["value"] == pytest.approx(0.5)
    assert step_forecast["matches_per_hit"]["value"] == pytest.approx(3.0)
    plain = shop.get("/v1/series")
    assert plain["forecasts"] is None
    assert plain["steps"][0]["forecast"] is None
    assert plain["relations"] == found["relations"]


def test_no_more_than_asked_for(shop: Service) -> None:
    report(shop, *INTERIMS)
    assert [p["epoch"] for p in shop.get("/v1/series?last=1")["periods"]] == [5]
    for last in ("0", "121", "x"):
        problem = shop.get(f"/v1/series?last={last}", 422)
        assert "last" in str(problem)


def test_a_period_of_another_release_is_left_out(shop: Service) -> None:
    report(shop, INTERIMS[0])
    shop.redis.rpush(shop.keys.interims, '{"until": "soon"}')
    report(shop, INTERIMS[1])
    assert [p["epoch"] for p in shop.get("/v1/series")["periods"]] == [4, 5]
