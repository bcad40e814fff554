"""Tests of queries that ask for results of past rows: rules, records and refusals."""

from __future__ import annotations

import pytest

from anabranch_contract.protocol.activations import Activation, PastResults, PastStatus
from tests.service.conftest import PAIR
from tests.support.worlds.service import Service

TIMED = {
    "columns": {"order_id": "bigint", "at": "timestamp"},
    "event_time": "at",
    "lateness": "1 minute",
}


def past_of(shop: Service, epoch: int) -> dict[str, bool]:
    """Return run -> whether results of its past are emitted, by the ruleset of ``epoch``."""
    queries = shop.get(f"/v1/epochs/{epoch}/ruleset")["queries"]
    return {query["id"]: query.get("past", False) for query in queries}


def test_the_rules_and_the_record_say_what_was_asked(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR, "past": "stored"})
    shop.post("/v1/queries", {"id": "other", "sql": PAIR})
    shop.plan(-1)
    assert past_of(shop, 0) == {"pair": True, "other": False}
    assert shop.get("/v1/queries/pair")["past"] == "stored"
    assert shop.get("/v1/queries/pair")["past_results"] is None
    found = PastResults(PastStatus.PENDING, 40, 1000)
    shop.activate("pair", Activation(5, {}, results=52, past=found))
    pair = shop.get("/v1/queries/pair")
    assert pair["past_results"] == {"status": "pending", "results": 40, "rows": 1000}
    assert pair["results"] == 52


def test_the_past_of_an_asof_join_needs_retention(shop: Service) -> None:
    sql = (
        "SELECT r.value AS one, s.value AS two FROM {0} r ASOF JOIN {0} s "
        "ON r.order_id = s.order_id AND r.at >= s.at"
    )
    columns = {"order_id": "bigint", "value": "double", "at": "timestamp"}
    for name, more in (("gone", {}), ("kept", {"retain": "all"})):
        shop.post("/v1/streams", {"name": name, **TIMED, "columns": columns, **more})
        shop.post("/v1/queries", {"id": f"of_{name}", "sql": sql.format(name)})
    assert shop.get("/v1/queries/of_gone")["past"] == "none"
    assert shop.get("/v1/queries/of_kept")["past"] == "stored"
    asked = shop.post(
        "/v1/queries", {"id": "more", "sql": sql.format("gone"), "past": "stored"}, 422
    )
    assert "rows of stream 'gone' are not stored" in asked["detail"]
    shop.plan(-1)
    assert past_of(shop, 0) == {
        "of_gone": False, "of_gone+left": False, "of_kept": True, "of_kept+left": True,
    }  # fmt: skip


def test_a_kept_outer_join_has_its_past_unless_it_says_otherwise(shop: Service) -> None:
    sql = PAIR.replace(" JOIN ", " LEFT JOIN ")
    assert sql != PAIR
    shop.post("/v1/queries", {"id": "all", "sql": sql})
    shop.post("/v1/queries", {"id": "new", "sql": sql, "past": "none"})
    assert shop.get("/v1/queries/all")["past"] == "stored"
    assert shop.get("/v1/queries/all")["normalised"]["outer"]["changes"] is True
    shop.plan(-1)
    assert past_of(shop, 0) == {"all": True, "all+left": True, "new": False, "new+left": False}


def test_a_run_that_is_resumed_does_not_emit_it_again(shop: Service) -> None:
    body = {"sql": PAIR, "past": "stored"}
    shop.call("PUT", "/v1/queries/pair", 200, body)
    shop.plan(-1)
    shop.call("POST", "/v1/queries/pair:pause", 202)
    shop.call("POST", "/v1/queries/pair:resume", 202)
    again = shop.call("PUT", "/v1/queries/pair", 200, body)
    assert (again["action"], again["query"]["run"]) == ("none", "pair~2")
    shop.plan(0)
    assert past_of(shop, 1) == {"pair~2": False}
    without = shop.call("PUT", "/v1/queries/pair", 200, {"sql": PAIR})
    assert (without["action"], without["fields"]) == ("replaced", ["past"])
    asked = shop.call("PUT", "/v1/queries/pair", 200, body)
    assert asked["action"] == "replaced"
    shop.plan(1)
    assert past_of(shop, 2) == {asked["query"]["run"]: True}


@pytest.mark.parametrize(
    ("sql", "because"),
    [
        ("SELECT o.order_id FROM orders o", "nothing joins it"),
        (
            "SELECT s.order_id FROM sent s LEFT ANTI JOIN paid p ON s.order_id = p.order_id "
            "AND p.at BETWEEN s.at AND s.at + INTERVAL 1 HOUR",
            "no partner",
        ),
        ("SELECT o.order_id FROM orders o JOIN newest n ON o.order_id = n.order_id", "'newest'"),
    ],
)
def test_a_past_that_is_not_stored_is_refused(shop: Service, sql: str, because: str) -> None:
    for name in ("sent", "paid"):
        shop.post("/v1/streams", {"name": name, **TIMED})
    shop.post("/v1/streams", {"name": "newest", **TIMED, "retention": {"latest": ["order_id"]}})
    body = {"id": "late", "sql": sql, "past": "stored"}
    refused = shop.post("/v1/queries", body, 422)["errors"][0]
    assert (refused["field"], refused["code"]) == ("past", "past-not-stored")
    assert because in refused["message"]
    assert shop.get("/v1/queries")["items"] == []
    shop.post("/v1/queries", {**body, "past": "none"})


def test_a_name_may_be_called_id_as_in_earlier_releases(shop: Service) -> None:
    for key in ("name", "id"):
        made = shop.post("/v1/queries", {key: f"by_{key}", "sql": PAIR})
        assert (made["name"], made["id"]) == (f"by_{key}", f"by_{key}")
    both = shop.call("POST", "/v1/queries", 422, {"name": "a", "id": "b", "sql": PAIR})
    assert [error["field"] for error in both["errors"]] == ["id"]
    bad = shop.call("POST", "/v1/queries", 422, {"id": "not a name", "sql": PAIR})
    assert [error["field"] for error in bad["errors"]] == ["id"]
    taken = shop.call("POST", "/v1/queries", 409, {"name": "by_id", "sql": PAIR})
    assert [error["field"] for error in taken["errors"]] == ["name"]
    family = {"sql": f"{PAIR} WHERE o.total > :least", "parameters": {"x": {"least": 1}}}
    for key in ("name", "id"):
        body = {key: f"of_{key}", **family}
        made = shop.call("POST", "/v1/queries:family", 200, body)
        assert made["items"][0]["query"]["name"] == f"of_{key}-x"
    plan = shop.call("POST", "/v1/plans:dry-run", 200, {"add": [{"id": "d", "sql": PAIR}]})
    assert "d" in plan["queries"]
    renamed = shop.call("PUT", "/v1/queries/by_id", 422, {"name": "other", "sql": PAIR})
    assert [error["field"] for error in renamed["errors"]] == ["name"]
