"""Tests of columns of streams in use that are added, widened and dropped, over REST."""

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
POSTGRES = {"format": "postgres", "options": {"url": "postgresql://u@127.0.0.1/d", "table": "t"}}
#: Streams whose rows replace or delete others.
KEYED: dict[str, dict[str, Any]] = {
    "table": {"kind": "table", "key": ["id"]},
    "table without a key": {"kind": "table"},
    "upsert": {"kind": "upsert", "key": ["id"]},
    "changes": {"kind": "changes"},
    "postgres": {"kind": "upsert", "key": ["id"], "source": POSTGRES},
}


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
    """Return query -> names of the columns of its rows, in the ruleset of an epoch."""
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
        ({"kind": "changes", "source": POSTGRES}, "has no key"),
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


@pytest.mark.parametrize("kind", KEYED)
def test_columns_of_keyed_streams(service: Service, kind: str) -> None:
    body = {**LEFT, "columns": {"id": "int", "n": "int", "y": "float"}, **KEYED[kind]}
    del body["retain"]
    service.post("/v1/streams", body)
    wild = "SELECT * FROM orders"
    query(service, "wild", wild)
    default = {} if kind == "changes" else {"default": "1"}
    service.post(COLUMNS, {"name": "x", "type": "int", **default})
    query(service, "wider", wild)
    shown = {name: service.get(f"/v1/queries/{name}") for name in ("wild", "wider")}
    wide, wider = (len(shown[name]["normalised"]["output"]) for name in ("wild", "wider"))
    assert wider == wide + 1
    for name in ("wild", "wider"):
        assert service.http.delete(f"/v1/queries/{name}").is_success
    for column in ("id", "n", "x"):
        assert service.http.patch(f"{COLUMNS}/{column}", json={"type": "bigint"}).status_code == 200
    dropped = service.http.delete(f"{COLUMNS}/y").json()
    kinds = {c["name"]: c["type"] for c in dropped["columns"] if c["name"] != "op"}
    assert kinds == dict.fromkeys(("id", "n", "x"), "bigint")
    if "key" in body:
        refused = service.http.delete(f"{COLUMNS}/id")
        assert refused.json()["code"] == "column-needed"
    assert service.http.delete(f"{COLUMNS}/op").json()["code"] == "unknown-column"


def test_deletes_have_the_values_of_their_rows(service: Service) -> None:
    body = {**LEFT, "columns": {"id": "float", "n": "float"}, "kind": "changes"}
    service.post("/v1/streams", body)
    refused = service.post(COLUMNS, {"name": "x", "type": "int", "default": "1"}, 422)
    assert refused["code"] == "bad-default"
    refused = service.http.patch(f"{COLUMNS}/n", json={"type": "double"}).json()
    assert refused["code"] == "columns-fixed"
    assert "digits" in refused["detail"]


def test_columns_whose_nulls_delete_are_needed(service: Service) -> None:
    changes = {"null_deletes": True}
    body = {**LEFT, "kind": "upsert", "key": ["id"], "changes": changes}
    del body["retain"]
    service.post("/v1/streams", body)
    assert service.http.delete(f"{COLUMNS}/n").json()["code"] == "column-needed"


def test_unknown_streams_and_versions(pair: Service) -> None:
    column = {"name": "x", "type": "int"}
    missing = pair.post("/v1/streams/none/columns", column, 404)
    assert missing["code"] == "unknown-stream"
    stale = pair.http.post(COLUMNS, json=column, headers={"if-match": '"0"'})
    assert stale.status_code == 412


# --- widened columns -----------------------------------------------------------------------------

EVENTS = {
    "name": "events",
    "columns": {
        "id": "bigint",
        "small": "smallint",
        "n": "int",
        "f": "float",
        "d": "decimal(6,2)",
        "t": "date",
    },
    "source": {"format": "redis-stream"},
    "retain": "all",
}
WIDER = {
    "small": "int",
    "n": "bigint",
    "f": "double",
    "d": "decimal(12,2)",
    "t": "timestamp_ntz",
}
JOINED = "FROM events e JOIN items i ON e.id = i.id"


@pytest.fixture
def events(service: Service) -> Service:
    service.post("/v1/streams", EVENTS)
    service.post("/v1/streams", RIGHT)
    return service


def widen(service: Service, column: str, type: str, status: int = 200) -> dict[str, Any]:
    path = f"/v1/streams/events/columns/{column}"
    response = service.http.patch(path, json={"type": type})
    assert response.status_code == status, response.text
    return dict(response.json())


