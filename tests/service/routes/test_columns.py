"""Columns that are added to streams in use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from anabranch_contract.packed import unpack
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.ruleset import RulesetId
from anabranch_contract.protocol.progress import Mode
from anabranch_service.settings import ServiceSettings
from tests.support.worlds.service import Service, serving

LEFT = {
    "name": "orders",
    "columns": {"id": "bigint", "n": "bigint"},
    "source": {"format": "redis-stream"},
    "retain": "all",
}
RIGHT = {**LEFT, "name": "items", "columns": {"id": "bigint", "price": "double"}}
COLUMNS = "/v1/streams/orders/columns"


@pytest.fixture
def pair(service: Service) -> Service:
    return filled(service)


@pytest.fixture
def live(settings: ServiceSettings) -> Iterator[Service]:
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        yield filled(service)


def filled(service: Service) -> Service:
    """Register both streams."""
    service.post("/v1/streams", LEFT)
    service.post("/v1/streams", RIGHT)
    return service


def query(service: Service, name: str, sql: str, status: int = 201) -> dict[str, Any]:
    return service.post("/v1/queries", {"id": name, "sql": sql}, status)


def columns(service: Service, epoch: int) -> dict[str, Any]:
    """Query -> names of the columns of its rows, in the rules of an epoch."""
    service.plan(epoch - 1)
    path = service.keys.ruleset(RulesetId(epoch))
    rules = rulesets.loads(unpack(str(service.redis.get(path))))
    return {str(q.id): [o.name for o in q.projection] for q in rules.queries}


def test_new_queries_use_an_added_column(pair: Service) -> None:
    sql = "SELECT o.id, o.coupon FROM orders o JOIN items i ON o.id = i.id"
    assert query(pair, "early", sql, 422)["code"] == "unknown-column"
    added = pair.post(COLUMNS, {"name": "coupon", "type": "VARCHAR", "default": "none"})
    assert added["columns"][-1] == {"name": "coupon", "type": "string"}
    assert pair.get("/v1/streams/orders") == added
    query(pair, "late", sql)
    assert columns(pair, 0)["late"] == ["id", "coupon"]


def test_queries_keep_the_columns_of_their_registration(pair: Service) -> None:
    wild = "SELECT * FROM orders o JOIN items i ON o.id = i.id"
    plain = "SELECT n, price FROM orders o JOIN items i ON o.id = i.id"
    query(pair, "wild", wild)
    query(pair, "plain", plain)
    before = columns(pair, 0)
    pair.post(COLUMNS, {"name": "price", "type": "decimal(10,2)"})
    pair.post(COLUMNS, {"name": "note", "type": "string"})
    query(pair, "wider", wild)
    assert query(pair, "ambiguous", plain, 422)["code"] == "ambiguous-column"
    after = columns(pair, 1)
    assert {name: after[name] for name in before} == before
    assert len(after["wider"]) == len(after["wild"]) + 2


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM orders o JOIN items i ON o.id = i.id",
        "SELECT * FROM (SELECT * FROM orders o WHERE o.n > 1) x JOIN items i ON x.id = i.id",
        "SELECT * FROM (SELECT o.*, price FROM orders o JOIN items i ON o.id = i.id) x"
        " QUALIFY row_number() OVER (PARTITION BY n ORDER BY price) <= 2",
        "SELECT * FROM (SELECT *, max(n) OVER (PARTITION BY id) AS most FROM orders) x"
        " JOIN items i ON x.id = i.id WHERE n = most",
        "SELECT o.* FROM orders o JOIN (SELECT id, count(*) AS c FROM items GROUP BY id) x"
        " ON o.id = x.id",
    ],
)
def test_resumed_queries_keep_the_columns_of_their_registration(live: Service, sql: str) -> None:
    query(live, "wild", sql)
    before = live.get("/v1/queries/wild")["normalised"]["output"]
    live.post(COLUMNS, {"name": "coupon", "type": "string"})
    live.post(COLUMNS, {"name": "note", "type": "string"})
    live.post("/v1/queries/wild:pause", {}, 202)
    live.post("/v1/queries/wild:resume", {}, 202)
    assert live.get("/v1/queries/wild")["normalised"]["output"] == before
    live.post(COLUMNS, {"name": "more", "type": "string"})
    live.post("/v1/queries/wild:pause", {}, 202)
    live.post("/v1/queries/wild:resume", {}, 202)
    assert live.get("/v1/queries/wild")["normalised"]["output"] == before
    # A new query has all columns.
    query(live, "wider", sql)
    assert len(live.get("/v1/queries/wider")["normalised"]["output"]) == len(before) + 3


def test_the_present_columns_are_the_definition(pair: Service) -> None:
    pair.post(COLUMNS, {"name": "coupon", "type": "string"})
    pair.post("/v1/streams", {**LEFT, "columns": {**LEFT["columns"], "coupon": "string"}}, 200)  # type: ignore[dict-item]
    assert pair.post("/v1/streams", LEFT, 409)["code"] == "duplicate-stream"


@pytest.mark.parametrize(
    ("column", "status", "code"),
    [
        ({"name": "N", "type": "bigint"}, 409, "duplicate-column"),
        ({"name": "x", "type": "uuid"}, 422, "unknown-type"),
        ({"name": "x", "type": "int", "default": "many"}, 422, "bad-default"),
        ({"name": "x", "type": "int", "default": "3000000000"}, 422, "bad-default"),
        ({"name": "x", "type": "decimal(4,2)", "default": "1000"}, 422, "bad-default"),
        ({"name": "x", "type": "array<int>", "default": "[]"}, 422, "bad-default"),
    ],
)
def test_refused_columns_change_nothing(
    pair: Service, column: dict[str, Any], status: int, code: str
) -> None:
    before = pair.get("/v1/streams/orders")
    assert pair.post(COLUMNS, column, status)["code"] == code
    assert pair.get("/v1/streams/orders") == before


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kind": "table", "key": ["id"]}, "of kind table"),
        ({"kind": "table"}, "of kind table"),
        ({"kind": "changes"}, "of kind changes"),
        ({"kind": "upsert", "key": ["id"]}, "of kind upsert"),
        (
            {"source": {"format": "recorded", "path": "/data/o.parquet", "rows_per_batch": 1}},
            "format recorded",
        ),
        (
            {
                "source": {
                    "format": "files",
                    "path": "/data",
                    "options": {"type": "csv", "header": "false"},
                }
            },
            "CSV files name no columns",
        ),
        ({"source": {"format": "parquet", "path": "/data"}}, "format parquet"),
    ],
)
def test_streams_with_fixed_columns(service: Service, change: dict[str, Any], why: str) -> None:
    body = {**LEFT, **change}
    if "kind" in change:
        del body["retain"]
    service.post("/v1/streams", body)
    refused = service.post(COLUMNS, {"name": "x", "type": "int"}, 409)
    assert refused["code"] == "columns-fixed"
    assert why in refused["detail"]


def test_unknown_streams_and_versions(pair: Service) -> None:
    column = {"name": "x", "type": "int"}
    missing = pair.post("/v1/streams/none/columns", column, 404)
    assert missing["code"] == "unknown-stream"
    stale = pair.http.post(COLUMNS, json=column, headers={"if-match": '"0"'})
    assert stale.status_code == 412
