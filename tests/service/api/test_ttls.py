"""Tests of streams' ttls over REST: accepted values, effects on queries, refusals."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.protocol.activations import Activation, Visibility
from anabranch_contract.protocol.measurements import Snapshot
from tests.service.conftest import CHAIN, PAIR
from tests.support.worlds.service import Service

DAY = 86_400_000_000
NAMED = ("orders", "items", "customers")
JOIN = "SELECT o.order_id, i.part FROM orders o JOIN items i ON i.order_id = o.order_id"


def given(service: Service, stream: str, ttl: str | None, status: int = 200) -> dict[str, Any]:
    """Return the answer to a change of a stream's ttl."""
    retention = None if ttl is None else {"ttl": ttl}
    return service.call("PATCH", f"/v1/streams/{stream}", status, {"retention": retention})


def bounds(service: Service, query: str) -> dict[tuple[str, str], str]:
    """Return (earlier, later) -> the time bound between these aliases."""
    normalised = service.get(f"/v1/queries/{query}")["normalised"]
    return {(b["earlier"], b["later"]): b["duration"] for b in normalised["bounds"]}


def planned(service: Service, epoch: int) -> rulesets.Ruleset:
    """Return the published ruleset of an epoch."""
    return rulesets.from_json(json.loads(str(service.redis.get(service.keys.ruleset(epoch)))))


def test_a_stream_is_registered_with_a_ttl_and_changed(service: Service) -> None:
    body = {
        "name": "events",
        "columns": {"id": "bigint", "at": "timestamp"},
        "event_time": "at",
        "retention": {"ttl": "P6D"},
    }
    first = service.post("/v1/streams", body)
    assert first["retention"] == {"ttl": "6 days", "latest": None}
    assert service.post("/v1/streams", body, 200) == first
    assert service.post("/v1/streams", {**body, "retention": None}, 409)["code"]
    assert given(service, "events", "90 minutes")["retention"] == {
        "ttl": "1 hour 30 minutes",
        "latest": None,
    }
    assert service.call("PATCH", "/v1/streams/events", 200, {})["retention"] is not None
    assert given(service, "events", None)["retention"] is None
    assert given(service, "events", "0 seconds")["retention"] == {
        "ttl": "0 seconds",
        "latest": None,
    }
    assert given(service, "none", "6 days", 404)["code"] == "unknown-stream"


@pytest.mark.parametrize("ttl", ["", "soon", "-1 day", "1 month", "10000000 weeks"])
def test_a_bad_ttl_is_refused_and_changes_nothing(shop: Service, ttl: str) -> None:
    before = shop.get("/v1/streams/orders")
    problem = given(shop, "orders", ttl, 422)
    assert problem["errors"][0]["field"] == "retention.ttl"
    assert problem["remedy"]
    assert shop.get("/v1/streams/orders") == before


def test_a_stream_without_event_time_has_none(shop: Service) -> None:
    problem = given(shop, "customers", "6 days", 422)
    assert problem["code"] == "ttl-without-event-time"
    assert problem["errors"][0]["field"] == "retention.ttl"
    assert "event_time" in problem["remedy"]
    assert shop.get("/v1/streams/customers")["retention"] is None


def test_queries_are_understood_by_it_before_and_after(shop: Service) -> None:
    before = shop.post("/v1/queries", {"id": "old", "sql": JOIN})["normalised"]
    assert before["unbounded"] == ["o", "i"]
    assert "give the streams a ttl" in before["notes"][0]
    given(shop, "orders", "6 days")
    shop.post("/v1/queries", {"id": "new", "sql": JOIN})
    shop.post("/v1/queries", {"id": "tight", "sql": JOIN, "window": "1 hour"})
    for name in ("old", "new"):
        assert bounds(shop, name) == {("o", "i"): "6 days"}
        meant = shop.get(f"/v1/queries/{name}")["normalised"]
        assert meant["unbounded"] == ["i"]
        assert "6 days later, by the ttl of stream orders" in meant["notes"][0]
    assert bounds(shop, "tight") == {("o", "i"): "1 hour", ("i", "o"): "1 hour"}
    assert shop.get("/v1/queries/tight")["normalised"]["notes"] == []
    given(shop, "items", "1 day")
    assert shop.get("/v1/queries/old")["normalised"]["unbounded"] == []
    given(shop, "orders", None)
    assert bounds(shop, "new") == {("i", "o"): "1 day"}