#: Statements that continue when all columns get wider types.
STAYING = (
    f"SELECT e.id, i.price {JOINED}",
    "SELECT i.price FROM events e JOIN items i ON e.n = i.id",
    f"SELECT e.id {JOINED} WHERE e.n > 5 AND e.n IN (6, 7) AND e.d <= 2.5 AND e.f IS NOT NULL",
    f"SELECT e.id {JOINED} WHERE e.n < e.id AND e.id < e.n + e.id",
    f"SELECT e.id {JOINED} WHERE CAST(e.f AS DOUBLE) > 0.5 AND e.f < 3D",
    f"SELECT CAST(e.n AS BIGINT) AS n, CAST(e.f AS DOUBLE) AS f, CAST(e.d AS DECIMAL(12,2)) AS d, "
    f"CAST(e.t AS TIMESTAMP_NTZ) AS t {JOINED}",
    f"SELECT i.id, sum(CAST(e.n AS BIGINT)) AS s, count(*) AS c {JOINED} GROUP BY i.id",
    f"SELECT CAST(e.n AS BIGINT) AS n, max(i.price) AS m {JOINED} GROUP BY CAST(e.n AS BIGINT)",
    "SELECT i.id FROM items i LEFT JOIN events e ON e.n = i.id WHERE e.id IS NULL",
)


@pytest.mark.parametrize("sql", STAYING)
def test_queries_go_on_with_wider_types(events: Service, sql: str) -> None:
    query(events, "old", sql)
    before, rules = events.get("/v1/queries/old")["normalised"], definition(events, 0)
    for column, type in WIDER.items():
        assert {"name": column, "type": type} in widen(events, column, type)["columns"]
    assert events.get("/v1/queries/old")["normalised"]["output"] == before["output"]
    assert definition(events, 1) == rules
    # The same statement now has the same meaning, and shares all steps.
    query(events, "new", sql)
    new = events.get("/v1/queries/new")["normalised"]
    assert new["output"] == before["output"]
    assert [a["relation"] for a in new["aliases"]] == [a["relation"] for a in before["aliases"]]


def definition(service: Service, epoch: int) -> list[tuple[Any, ...]]:
    """Relations and results of the query ``old`` and its parts in the ruleset of an epoch."""
    service.plan(epoch - 1)
    path = service.keys.ruleset(RulesetId(epoch))
    rules = rulesets.loads(unpack(str(service.redis.get(path))))
    found = [q for q in rules.queries if str(q.id).startswith("old")]
    return [
        (
            *(q.id, [r for _, _, r in q.members], q.view, q.outer),
            *((o.name, str(o.expr), o.expr.type) for o in q.projection),
        )
        for q in found
    ]


@pytest.mark.parametrize(
    ("column", "sql"),
    [
        ("n", f"SELECT e.n {JOINED}"),
        ("n", f"SELECT * {JOINED}"),
        ("n", f"SELECT i.id, sum(e.n) AS s {JOINED} GROUP BY i.id"),
        ("n", f"SELECT e.n, count(*) AS c {JOINED} GROUP BY e.n"),
        ("n", f"SELECT e.id {JOINED} WHERE e.n + 1 > 5"),
        ("n", f"SELECT e.id {JOINED} WHERE hash(e.n) > 5"),
        ("n", "SELECT e.id FROM events e JOIN items i ON hash(e.n) = i.id"),
        ("n", f"SELECT typeof(e.n) AS kind {JOINED}"),
        ("f", f"SELECT CAST(e.f AS STRING) AS f {JOINED}"),
        ("d", f"SELECT sum(e.d) AS s {JOINED}"),
        ("t", f"SELECT e.id {JOINED} WHERE e.t > DATE'2024-01-01'"),
        ("n", "SELECT e.n FROM items i LEFT JOIN events e ON e.id = i.id"),
    ],
)  # fmt: skip
def test_types_that_matter_to_queries_stay(events: Service, column: str, sql: str) -> None:
    query(events, "reader", sql)
    before = events.get("/v1/streams/events"), events.get("/v1/queries/reader")
    refused = widen(events, column, WIDER[column], 409)
    assert refused["code"] == "column-in-use"
    assert "its type matters to reader" in refused["detail"]
    assert f"CAST({column} AS {WIDER[column]})" in refused["remedy"]
    assert (events.get("/v1/streams/events"), events.get("/v1/queries/reader")) == before
    events.http.delete("/v1/queries/reader")
    widen(events, column, WIDER[column])


def test_parts_go_on_or_are_named_by_their_statement(live: Service) -> None:
    live.post("/v1/streams", EVENTS)
    counted = "SELECT i.id, q.c FROM items i JOIN (SELECT {0} AS n, count(*) AS c FROM events "
    counted += "GROUP BY {0}) q ON q.n = i.id"
    query(live, "cast", counted.format("CAST(n AS BIGINT)"))
    widen(live, "n", "bigint")
    query(live, "plain", counted.format("small"))
    refused = widen(live, "small", "int", 409)
    assert "its type matters to plain" in refused["detail"]


@pytest.mark.parametrize(
    ("column", "type", "status", "code"),
    [
        ("n", "smallint", 409, "not-wider"),
        ("n", "double", 409, "not-wider"),
        ("n", "string", 409, "not-wider"),
        ("f", "decimal(38,10)", 409, "not-wider"),
        ("d", "decimal(12,3)", 409, "not-wider"),
        ("d", "decimal(4,2)", 409, "not-wider"),
        ("t", "timestamp", 409, "not-wider"),
        ("n", "uuid", 422, "unknown-type"),
        ("m", "bigint", 404, "unknown-column"),
    ],
)
def test_refused_types_change_nothing(
    events: Service, column: str, type: str, status: int, code: str
) -> None:
    before = events.get("/v1/streams/events")
    assert widen(events, column, type, status)["code"] == code
    assert events.get("/v1/streams/events") == before


