"""Tests of queries that other queries read by name: registration, refusals, the end; whole runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract.errors import QueryError
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_service.registry.derived import with_queries
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.statements import read_statement
from anabranch_service.settings import ServiceSettings
from tests.support.combined.registry import Registry
from tests.support.scenarios.seeds import mostly_slow
from tests.support.worlds.changed_views import COLUMNS
from tests.support.worlds.derived import OTHERS, TABLE, Derived, run_seed
from tests.support.worlds.service import Service, serving

STREAMS = {
    "orders": {"id": "bigint", "customer": "bigint", "price": "double"},
    "customers": {"id": "bigint", "nation": "string"},
}
SPENT = "SELECT customer, sum(price) AS spent FROM orders GROUP BY customer"
RICH = "SELECT c.nation, s.spent FROM spent s JOIN customers c ON c.id = s.customer"
COUNTED = "SELECT nation, count(*) AS n FROM rich GROUP BY nation"


@pytest.fixture
def live(settings: ServiceSettings) -> Iterator[Service]:
    """A service in live mode with two streams."""
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        for name, columns in STREAMS.items():
            service.post("/v1/streams?wait=0", {"name": name, "columns": columns})
        yield service


def _query(service: Service, name: str, sql: str, status: int = 201, **more: Any) -> dict[str, Any]:
    return service.post("/v1/queries", {"id": name, "sql": sql, **more}, status)


def _streams(service: Service) -> list[str]:
    return [one["name"] for one in service.get("/v1/streams")["items"]]


def test_a_view_is_a_stream_of_upserts_to_its_readers(live: Service) -> None:
    _query(live, "spent", SPENT)
    assert _streams(live) == ["customers", "orders"]
    made = _query(live, "rich", RICH)
    assert (made["reads"], made["past"]) == (["spent"], "stored")
    assert [(a["alias"], a["stream"]) for a in made["normalised"]["aliases"]] == [
        ("s", "spent"),
        ("c", "customers"),
    ]
    assert [o["name"] for o in made["normalised"]["output"]] == [
        "nation",
        "spent",
        "anabranch_change",
    ]
    stream = live.get("/v1/streams/spent")
    assert (stream["query"], stream["kind"], stream["retain"]) == ("spent", "upsert", "all")
    assert stream["source"]["options"] == {"run": "spent", "identity": '["customer"]'}
    assert live.get("/v1/queries/spent")["read_by"] == ["rich"]
    listed = {one["id"]: one["read_by"] for one in live.get("/v1/queries")["items"]}
    assert listed == {"spent": ["rich"], "rich": []}


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("SELECT id, sum(price) OVER (PARTITION BY customer) AS s FROM orders",
         "the statement's partitions"),
        ("SELECT c.nation FROM customers c WHERE c.id IN (SELECT customer FROM orders GROUP BY "
         "customer HAVING count(*) > 1)", "a subquery"),
        ("SELECT c.nation FROM customers c, orders o JOIN LATERAL explode(array(o.customer)) t(i) "
         "JOIN customers x ON x.id = i WHERE c.id = o.customer", "the joined streams"),
        ("SELECT c.nation FROM customers c JOIN (SELECT customer, count(*) AS n FROM orders GROUP "
         "BY customer) counted ON counted.customer = c.id", "counted"),
    ],
)  # fmt: skip
def test_notes_name_no_alias_of_the_planners(live: Service, sql: str, named: str) -> None:
    notes = _query(live, "noted", sql)["normalised"]["notes"]
    assert any(f"since rows of {named} may be deleted" in note for note in notes)


@pytest.mark.parametrize(("retain", "past"), [("all", "stored"), ("none", "none")])
def test_a_part_has_the_rows_of_before_it_where_they_are_stored(
    live: Service, retain: str, past: str
) -> None:
    columns = STREAMS["orders"]
    live.post("/v1/streams?wait=0", {"name": "kept", "columns": columns, "retain": retain})
    _query(live, "spent", SPENT)
    sql = "SELECT s.spent FROM spent s WHERE s.spent > (SELECT max(k.price) FROM kept k)"
    assert _query(live, "most", sql)["past"] == "stored"
    assert live.get("/v1/queries/most.1")["past"] == past
    if past == "none":
        refused = _query(live, "all", sql, 422, past="stored")["errors"][0]
        assert (refused["code"], refused["field"]) == ("past-not-stored", "past")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT x.spent FROM (SELECT DISTINCT spent FROM spent s WHERE {} ) x",
        "SELECT customer FROM orders EXCEPT ALL (SELECT s.customer FROM spent s WHERE {} LIMIT 1)",
        "SELECT o.id FROM orders o WHERE o.price > (SELECT max(spent) FROM spent s WHERE {})",
    ],
)
@pytest.mark.parametrize(
    "condition",
    [
        "s.customer IN (SELECT id FROM customers)",
        "s.spent > (SELECT min(price) FROM orders)",
        "EXISTS (SELECT 1 FROM customers c WHERE c.id = s.customer)",
    ],
)
def test_a_part_with_a_subquery_reads_a_query_by_name(
    live: Service, sql: str, condition: str
) -> None:
    _query(live, "spent", SPENT)
    text = sql.format(condition).replace("LIMIT", "ORDER BY customer LIMIT")
    assert _query(live, "more", text)["reads"]


def test_an_asof_join_in_a_subquery_is_a_query_of_its_own(live: Service) -> None:
    sql = (
        "SELECT c.nation, x.price FROM customers c JOIN (SELECT a.customer, b.price FROM orders a "
        "ASOF JOIN orders b ON b.customer = a.customer AND b.price < a.price) x "
        "ON x.customer = c.id"
    )
    _query(live, "near", sql)
    (part,) = live.get("/v1/queries/near")["reads"]
    outer = live.get(f"/v1/queries/{part}")["normalised"]["outer"]
    assert outer["look_ups"] == [
        {
            "kind": "inner",
            "partner": "b",
            "nearest": "(a.customer = b.customer) AND (a.price > b.price)",
        }
    ]


def test_star_has_the_columns_of_the_query_and_names_are_found_in_any_case(live: Service) -> None:
    _query(live, "Spent", "SELECT sum(price) AS total FROM orders GROUP BY customer")
    made = _query(live, "all", "SELECT * FROM SPENT")
    columns = [o["name"] for o in made["normalised"]["output"]]
    assert columns == ["total", "anabranch_change"]
    assert made["reads"] == ["Spent"]
    again = _query(live, "more", "SELECT * FROM spent WHERE total > 3")
    assert again["reads"] == ["Spent"]
    refused = _query(live, "hidden", "SELECT s.`#identity` FROM spent s", 422)
    assert refused["errors"][0]["code"] == "unknown-column"


def test_a_query_of_joins_stands_in_its_readers_as_a_subquery(live: Service) -> None:
    joined = "SELECT c.nation, o.price FROM orders o JOIN customers c ON c.id = o.customer"
    _query(live, "joined", joined)
    made = _query(live, "dear", "SELECT j.nation FROM joined j WHERE j.price > 9")
    assert made["reads"] == ["joined"]
    aliases = {a["alias"]: a["stream"] for a in made["normalised"]["aliases"]}
    assert aliases == {"j.o": "orders", "j.c": "customers"}
    assert "joined" not in _streams(live)
    upper = _query(live, "upper", "SELECT count(*) AS n FROM dear")
    assert upper["reads"] == ["dear"]
    document = {"from": {"x": "joined"}, "where": ["x.price > 2"], "select": ["x.nation"]}
    structured = live.post("/v1/queries", {"id": "structured", "query": document})
    assert structured["reads"] == ["joined"]
    again = live.call("PUT", "/v1/queries/dear", 200, {"sql": made["sql"]})
    assert again["action"] == "none"


@pytest.mark.parametrize(
    ("body", "sql", "words"),
    [
        ({"sql": SPENT, "sink": {"format": "redis-stream"}}, "SELECT * FROM q", "has the sink"),
        ({"sql": "SELECT o.id FROM orders o JOIN customers c ON c.id = o.customer", "window": {}},
         "SELECT * FROM q", "has a window"),
    ],
)  # fmt: skip
def test_queries_that_are_not_readable(
    live: Service, body: dict[str, Any], sql: str, words: str
) -> None:
    live.post("/v1/queries", {"id": "q", **body})
    refused = _query(live, "r", sql, 422)
    error = refused["errors"][0]
    assert (error["code"], error["field"]) == ("query-not-readable", "sql")
    assert words in error["message"]
    assert refused["remedy"]


def test_a_paused_query_is_not_readable_and_none_that_is_read_is_paused(live: Service) -> None:
    _query(live, "spent", SPENT)
    live.call("POST", "/v1/queries/spent:pause", 202)
    assert "is paused" in _query(live, "rich", RICH, 422)["errors"][0]["message"]
    live.call("POST", "/v1/queries/spent:resume", 202)
    _query(live, "rich", RICH)
    refused = live.call("POST", "/v1/queries/spent:pause", 409)
    assert refused["code"] == "query-is-read"
    assert "'rich'" in refused["detail"]


def test_a_query_that_is_read_is_neither_replaced_nor_part_of_a_cycle(live: Service) -> None:
    _query(live, "spent", SPENT)
    _query(live, "rich", RICH)
    cycle = {"sql": "SELECT nation AS customer, count(*) AS spent FROM rich GROUP BY nation"}
    refused = live.call("PUT", "/v1/queries/spent", 422, cycle)
    assert "would read itself" in refused["errors"][0]["message"]
    _query(live, "counted", "SELECT nation, count(*) AS n FROM rich GROUP BY nation")
    cycle = {"sql": "SELECT nation AS customer, max(n) AS spent FROM counted GROUP BY nation"}
    refused = live.call("PUT", "/v1/queries/spent", 409, cycle)
    assert (refused["code"], refused["errors"][0]["field"]) == ("query-is-read", "name")
    own = live.call("PUT", "/v1/queries/rich", 422, {"sql": "SELECT nation FROM rich"})
    assert "would read itself" in own["errors"][0]["message"]
    settings = {"sql": SPENT, "title": "Money"}
    assert live.call("PUT", "/v1/queries/spent", 200, settings)["action"] == "changed"


def test_deletion_is_refused_or_cascades(live: Service) -> None:
    _query(live, "spent", SPENT)
    _query(live, "rich", RICH)
    _query(live, "counted", "SELECT spent, count(*) AS n FROM rich GROUP BY spent")
    refused = live.call("DELETE", "/v1/queries/spent", 409)
    assert (refused["code"], refused["remedy"]) == (
        "query-is-read",
        "delete these queries first; cascade=true (--cascade) deletes them with it",
    )
    assert live.call("DELETE", "/v1/streams/spent", 409)["code"] == "stream-in-use"
    live.call("DELETE", "/v1/queries/spent?cascade=true", 202)
    statuses = {one["id"]: one["status"] for one in live.get("/v1/queries")["items"]}
    assert statuses == dict.fromkeys(("spent", "rich", "counted"), "expired")
    # The name is free when the readers have ended.
    _query(live, "spent", "SELECT id, count(*) AS n FROM orders GROUP BY id")
    assert _streams(live) == ["customers", "orders"]
    again = _query(live, "two", "SELECT n FROM spent")
    assert live.get("/v1/streams/spent")["source"]["options"]["run"] == "spent~2"
    assert again["reads"] == ["spent"]


def test_readers_stay_when_the_query_expires(live: Service) -> None:
    _query(live, "spent", SPENT, expires_at="2999-01-01T00:00:00Z")
    _query(live, "rich", RICH)
    live.call("PATCH", "/v1/queries/spent", 200, {"ttl": "1 millisecond"})
    assert live.get("/v1/queries/spent")["status"] == "expired"
    rich = live.get("/v1/queries/rich")
    assert rich["status"] == "pending"
    assert rich["input_problems"]["spent"] == "query 'spent' is expired: it produces no more rows"
    assert live.get("/v1/queries")["items"][1] == rich
    # New readers share the stream, and the name remains that of the rows.
    assert _query(live, "more", "SELECT spent FROM spent")["reads"] == ["spent"]
    assert _query(live, "spent", SPENT, 409)["code"] == "query-is-read"


def test_a_query_and_a_stream_have_different_names(live: Service) -> None:
    assert _query(live, "orders", SPENT, 409)["code"] == "name-of-stream"
    assert _query(live, "Orders", SPENT, 409)["code"] == "name-of-stream"
    _query(live, "spent", SPENT)
    body = {"name": "Spent", "columns": {"k": "int"}}
    assert live.post("/v1/streams", body, 409)["code"] == "name-of-query"
    _query(live, "rich", RICH)
    assert live.post("/v1/streams", {**body, "name": "spent"}, 409)["code"] == "name-of-query"
    changed = live.call("PATCH", "/v1/streams/spent", 409, {"retain": "none"})
    assert changed["code"] == "stream-of-query"


def test_explanations_and_dry_runs_read_queries(live: Service) -> None:
    _query(live, "spent", SPENT)
    found = live.post("/v1/queries:explain", {"sql": RICH}, 200)
    assert found["refused"] is None
    assert {o["start"] for o in found["orders"]} == {"spent", "customers"}
    dry = live.post("/v1/plans:dry-run", {"add": [{"id": "r", "sql": RICH}]}, 200)
    assert dry["rejected"] == {}
    assert _streams(live) == ["customers", "orders"]


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("SELECT q.spent FROM (" + SPENT + ") q", 80),
        ("SELECT id, price FROM orders QUALIFY row_number() OVER (PARTITION BY customer ORDER BY "
         "price) = 1 AND id > 3", 103),
        ("SELECT id, (SELECT count(*) FROM customers c WHERE c.id = o.customer) AS n FROM orders o",
         20),
    ],
)  # fmt: skip
def test_a_replay_refuses_parts_by_this_reason(service: Service, sql: str, place: int) -> None:
    for name, columns in STREAMS.items():
        service.post("/v1/streams", {"name": name, "columns": columns})
    (refused,) = _query(service, "parts", sql, 422)["errors"]
    assert "in a replay is not supported" in refused["message"]
    assert (refused["line"], refused["column"]) == (1, place)
    wrong = sql.replace("SELECT ", "SELECT nosuch, ", 1)
    (refused,) = _query(service, "parts", wrong, 422)["errors"]
    assert refused["code"] == "unknown-column"


def test_a_replay_reads_no_post_join_part(service: Service) -> None:
    service.post("/v1/streams", {"name": "orders", "columns": STREAMS["orders"]})
    _query(service, "spent", SPENT)
    refused = _query(service, "r", "SELECT spent FROM spent", 422)["errors"][0]
    assert "beside the batches of a replay" in refused["message"]


NESTED = (
    "WITH s AS (SELECT customer, sum(price) AS spent FROM orders GROUP BY customer) "
    "SELECT c.nation, count(*) AS n, max(s.spent) AS most, max(t.spent) AS also "
    "FROM s JOIN customers c ON c.id = s.customer JOIN s t ON t.customer = s.customer "
    "JOIN (SELECT DISTINCT customer FROM (SELECT customer FROM orders WHERE price > 1 "
    "ORDER BY price LIMIT 9) y) d ON d.customer = s.customer GROUP BY c.nation"
)


def test_subqueries_with_aggregates_are_queries_of_their_own(live: Service) -> None:
    made = _query(live, "nested", NESTED, title="Nations")
    assert made["reads"] == ["nested.1", "nested.3"]
    assert [o["name"] for o in made["normalised"]["output"]] == ["nation", "n", "most", "also"]
    assert [one["id"] for one in live.get("/v1/queries")["items"]] == ["nested"]
    listed = live.get("/v1/queries?parts=true")["items"]
    assert [(one["id"], one["part_of"], one["reads"]) for one in listed] == [
        ("nested.1", "nested", []),
        ("nested.2", "nested", []),
        ("nested.3", "nested", ["nested.2"]),
        ("nested", None, ["nested.1", "nested.3"]),
    ]
    assert _streams(live) == ["customers", "orders"]
    streams = [one["name"] for one in live.get("/v1/streams?parts=true")["items"]]
    assert streams == ["customers", "nested.1", "nested.2", "nested.3", "orders"]
    again = live.call("PUT", "/v1/queries/nested", 200, {"sql": NESTED, "title": "Nations"})
    assert again["action"] == "none"
    refused = live.call("DELETE", "/v1/queries/nested.1", 409)
    assert "'nested'" in refused["detail"]
    part = _query(live, "other", "SELECT spent FROM `nested.1`", 422)["errors"][0]
    assert "is a part of query 'nested'" in part["message"]


def test_subqueries_in_expressions_are_parts(live: Service) -> None:
    best = "(SELECT max(p.price) FROM orders p WHERE p.customer = o.customer)"
    sql = f"SELECT o.id, {best} AS best FROM orders o ORDER BY id"
    made = _query(live, "best", sql)
    assert made["reads"] == ["best.1"]
    assert [(a["alias"], a["stream"]) for a in made["normalised"]["aliases"]] == [
        ("o", "orders"),
        ("subquery1", "best.1"),
    ]
    assert made["normalised"]["notes"][0].startswith("ORDER BY has no effect")
    part = live.get("/v1/queries/best.1")
    assert (part["part_of"], part["read_by"]) == ("best", ["best"])
    assert [o["name"] for o in part["normalised"]["output"]] == ["subquery_key1", "subquery_value1"]
    assert live.call("PUT", "/v1/queries/best", 200, {"sql": sql})["action"] == "none"
    # The statement reads a registered query by name in its subquery.
    _query(live, "spent", SPENT)
    above = _query(live, "above", "SELECT o.id FROM orders o WHERE o.price > (SELECT max(spent) "
                   "FROM spent WHERE spent.customer = o.customer)")  # fmt: skip
    assert above["reads"] == ["above.1"]
    assert live.get("/v1/queries/above.1")["reads"] == ["spent"]
    assert live.call("DELETE", "/v1/queries/spent", 409)["code"] == "query-is-read"
    live.call("DELETE", "/v1/queries/above", 202)
    live.call("DELETE", "/v1/queries/spent", 202)


@pytest.mark.parametrize(
    ("sql", "code", "column"),
    [
        ("SELECT id FROM orders WHERE id > (SELECT max(prise) FROM orders)", "unknown-column", 46),
        ("SELECT id FROM orders WHERE price > (SELECT max(x) FROM none)", "unknown-stream", 57),
        ("SELECT id FROM orders WHERE price > (SELECT price FROM orders)", "unsupported-sql", 45),
    ],
)  # fmt: skip
def test_errors_in_subqueries_name_field_and_place(
    live: Service, sql: str, code: str, column: int
) -> None:
    refused = _query(live, "r", sql, 422)
    error = refused["errors"][0]
    assert (error["code"], error["field"], error["column"]) == (code, "sql", column)
    assert refused["remedy"]
    assert live.get("/v1/queries?parts=true")["items"] == []


def test_parts_end_with_their_statement(live: Service) -> None:
    _query(live, "nested", NESTED)
    replaced = live.call("PUT", "/v1/queries/nested", 200, {"sql": f"{NESTED} HAVING count(*) > 1"})
    assert replaced["action"] == "replaced"
    assert replaced["query"]["reads"] == ["nested.2.1", "nested.2.3"]
    live.call("POST", "/v1/queries/nested:pause", 202)
    resumed = live.call("POST", "/v1/queries/nested:resume", 202)
    assert resumed["reads"] == ["nested.3.1", "nested.3.3"]
    _query(live, "above", "SELECT most FROM nested WHERE n > 1")
    live.call("DELETE", "/v1/queries/nested", 409)
    live.call("DELETE", "/v1/queries/nested?cascade=true", 202)
    listed = live.get("/v1/queries?parts=true")["items"]
    assert {one["status"] for one in listed} == {"expired"}
    assert len(listed) == 11


def test_statements_whose_parts_are_refused(live: Service) -> None:
    def refused(body: dict[str, Any]) -> tuple[str, str]:
        answer = live.post("/v1/queries", {"id": "r", **body}, 422)["errors"][0]
        assert live.get("/v1/queries?parts=true")["items"] == []
        return answer["code"], answer["message"]

    assert refused({"sql": NESTED, "window": "1 hour"})[0] == "part-with-window"
    unknown = NESTED.replace("sum(price)", "sum(prise)")
    assert refused({"sql": unknown})[0] == "unknown-column"
    assert live.post("/v1/queries:explain", {"sql": NESTED}, 200)["refused"] is None
    dry = live.post("/v1/plans:dry-run", {"add": [{"id": "r", "sql": NESTED}]}, 200)
    assert dry["rejected"] == {}


@pytest.mark.parametrize("seed", mostly_slow([0, 2, 3]))
def test_random_queries_over_queries(settings: ServiceSettings, tmp_path: Path, seed: int) -> None:
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        assert run_seed(service, tmp_path, seed)["levels"]


def test_a_reader_registered_later_sees_all_rows(settings: ServiceSettings, tmp_path: Path) -> None:
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        world = Derived(service, tmp_path)
        world.query("q0", "SELECT k, g, count(*) AS n, sum(v) AS s FROM a GROUP BY k, g")
        rows = [(None, 1, None), (None, 2, "x"), (1, 3, None), (1, 4, "x"), (1, 5, "x")]
        world.write("a", [("insert", row) for row in rows])
        world.settle()
        world.write("a", [("delete", rows[1]), ("insert", (None, 9, None))])
        world.settle()
        world.query("q1", "SELECT * FROM q0 x")
        world.query("q2", "SELECT g, count(*) AS n, sum(s) AS s FROM q0 GROUP BY g")
        world.query("q3", "SELECT max(n) AS n, count(*) AS c FROM q2")
        world.settle()
        world.check()
        # NULL is a value of an identity, and rows are removed with their last partner.
        world.write("a", [("delete", (None, 1, None)), ("delete", (None, 9, None))])
        world.settle()
        world.check()
        assert world.rows("q1") == world.wanted("q0")


def test_parts_are_planned_and_end_with_the_run_of_their_statement(
    settings: ServiceSettings, tmp_path: Path
) -> None:
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        world = Derived(service, tmp_path)
        nested = "SELECT x.n, count(*) AS c FROM (SELECT g, count(*) AS n FROM a GROUP BY g) x"
        world.query("q", f"{nested} GROUP BY x.n")
        world.write("a", [("insert", (1, n, text)) for n, text in enumerate("xxyyyz")])
        world.settle()
        world.check()
        assert world.rows("q") == [(1, 1), (2, 1), (3, 1)]
        sql = f"{nested} WHERE x.n > 1 GROUP BY x.n"
        service.call("PUT", "/v1/queries/q", 200, {"sql": sql})
        world.statements["q"] = sql
        world.write("a", [("insert", (1, 9, "z")), ("delete", (1, 0, "x"))])
        world.settle()
        world.check()
        assert world.rows("q") == [(2, 1), (3, 1)]
        shown = {one["id"]: one for one in service.get("/v1/queries?parts=true")["items"]}
        assert (shown["q.1"]["status"], shown["q.2.1"]["status"]) == ("expired", "active")
        streams = service.get("/v1/streams?parts=true")["items"]
        assert [one["name"] for one in streams] == ["a", "b", "c", "q.2.1"]
        service.call("DELETE", "/v1/queries/q", 202)
        world.settle()
        assert service.get("/v1/queries/q.2.1")["status"] == "expired"
        streams = service.get("/v1/streams?parts=true")["items"]
        assert [one["name"] for one in streams] == ["a", "b", "c"]


def test_the_rows_of_an_outer_join_are_inserts_to_its_readers(
    settings: ServiceSettings, tmp_path: Path
) -> None:
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        world = Derived(service, tmp_path)
        for name, kind in (("flights", "stream"), ("planes", "table")):
            (tmp_path / name).mkdir()
            body = {"name": name, "columns": {"id": "bigint", "text": "string"}, "kind": kind}
            source = {"format": "files", "path": str(tmp_path / name)}
            service.post("/v1/streams?wait=0", {**body, "source": source})

        def write(name: str, number: int, ids: list[int]) -> None:
            columns = {"id": ids, "text": [f"{name} {n}" for n in ids]}
            partial = tmp_path / name / f".{number}"
            pq.write_table(pa.table(columns), partial)
            partial.rename(tmp_path / name / f"{number}.parquet")

        write("planes", 1, [1, 2])
        left = "SELECT f.id, p.text FROM flights f LEFT JOIN planes p ON p.id = f.id"
        service.post("/v1/queries", {"id": "named", "sql": left})
        counted = "SELECT text, count(*) AS n FROM named GROUP BY text"
        service.post("/v1/queries", {"id": "counted", "sql": counted})
        assert service.get("/v1/streams/named")["kind"] == "changes"
        for number, ids in enumerate(([1, 1, 3], [2, 4], [3])):
            world.settle()
            write("flights", number, ids)
            world.start()
        world.settle()
        assert world.rows("counted") == [("planes 1", 2), ("planes 2", 1), (None, 3)]


@pytest.mark.parametrize(
    "sql",
    mostly_slow(
        [
            "SELECT d.g, t.n, b.w FROM d LEFT JOIN b ON b.k = d.v "
            "LEFT JOIN t ON t.v = d.v AND t.n > 1",
            "SELECT t.n, count(*) AS c, sum(b.w) AS s FROM d JOIN t ON t.v = d.v "
            "LEFT JOIN b ON b.k = d.v GROUP BY t.n",
            "SELECT d.g, t.n, b.w FROM d LEFT JOIN t ON t.v = d.v LEFT JOIN b ON b.k = d.v",
            "SELECT d.g, t.n, b.w FROM d JOIN t USING (v) LEFT JOIN b ON b.k = d.v AND b.w > t.n",
            "SELECT t.v, t.n, d.g, b.k, b.w FROM t JOIN d ON t.v = d.v LEFT JOIN b ON b.k = d.v "
            "WHERE d.g = 'x' AND n < 3",
            "SELECT d.v, u.n FROM d JOIN t ON t.v = d.v JOIN t u ON u.n = t.v "
            "WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = d.v AND b.w > 3)",
        ]
    ),
)
def test_outer_joins_with_streams_after_tables(
    settings: ServiceSettings, tmp_path: Path, sql: str
) -> None:
    rng = Random(3)
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        names = {**COLUMNS, "d": OTHERS["d"], **TABLE}
        world = Derived(service, tmp_path, rng, names)
        # DuckDB renames columns with equal names.
        made = world.query(
            "q", sql.replace("*", "t.v, t.n, d.g, b.k, b.w") if " * " in sql else sql
        )
        assert made["reads"] == ["q.1"]
        world.write("t", [("insert", (n % 6, n % 4)) for n in range(9)])
        world.settle()
        for _ in range(3):
            world.write("d", [("insert", (rng.choice((None, *range(8))), "x")) for _ in range(6)])
            rows = [("insert", (rng.randrange(8), rng.randrange(5), 0.5)) for _ in range(5)]
            gone = list(world.net["b"].elements())[:2]
            world.write("b", [*rows, *(("delete", row) for row in gone)])
            world.turn(killed=0.3)
            world.settle()
            world.check()
        assert world.events["rows"]


class _Unvisited(list[QueryRecord]):
    """Runs that may not be visited one by one."""

    def __iter__(self) -> Iterator[QueryRecord]:
        raise AssertionError("a registration visits all runs")


def test_a_registration_looks_up_what_it_reads_and_visits_no_other_query() -> None:
    known = [
        StreamRecord(
            name=name,
            columns=tuple(ColumnRecord(name=c, type=t) for c, t in columns.items()),
            source=SourceRecord(format="push"),
            registration=name,
        )
        for name, columns in STREAMS.items()
    ]
    registry = Registry(known, Keys("unused"))
    for name, sql in (("spent", SPENT), ("rich", RICH), ("Counted", COUNTED)):
        registry.register(name, sql, past=False)
    queries = replace(registry.queries, records=_Unvisited(registry.records))
    statement = read_statement("SELECT n FROM counted JOIN SPENT s ON s.customer = n")
    reading = with_queries(statement, registry.usable, queries, "new")
    assert set(reading.reads) == {"Counted", "spent"}
    assert queries.readers("spent") == queries.all_readers("spent") == ["rich", "Counted"]
    assert queries.ended_below(registry.records[-1]) == {}
    with pytest.raises(QueryError, match="read itself"):
        with_queries(read_statement("SELECT n FROM counted"), registry.usable, queries, "Counted")