def test_the_next_planned_epoch_goes_by_it(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "join", "sql": JOIN})
    shop.plan(-1)
    given(shop, "orders", "6 days")
    shop.plan(0)
    first, second = planned(shop, 0), planned(shop, 1)
    assert first.queries[0].retention == ((0, None), (None, 0))
    assert second.queries[0].retention == ((0, 6 * DAY), (None, 0))
    assert {str(s.name): s.ttl for s in second.streams} == {
        "customers": None,
        "items": None,
        "orders": 6 * DAY,
    }


def test_a_ttl_that_queries_could_not_live_with_is_refused(shop: Service) -> None:
    later = f"{JOIN} AND i.ts >= o.ts + INTERVAL 2 DAYS"
    shop.post("/v1/queries", {"id": "later", "sql": later})
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    before = (shop.get("/v1/streams/orders"), shop.get("/v1/queries"))
    problem = given(shop, "orders", "1 day", 409)
    assert problem["code"] == "ttl-contradicts-queries"
    assert problem["errors"][0]["field"] == "retention.ttl"
    assert "later (the time bounds" in problem["detail"]
    # It joins a stream that has no event time.
    assert "pair (the ttl of stream 'orders' (alias 'o') needs event times" in problem["detail"]
    assert "withdraw" in problem["remedy"]
    assert (shop.get("/v1/streams/orders"), shop.get("/v1/queries")) == before
    for name in ("later", "pair"):
        shop.call("DELETE", f"/v1/queries/{name}", 202)
    assert given(shop, "orders", "1 day")["retention"] == {"ttl": "1 day", "latest": None}
    problem = shop.post("/v1/queries", {"sql": later}, 422)
    assert problem["code"] == "unsatisfiable-ttl"
    problem = shop.post("/v1/queries", {"sql": CHAIN}, 422)
    assert problem["code"] == "no-event-time"
    assert problem["remedy"]


def test_a_ttl_that_contradicts_a_stated_freshness_is_refused(shop: Service) -> None:
    given(shop, "orders", "1 day")
    for name, age in (("tight", "1 day"), ("loose", "3 days")):
        shop.post("/v1/queries", {"id": name, "sql": JOIN, "slo": {"freshness": {"o": age}}})
    # This query has its own window, whatever the ttl.
    own = {"id": "own", "sql": JOIN, "window": "1 hour", "slo": {"freshness": {"o": "1 hour"}}}
    shop.post("/v1/queries", own)
    before = (shop.get("/v1/streams/orders"), shop.get("/v1/queries"))

    problem = given(shop, "orders", "2 days", 409)

    assert problem["code"] == "ttl-contradicts-freshness"
    assert problem["errors"][0]["field"] == "retention.ttl"
    detail = problem["detail"]
    assert "tight (the query joins tuples of 'o' that are up to 2 days older" in detail
    assert "slo.freshness.o: give 2 days or more" in detail
    assert "loose" not in detail
    assert "own" not in detail
    assert (shop.get("/v1/streams/orders"), shop.get("/v1/queries")) == before
    assert given(shop, "orders", "23 hours")["retention"]["ttl"] == "23 hours"
    given(shop, "orders", "1 day")
    # Another property is not refused because of it, and the remedy in the answer suffices.
    shop.call("PATCH", "/v1/streams/orders", 200, {"retention": {"latest": ["order_id"]}})
    shop.call("PATCH", "/v1/queries/tight", 200, {"slo": {"freshness": {"o": "2 days"}}})
    assert given(shop, "orders", "2 days")["retention"] is not None
    assert bounds(shop, "tight") == {("o", "i"): "2 days"}


def test_registrations_and_changes_at_once_end_in_agreement(shop: Service) -> None:
    ttls = ["1 day", "2 days", None, "3 days", "4 days", None, "5 days"]
    with ThreadPoolExecutor(4) as pool:
        changes = [pool.submit(given, shop, "orders", t) for t in ttls]
        added = [
            pool.submit(shop.post, "/v1/queries", {"id": f"q{n}", "sql": JOIN}) for n in range(20)
        ]
        for done in (*changes, *added):
            done.result()
    retention = shop.get("/v1/streams/orders")["retention"]
    meant = {} if retention is None else {("o", "i"): retention["ttl"]}
    assert [bounds(shop, f"q{n}") for n in range(20)] == [meant] * 20