def test_a_type_is_widened_again_and_added_columns_too(events: Service) -> None:
    events.post("/v1/streams/events/columns", {"name": "more", "type": "int", "default": "1"})
    widen(events, "SMALL", "int")
    for column in ("small", "more"):
        shown = widen(events, column, "bigint")
        kinds = {c["name"]: c["type"] for c in shown["columns"]}
        assert kinds[column] == "bigint"
        assert widen(events, column, "bigint") == shown


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"source": {"format": "parquet", "path": "/data"}}, "format parquet"),
        (
            {"event_time": "ts", "retention": {"latest": ["n"]}, "columns": {
                **EVENTS["columns"], "ts": "timestamp"}},  # type: ignore[dict-item]
            "in the key",
        ),
    ],
)  # fmt: skip
def test_streams_with_fixed_types(service: Service, change: dict[str, Any], why: str) -> None:
    body = {**EVENTS, **change}
    if "kind" in change:
        del body["retain"]
    if "retention" in change:
        del body["retain"]
    service.post("/v1/streams", body)
    refused = widen(service, "n", "bigint", 409)
    assert refused["code"] == "columns-fixed"
    assert why in refused["detail"]


# --- dropped columns -----------------------------------------------------------------------------


def drop(service: Service, column: str, status: int = 200) -> dict[str, Any]:
    response = service.http.delete(f"/v1/streams/events/columns/{column}")
    assert response.status_code == status, response.text
    return dict(response.json())


def test_a_column_that_no_query_reads_is_dropped(events: Service) -> None:
    sql = f"SELECT e.id, e.n {JOINED} WHERE e.d > 1"
    query(events, "old", sql)
    rules = definition(events, 0)
    widen(events, "small", "int")
    for column in ("small", "T", "f"):
        names = [c["name"] for c in drop(events, column)["columns"]]
        assert column.lower() not in names
    assert names == ["id", "n", "d"]
    assert definition(events, 1) == rules
    missing = query(events, "late", f"SELECT e.f {JOINED}", 422)
    assert missing["code"] == "unknown-column"
    # Their values are still stored, and must not reappear.
    again = events.post("/v1/streams/events/columns", {"name": "F", "type": "float"}, 409)
    assert again["code"] == "dropped-column"
    assert drop(events, "f", 404)["code"] == "unknown-column"


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT e.n {JOINED}",
        f"SELECT * {JOINED}",
        f"SELECT e.id {JOINED} WHERE e.n > 1",
        f"SELECT e.id {JOINED} AND e.n <> i.price",
        "SELECT i.price FROM events e JOIN items i ON e.n = i.id",
        f"SELECT count(e.n) AS c {JOINED} GROUP BY e.id",
        f"SELECT count(*) AS c {JOINED} GROUP BY e.n",
        f"SELECT e.id {JOINED} QUALIFY row_number() OVER (PARTITION BY e.id ORDER BY e.n) = 1",
        "SELECT i.id FROM items i LEFT JOIN events e ON e.id = i.id AND e.n > 2",
    ],
)
def test_columns_that_queries_read_stay(events: Service, sql: str) -> None:
    query(events, "reader", sql)
    before = events.get("/v1/streams/events"), events.get("/v1/queries/reader")
    refused = drop(events, "n", 409)
    assert refused["code"] == "column-in-use"
    assert "it is read by reader" in refused["detail"]
    assert (events.get("/v1/streams/events"), events.get("/v1/queries/reader")) == before
    events.http.delete("/v1/queries/reader")
    drop(events, "n")


def test_columns_that_a_stream_needs_stay(service: Service) -> None:
    columns = {"id": "bigint", "ts": "timestamp", "v": "bigint"}
    latest = {"event_time": "ts", "retention": {"latest": ["id"]}, "retain": None}
    body = {**EVENTS, "columns": columns, **latest}
    service.post("/v1/streams", {name: value for name, value in body.items() if value is not None})
    for column, why in (("ts", "event time"), ("id", "in its key")):
        refused = drop(service, column, 409)
        assert refused["code"] == "column-needed"
        assert why in refused["detail"]
    drop(service, "v")
    service.post("/v1/streams", {**EVENTS, "name": "one", "columns": {"id": "bigint"}})
    last = service.http.delete("/v1/streams/one/columns/id")
    assert last.json()["code"] == "column-needed"


def test_an_added_column_is_dropped(events: Service) -> None:
    before = events.get("/v1/streams/events")["columns"]
    events.post("/v1/streams/events/columns", {"name": "more", "type": "int", "default": "1"})
    query(events, "wild", f"SELECT e.id {JOINED}")
    assert drop(events, "more")["columns"] == before
