"""Tests of query families: registered with a table of constants, recognised, listed."""

from __future__ import annotations

from typing import Any

from tests.service.conftest import PAIR
from tests.support.worlds.service import Service

FILTERED = f"{PAIR} WHERE o.total > :least AND o.total < 1000"


def add(shop: Service, parameters: dict[str, Any], status: int = 200, **more: Any) -> Any:
    body = {"id": "large", "sql": FILTERED, "parameters": parameters, **more}
    return shop.post("/v1/queries:family", body, status)


def registered(shop: Service) -> list[str]:
    return [query["id"] for query in shop.get("/v1/queries?limit=1000")["items"]]


def test_a_family_is_registered_and_recognised(shop: Service) -> None:
    answer = add(shop, {"a": {"least": 1}, "b": {"least": -2.5}}, tags=["x"])
    assert answer["registered"] == 2
    assert registered(shop) == ["large-a", "large-b"]
    shop.post("/v1/queries", {"id": "other", "sql": PAIR}, 201)
    # A query that was registered separately belongs to it.
    single = FILTERED.replace(":least", "7")
    shop.post("/v1/queries", {"id": "single", "sql": single, "ttl": "2 hours"}, 201)
    (family,) = shop.get("/v1/families")["items"]
    assert (family["queries"], family["first"]) == (3, "large-a")
    assert family["statement"].endswith("WHERE o.total > ? AND o.total < ?")
    first = shop.get(f"/v1/families/{family['id']}?limit=2")
    assert [(m["id"], m["constants"][0], m["status"]) for m in first["items"]] == [
        ("large-a", "1", "pending"),
        ("large-b", "-2.5", "pending"),
    ]
    rest = shop.get(f"/v1/families/{family['id']}?cursor={first['next_cursor']}")
    assert [m["id"] for m in rest["items"]] == ["single"]
    assert rest["next_cursor"] is None
    for name in ("large-a", "large-b"):
        shop.call("DELETE", f"/v1/queries/{name}", 202)
    shop.plan(-1)
    assert shop.get("/v1/families")["items"] == []
    assert shop.get(f"/v1/families/{family['id']}", 404)["code"] == "unknown-family"


def test_all_are_registered_or_none(shop: Service) -> None:
    refused = add(shop, {"a": {"least": 1}, "b": {"most": 1}}, 422)
    assert (refused["code"], refused["errors"][0]["field"]) == (
        "missing-parameter",
        "parameters.b.least",
    )
    refused = add(shop, {"a": {"least": 1}, "no name": {"least": 1}}, 422)
    assert refused["errors"][0]["field"] == "parameters.no name"
    refused = add(shop, {"a": {"least": 1}, "b": {"least": "x"}, "c": {"least": True}}, 422)
    assert {e["field"].rpartition(".")[0] for e in refused["errors"]} <= {
        "parameters.b",
        "parameters.c",
    }
    refused = add(shop, {"a": {"least": 1}, "b": {"least": [1]}}, 422)
    assert refused["errors"][0]["field"].startswith("parameters.b.least")
    assert add(shop, {}, 422)["errors"][0]["field"] == "parameters"
    refused = add(shop, {"a": {"least": 1}, "b": {"least": 2}}, 422, window="1 hour")
    assert [error["field"] for error in refused["errors"]] == ["window"]
    many = {f"m{number}": {"least": number} for number in range(501)}
    assert add(shop, many, 422)["errors"][0]["field"] == "parameters"
    assert registered(shop) == []
    assert add(shop, {"a": {"least": 1}, "b": {"least": 2}}, 200)["registered"] == 2
    taken = add(shop, {"b": {"least": 3}, "c": {"least": 4}}, 422)
    assert taken["errors"][0]["field"] == "parameters.b.name"
    assert registered(shop) == ["large-a", "large-b"]
