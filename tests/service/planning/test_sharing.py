"""Tests that a query with a narrower filter shares another query's stores if this is cheaper."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch_contract.protocol.measurements import Snapshot
from tests.service.conftest import CHAIN, PAIR
from tests.support.worlds.service import Service

NARROW = f"{PAIR} WHERE o.order_id > 100 AND c.city <> 'Oslo'"


def _cost(shop: Service) -> float:
    return float(shop.post("/v1/plans:dry-run", {}, 200)["cost"])


def _aliases(answer: dict[str, object]) -> dict[str, list[str]]:
    said = answer["normalised"]
    assert isinstance(said, dict)
    return {a["alias"]: a["filter"] for a in said["aliases"]}


def _planned(shop: Service, **body: object) -> dict[str, Any]:
    """Register a query; return its document after the next epoch was planned."""
    name = shop.post("/v1/queries", body)["id"]
    epochs = shop.get("/v1/epochs")["items"]
    shop.plan(max((epoch["epoch"] for epoch in epochs), default=-1))
    return shop.get(f"/v1/queries/{name}")


def test_the_join_is_done_once_and_filtered_after(shop: Service) -> None:
    _planned(shop, id="wide", sql=PAIR)
    before = _cost(shop)
    answer = _planned(shop, id="narrow", sql=NARROW)
    assert _aliases(answer) == {"o": [], "c": []}
    said = answer["normalised"]
    assert said["residuals"] == ["(c.city <> 'Oslo')", "(o.order_id > 100)"]
    assert any("shares the store" in note for note in said["notes"])
    assert _cost(shop) == before
    # It stays shared, also without the other query.
    shop.call("DELETE", "/v1/queries/wide", 202)
    assert _aliases(shop.get("/v1/queries/narrow")) == {"o": [], "c": []}


def test_a_filter_may_be_implied(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "wide", "sql": f"{PAIR} WHERE o.order_id >= 10"})
    answer = _planned(shop, id="narrow", sql=f"{PAIR} WHERE o.order_id = 12")
    assert _aliases(answer)["o"] == ["(order_id >= 10)"]
    assert answer["normalised"]["residuals"] == ["(o.order_id = 12)"]


def test_who_wants_more_or_something_else_has_its_own(shop: Service) -> None:
    _planned(shop, id="narrow", sql=NARROW)
    for sql in (PAIR, f"{PAIR} WHERE o.order_id > 50", f"{PAIR} WHERE c.city = 'Oslo'"):
        answer = _planned(shop, sql=sql)
        assert not answer["normalised"]["residuals"], sql
        shop.call("DELETE", f"/v1/queries/{answer['id']}", 202)


@pytest.mark.parametrize(("batches", "shared"), [(1, False), (2_000, True)])
def test_the_fixed_cost_of_a_store_is_that_of_all_batches_so_far(
    batches: int, shared: bool, shop: Service
) -> None:
    """Twelve filters that pass few of ten million rows: in one batch, separate stores
    are cheaper.
    """
    shop.plan(-1)
    names = [
        shop.post("/v1/queries", {"sql": f"{PAIR} WHERE o.order_id = {n}"})["id"] for n in range(12)
    ]
    counts = {"input": 10_000_000, "late": 0, "invalid": 0, "ahead": 0}
    distincts = {"orders": {"order_id": 1e6}}
    streams = {"orders": counts, "customers": counts}
    shop.plan(0, snapshot=Snapshot(0, 1, batches, streams=streams, distincts=distincts))
    assert set(shop.get("/v1/epochs/1")["queries"]) == set(names)
    filters = [_aliases(shop.get(f"/v1/queries/{name}"))["o"] for name in names]
    assert filters == ([[]] * 12 if shared else [[f"(order_id = {n})"] for n in range(12)])


def test_a_view_shares_too(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "wide", "sql": CHAIN})
    answer = _planned(
        shop, sql=f"SELECT city, count(*) AS n FROM ({CHAIN} WHERE i.part > 3) AS q GROUP BY city"
    )
    assert answer["normalised"]["residuals"] == ["(q.i.part > 3)"]
