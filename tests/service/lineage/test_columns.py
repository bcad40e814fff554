"""Tests of column lineage: which input columns a query's results depend on, exactly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch_contract.queries.joins import StreamKind
from anabranch_planner.passes import parse_sql
from anabranch_service.lineage.columns import direct, indirect
from tests.support.cases.sample_streams import stream

STREAMS = {
    str(found.name): replace(found, lateness=0)
    for found in (
        stream("orders", {"id": "int", "customer": "int", "total": "int", "ts": "timestamp"}, "ts"),
        stream("customers", {"id": "int", "city": "string", "ts": "timestamp"}, "ts"),
        stream("payments", {"order_id": "int", "method": "string", "ts": "timestamp"}, "ts"),
    )
}
TABLES = {
    "cities": {"id": "int", "city": "string"},
    "districts": {"city": "string", "label": "string"},
}
STREAMS |= {
    name: replace(stream(name, columns, None), kind=StreamKind.TABLE, retain=None)
    for name, columns in TABLES.items()
}

#: Statement -> column -> its input columns, and how they are used; then the columns that determine
#: the rows.
CASES = {
    "SELECT o.id, c.city AS town FROM orders o JOIN customers c ON o.customer = c.id": (
        {"id": "orders.id IDENTITY", "town": "customers.city IDENTITY"},
        "customers.id JOIN, orders.customer JOIN",
    ),
    "SELECT o.total * 2 + c.id AS x, 'a' AS k FROM orders o JOIN customers c"
    " ON o.customer = c.id WHERE c.city LIKE 'H%' AND o.total > c.id": (
        {"x": "customers.id TRANSFORMATION, orders.total TRANSFORMATION", "k": ""},
        "customers.city FILTER, customers.id FILTER, customers.id JOIN, orders.customer JOIN,"
        " orders.total FILTER",
    ),
    "SELECT a.id, b.id AS other FROM orders a JOIN orders b ON a.customer = b.customer": (
        {"id": "orders.id IDENTITY", "other": "orders.id IDENTITY"},
        "orders.customer JOIN",
    ),
    "SELECT o.id FROM orders o JOIN customers c ON o.customer + 1 = c.id": (
        {"id": "orders.id IDENTITY"},
        "customers.id JOIN, orders.customer JOIN",
    ),
    "SELECT c.city, count(*) AS n, sum(o.total) / count(o.id) AS mean FROM orders o"
    " JOIN customers c ON o.customer = c.id GROUP BY c.city HAVING max(o.id) > 3": (
        {
            "city": "customers.city IDENTITY",
            "n": "",
            "mean": "orders.id AGGREGATION, orders.total AGGREGATION",
        },
        "customers.city GROUP_BY, customers.id JOIN, orders.customer JOIN, orders.id FILTER",
    ),
    "SELECT window.start AS began, upper(c.city) AS place, min(o.total) AS least FROM orders o"
    " JOIN customers c ON o.customer = c.id GROUP BY window(o.ts, '1 hour'), c.city": (
        {
            "began": "orders.ts TRANSFORMATION",
            "place": "customers.city TRANSFORMATION",
            "least": "orders.total AGGREGATION",
        },
        "customers.city GROUP_BY, customers.id JOIN, orders.customer JOIN, orders.ts GROUP_BY",
    ),
    "SELECT o.id, c.city FROM orders o JOIN customers c ON o.customer = c.id"
    " ORDER BY o.total DESC LIMIT 5": (
        {"id": "orders.id IDENTITY", "city": "customers.city IDENTITY"},
        "customers.id JOIN, orders.customer JOIN, orders.total SORT",
    ),
    "SELECT c.city, max_by(o.id, o.total) AS top, grouping(c.city) AS g FROM orders o"
    " JOIN customers c ON o.customer = c.id GROUP BY ROLLUP (c.city)": (
        {
            "city": "customers.city IDENTITY",
            "top": "orders.id AGGREGATION, orders.total AGGREGATION",
            "g": "",
        },
        "customers.city GROUP_BY, customers.id JOIN, orders.customer JOIN",
    ),
    "SELECT o.id, rank() OVER (PARTITION BY c.city ORDER BY o.total) AS place FROM orders o"
    " JOIN customers c ON o.customer = c.id QUALIFY place < 3": (
        {"id": "orders.id IDENTITY", "place": ""},
        "customers.city GROUP_BY, customers.id JOIN, orders.customer JOIN, orders.total SORT",
    ),
    "SELECT o.id, c.city, d.label FROM orders o LEFT JOIN cities c ON c.id = o.customer"
    " LEFT JOIN districts d ON d.city = c.city WHERE d.label IS NULL": (
        {
            "id": "orders.id IDENTITY",
            "city": "cities.city IDENTITY",
            "label": "districts.label IDENTITY",
        },
        "cities.city JOIN, cities.id JOIN, districts.city JOIN, districts.label FILTER,"
        " orders.customer JOIN",
    ),
    "SELECT id, total FROM orders UNION ALL SELECT o.id, c.id + 1 FROM orders o JOIN customers c"
    " ON c.id = o.customer WHERE c.city > 'a'": (
        {
            "id": "orders.id IDENTITY",
            "total": "customers.id TRANSFORMATION, orders.total IDENTITY",
        },
        "customers.city FILTER, customers.id JOIN, orders.customer JOIN",
    ),
    "SELECT id FROM orders EXCEPT ALL SELECT order_id FROM payments": (
        {"id": "orders.id IDENTITY, payments.order_id IDENTITY"},
        "orders.id GROUP_BY, payments.order_id GROUP_BY",
    ),
    "SELECT o.id, p.method FROM orders o JOIN customers c ON o.customer = c.id"
    " LEFT JOIN payments p ON p.order_id = o.id"
    " AND p.ts BETWEEN o.ts AND o.ts + INTERVAL '1' HOUR": (
        {"id": "orders.id IDENTITY", "method": "payments.method IDENTITY"},
        None,
    ),
}

ASOF = (
    "SELECT o.id, p.method AS paid FROM orders o JOIN customers c ON c.id = o.customer"
    " ASOF LEFT JOIN payments p ON p.order_id = o.id AND p.ts <= o.ts"
)
CASES[ASOF] = (
    {"id": "orders.id IDENTITY", "paid": "payments.method IDENTITY", "anabranch_change": ""},
    "customers.id JOIN, orders.customer JOIN, orders.id JOIN, orders.ts JOIN,"
    " payments.order_id JOIN, payments.ts JOIN",
)


@pytest.mark.parametrize("sql", CASES)
def test_lineage_of_a_statement(sql: str) -> None:
    query = parse_sql("q", sql, STREAMS)
    columns, rows = CASES[sql]
    found = {
        name: ", ".join(f"{o.stream}.{o.column} {o.how}" for o in origins)
        for name, origins in direct(query).items()
    }
    assert found == columns
    if rows is not None:
        assert ", ".join(f"{o.stream}.{o.column} {o.how}" for o in indirect(query)) == rows


def test_the_partner_of_an_outer_join_decides_rows_too() -> None:
    sql = next(sql for sql in CASES if "INTERVAL '1' HOUR" in sql and "LEFT JOIN" in sql)
    found = {(o.stream, o.column) for o in indirect(parse_sql("q", sql, STREAMS))}
    assert {("payments", "order_id"), ("orders", "id"), ("orders", "customer")} <= found
