"""``GET /v1/series``, the client's method and its command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from anabranch_contract.protocol.interims import Interim, StepMeasures, StoreSize
from anabranch_contract.protocol.measurements import EdgeStatistics
from anabranch_contract.queries.joins import Label
from anabranch_contract.queries.mirs import MirId

if TYPE_CHECKING:
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
    ),
)  # fmt: skip


def report(shop: Service, *interims: Interim) -> None:
    for one in interims:
        shop.redis.rpush(shop.keys.interims, one.dumps())


def test_figures_period_by_period(shop: Service) -> None:
    empty = shop.get("/v1/series")
    assert empty == {"periods": [], "relations": {}, "steps": [], "stores": {}}
    report(shop, *INTERIMS)
    found = shop.get("/v1/series")
    assert found["periods"] == [
        {"until": "2026-09-21T14:13:20.250000Z", "seconds": 3.0, "epoch": 4, "ruleset_epoch": 4,
         "batches": 2},
        {"until": "2026-09-21T14:13:23.500000Z", "seconds": 3.25, "epoch": 5, "ruleset_epoch": 4,
         "batches": 1},
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
