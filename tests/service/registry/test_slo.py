"""Tests of queries' SLOs: registered, changed, shown, and refused by field with a remedy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch_contract.plans.ruleset import RulesetId, loads
from anabranch_service.registry.records import QueryRecord
from tests.service.conftest import PAIR
from tests.support.worlds.records import put
from tests.support.worlds.service import Service

JOIN = "SELECT o.total, i.part FROM orders o JOIN items i ON o.order_id = i.order_id"
#: The partner is not among the inner joins of the left rows.
LEFT = (
    "SELECT i.part, o.total FROM items i LEFT JOIN orders o ON o.order_id = i.order_id "
    "AND o.ts BETWEEN i.ts AND i.ts + INTERVAL 1 HOUR"
)
ALL: dict[str, Any] = {
    "latency": "2 seconds",
    "freshness": {"o": "1 hour", "i": "PT12H"},
    "completeness": 0.9,
}


def test_needs_are_told_back_and_changed_one_by_one(shop: Service) -> None:
    given = {"id": "j", "sql": JOIN, "window": "1 hour", "slo": ALL}
    assert shop.post("/v1/queries", given)["slo"] == ALL
    assert shop.get("/v1/queries/j")["slo"] == ALL

    def changed(slo: object) -> Any:
        return shop.call("PATCH", "/v1/queries/j", 200, {"slo": slo})["slo"]

    assert changed({"completeness": 0.5}) == {**ALL, "completeness": 0.5}
    assert changed({"latency": None}) == {**ALL, "completeness": 0.5, "latency": None}
    assert changed({"freshness": {}})["freshness"] == {}
    assert shop.call("PATCH", "/v1/queries/j", 200, {"priority": 2})["slo"]["completeness"] == 0.5
    assert changed(None) == {"latency": None, "freshness": {}, "completeness": None}


def test_a_left_join_can_have_no_freshness(shop: Service) -> None:
    """Without a partner that is too old, a row would seem to have none."""
    given = {"id": "left", "sql": LEFT, "slo": {"freshness": {"o": "2 hours"}}}
    refused = shop.call("POST", "/v1/queries", 422, given)
    found = refused["errors"][0]
    assert (found["code"], found["field"]) == ("freshness-with-outer-join", "slo.freshness")


def test_freshness_is_part_of_the_rules(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "j", "sql": JOIN, "window": "1 hour", "slo": ALL})
    shop.plan(0)
    text = str(shop.redis.get(shop.keys.ruleset(RulesetId(1))))
    spec = next(q for q in loads(text).queries if q.id == "j")
    label = {alias: label for alias, label, _ in spec.members}
    hours = 3_600_000_000
    assert dict(spec.freshness) == {label["o"]: hours, label["i"]: 12 * hours}


@pytest.mark.parametrize(
    ("slo", "field", "code", "remedy"),
    [
        ({"latency": "0 seconds"}, "latency", "bad-latency", "100 milliseconds or more"),
        ({"latency": "99 milliseconds"}, "latency", "bad-latency", "100 milliseconds or more"),
        ({"latency": "-2 seconds"}, "latency", "bad-duration", "between 0"),
        ({"latency": "soon"}, "latency", "bad-duration", "<number> <unit>"),
        ({"freshness": {"x": "1 hour"}}, "freshness.x", "unknown-alias", "o, i"),
        ({"freshness": {"o": "0 seconds"}}, "freshness.o", "bad-freshness", "1 hour or more"),
        ({"freshness": {"o": "-1 hour"}}, "freshness.o", "bad-duration", "between 0"),
        ({"freshness": {"o": "59 minutes"}}, "freshness.o", "bad-freshness", "1 hour or more"),
        ({"completeness": 0}, "completeness", "greater-than", ""),
        ({"completeness": -0.5}, "completeness", "greater-than", ""),
        ({"completeness": 1.01}, "completeness", "less-than-equal", ""),
        ({"completness": 0.9}, "completness", "extra-forbidden", "did you mean 'completeness'?"),
    ],
)
def test_what_nothing_can_meet_is_refused_by_field(
    shop: Service, slo: dict[str, Any], field: str, code: str, remedy: str
) -> None:
    given = {"id": "j", "sql": JOIN, "window": "1 hour"}
    refused = shop.call("POST", "/v1/queries", 422, {**given, "slo": slo})
    assert [e["field"] for e in refused["errors"]] == [f"slo.{field}"]
    assert refused["errors"][0]["code"] == code
    assert remedy in refused["remedy"]
    assert shop.get("/v1/queries")["items"] == []
    again = shop.call("POST", "/v1/plans:dry-run", 422, {"add": [{**given, "slo": slo}]})
    assert [e["field"] for e in again["errors"]] == [f"add.0.slo.{field}"]
    shop.post("/v1/queries", {**given, "slo": ALL})
    assert shop.call("PATCH", "/v1/queries/j", 422, {"slo": slo})["errors"] == refused["errors"]
    assert shop.get("/v1/queries/j")["slo"] == ALL


def test_a_completeness_that_is_no_number_is_refused(shop: Service) -> None:
    text = json.dumps({"id": "j", "sql": JOIN, "slo": {"completeness": float("nan")}})
    headers = {"Content-Type": "application/json"}
    answer = shop.http.post("/v1/queries", content=text, headers=headers)
    assert answer.status_code in (400, 422)
    assert shop.get("/v1/queries")["items"] == []


def test_freshness_needs_an_event_time(shop: Service) -> None:
    given = {"id": "p", "sql": PAIR, "slo": {"freshness": {"c": "1 hour"}}}
    refused = shop.call("POST", "/v1/queries", 422, given)
    assert refused["code"] == "freshness-without-event-time"
    assert refused["errors"][0]["field"] == "slo.freshness.c"
    assert "'customers'" in refused["detail"]


def test_needs_of_unknown_queries_are_refused(shop: Service) -> None:
    problem = shop.call("PATCH", "/v1/queries/none", 404, {"slo": {"completeness": 0.5}})
    assert problem["code"] == "unknown-query"


def test_records_of_an_earlier_release_need_nothing(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "j", "sql": JOIN})
    text = shop.redis.hget(shop.keys.queries, "j")
    assert isinstance(text, str)
    document = json.loads(text)
    del document["slo"]
    put(shop.redis, shop.keys, "queries", "j", json.dumps(document))
    assert QueryRecord.model_validate(document).slo.completeness is None
    assert shop.get("/v1/queries/j")["slo"]["completeness"] is None
    changed = shop.call("PATCH", "/v1/queries/j", 200, {"slo": {"completeness": 0.5}})
    assert changed["slo"]["completeness"] == 0.5
