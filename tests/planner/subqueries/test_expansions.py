"""Tests of statements with EXPLODE etc.: expansions after joins, separate parts if elements are
compared.
"""

from __future__ import annotations

import pytest

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import parse_sql, read_sql
from anabranch_planner.sql.named import in_parts
from anabranch_planner.subqueries.decorrelation import decorrelated

_ITEMS = "array<struct<sku:string,qty:int,tags:array<string>>>"


def _stream(name: str, /, **columns: str) -> Stream:
    return Stream(StreamName(name), tuple((n, parse_type(t)) for n, t in columns.items()))


STREAMS = {
    "orders": _stream("orders", id="int", customer="int", items=_ITEMS, m="map<string,int>"),
    "products": _stream("products", sku="string", name="string", tags="array<string>"),
    "customers": _stream("customers", id="int", name="string"),
}


def pieces(sql: str) -> list[JoinQuery]:
    """Return the normal forms of the parts of a statement, the statement itself last."""
    known, found = dict(STREAMS), list[JoinQuery]()
    for number, part in enumerate(
        in_parts(decorrelated(read_sql(sql), STREAMS), "part{}".format), 1
    ):
        found.append(parse_sql(f"part{number}", part, known))
        shown = tuple((o.name, o.expr.type) for o in found[-1].shown)
        known[f"part{number}"] = Stream(StreamName(f"part{number}"), shown)
    return found


def _alone(sql: str) -> JoinQuery:
    (only,) = pieces(sql)
    return only


@pytest.mark.parametrize(
    ("clause", "wanted"),
    [
        ("LATERAL VIEW explode(o.items) t AS i", "explode(orders.items)"),
        ("LATERAL VIEW OUTER explode(o.items) AS i", "explode_outer(orders.items)"),
        ("LATERAL VIEW posexplode_outer(o.items) AS p, i", "posexplode_outer(orders.items)"),
        ("CROSS JOIN LATERAL explode(o.items) AS t(i)", "explode(orders.items)"),
        (", LATERAL explode(items) AS t(i)", "explode(orders.items)"),
        ("LEFT JOIN LATERAL explode(o.items) AS t(i) ON TRUE", "explode_outer(orders.items)"),
        ("CROSS JOIN UNNEST(o.items) AS t(i)", "explode(orders.items)"),
    ],
)
def test_spellings(clause: str, wanted: str) -> None:
    found = _alone(f"SELECT o.id, i.qty FROM orders AS o {clause}")
    assert [str(one) for one in found.expansions] == [f"#1 = {wanted}"]
    assert [str(o.expr) for o in found.projection] == ["orders.id", "#1.col.qty"]


def test_names_do_not_matter() -> None:
    one = _alone("SELECT i.qty FROM orders o LATERAL VIEW explode(o.items) t AS i WHERE i.qty > 1")
    other = _alone("SELECT x.qty FROM orders LATERAL VIEW explode(items) AS x WHERE 1 < x.qty")
    assert (one.expansions, one.projection) == (other.expansions, other.projection)


def test_conditions_stand_at_the_first_expansion_with_their_columns() -> None:
    found = _alone(
        "SELECT tag FROM orders o JOIN customers c ON c.id = o.customer"
        " LATERAL VIEW explode(o.items) t AS i LATERAL VIEW explode(i.tags) AS tag"
        " WHERE tag = i.sku AND i.qty > c.id AND o.id > 1"
    )
    assert [[str(c) for c in one.conditions] for one in found.expansions] == [
        ["(customers.id < #1.col.qty)"],
        ["(#2.col = #1.col.sku)"],
    ]
    assert [[str(f) for f in one.filter] for one in found.relations] == [["(id > 1)"], []]


def test_the_select_list_has_all_columns_of_a_function() -> None:
    found = _alone("SELECT *, explode(m) FROM orders")
    assert [o.name for o in found.projection] == ["id", "customer", "items", "m", "key", "value"]


