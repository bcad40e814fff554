"""Tests of EXISTS and IN rewritten as joins and values, with NULLs as in SQL."""

from __future__ import annotations

from random import Random

import pytest

from tests.support.worlds.rewritten import compare

STATEMENTS = (
    # NOT IN has no rows if the subquery has a NULL, and all rows if it is empty.
    "SELECT a.v FROM a WHERE a.k NOT IN (SELECT b.k FROM b)",
    "SELECT a.v FROM a WHERE a.k NOT IN (SELECT b.k FROM b WHERE b.w > 99)",
    "SELECT a.v FROM a WHERE a.k NOT IN (SELECT b.k FROM b WHERE b.k IS NOT NULL)",
    "SELECT a.v FROM a WHERE a.v NOT IN (SELECT c.v FROM c WHERE c.t = a.g)",
    "SELECT a.k NOT IN (SELECT b.k FROM b) AS n, a.v FROM a",
    "SELECT a.v IN (SELECT c.v FROM c WHERE c.t = a.g) AS n, a.v FROM a",
    "SELECT a.v FROM a WHERE (a.k NOT IN (SELECT b.k FROM b)) IS NULL",
    "SELECT a.v FROM a WHERE a.k IN (SELECT max(b.k) FROM b GROUP BY b.w)",
    "SELECT a.v FROM a WHERE a.v > 6 OR a.k IN "
    "(SELECT b.k FROM b GROUP BY b.k HAVING count(*) > 1)",
    "SELECT a.v FROM a WHERE EXISTS (SELECT 1 FROM b) "
    "AND NOT EXISTS (SELECT 1 FROM c WHERE c.v = a.v)",
    "SELECT a.v FROM a WHERE EXISTS (SELECT count(*) FROM b WHERE b.k = a.k)",
    "SELECT a.v FROM a WHERE (a.k, a.v) IN (SELECT b.k, b.w FROM b)",
)  # fmt: skip


@pytest.mark.parametrize("sql", STATEMENTS)
def test_the_rewriting_has_the_rows_of_the_statement(sql: str) -> None:
    assert compare(sql, Random(sql), (1, 2, 2, 3, 4, 8, 20, 20))
