"""Tests of streams that keep the latest row per key, over REST."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.protocol.intake import InputProgress
from anabranch_contract.protocol.progress import Progress
from tests.support.worlds.service import Service

JOIN = "SELECT o.order_id, i.part FROM orders o JOIN items i ON i.order_id = o.order_id"
PATH = "/v1/streams/orders"


def given(service: Service, retention: Any, status: int = 200) -> dict[str, Any]:
    """Return the answer to a change of the retention of ``orders``."""
    return service.call("PATCH", PATH, status, {"retention": retention})


def notes(service: Service, query: str) -> list[str]:
    """Return the notes of a query about the latest rows per key."""
    found: list[str] = service.get(f"/v1/queries/{query}")["normalised"]["notes"]
    return [n for n in found if "latest" in n]


def test_a_stream_is_registered_with_a_key_and_changed(service: Service) -> None:
    body = {
        "name": "events",
        "columns": {"id": "bigint", "at": "timestamp", "x": "double"},
        "event_time": "at",
        "retention": {"latest": ["id"]},
    }
    made = service.post("/v1/streams", body)
    assert made["retention"] == {"ttl": None, "latest": ["id"]}
    assert made["latest_since"] is None
    assert service.post("/v1/streams", body, 200) == made
    assert service.post("/v1/streams", {**body, "retention": {"latest": ["at"]}}, 409)["code"]


def test_ttl_and_key_are_changed_one_by_one(shop: Service) -> None:
    def now() -> Any:
        return shop.get(PATH)["retention"]

    given(shop, {"latest": ["order_id"]})
    given(shop, {"ttl": "1 day"})
    assert now() == {"ttl": "1 day", "latest": ["order_id"]}
    given(shop, {"latest": None})
    assert now() == {"ttl": "1 day", "latest": None}
    given(shop, {"ttl": None, "latest": ["order_id", "customer_id"]})
    assert now() == {"ttl": None, "latest": ["order_id", "customer_id"]}
    given(shop, None)
    assert now() is None


@pytest.mark.parametrize(
    ("stream", "retention", "code", "field"),
    [
        ("customers", {"latest": ["name"]}, "latest-without-event-time", "retention.latest"),
        ("orders", {"latest": ["nowhere"]}, "bad-latest", "retention.latest"),
        ("orders", {"latest": ["order_id", "order_id"]}, "bad-latest", "retention.latest"),
        ("orders", {"latest": []}, "invalid-request", "retention.latest"),
        ("orders", {"latest": "order_id"}, "invalid-request", "retention.latest"),
        ("orders", {}, "invalid-request", "retention"),
    ],
)
def test_a_bad_key_is_refused_and_changes_nothing(
    shop: Service, stream: str, retention: Any, code: str, field: str
) -> None:
    path = f"/v1/streams/{stream}"
    before = shop.get(path)
    problem = shop.call("PATCH", path, 422, {"retention": retention})
    assert problem["code"] == code
    assert problem["errors"][0]["field"].startswith(field)
    assert problem["remedy"]
    assert shop.get(path) == before


def test_a_key_of_an_inexact_type_is_refused(service: Service) -> None:
    body = {
        "name": "events",
        "columns": {"x": "double", "at": "timestamp"},
        "event_time": "at",
        "retention": {"latest": ["x"]},
    }
    problem = service.post("/v1/streams", body, 422)
    assert problem["code"] == "bad-latest"
    assert "double" in problem["detail"]


def test_queries_say_so_and_the_next_ruleset_has_it(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "join", "sql": JOIN})
    assert notes(shop, "join") == []
    shop.plan(-1)
    given(shop, {"latest": ["order_id"]})
    assert notes(shop, "join") == [
        "of the tuples of o with the same order_id only the latest join: stream orders keeps no "
        "others"
    ]
    shop.plan(0)
    text = str(shop.redis.get(shop.keys.ruleset(1)))
    ruleset = rulesets.loads(text)
    (rule,) = ruleset.latest_rules
    assert (rule.stream, rule.relation, rule.key) == ("orders", "orders", (("order_id", "bigint"),))
    given(shop, None)
    assert notes(shop, "join") == []


def test_the_runtime_says_since_when(shop: Service) -> None:
    given(shop, {"latest": ["order_id"]})
    progress = Progress("running", committed=7, input=InputProgress(latest_since={"orders": 4}))
    shop.progress(progress)
    assert shop.get(PATH)["latest_since"] == 4
    assert shop.get("/v1/streams/items")["latest_since"] is None


def test_dry_runs_assume_it(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "join", "sql": JOIN})
    body = {"retention": {"orders": {"latest": ["order_id"]}}}
    assert shop.post("/v1/plans:dry-run", body, 200)["rejected"] == {}
    body = {"retention": {"orders": {"latest": ["x"]}}}
    problem = shop.post("/v1/plans:dry-run", body, 422)
    assert problem["errors"][0]["field"] == "retention.orders.latest"
    assert shop.get(PATH)["retention"] is None


def test_an_outer_join_keeps_its_rows_by_arrival_from_its_registration_on(shop: Service) -> None:
    left = JOIN.replace(" JOIN", " LEFT JOIN")
    shop.post("/v1/queries", {"id": "plain", "sql": left})
    before = shop.get(PATH)
    problem = given(shop, {"latest": ["order_id"]}, 409)
    assert problem["code"] == "kept-rows-lack-times"
    assert "plain" in problem["detail"]
    assert shop.get(PATH) == before
    shop.call("DELETE", "/v1/queries/plain", 202)
    given(shop, {"latest": ["order_id"]})
    made = shop.post("/v1/queries", {"id": "kept", "sql": left})
    assert made["past"] == "none"
    assert made["normalised"]["outer"]["left"] == ["o.order_id"]
    assert any("each makes a further pair" in note for note in made["normalised"]["notes"])
    given(shop, {"latest": ["customer_id"], "ttl": None})
    assert given(shop, None, 409)["code"] == "kept-rows-lack-times"
    problem = shop.post("/v1/queries", {"id": "past", "sql": left, "past": "stored"}, 422)
    assert problem["code"] == "past-not-stored"


def test_a_chain_whose_second_join_is_with_latest_rows_has_no_past(shop: Service) -> None:
    given(shop, {"latest": ["order_id"]})
    sql = (
        "SELECT i.part FROM items i LEFT JOIN items j ON j.part = i.part "
        "LEFT JOIN orders o ON o.order_id = i.order_id"
    )
    assert shop.post("/v1/queries", {"id": "chain", "sql": sql})["past"] == "none"
    problem = shop.post("/v1/queries", {"id": "past", "sql": sql, "past": "stored"}, 422)
    assert problem["code"] == "past-not-stored"