@pytest.mark.parametrize(
    ("sql", "members"),
    [
        ("SELECT p.name FROM orders o LATERAL VIEW explode(o.items) t AS i"
         " JOIN products p ON p.sku = i.sku", ["o", "joined p"]),
        ("SELECT p.name FROM orders o JOIN products p LATERAL VIEW explode(o.items) t AS i"
         " WHERE p.sku = i.sku", ["o", "joined p"]),
        ("SELECT p.name FROM orders o LATERAL VIEW explode(o.items) t AS i"
         " LEFT JOIN products p ON p.sku = i.sku", ["o", "joined p"]),
        ("SELECT i.qty FROM orders o LATERAL VIEW explode(o.items) t AS i"
         " WHERE EXISTS (SELECT 1 FROM products p WHERE p.sku = i.sku)",
         ["o", "joined p"]),
        ("SELECT c.name, x FROM orders o LEFT JOIN customers c ON c.id = o.customer"
         " LATERAL VIEW explode(array(c.id)) AS x", ["o c", "joined"]),
        ("SELECT x, (SELECT max(c.name) FROM customers c WHERE c.id = o.customer) AS n"
         " FROM orders o CROSS JOIN LATERAL explode(map_keys(o.m)) AS t(s)"
         " JOIN products p ON p.sku = t.s LATERAL VIEW explode(p.tags) AS x",
         ["o", "c", "joined p subquery1", "joined1"]),
        ("SELECT q.x, c.name FROM (SELECT o.id, lag(x) OVER (PARTITION BY o.id ORDER BY x) AS x"
         " FROM orders o LATERAL VIEW explode(map_keys(o.m)) AS x) q"
         " JOIN customers c ON c.name = q.x", ["o", "q c"]),
        ("SELECT o.id, x FROM orders o LATERAL VIEW explode(map_keys(o.m)) AS x"
         " FULL JOIN customers c ON c.id = o.customer", ["o", "joined c"]),
        ("SELECT o.id, x FROM orders o FULL JOIN customers c ON c.id = o.customer"
         " LATERAL VIEW explode(map_keys(o.m)) AS x", ["o c", "joined"]),
        ("SELECT *, explode(o.m) FROM orders o LEFT JOIN customers c ON c.id = o.customer",
         ["o c", "joined"]),
        ("SELECT i.qty FROM orders o LATERAL VIEW explode(o.items) t AS i"
         " JOIN customers c ON c.id = o.customer AND c.name = i.sku", ["o c"]),
        ("SELECT q.qty FROM (SELECT i.qty FROM orders o LATERAL VIEW explode(o.items) t AS i) q",
         ["q.o"]),
        ("SELECT a.k FROM (SELECT explode(m) AS (k, v) FROM orders) a"
         " JOIN customers c ON c.id = a.v", ["orders", "a c"]),
    ],
)  # fmt: skip
def test_parts(sql: str, members: list[str]) -> None:
    assert [" ".join(m.alias for m in one.members) for one in pieces(sql)] == members


def test_a_part_has_the_columns_that_are_read() -> None:
    part, whole = pieces(
        "SELECT o.id, i.qty, p.name FROM orders o LATERAL VIEW explode(o.items) t AS i"
        " JOIN products p ON p.sku = i.sku WHERE i.qty > 1 AND p.name > 'a' AND o.id > 2"
    )
    assert [o.name for o in part.shown] == ["id", "i"]
    assert [str(one) for one in part.expansions] == [
        f"#1 = explode({part.labels[0]}.items) WHERE (#1.col.qty > 1)"
    ]
    assert part.view is not None
    assert part.view.copies is not None
    assert [str(f) for one in part.relations for f in one.filter] == ["(id > 2)"]
    assert [str(f) for one in whole.relations for f in one.filter] == ["(name > 'a')"]


@pytest.mark.parametrize(
    ("sql", "message", "remedy"),
    [
        ("SELECT explode(o.id) AS x FROM orders o", "explode() needs an array or a map, but o.id is"
         " of type int", "give it an array or a map"),
        ("SELECT x FROM products p LATERAL VIEW explode(p.name) AS x", "p.name is of type string",
         "write explode(from_json(p.name, 'array<string>')), or split() the text"),
        ("SELECT x FROM orders LATERAL VIEW inline(m) AS x", "needs an array of structs",
         "give it an array of structs"),
        ("SELECT a FROM orders LATERAL VIEW explode(m) AS a", "1 names are given for the 2 columns",
         "name all of them, or none"),
        ("SELECT explode(m), explode(items) FROM orders", "explode(items) as a second one",
         "write LATERAL VIEW explode(items) t AS item after FROM"),
        ("SELECT explode(m), count(*) FROM orders GROUP BY id", "beside groups or windows",
         "write LATERAL VIEW explode(m) t AS item after FROM"),
        ("SELECT 1 AS one FROM orders o LEFT JOIN LATERAL explode(o.items) AS t(i) ON i.qty > 1",
         "a condition in the join with", "write it into WHERE"),
        ("SELECT 1 AS one FROM orders o CROSS JOIN UNNEST(o.items, o.m) AS t(i, j)",
         "UNNEST of several values", "write posexplode of each, and compare pos"),
        ("SELECT * FROM orders o LATERAL VIEW explode(o.m) t JOIN products p ON p.sku = t.key",
         "without the names of its columns", "name them after AS"),
        ("SELECT x FROM orders o LATERAL VIEW explode(o.items) t AS x"
         " RIGHT JOIN customers c ON c.id = o.customer", "before an outer join",
         "write (SELECT *, explode(o.items) AS item FROM ...) in FROM"),
        ("SELECT k FROM orders o LATERAL VIEW explode(o.m) t AS k, v WHERE k2 = 1",
         "there is no column 'k2'", "did you mean t.k?"),
    ],
)  # fmt: skip
def test_refusals(sql: str, message: str, remedy: str) -> None:
    with pytest.raises(QueryError) as refused:
        pieces(sql)
    assert message in refused.value.message
    assert remedy in refused.value.remedy
    assert refused.value.position is not None
