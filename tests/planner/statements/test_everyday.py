"""Tests of common spellings of SELECT lists, names and conditions."""

from __future__ import annotations

import pytest

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.expressions import Call
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import parse_sql
from anabranch_planner.sql.named import in_parts
from anabranch_planner.sql.syntax import parse_statement

STREAMS = {
    name: Stream(
        StreamName(name),
        tuple((column, parse_type(kind)) for column, kind in columns.items()),
    )
    for name, columns in {
        "orders": {"id": "bigint", "k": "bigint", "status": "string"},
        "shipments": {"id": "bigint", "k": "bigint", "carrier": "string"},
    }.items()
}
JOIN = "FROM orders o JOIN shipments s ON o.k = s.k"


def parsed(sql: str) -> JoinQuery:
    return parse_sql("q", sql, STREAMS)


def outputs(sql: str) -> list[tuple[str, str]]:
    query = parsed(sql)
    shown = query.view.projection if query.view is not None else query.projection
    return [(one.name, str(one.expr)) for one in shown]


def names(sql: str) -> list[str]:
    return [name for name, _ in outputs(sql)]


@pytest.mark.parametrize(
    ("items", "called"),
    [
        ("o.id, s.id", ["id", "s_id"]),
        ("*", ["id", "k", "status", "s_id", "s_k", "carrier"]),
        ("s.*, o.*", ["id", "k", "carrier", "o_id", "o_k", "status"]),
        ("o.id, o.id, o.id", ["id", "o_id", "o_id_2"]),
        ("s.id AS s_id, o.id, s.id", ["s_id", "id", "s_id_2"]),
        ("upper(status), upper(status)", ["upper(status)", "upper(status)_2"]),
        ("* EXCEPT (id, k)", ["status", "carrier"]),
        ("o.* EXCEPT (K), s.carrier", ["id", "status", "carrier"]),
        ("* REPLACE (1 AS id)", ["id", "k", "status", "id_2", "s_k", "carrier"]),
        ("DISTINCT o.id, s.id", ["id", "s_id"]),
        ("DISTINCT * EXCEPT (status, carrier)", ["id", "k", "s_id", "s_k"]),
    ],
)
def test_output_columns_have_names_of_their_own(items: str, called: list[str]) -> None:
    assert names(f"SELECT {items} {JOIN}") == called


def test_replaced_columns_have_their_expressions() -> None:
    found = dict(outputs("SELECT * REPLACE (k + 1 AS id, upper(status) AS status) FROM orders"))
    assert found == dict(outputs("SELECT k + 1 AS id, k, upper(status) AS status FROM orders"))


@pytest.mark.parametrize(
    ("sql", "code", "message"),
    [
        ("SELECT * EXCEPT (kk) FROM orders", "unknown-column", "* has no column 'kk'"),
        ("SELECT * REPLACE (1 AS kk) FROM orders", "unknown-column", "* has no column 'kk'"),
        ("SELECT k, id AS k FROM orders", "duplicate-name", "called 'k'"),
        ("SELECT later + 1 AS a, k AS later FROM orders", "unknown-column", "'later'"),
        ("SELECT * EXCEPT (k) FROM orders o RIGHT JOIN shipments s ON o.k = s.k",
         "unsupported-sql", "RIGHT JOIN"),
    ],
)  # fmt: skip
def test_wrong_names_are_refused(sql: str, code: str, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        parsed(sql)
    assert (caught.value.code, message in caught.value.message) == (code, True), caught.value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT k * 2 AS a, a + 1 AS b FROM orders",
         "SELECT k * 2 AS a, k * 2 + 1 AS b FROM orders"),
        # A column has precedence over an alias.
        ("SELECT k * 2 AS id, id + 1 AS b FROM orders",
         "SELECT k * 2 AS id, orders.id + 1 AS b FROM orders"),
        ("SELECT k AS a, count(*) AS n, n * 2 AS m FROM orders GROUP BY k",
         "SELECT k AS a, count(*) AS n, count(*) * 2 AS m FROM orders GROUP BY k"),
        (f"SELECT /*+ BROADCAST(s) */ o.id {JOIN}", f"SELECT o.id {JOIN}"),
        ("SELECT shop.orders.id FROM main.shop.orders", "SELECT id FROM orders"),
        ("SELECT id FROM orders WHERE status LIKE ANY ('a%', 'b%')",
         "SELECT id FROM orders WHERE status LIKE 'a%' OR status LIKE 'b%'"),
        ("SELECT id FROM orders WHERE status LIKE ALL ('a%', '%b')",
         "SELECT id FROM orders WHERE status LIKE 'a%' AND status LIKE '%b'"),
        ("SELECT id FROM orders WHERE status NOT LIKE ALL ('a%', '%b')",
         "SELECT id FROM orders WHERE NOT status LIKE 'a%' AND NOT status LIKE '%b'"),
        ("SELECT id FROM orders WHERE id = +5", "SELECT id FROM orders WHERE id = 5"),
    ],
)  # fmt: skip
def test_spellings_of_the_same_meaning(one: str, other: str) -> None:
    assert parsed(one) == parsed(other)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT o.id FROM orders o JOIN shipments s ON o.k < s.k",
        "SELECT o.id FROM orders o, shipments s WHERE o.k + s.k = 3",
        "SELECT o.id FROM orders o JOIN shipments s ON o.k = s.k OR o.id = s.id",
        "SELECT o.id FROM orders o CROSS JOIN shipments s",
        "SELECT o.id FROM orders o JOIN shipments s ON o.k < s.k JOIN shipments t ON s.id = t.id",
    ],
)
def test_joins_without_an_equality_have_a_constant_key(sql: str) -> None:
    query = parsed(sql)
    keys = [key for key in query.classes if "constant" in str(key.members[0])]
    assert len(keys) == 1
    assert len({str(expr) for _, _, expr in query.derived}) == 1
    assert [e.op for _, _, e in query.derived if isinstance(e, Call)] == ["constant"] * 2


def test_parts_of_one_row_need_no_condition() -> None:
    total = "(SELECT sum(k) AS total FROM shipments) t"
    for sql in (f"SELECT o.id FROM orders o, {total}", f"SELECT o.id FROM {total}, orders o"):
        *_, whole = in_parts(parse_statement(sql), "q.{}".format)
        part = Stream(StreamName("q.1"), (("total", parse_type("bigint")),))
        query = parse_sql("q", whole, {**STREAMS, "q.1": part})
        assert [e.op for _, _, e in query.derived if isinstance(e, Call)] == ["constant"] * 2


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT o.id FROM orders o, shipments s",
        "SELECT o.id FROM orders o JOIN shipments s",
        "SELECT o.id FROM orders o, shipments s WHERE o.k = 1 AND s.k = 1",
    ],
)
def test_accidental_cross_products_are_refused(sql: str) -> None:
    with pytest.raises(QueryError) as caught:
        parsed(sql)
    assert caught.value.code == "cross-product"
    assert "or write CROSS JOIN" in caught.value.remedy
