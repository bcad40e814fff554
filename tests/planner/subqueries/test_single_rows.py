"""Tests that several aggregates of whole joins in one FROM are combined to one part."""

from __future__ import annotations

from random import Random

import duckdb
import pytest

from anabranch_planner.sql.named import in_parts
from anabranch_planner.sql.unresolved import Unresolved
from anabranch_planner.subqueries.single_rows import with_single_rows
from tests.support.oracles.tree_text import text_of
from tests.support.worlds.rewritten import fill, rewritten
from tests.support.worlds.view_runs import comparable

#: Statement, and its number of parts.
STATEMENTS = (
    ("SELECT * FROM (SELECT count(*) AS n FROM a) x, (SELECT sum(w) AS s FROM b) y, "
     "(SELECT max(t) AS t, count(DISTINCT v) + 1 AS d FROM c) z", 1),
    ("SELECT x.n + y.n AS n, z.n AS m FROM (SELECT count(v) AS n FROM a) x, "
     "(SELECT count(w) AS n FROM b WHERE k > 1) y, (SELECT avg(v) AS n FROM c) z", 1),
    ("SELECT a.k, (SELECT count(*) FROM b WHERE w > 2) AS n, (SELECT sum(w) FROM b WHERE w > 2) "
     "AS s, (SELECT min(c.v) FROM c JOIN b ON b.w = c.v) AS t FROM a WHERE a.v > 1", 1),
    ("SELECT a.k FROM a WHERE a.v > (SELECT avg(w) FROM b) AND a.v < (SELECT max(w) FROM b) + 3 "
     "AND a.k >= (SELECT count(*) FROM c WHERE v > 7) ORDER BY k LIMIT 3", 1),
    # Two subqueries have few combinations.
    ("SELECT * FROM (SELECT count(*) AS n FROM a) x, (SELECT sum(w) AS s FROM b) y", 2),
    # Not combined: groups, conditions of groups, FILTER, and aggregates that see NULL or an order.
    ("SELECT x.n, y.m, z.s, u.l FROM (SELECT count(*) AS n FROM a HAVING count(*) > 0) x, "
     "(SELECT count(*) FILTER (WHERE w > 1) AS m FROM b) y, "
     "(SELECT k, sum(v) AS s FROM a GROUP BY k) z, (SELECT max(v) AS l FROM c) u", 4),
    ("SELECT n, s, m FROM (SELECT count(*) AS n FROM (SELECT k FROM a UNION ALL SELECT k FROM b) u)"
     " x, (SELECT sum(w) AS s FROM b) y, (SELECT count(*) AS m FROM c) z", 3),
    ("SELECT x.*, y.s, z.m FROM (SELECT count(*) AS n FROM a) x, (SELECT sum(w) AS s FROM b) y, "
     "(SELECT count(*) AS m FROM c) z", 3),
)  # fmt: skip


def _made(sql: str) -> Unresolved:
    return with_single_rows(rewritten(sql))


@pytest.mark.parametrize(("sql", "parts"), STATEMENTS)
def test_rows_are_those_of_the_statement(sql: str, parts: int) -> None:
    made, rng = _made(sql), Random(sql)
    assert len(in_parts(made, "p{}".format)) == parts + 1
    with duckdb.connect() as connection:
        for most in (1, 2, 4, 8, 20):
            fill(connection, rng, most)
            wanted = comparable(connection.execute(sql).fetchall())
            assert comparable(connection.execute(text_of(made)).fetchall()) == wanted


def test_aggregates_of_one_join_share_a_branch() -> None:
    sql = (
        "SELECT (SELECT count(*) FROM b WHERE w > 2) AS n, (SELECT sum(w) FROM b WHERE w > 2) AS s,"
        " (SELECT max(w) FROM b WHERE w > 3) AS m FROM a"
    )
    (whole,) = (e.of for e in _made(sql).sources if isinstance(e.of, Unresolved))
    (united,) = whole.sources
    assert isinstance(united.of, Unresolved)
    assert len(united.of.branches) == 2


def test_a_subquery_that_several_read_stays_one_object() -> None:
    sql = (
        "WITH w AS (SELECT x.n + y.s + z.m AS r FROM (SELECT count(*) AS n FROM a) x, "
        "(SELECT sum(w) AS s FROM b) y, (SELECT count(*) AS m FROM c) z) "
        "SELECT w.r FROM w JOIN w other ON other.r = w.r"
    )
    first, second = _made(sql).sources
    assert first.of is second.of
    assert len(in_parts(_made(sql), "p{}".format)) == 2
