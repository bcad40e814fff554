"""Tests of set operations as continuous queries: registration, explanation, readers, and whole
runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch_contract.protocol.progress import Mode
from anabranch_service.settings import ServiceSettings
from tests.support.scenarios.seeds import SET_OPERATIONS_FEW, mostly_slow
from tests.support.worlds.derived import Derived
from tests.support.worlds.service import Service, serving
from tests.support.worlds.set_operations import run_seed

ORDERS = {"id": "bigint", "customer": "bigint", "price": "double"}
STREAMS: dict[str, dict[str, Any]] = {
    "orders": {"columns": ORDERS},
    "sales": {"columns": {"id": "int", "customer": "bigint", "note": "string"}},
    "customers": {"columns": {"id": "bigint", "nation": "string"}},
    "returns": {"columns": ORDERS, "kind": "changes"},
}
BOTH = "SELECT id, customer FROM orders UNION ALL SELECT id, customer FROM sales"
JOINED = f"SELECT u.id, c.nation FROM ({BOTH}) u JOIN customers c ON c.id = u.customer"


@pytest.fixture
def live(settings: ServiceSettings) -> Iterator[Service]:
    """A service in live mode with four streams."""
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        for name, stream in STREAMS.items():
            service.post("/v1/streams?wait=0", {"name": name, **stream})
        yield service


def _query(service: Service, name: str, sql: str, status: int = 201, **more: Any) -> dict[str, Any]:
    return service.post("/v1/queries", {"id": name, "sql": sql, **more}, status)


def test_union_all_of_inserts_is_no_table(live: Service) -> None:
    made = _query(live, "both", JOINED)
    meaning = made["normalised"]
    assert (made["reads"], made["past"], meaning["view"]) == ([], "none", None)
    assert meaning["branches"] == [["u.orders", "c"], ["u.sales", "c#2"]]
    assert {a["alias"]: a["stream"] for a in meaning["aliases"]} == {
        "u.orders": "orders",
        "c": "customers",
        "u.sales": "sales",
        "c#2": "customers",
    }
    assert [c["members"] for c in meaning["classes"]] == [
        ["c.id", "u.orders.customer"],
        ["c#2.id", "u.sales.customer"],
    ]
    assert [(o["name"], o["type"]) for o in meaning["output"]] == [
        ("id", "bigint"),
        ("nation", "string"),
    ]
    assert live.get("/v1/queries")["items"] == [live.get("/v1/queries/both")]


def test_a_branch_with_deletes_makes_changes_of_all_results(live: Service) -> None:
    sql = "SELECT customer FROM orders UNION ALL SELECT customer FROM returns"
    made = _query(live, "both", sql)
    names = [o["name"] for o in made["normalised"]["output"]]
    assert names == ["customer", "anabranch_change"]
    assert made["past"] == "stored"
    refused = _query(live, "all", sql, 422, past="stored")["errors"][0]
    assert (refused["code"], refused["field"]) == ("past-not-stored", "past")
    fresh = {"freshness": {"orders": "1 minute"}}
    refused = _query(live, "fresh", sql, 422, slo=fresh)["errors"][0]
    assert (refused["code"], refused["field"]) == ("freshness-with-union", "slo.freshness")


def test_the_past_of_a_branch_over_a_retained_stream(live: Service) -> None:
    body = {"name": "kept", "columns": ORDERS, "retain": "all"}
    live.post("/v1/streams?wait=0", body)
    sql = "SELECT customer FROM kept WHERE price > 1 UNION ALL SELECT customer FROM returns"
    made = _query(live, "all", sql, past="stored")
    # Past rows are read from the store of the whole stream.
    assert [a["filter"] for a in made["normalised"]["aliases"]] == [[], []]
    assert made["normalised"]["residuals"] == ["(kept.price > 1.0)"]


def test_copies_are_part_of_the_identity(live: Service) -> None:
    sql = "SELECT customer FROM orders EXCEPT ALL SELECT customer FROM sales"
    view = _query(live, "more", sql)["normalised"]["view"]
    assert view["identity"] == ["customer", "anabranch_copy"]
    assert view["keys"] == ["orders.customer | sales.customer"]
    assert view["having"] == "(count(1 | NULL) > count(NULL | 1))"
    assert view["copies"] == "(count(1 | NULL) - count(NULL | 1))"
    changes = [c["name"] for c in view["changes"]]
    assert changes == ["customer", "anabranch_copy", "anabranch_change", "anabranch_version"]
    # LIMIT counts rows, not groups.
    made = _query(live, "first", f"{sql} ORDER BY customer LIMIT 3")
    assert made["reads"] == ["first.1"]
    assert made["normalised"]["view"]["limit"] == 3


def test_operands_with_tables_of_their_own_are_parts(live: Service) -> None:
    made = _query(
        live,
        "all",
        "SELECT customer, price FROM orders UNION ALL (SELECT customer, max(price) FROM returns "
        "GROUP BY customer) UNION ALL SELECT r.id, c.id AS other FROM returns r "
        "LEFT JOIN customers c ON c.id = r.customer UNION ALL (SELECT id, customer FROM orders "
        "EXCEPT SELECT id, customer FROM sales)",
    )
    assert made["reads"] == ["all.1", "all.2", "all.3"]
    assert made["normalised"]["branches"] == [["orders"], ["all.1"], ["all.2"], ["all.3"]]
    listed = {q["id"]: q for q in live.get("/v1/queries?parts=true")["items"]}
    assert listed["all.3"]["normalised"]["branches"] == [["orders"], ["sales"]]
    assert listed["all.2"]["normalised"]["outer"]["changes"]


def test_a_union_beside_an_outer_join_is_a_part(live: Service) -> None:
    made = _query(
        live, "all", f"WITH u AS ({BOTH}) SELECT u.id, c.nation FROM u "
        "LEFT JOIN customers c ON c.id = u.customer ANTI JOIN u v ON v.id = u.customer",
    )  # fmt: skip
    assert made["reads"] == ["all.1"]
    assert made["normalised"]["branches"] == []
    part = live.get("/v1/queries/all.1")["normalised"]
    assert part["branches"] == [["orders"], ["sales"]]
    assert part["view"]["identity"] == ["id", "customer", "anabranch_copy"]
    assert (part["view"]["having"], part["view"]["copies"]) == (None, "count(*)")
    _query(live, "both", BOTH)
    named = "SELECT c.nation, b.id FROM customers c LEFT JOIN both b ON b.customer = c.id"
    assert _query(live, "named", named)["reads"] == ["both", "named.1"]


def test_explanations_show_branches(live: Service) -> None:
    _query(live, "both", JOINED)
    found = live.post("/v1/queries:explain", {"sql": JOINED}, 200)
    assert found["refused"] is None
    text = found["before"]["text"]
    assert text.splitlines()[0] == "Union of 2"
    assert [line for line in text.splitlines() if line.startswith("  P")] == [
        "  Project orders.id, c.nation",
        "  Project CAST(sales.id AS BIGINT) AS id, `c#2`.nation",
    ]
    assert {order["start"] for order in found["orders"]} == {"orders", "sales", "customers"}
    # Both branches and both queries share the stores.
    assert found["shared_with"] == ["both"]
    assert len({store["label"] for store in found["stores"]}) == 3
    dry = live.post("/v1/plans:dry-run", {"add": [{"id": "r", "sql": JOINED}]}, 200)
    assert dry["rejected"] == {}


def test_a_query_that_a_branch_reads_is_kept_or_cascades(live: Service) -> None:
    _query(live, "both", BOTH)
    _query(live, "less", "SELECT customer FROM orders EXCEPT SELECT customer FROM sales")
    made = _query(live, "r", "SELECT customer FROM both UNION SELECT customer FROM less")
    assert made["reads"] == ["both", "less"]
    assert made["normalised"]["branches"] == [["both.orders"], ["both.sales"], ["less"]]
    for name in ("both", "less"):
        refused = live.call("DELETE", f"/v1/queries/{name}", 409)
        assert refused["code"] == "query-is-read"
        assert live.get(f"/v1/queries/{name}")["read_by"] == ["r"]
        changed = {"sql": "SELECT customer FROM orders UNION SELECT customer FROM returns"}
        refused = live.call("PUT", f"/v1/queries/{name}", 409, changed)
        assert (refused["code"], refused["errors"][0]["field"]) == ("query-is-read", "name")
    live.call("DELETE", "/v1/queries/less?cascade=true", 202)
    statuses = {one["id"]: one["status"] for one in live.get("/v1/queries")["items"]}
    assert statuses == {"both": "pending", "less": "expired", "r": "expired"}
    changed = {"sql": f"{BOTH} UNION ALL SELECT id, customer FROM returns"}
    assert live.call("PUT", "/v1/queries/both", 200, changed)["action"] == "replaced"


def test_aliases_are_limited_by_branch(live: Service) -> None:
    many = " UNION ALL ".join(["SELECT id FROM orders"] * 20)
    assert len(_query(live, "many", many)["normalised"]["branches"]) == 20
    joins = " ".join(f"JOIN sales s{n} ON s{n}.id = o.id" for n in range(16))
    wide = f"SELECT id FROM orders UNION ALL SELECT o.id FROM orders o {joins}"
    error = _query(live, "wide", wide, 422)["errors"][0]
    assert (error["code"], error["message"].split()[3]) == ("too-many-aliases", "17")


def test_refusals_point_into_the_operand(live: Service) -> None:
    def refused(sql: str) -> tuple[Any, ...]:
        answer = _query(live, "r", sql, 422)
        assert answer["remedy"]
        error = answer["errors"][0]
        assert live.get("/v1/queries?parts=true")["items"] == []
        return error["code"], error["field"], error["line"], error["column"]

    first = "SELECT customer FROM orders UNION ALL "
    aggregated = f"{first}SELECT count(*), max(id) FROM sales"
    assert refused(aggregated) == ("different-columns", "sql", 1, 46)
    assert refused(f"{first}(SELECT note FROM sales ORDER BY id LIMIT 3)")[0] == "type-mismatch"
    assert refused(f"{first}SELECT nope FROM sales") == ("unknown-column", "sql", 1, 46)


def test_rows_of_a_kept_outer_join_are_deleted_for_its_readers(
    settings: ServiceSettings, tmp_path: Path
) -> None:
    """Regression: deletes of an outer join without a deadline were rows to its readers."""
    outer = "SELECT a.v AS x, c.t AS g FROM a LEFT JOIN c ON c.v = a.k"
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        world = Derived(service, tmp_path)
        world.query("q0", outer)
        world.query("q1", "SELECT g, count(*) AS n FROM q0 GROUP BY g")
        world.query("q2", "SELECT * FROM q0")
        world.query("q3", f"SELECT b.w AS x, NULL AS g FROM b UNION ALL {outer}")
        world.query("q4", f"SELECT u.g, count(*) AS n FROM ({outer}) u GROUP BY u.g")
        world.write("a", [("insert", (n, n, "x")) for n in range(4)])
        world.settle()
        world.write("c", [("insert", (n % 2, "t")) for n in range(3)])
        world.settle()
        world.check()
        world.write("a", [("delete", (1, 1, "x"))])
        world.write("c", [("delete", (0, "t"))])
        world.settle()
        world.check()
        assert len(world.rows("q2")) == 3


def test_the_order_of_a_subquery_has_no_effect(settings: ServiceSettings, tmp_path: Path) -> None:
    """Regression: it made a part without a table, whose rows no reader saw."""
    ordered = "(SELECT a.k FROM a ORDER BY a.k)"
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        world = Derived(service, tmp_path)
        for number, sql in enumerate((
            f"SELECT x.k FROM {ordered} x",
            f"SELECT c.v AS k FROM c UNION ALL {ordered}",
            f"SELECT u.k FROM (SELECT c.v AS k FROM c UNION ALL {ordered} ORDER BY k) u",
            "SELECT c.v AS k FROM c UNION ALL SELECT a.k FROM a ORDER BY k",
        )):  # fmt: skip
            assert world.query(f"q{number}", sql)["reads"] == []
        for _ in range(3):
            world.draw()
            world.turn()
        world.settle()
        world.check()


def test_set_operations_in_conditions(settings: ServiceSettings, tmp_path: Path) -> None:
    """Regression: EXISTS over a set operation failed with an internal error."""
    conditions = (
        "a.v IN (SELECT b.w FROM b UNION ALL SELECT c.v FROM c)",
        "a.v IN (SELECT b.w FROM b EXCEPT SELECT c.v FROM c)",
        "(a.k, a.v) IN (SELECT b.k, b.w FROM b UNION SELECT 1, c.v FROM c)",
        "EXISTS (SELECT 1 FROM b UNION ALL SELECT 2 FROM c)",
        "NOT EXISTS (SELECT b.w FROM b INTERSECT SELECT c.v FROM c)",
    )
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        world = Derived(service, tmp_path)
        for number, condition in enumerate(conditions):
            world.query(f"q{number}", f"SELECT a.k, a.v FROM a WHERE {condition}")
        for _ in range(3):
            world.draw()
            world.turn()
        world.settle()
        world.check()
        star = "SELECT a.k FROM a WHERE a.v IN (SELECT * FROM b UNION ALL SELECT * FROM c)"
        error = _query(service, "r", star, 422)["errors"][0]
        assert error["message"] == "* in UNION ALL in an expression is not supported"


@pytest.mark.parametrize("seed", mostly_slow(SET_OPERATIONS_FEW))
def test_random_set_operations(settings: ServiceSettings, tmp_path: Path, seed: int) -> None:
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        seen = run_seed(service, tmp_path, seed)
        assert min(seen["rows"], seen["batches"], seen["branches"]) > 0
