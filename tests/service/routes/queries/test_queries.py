from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from anabranch_contract.protocol.activations import Activation, Visibility
from anabranch_contract.protocol.progress import Progress
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import CHAIN, PAIR, STREAMS
from tests.support.worlds.service import Service, serving


def test_a_query_is_told_back_in_the_words_of_its_author(shop: Service) -> None:
    response = shop.http.post(
        "/v1/queries",
        json={"id": "late", "sql": PAIR + " WHERE o.total > 10", "priority": 3},
    )
    assert response.status_code == 201, response.text
    assert response.headers["location"] == "/v1/queries/late"
    answer = response.json()
    assert answer["status"] == "pending"
    assert answer["priority"] == 3
    assert answer["sink"] == {
        "format": "parquet",
        "options": {},
        "path": None,
        "mode": "append",
        "commit_interval": None,
    }
    info = answer["normalised"]
    assert [(a["alias"], a["stream"], len(a["filter"])) for a in info["aliases"]] == [
        ("o", "orders", 1),
        ("c", "customers", 0),
    ]
    assert info["aliases"][0]["relation"] != "orders"
    assert [(c["type"], sorted(c["members"])) for c in info["classes"]] == [
        ("bigint", ["c.customer_id", "o.customer_id"])
    ]
    assert info["output"] == [
        {"name": "order_id", "type": "bigint"},
        {"name": "city", "type": "string"},
    ]
    assert info["unbounded"] == ["o", "c"]
    assert "full history" in info["notes"][0]
    assert shop.get("/v1/queries/late") == answer


def test_windows_become_bounds_and_aliases_without_one_are_named(shop: Service) -> None:
    sql = "SELECT o.total, i.part FROM orders o JOIN items i ON o.order_id = i.order_id"
    both = shop.post("/v1/queries", {"sql": sql, "window": "1 hour"})["normalised"]
    assert both["unbounded"] == []
    assert {(b["earlier"], b["later"], b["micros"]) for b in both["bounds"]} == {
        ("o", "i", 3_600_000_000),
        ("i", "o", 3_600_000_000),
    }
    assert {b["duration"] for b in both["bounds"]} == {"1 hour"}
    one = shop.post("/v1/queries", {"sql": sql, "window": {"o": "PT5M"}})["normalised"]
    assert one["unbounded"] == ["i"]
    assert one["notes"]


def test_an_id_is_made_where_none_is_given(shop: Service) -> None:
    first = shop.post("/v1/queries", {"sql": PAIR})
    second = shop.post("/v1/queries", {"sql": PAIR})
    assert first["id"] != second["id"]
    assert shop.get(f"/v1/queries/{first['id']}")["sql"] == PAIR


def test_a_structured_query_is_registered_like_sql(shop: Service) -> None:
    document = {
        "from": {"o": "orders", "c": "customers"},
        "join": ["o.customer_id = c.customer_id"],
        "select": ["o.order_id", "c.city"],
    }
    structured = shop.post("/v1/queries", {"id": "structured", "query": document})
    sql = shop.post("/v1/queries", {"id": "sql", "sql": PAIR})
    assert structured["query"] == document
    assert structured["normalised"]["classes"] == sql["normalised"]["classes"]
    assert structured["normalised"]["output"] == sql["normalised"]["output"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "missing-query"),
        ({"sql": PAIR, "query": {"from": {}}}, "ambiguous-query"),
        ({"sql": PAIR.replace("o.order_id", "o.nothing")}, None),
        ({"sql": PAIR.replace("orders o", "nothing o")}, None),
        ({"sql": "SELECT"}, None),
        ({"sql": "SELECT c.city FROM customers c, items i"}, None),
        ({"sql": PAIR, "window": "soon"}, None),
        ({"sql": PAIR, "window": {"nobody": "1 hour"}}, None),
        ({"sql": PAIR, "window": "1 hour"}, None),  # customers have no event time
        ({"sql": PAIR, "ttl": "0 seconds"}, "bad-expiry"),
        ({"sql": PAIR, "ttl": "99999 weeks 99999999999 days"}, None),
        ({"sql": PAIR, "expires_at": "2001-01-01T00:00:00Z"}, "bad-expiry"),
        ({"sql": PAIR, "expires_at": "2101-01-01T00:00:00"}, "invalid-request"),
        ({"sql": PAIR, "ttl": "PT1H", "expires_at": "2101-01-01T00:00:00Z"}, "ambiguous-expiry"),
        ({"sql": PAIR, "sink": {"format": "fax machine"}}, "invalid-request"),
        ({"sql": PAIR, "sink": {"type": "count"}}, "invalid-request"),
        (
            {"sql": PAIR, "sink": {"format": "json", "options": {"tint": "1"}}},
            "unknown-sink-option",
        ),
        ({"sql": PAIR, "id": "../etc"}, "invalid-request"),
        ({"sql": PAIR, "surprise": 1}, "invalid-request"),
        ({"sql": 5}, "invalid-request"),
    ],
)
def test_a_query_that_cannot_be_planned_is_refused_and_nothing_is_stored(
    untouched_shop: Service, body: dict[str, Any], code: str | None
) -> None:
    problem = untouched_shop.post("/v1/queries", body, 422)
    assert code in (None, problem["code"])
    assert problem["detail"]
    assert problem["remedy"], problem
    assert all(e["field"] for e in problem["errors"]), problem
    assert untouched_shop.get("/v1/queries")["items"] == []


