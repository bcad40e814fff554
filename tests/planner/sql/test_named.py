"""Tests of names in FROM, queries that replace them, and subqueries that become
separate queries.
"""

from __future__ import annotations

import pytest

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import parse_sql
from anabranch_planner.sql.named import in_parts, names_read, with_inlined
from anabranch_planner.sql.syntax import parse_statement
from anabranch_planner.sql.unresolved import Unresolved

STREAMS = {
    name: Stream(StreamName(name), (("k", parse_type("int")), ("n", parse_type("bigint"))))
    for name in ("r", "s", "q.1", "q.2")
}


def _parts(sql: str) -> tuple[Unresolved, ...]:
    return in_parts(parse_statement(sql), "q.{}".format)


def test_names_are_found_at_any_depth() -> None:
    sql = "WITH w AS (SELECT k FROM s) SELECT x.k FROM (SELECT k FROM r) x JOIN w ON w.k = x.k"
    assert names_read(parse_statement(sql)) == ("r", "s")


def test_a_query_stands_in_place_of_its_name() -> None:
    upper = parse_statement(
        "SELECT v.k FROM v JOIN v w ON w.k = v.k LEFT SEMI JOIN v x ON x.k = v.k"
    )
    lower = parse_statement("SELECT k FROM r WHERE n > 1")
    found = with_inlined(upper, {"v": lower})
    assert [entry.alias for entry in found.sources] == ["v", "w"]
    assert names_read(found) == ("r",)
    assert with_inlined(upper, {}) is upper


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT k FROM r", [("r",)]),
        ("SELECT x.k FROM (SELECT DISTINCT k FROM r) x", [("r",), ("q.1",)]),
        ("SELECT x.k FROM (SELECT y.k FROM (SELECT k, max(n) AS m FROM r GROUP BY k) y) x",
         [("r",), ("q.1",)]),
        ("SELECT x.m FROM (SELECT max(m) AS m FROM (SELECT count(*) AS m FROM s) y) x "
         "JOIN r ON r.n = x.m", [("s",), ("q.1",), ("q.2", "r")]),
        ("WITH w AS (SELECT k, max(n) AS n FROM r GROUP BY k) "
         "SELECT a.k FROM w a JOIN w b ON b.n = a.n", [("r",), ("q.1",)]),
        ("WITH w(a, b) AS (SELECT k, max(n) AS n FROM r GROUP BY k) "
         "SELECT x.a FROM w x JOIN (SELECT k FROM s ORDER BY n LIMIT 3) y ON y.k = x.a",
         [("r",), ("s",), ("q.1", "q.2")]),
    ],
)  # fmt: skip
def test_parts_come_before_their_readers(sql: str, names: list[tuple[str, ...]]) -> None:
    assert [names_read(part) for part in _parts(sql)] == names


def test_a_query_of_with_stays_one_part_beside_inlined_queries() -> None:
    sql = (
        "WITH w AS (SELECT k, max(n) AS n FROM v GROUP BY k) SELECT a.k FROM w a JOIN w b USING (k)"
    )
    whole = with_inlined(parse_statement(sql), {"v": parse_statement("SELECT k, n FROM r")})
    assert [names_read(part) for part in in_parts(whole, "q.{}".format)] == [("r",), ("q.1",)]


def test_parts_are_normalised_one_by_one() -> None:
    part, rest = _parts("SELECT x.k, s.n FROM (SELECT k, max(n) AS n FROM r GROUP BY k) x "
                        "JOIN s ON s.k = x.k")  # fmt: skip
    assert parse_sql("q.1", part, STREAMS).view is not None
    found = parse_sql("q", rest, STREAMS)
    assert (found.view, [m.alias for m in found.members]) == (None, ["x", "s"])


def test_subqueries_that_stay_inside_are_refused_by_name() -> None:
    with pytest.raises(QueryError, match="GROUP BY in a subquery"):
        parse_sql("q", "SELECT x.k FROM (SELECT k FROM r GROUP BY k) x", STREAMS)
