"""Tests of streams with inserts and deletes over REST."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch_contract.plans import ruleset as rulesets
from tests.support.worlds.service import Service

PRICES = {
    "name": "prices",
    "columns": {"order_id": "bigint", "price": "double", "ts": "timestamp"},
    "event_time": "ts",
    "kind": "changes",
}
#: A query over a stream with deletes and one without.
SQL = "SELECT o.order_id, p.price FROM orders o JOIN prices p ON p.order_id = o.order_id"


def test_a_stream_of_changes_is_registered_and_shown(service: Service) -> None:
    made = service.post("/v1/streams", PRICES)
    assert (made["kind"], made["retain"], made["lateness"]) == ("changes", "all", "unbounded")
    assert (made["changes"]["operation"], made["changes"]["envelope"]) == ("op", None)
    assert made["columns"][-1] == {"name": "op", "type": "string"}
    assert service.post("/v1/streams", PRICES, 200) == made
    declared = {**PRICES, "columns": {**PRICES["columns"], "op": "string"}}  # type: ignore[dict-item]
    assert service.post("/v1/streams", declared, 200) == made
    other = {**PRICES, "changes": {"operation": "deleted", "deletes": ["true"]}}
    assert service.post("/v1/streams", other, 409)["code"] == "duplicate-stream"


@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        ({"kind": "stream", "changes": {}}, "changes", "changes-without-kind"),
        ({"key": ["order_id"]}, "key", "key-without-table"),
        ({"retention": {"latest": ["order_id"]}}, "retention.latest", "latest-of-changes"),
        ({"changes": {"inserts": ["x"], "deletes": ["X"]}}, "changes.deletes",
         "ambiguous-operation"),
        ({"changes": {"envelope": "debezium"},
          "source": {"format": "files", "path": "/data/p", "options": {"type": "csv"}}},
         "changes.envelope", "envelope-without-json"),
        ({"columns": {"#weight": "int"}, "event_time": None}, "columns", "reserved-column"),
        ({"columns": {"op": "double"}, "event_time": None}, "columns.op", "bad-operation"),
        ({"event_time": None, "columns": {"op": "string"}}, "columns", "empty-stream"),
    ],
)  # fmt: skip
def test_streams_of_changes_that_are_refused(
    service: Service, change: dict[str, Any], field: str, code: str
) -> None:
    refused = service.post("/v1/streams", {**PRICES, **change}, 422)
    assert [(e["field"], e["code"]) for e in refused["errors"]] == [(field, code)]
    assert refused["remedy"]


def test_a_query_says_that_its_results_are_changes(shop: Service) -> None:
    shop.post("/v1/streams", PRICES)
    made = shop.post("/v1/queries", {"id": "q", "sql": SQL})
    assert made["normalised"]["output"][-1] == {"name": "anabranch_change", "type": "string"}
    assert any("inserts and deletes" in note for note in made["normalised"]["notes"])
    assert made["past"] == "stored"
    again = shop.call("PUT", "/v1/queries/q", 200, {"sql": SQL})
    assert again["action"] == "none"
    assert shop.post("/v1/queries", {"id": "n", "sql": SQL, "past": "none"})["past"] == "none"
    alone = shop.post("/v1/queries", {"id": "a", "sql": "SELECT price FROM prices WHERE price > 1"})
    assert (alone["past"], alone["normalised"]["residuals"]) == ("stored", ["(prices.price > 1.0)"])
    plain = "SELECT o.order_id FROM orders o JOIN items i ON i.order_id = o.order_id"
    assert shop.post("/v1/queries", {"id": "p", "sql": plain})["past"] == "none"
    shop.boundary(-1)
    shop.answered()
    text = shop.redis.get(shop.keys.ruleset(0))
    assert text is not None
    past = {str(q.id): q.past for q in rulesets.loads(text).queries}
    assert past == {"q": True, "n": False, "a": True, "p": False}


def test_queries_over_changes_that_are_refused(shop: Service) -> None:
    shop.post("/v1/streams", PRICES)
    old = {"id": "f", "sql": SQL, "slo": {"freshness": {"p": "1 hour"}}}
    assert shop.post("/v1/queries", old, 422)["code"] == "freshness-with-changes"


UPSERTS = {
    "name": "prices",
    "columns": {"order_id": "bigint", "price": "double"},
    "kind": "upsert",
    "key": ["order_id"],
}


def test_a_stream_of_upserts(shop: Service) -> None:
    made = shop.post("/v1/streams", UPSERTS)
    assert (made["kind"], made["key"], made["retain"]) == ("upsert", ["order_id"], "all")
    assert (made["changes"]["operation"], made["columns"][-1]["name"]) == (None, "price")
    assert shop.post("/v1/streams", UPSERTS, 200) == made
    changed = shop.call("PATCH", "/v1/streams/prices", 422, {"retain": "none"})
    assert changed["code"] == "table-property"
    found = shop.post("/v1/queries", {"id": "q", "sql": SQL, "window": "1 hour"})
    assert found["normalised"]["output"][-1]["name"] == "anabranch_change"
    assert (found["past"], found["normalised"]["unbounded"]) == ("stored", ["o", "p"])
    shop.boundary(-1)
    shop.answered()
    text = shop.redis.get(shop.keys.ruleset(0))
    assert text is not None
    (rule,) = rulesets.loads(text).latest_rules
    assert (rule.stream, rule.key) == ("prices", (("order_id", "bigint"),))


@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        ({"key": None}, "key", "upsert-without-key"),
        ({"key": ["nowhere"]}, "key", "bad-key"),
        ({"key": ["price"]}, "key", "bad-key"),
        ({"retain": "1 day"}, "retain", "table-property"),
        ({"columns": {"order_id": "bigint", "ts": "timestamp"}, "event_time": "ts"}, "event_time",
         "table-property"),
        ({"retention": {"latest": ["order_id"]}}, "retention", "table-property"),
        ({"changes": {"deletes": ["x"]}}, "changes.operation", "operations-without-column"),
        ({"columns": {"order_id": "bigint"}, "changes": {"null_deletes": True}},
         "changes.null_deletes", "null-deletes-without-values"),
    ],
)  # fmt: skip
def test_streams_of_upserts_that_are_refused(
    service: Service, change: dict[str, Any], field: str, code: str
) -> None:
    refused = service.post("/v1/streams", {**UPSERTS, **change}, 422)
    assert [(e["field"], e["code"]) for e in refused["errors"]] == [(field, code)]
    assert refused["remedy"]


def test_envelopes_are_not_pushed(service: Service) -> None:
    source = {"format": "redis-stream"}
    body = {**PRICES, "changes": {"envelope": "debezium"}, "source": source}
    service.post("/v1/streams", body)
    row = {"order_id": 1, "price": 2.5, "ts": "2026-01-01T00:00:00Z", "op": "c"}
    refused = service.post("/v1/streams/prices/rows", {"rows": [row]}, 409)
    assert refused["code"] == "not-pushable"
    assert service.post("/v1/streams:test", body, 200)["outcome"] == "not tested"