def test_an_id_can_be_used_once(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    problem = shop.post("/v1/queries", {"id": "pair", "sql": CHAIN}, 409)
    assert problem["code"] == "duplicate-query"
    assert shop.get("/v1/queries/pair")["sql"] == PAIR


def test_an_idempotency_key_repeats_the_answer(shop: Service) -> None:
    headers = {"Idempotency-Key": "k1"}
    body = {"sql": PAIR, "ttl": "1 hour"}
    first = shop.http.post("/v1/queries", json=body, headers=headers)
    again = shop.http.post("/v1/queries", json=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert again.headers["location"] == first.headers["location"]
    assert len(shop.get("/v1/queries")["items"]) == 1
    other = shop.http.post("/v1/queries", json={"sql": CHAIN}, headers=headers)
    assert other.status_code == 409
    assert other.json()["code"] == "idempotency-key-reused"


def test_a_refused_request_does_not_use_up_its_idempotency_key(shop: Service) -> None:
    headers = {"Idempotency-Key": "k1"}
    assert shop.http.post("/v1/queries", json={"sql": "?"}, headers=headers).status_code == 422
    assert shop.http.post("/v1/queries", json={"sql": PAIR}, headers=headers).status_code == 201


def test_pages_of_queries_in_order_of_registration(shop: Service) -> None:
    names = [f"q{i}" for i in range(5)]
    for name in reversed(names):
        shop.post("/v1/queries", {"id": name, "sql": PAIR})
    seen, cursor = [], ""
    while True:
        page = shop.get(f"/v1/queries?limit=2{cursor}")
        seen += [item["id"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == list(reversed(names))
    assert shop.get("/v1/queries?status=active")["items"] == []
    assert len(shop.get("/v1/queries?status=pending")["items"]) == 5
    assert shop.get("/v1/queries?limit=0", 422)["errors"][0]["field"] == "limit"
    assert shop.get("/v1/queries?cursor=x", 422)["errors"][0]["field"] == "cursor"
    assert shop.get("/v1/queries?status=odd", 422)["errors"][0]["field"] == "status.0"


def test_a_query_from_registration_to_expiry(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    assert shop.get("/v1/queries/pair")["first_epoch"] is None
    shop.plan(-1)
    planned = shop.get("/v1/queries/pair")
    assert (planned["status"], planned["first_epoch"]) == ("pending", 0)

    seen = {"o": Visibility(0, None), "c": Visibility(2, 1_700_000_000_000_000)}
    shop.activate("pair", Activation(2, seen, 1_700_000_000_000_001, "from", results=5))
    shop.progress(Progress("running", committed=3, epoch=0, results={"pair": 7}))
    active = shop.get("/v1/queries/pair")
    assert active["status"] == "active"
    assert active["activated_batch"] == 2
    assert active["visible_from"] == {
        "c": {"batch": 2, "event_time": "2023-11-14T22:13:20Z"},
        "o": {"batch": 0, "event_time": None},
    }
    assert active["complete_from"] == "2023-11-14T22:13:20.000001Z"
    assert active["results"] == 7

    shop.call("DELETE", "/v1/queries/pair", 202)
    shop.call("DELETE", "/v1/queries/pair", 202)
    assert shop.get("/v1/queries/pair")["status"] == "expiring"
    shop.plan(0)
    assert shop.get("/v1/queries/pair")["last_epoch"] == 0
    assert shop.get("/v1/epochs/1")["queries"] == []
    assert shop.get("/v1/queries/pair")["status"] == "expiring"

    shop.activate("pair", Activation(2, seen, expired_batch=4, results=9))
    ended = shop.get("/v1/queries/pair")
    assert (ended["status"], ended["expired_batch"], ended["results"]) == ("expired", 4, 9)


def test_a_query_withdrawn_before_it_was_planned_never_runs(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    assert shop.call("DELETE", "/v1/queries/pair", 202)["status"] == "expired"
    shop.plan(-1)
    assert shop.get("/v1/epochs/0")["queries"] == []
    assert shop.get("/v1/queries/pair")["first_epoch"] is None


def test_patch_changes_expiry_and_priority_only(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    changed = shop.call("PATCH", "/v1/queries/pair", 200, {"ttl": "PT1H", "priority": 9})
    assert changed["priority"] == 9
    left = datetime.fromisoformat(changed["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=59) < left <= timedelta(hours=1)
    same = shop.call("PATCH", "/v1/queries/pair", 200, {})
    assert same["expires_at"] == changed["expires_at"]
    cleared = shop.call("PATCH", "/v1/queries/pair", 200, {"expires_at": None})
    assert cleared["expires_at"] is None
    assert cleared["priority"] == 9
    problem = shop.call("PATCH", "/v1/queries/pair", 422, {"sql": CHAIN})
    assert problem["errors"][0]["field"] == "sql"
    shop.call("DELETE", "/v1/queries/pair", 202)
    ended = shop.call("PATCH", "/v1/queries/pair", 409, {"priority": 1})
    assert ended["code"] == "query-ended"


def test_unknown_queries(shop: Service) -> None:
    for method, body in (("GET", None), ("DELETE", None), ("PATCH", {})):
        problem = shop.call(method, "/v1/queries/nobody", 404, body)
        assert problem["code"] == "unknown-query"
        assert "nobody" in problem["detail"]


def test_a_query_leaves_the_plan_when_its_time_is_up(settings: ServiceSettings) -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)

    def clock() -> datetime:
        return now

    with serving(settings, clock=clock) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        service.post("/v1/queries", {"id": "short", "sql": PAIR, "ttl": "1 minute"})
        service.post("/v1/queries", {"id": "long", "sql": PAIR})
        service.plan(-1)
        assert service.get("/v1/epochs/0")["queries"] == ["short", "long"]
        now += timedelta(seconds=61)
        assert service.get("/v1/queries/short")["status"] == "expiring"
        service.plan(0)
        assert service.get("/v1/epochs/1")["queries"] == ["long"]
        service.progress(Progress("running", committed=9, epoch=1))
        assert service.get("/v1/queries/short")["status"] == "expired"


def test_the_results_of_a_view_are_its_rows(shop: Service) -> None:
    sql = (
        "SELECT c.city, count(*) AS n FROM customers c JOIN orders o USING (customer_id) "
        "GROUP BY c.city"
    )
    shop.post("/v1/queries", {"id": "cities", "sql": sql})
    shop.activate("cities", Activation(2, {}, results=1617))
    # Joined rows are never shown as rows: a view has none before its first version.
    shop.progress(Progress("starting", committed=3, epoch=0, results={"cities": 1617}))
    found = shop.get("/v1/queries/cities")
    assert (found["results"], found["joined_rows"]) == (0, 1617)
    assert shop.get("/v1/queries/cities/runs")["items"][0]["results"] == 0
    known = {"cities": 21}
    shop.progress(Progress("running", committed=3, epoch=0, results={"cities": 1617}, shown=known))
    found = shop.get("/v1/queries/cities")
    assert (found["results"], found["joined_rows"]) == (21, 1617)
    assert shop.get("/v1/queries")["items"][0]["results"] == 21
