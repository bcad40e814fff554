"""Tests that forecast rates are used in plans: of epochs in step mode, of interim measurements
live.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch_contract.codec import dumps
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.measurements import Snapshot, StoreStatistics
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.queries.joins import RelationId
from anabranch_planner.cost.statistics.statistics import Statistics, measured
from anabranch_service.planning.rates import foresee
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import PAIR, STREAMS
from tests.support.worlds.service import Service, serving

ORDERS, CUSTOMERS = RelationId("orders"), RelationId("customers")


def snapshot(epoch: int, orders: int, customers: int, batches: int = 4) -> Snapshot:
    """Return counts so far; customers are a measured stream, with three late tuples."""
    return Snapshot(
        epoch,
        batches,
        batches * (epoch + 1),
        arrivals={"orders": orders},
        streams={"customers": {"input": customers + 3, "late": 3, "invalid": 0}},
        distincts={"orders": {"customer_id": 10.0}, "customers": {"customer_id": 10.0}},
    )


def interim(next_batch: int, orders: int) -> str:
    return dumps(Interim(next_batch, 3.0, 0, 0, next_batch, 2, {"orders": orders}))


def put(service: Service, *found: Snapshot) -> None:
    """Write statistics of epochs, as the runtime does."""
    for one in found:
        service.redis.set(service.keys.statistics(one.epoch), dumps(one))


def test_step_mode_forecasts_from_the_differences_of_epochs() -> None:
    found = [snapshot(0, 40, 400), snapshot(1, 80, 800), snapshot(2, 120, 1200)]
    coming = foresee(found[-1], [dumps(one) for one in found], Mode.STEP).ahead
    assert coming is not None
    assert coming.length == pytest.approx(4 / 12)
    assert coming.arrivals == {ORDERS: pytest.approx(40), CUSTOMERS: pytest.approx(400)}
    assert coming.recent[ORDERS] == ((4 / 12, 40.0), (8 / 12, 80.0), (1.0, 120.0))
    assert coming.periods == 3


def test_a_store_that_is_younger_than_its_stream_holds_less() -> None:
    stores = {
        "orders[a]/2": StoreStatistics(7, 0, 1, mir="orders"),
        "orders[b]/2": StoreStatistics(9, 0, 1, mir="orders"),
        "old": StoreStatistics(5, 0, 1),
    }
    found = [snapshot(0, 40, 400), replace(snapshot(1, 80, 800), stores=stores)]
    coming = foresee(found[-1], [dumps(one) for one in found], Mode.STEP).ahead
    assert coming is not None
    assert coming.held == {ORDERS: 9.0}


def test_the_oldest_epoch_that_is_kept_only_begins_the_series() -> None:
    found = [snapshot(7, 4000, 0), snapshot(8, 4040, 0), snapshot(9, 4080, 0)]
    coming = foresee(found[-1], [dumps(one) for one in found], Mode.STEP).ahead
    assert coming is not None
    assert coming.arrivals[ORDERS] == pytest.approx(40)
    assert coming.periods == 2
    assert CUSTOMERS not in coming.arrivals  # nothing of them has come


def test_a_first_epoch_is_planned_by_its_history() -> None:
    first = snapshot(0, 40, 400)
    assert foresee(first, [dumps(first)], Mode.STEP) == measured(first)
    assert foresee(first, [interim(2, 20)], Mode.LIVE) == measured(first)
    assert foresee(first, [], Mode.LIVE) == measured(first)
    assert foresee(None, [], Mode.LIVE) == Statistics()


def test_documents_that_cannot_be_read_are_left_out() -> None:
    texts = [interim(2, 20), "{", "[]", interim(4, 20), interim(6, 20)]
    coming = foresee(snapshot(0, 60, 0), texts, Mode.LIVE).ahead
    assert coming is not None
    assert coming.arrivals == {ORDERS: pytest.approx(40)}
    assert foresee(snapshot(0, 60, 0), ["{", "7"], Mode.STEP).ahead is None


def test_an_epoch_says_what_was_forecast_for_it(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    for one in (snapshot(0, 40, 400), snapshot(1, 80, 800)):
        put(shop, one)
        shop.plan(one.epoch, next_batch=one.total_batches, snapshot=one)
    first, second = shop.get("/v1/epochs/1"), shop.get("/v1/epochs/2")
    assert first["ahead"] is None
    expected = {"period": 0.5, "periods": 2}
    assert {**second["ahead"], "arrivals": None} == {**expected, "arrivals": None}
    assert second["ahead"]["arrivals"] == pytest.approx({"orders": 40, "customers": 400})
    plan = shop.post("/v1/plans:dry-run", {}, status=200)
    assert plan["ahead"] == second["ahead"]
    body = {"statistics": {"orders": 80, "customers": 800}}
    stated = shop.post("/v1/plans:dry-run", body, status=200)
    assert stated["ahead"] is None
    assert stated["cost"] != plan["cost"]


def test_live_plans_are_made_of_interim_measurements(settings: ServiceSettings) -> None:
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        service.post("/v1/queries", {"id": "pair", "sql": PAIR})
        service.plan(-1)
        for number in (1, 2, 3):
            service.redis.rpush(service.keys.interims, interim(2 * number, 20))
        service.plan(0, next_batch=6, snapshot=snapshot(0, 60, 400, batches=6))
        found = service.get("/v1/epochs/2")["ahead"]
        assert found["arrivals"] == pytest.approx({"orders": 60})
        assert (found["period"], found["periods"]) == (1.0, 3)


def test_an_epoch_that_ended_early_changes_no_forecast() -> None:
    """A registration ends epochs after a batch or two; their lengths must not change all prices."""
    texts = [dumps(Interim(10 * n, 3.0, 0, 0, 10 * n, 10, {"orders": 200})) for n in range(1, 6)]
    usual = replace(snapshot(0, 1000, 0), total_batches=50, batches=10)
    expected = foresee(usual, texts, Mode.LIVE).ahead
    assert expected is not None
    assert expected.length == pytest.approx(10 / 50)
    for batches in (0, 1, 2, 9):
        assert foresee(replace(usual, batches=batches), texts, Mode.LIVE).ahead == expected
    # A longer epoch is forecast with its length, and no forecast is longer than the history.
    longer = foresee(replace(usual, batches=20), texts, Mode.LIVE).ahead
    assert longer is not None
    assert longer.length == pytest.approx(20 / 50)
    young = foresee(replace(usual, batches=1, total_batches=4), texts, Mode.LIVE).ahead
    assert young is not None
    assert young.length == 1.0


def test_no_more_periods_are_used_than_are_asked_for() -> None:
    texts = [interim(2 * n, 1000 if n < 5 else 20) for n in range(1, 9)]

    def arrivals(length: int) -> tuple[float, int]:
        coming = foresee(snapshot(0, 60, 0), texts, Mode.LIVE, length).ahead
        assert coming is not None
        return sum(coming.arrivals.values()), coming.periods

    assert arrivals(3)[1] == 3
    assert arrivals(8)[1] == 8
    assert arrivals(3) == (
        sum(foresee(snapshot(0, 60, 0), texts[-3:], Mode.LIVE).ahead.arrivals.values()),  # type: ignore[union-attr]
        3,
    )