def test_earlier_activations_are_shown(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "join", "sql": JOIN})
    assert shop.get("/v1/queries/join")["earlier"] == []
    seen = {"o": Visibility(0, None), "i": Visibility(2, 60_000_000)}
    ended = Activation(0, seen, 5, "from", 4, 7, retention=((0, None), (3_600_000_000, 0)))
    older = Activation(0, seen, expired_batch=0)
    shop.activate("join", Activation(4, seen, results=9, earlier=(older, ended)))
    answer = shop.get("/v1/queries/join")
    assert (answer["status"], answer["activated_batch"], answer["results"]) == ("active", 4, 9)
    assert answer["earlier"][0]["bounds"] == []
    assert answer["earlier"][1] == {
        "activated_batch": 0,
        "expired_batch": 4,
        "bounds": [{"earlier": "i", "later": "o", "micros": 3_600_000_000, "duration": "1 hour"}],
        "visible_from": {
            "i": {"batch": 2, "event_time": "1970-01-01T00:01:00Z"},
            "o": {"batch": 0, "event_time": None},
        },
        "complete_from": "1970-01-01T00:00:00.000005Z",
        "complete": "from",
        "results": 7,
    }


def test_dry_runs_assume_ttls(shop: Service) -> None:
    later = f"{JOIN} AND i.ts >= o.ts + INTERVAL 2 DAYS"
    shop.post("/v1/queries", {"id": "later", "sql": later})
    shop.post("/v1/queries", {"id": "join", "sql": JOIN})

    def planned(retention: dict[str, Any]) -> dict[str, Any]:
        return shop.post("/v1/plans:dry-run", {"retention": retention}, 200)

    assert planned({"orders": {"ttl": "3 days"}})["rejected"] == {}
    found = planned({"orders": {"ttl": "1 day"}, "items": None})
    assert found["queries"] == ["join"]
    assert found["rejected"]["later"]["code"] == "unsatisfiable-ttl"
    assert shop.get("/v1/streams/orders")["retention"] is None


def test_dry_runs_price_by_the_ttls_that_are_assumed(shop: Service) -> None:
    given(shop, "items", "1 minute")
    counts = {"input": 10_000, "late": 0, "invalid": 0}
    spans = dict.fromkeys(NAMED, DAY)
    known = Snapshot(0, 4, 4, streams=dict.fromkeys(NAMED, counts), spans=spans)
    shop.plan(-1)
    shop.plan(0, snapshot=known)
    triple = f"{JOIN} JOIN orders p ON p.customer_id = o.customer_id"

    def cost(retention: dict[str, Any]) -> float:
        body = {"add": [{"sql": triple}], "retention": retention}
        return float(shop.post("/v1/plans:dry-run", body, 200)["cost"])

    hours = [{"orders": {"ttl": f"{n} hours"}, "items": {"ttl": f"{n} hours"}} for n in (1, 6)]
    assert cost(hours[0]) < cost(hours[1]) < cost({"items": None})
    assert cost({}) <= cost({"items": None})


@pytest.mark.parametrize(
    ("retention", "field"),
    [
        ({"none": None}, "retention.none"),
        ({"orders": {"ttl": "soon"}}, "retention.orders.ttl"),
        ({"customers": {"ttl": "1 day"}}, "retention.customers.ttl"),
        ({"orders": {"rows": 1}}, "retention.orders"),
    ],
)
def test_dry_runs_with_a_bad_ttl(shop: Service, retention: dict[str, Any], field: str) -> None:
    problem = shop.post("/v1/plans:dry-run", {"retention": retention}, 422)
    assert problem["errors"][0]["field"].startswith(field)
    assert problem["remedy"]


def test_an_outer_join_that_keeps_rows_by_value_needs_no_ttl(shop: Service) -> None:
    left = JOIN.replace(" JOIN", " LEFT JOIN")
    shop.post("/v1/queries", {"id": "plain", "sql": left})
    problem = given(shop, "items", "6 days", 409)
    assert problem["code"] == "kept-rows-lack-times"
    assert "plain" in problem["detail"]
    shop.call("DELETE", "/v1/queries/plain", 202)
    given(shop, "items", "6 days")
    made = shop.post("/v1/queries", {"id": "timed", "sql": left})
    assert made["normalised"]["outer"]["left"] == ["o.order_id", "o.ts"]
    given(shop, "items", "7 days")
    given(shop, "orders", "7 days")
    given(shop, "items", None)
    assert given(shop, "orders", None, 409)["code"] == "kept-rows-lack-times"
