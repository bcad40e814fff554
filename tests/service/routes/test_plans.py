from __future__ import annotations

from typing import Any

import pytest

from anabranch_contract.protocol.measurements import Snapshot
from tests.service.conftest import CHAIN, PAIR
from tests.support.worlds.service import Service

PATH = "/v1/plans:dry-run"


def test_ids_in_plans_have_meanings(shop: Service) -> None:
    assert shop.get("/v1/plan/names") == {"relations": [], "results": {}}
    for number in range(3):
        sql = f"{CHAIN} WHERE c.city = 'Oslo' AND o.total > {number}"
        shop.post("/v1/queries", {"id": f"q{number}", "sql": sql})
    shop.plan(-1)
    found = shop.get("/v1/plan/names")
    of = {one["relation"]: (one["stream"], one["filter"]) for one in found["relations"]}
    assert of["items"] == ("items", "")
    assert ("customers", "city = 'Oslo'") in of.values()
    assert ("orders", "total > 1.0") in of.values()
    steps = shop.get("/v1/epochs/0")["explain"]["steps"]
    assert found["results"] == {s["mir"]: s["members"] for s in steps if len(s["members"]) > 1}


def test_a_dry_run_plans_and_stores_nothing(shop: Service) -> None:
    answer = shop.post(PATH, {"add": [{"id": "p", "sql": PAIR}, {"sql": CHAIN}]}, 200)
    assert answer["queries"] == ["p", "dry-run-1"]
    assert 0 < answer["cost"] < answer["individual_cost"]
    assert answer["optimizer"] == "clash"
    assert answer["explain"]
    assert answer["text"]
    assert answer["assumed"] == ["customers", "items", "orders"]
    assert shop.get("/v1/queries")["items"] == []
    assert shop.get("/v1/epochs")["items"] == []


def test_what_is_registered_takes_part_unless_dropped(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    assert shop.post(PATH, {}, 200)["queries"] == ["pair"]
    both = shop.post(PATH, {"add": [{"id": "chain", "sql": CHAIN}]}, 200)
    assert both["queries"] == ["pair", "chain"]
    other = shop.post(PATH, {"add": [{"id": "chain", "sql": CHAIN}], "drop": ["pair"]}, 200)
    assert other["queries"] == ["chain"]
    assert other["cost"] <= both["cost"] < both["individual_cost"]
    assert shop.post(PATH, {"drop": ["pair"]}, 200)["cost"] == 0
    assert shop.get("/v1/queries/pair")["status"] == "pending"


def test_optimisers_and_cardinalities_can_be_tried(shop: Service) -> None:
    body: dict[str, Any] = {"add": [{"id": "p", "sql": PAIR}, {"id": "c", "sql": CHAIN}]}
    joint = shop.post(PATH, body, 200)
    alone = shop.post(PATH, {**body, "optimizer": "individual"}, 200)
    assert alone["cost"] == joint["individual_cost"]
    paper = shop.post(PATH, {**body, "objective": "paper", "parallelism": 8}, 200)
    assert (paper["objective"], paper["parallelism"]) == ("paper", 8)
    big = shop.post(PATH, {**body, "statistics": {"orders": 1e6}}, 200)
    assert big["cost"] > joint["cost"]
    assert big["assumed"] == ["customers", "items"]


def test_measured_statistics_are_the_default(shop: Service) -> None:
    shop.plan(-1)
    arrivals = {"orders": 500_000, "customers": 1000}
    shop.plan(0, snapshot=Snapshot(0, 4, 4, arrivals=arrivals))
    answer = shop.post(PATH, {"add": [{"sql": PAIR}]}, 200)
    assert (answer["assumed"], answer["statistics_epoch"]) == ([], 0)


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"add": [{"sql": PAIR}, {"sql": "SELECT"}]}, 422, "add.1.sql"),
        ({"add": [{"sql": PAIR, "window": {"o": "x"}}]}, 422, "add.0.window.o"),
        ({"add": [{}]}, 422, "add.0.sql"),
        ({"add": [{"id": "pair", "sql": CHAIN}]}, 422, "add.0.name"),
        ({"add": [{"id": "x", "sql": CHAIN}, {"id": "x", "sql": CHAIN}]}, 422, "add.1.name"),
        ({"add": [{"query": {"from": {"o": "x"}, "where": 1}}]}, 422, "add.0.query.where"),
        ({"drop": ["nobody"]}, 404, "drop"),
        ({"optimizer": "magic"}, 422, "optimizer"),
        ({"parallelism": 0}, 422, "parallelism"),
        ({"statistics": {"orders": -1}}, 422, "statistics.orders"),
        ({"statistics": {"nothing": 5}}, 422, "statistics.nothing"),
    ],
)
def test_a_dry_run_that_makes_no_sense(
    shop: Service, body: dict[str, Any], status: int, field: str
) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    problem = shop.post(PATH, body, status)
    assert [e["field"] for e in problem["errors"]] == [field]
    assert problem["remedy"]
