"""Tests of a query that failed at run time: its reported failure, and its absence from
later plans.
"""

from __future__ import annotations

from anabranch_contract.protocol.activations import Activation, Failure, Visibility
from tests.service.conftest import CHAIN, PAIR
from tests.support.worlds.service import Service

WHY = Failure(
    "divide-by-zero", "a divisor is zero", "(1 / o.total)", 5, remedy="guard it, e.g. with CASE"
)
SEEN = {"o": Visibility(0, None), "c": Visibility(0, None)}


def fail(shop: Service, query: str) -> None:
    shop.activate(query, Activation(0, SEEN, expired_batch=WHY.batch, results=7, failure=WHY))


def test_a_failed_query_says_why_and_leaves_the_next_epoch(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    shop.plan(-1)
    assert shop.get("/v1/epochs/0")["queries"] == ["pair", "chain"]
    assert shop.get("/v1/queries/pair")["failure"] is None
    fail(shop, "pair")

    answer = shop.get("/v1/queries/pair")
    assert (answer["status"], answer["results"], answer["problem"]) == ("failed", 7, None)
    assert answer["failure"] == {
        "code": "divide-by-zero",
        "message": "a divisor is zero",
        "expression": "(1 / o.total)",
        "batch": 5,
        "remedy": "guard it, e.g. with CASE",
    }
    assert [q["id"] for q in shop.get("/v1/queries?status=failed")["items"]] == ["pair"]

    shop.plan(0, next_batch=6)
    assert shop.get("/v1/epochs/1")["queries"] == ["chain"]
    assert shop.get("/v1/queries/pair")["last_epoch"] == 0
    assert shop.get("/v1/queries/pair")["status"] == "failed"
    shop.plan(1, next_batch=9)
    assert shop.get("/v1/epochs/2")["queries"] == ["chain"]


def test_a_failed_query_is_past_changing_but_can_be_withdrawn(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    fail(shop, "pair")
    problem = shop.call("PATCH", "/v1/queries/pair", 409, {"priority": 1})
    assert problem["code"] == "query-ended"
    assert shop.call("DELETE", "/v1/queries/pair", 202)["status"] == "failed"
    shop.call("DELETE", "/v1/streams/orders", 204)


def test_a_dry_run_leaves_failed_queries_out(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    fail(shop, "pair")
    assert shop.call("POST", "/v1/plans:dry-run", 200, {})["queries"] == ["chain"]
