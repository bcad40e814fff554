"""Tests of scalar subqueries: NULL and 0 without rows, conditions other than equalities, one row by
keys.
"""

from __future__ import annotations

from random import Random

import pytest

from anabranch_planner.passes import parse_sql
from tests.support.worlds.rewritten import STREAMS, compare, rewritten

STATEMENTS = (
    # An empty scalar subquery is NULL, but its count is 0.
    "SELECT a.v, (SELECT max(b.w) FROM b WHERE b.k = a.k AND b.w > 99) AS m FROM a",
    "SELECT a.v, (SELECT count(*) FROM b WHERE b.k = a.k) AS n FROM a",
    "SELECT a.v, (SELECT count(b.w) + 1 FROM b WHERE b.k = a.k AND b.w > 4) AS n FROM a",
    "SELECT a.v FROM a WHERE (SELECT count(*) FROM b WHERE b.k = a.k) = 0",
    "SELECT a.v, (SELECT count(*) FROM b WHERE b.k = a.k GROUP BY b.k) AS n FROM a",
    "SELECT a.v, (SELECT coalesce(sum(b.w), -1) FROM b WHERE b.k = a.k) AS s FROM a",
    "SELECT a.v, (SELECT max(b.w) FROM b HAVING count(*) > 99) AS s FROM a",
    "SELECT a.v FROM a WHERE (SELECT max(b.w) FROM b WHERE b.k = a.k) IS NULL",
    # Correlated by conditions other than equalities.
    "SELECT a.v, (SELECT count(*) FROM b WHERE b.k = a.k AND b.w < a.v) AS n FROM a",
    "SELECT a.v FROM a WHERE 1 < "
    "(SELECT max(b.w) FROM b WHERE b.k = a.k AND b.w BETWEEN a.k AND a.v)",
    "SELECT a.k, sum(a.v) AS s FROM a GROUP BY a.k HAVING sum(a.v) > "
    "(SELECT sum(b.w) FROM b WHERE b.k = a.k AND b.w > a.k)",
    "SELECT a.v FROM a WHERE a.v > 3 OR EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.w > a.v)",
    "SELECT a.v, (SELECT max(b.w) FROM b WHERE b.k = a.k) AS m FROM a "
    "WHERE (SELECT max(b.w) FROM b WHERE b.k = a.k) > 1",
    # In the condition of an inner join.
    "SELECT a.v FROM a JOIN b ON b.k = a.k AND b.w > (SELECT avg(c.v) FROM c)",
    "SELECT a.v FROM a JOIN b ON b.k = a.k AND a.v NOT IN (SELECT c.v FROM c WHERE c.t = a.g) "
    "JOIN c ON c.v = b.w",
    # Only one row, because of keys.
    "SELECT a.v, (SELECT d.e FROM d WHERE d.k = a.v) AS e FROM a",
    "SELECT a.v FROM a WHERE (SELECT d.e FROM d WHERE d.k = a.v) > 1",
    "SELECT a.v, (SELECT d.e FROM d WHERE d.k = 2) AS e FROM a",
    "SELECT a.v, (SELECT e.e FROM d JOIN d e ON e.k = d.e WHERE d.k = a.v) AS e FROM a",
    "WITH m AS (SELECT b.k, max(b.w) AS w FROM b GROUP BY b.k) "
    "SELECT a.v, (SELECT m.w FROM m WHERE m.k = a.k) AS w FROM a",
    # In a statement with a union.
    "SELECT u.x FROM (SELECT a.v AS x FROM a UNION ALL SELECT b.w FROM b) u "
    "WHERE u.x >= (SELECT avg(c.v) FROM c)",
    "SELECT x, (SELECT max(c.v) FROM c WHERE c.v < x AND c.v = x - 1) AS m "
    "FROM (SELECT a.v AS x FROM a UNION ALL SELECT b.w FROM b) u",
    "SELECT y FROM (SELECT a.v, a.g FROM a UNION ALL SELECT b.w, c.t FROM b JOIN c ON c.v = b.w) "
    "u(y, z) WHERE z = 'x' AND EXISTS (SELECT 1 FROM b WHERE b.k = y)",
)  # fmt: skip


@pytest.mark.parametrize("sql", STATEMENTS)
def test_the_rewriting_has_the_rows_of_the_statement(sql: str) -> None:
    assert compare(sql, Random(sql), (1, 2, 2, 3, 4, 8, 20, 20))


def test_a_look_up_by_key_needs_no_part() -> None:
    made = parse_sql("q", "SELECT a.v, (SELECT d.e FROM d WHERE d.k = a.v) AS e FROM a", STREAMS)
    other = parse_sql("q", "SELECT a.v, d.e FROM a LEFT JOIN d ON d.k = a.v", STREAMS)
    assert made == other


def test_equal_subqueries_are_one_join() -> None:
    most = "(SELECT max(b.w) FROM b WHERE b.k = a.k)"
    made = rewritten(f"SELECT coalesce({most}, 0) AS m, {most} + 1 AS n FROM a")
    assert len(made.outer) == 1
    other = rewritten(f"SELECT {most} AS m, {most.replace('max', 'min')} AS n FROM a")
    assert len(other.outer) == 2
    strict = rewritten(f"SELECT {most} AS m FROM a WHERE {most} > 1")
    assert (len(strict.sources), len(strict.outer)) == (2, 0)
