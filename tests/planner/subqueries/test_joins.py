"""Tests of joins with subqueries in expressions, and of refusals that name place and remedy."""

from __future__ import annotations

from random import Random

import pytest

from anabranch_contract.errors import QueryError
from anabranch_planner.passes import parse_sql
from tests.support.worlds.rewritten import STREAMS, compare


@pytest.mark.parametrize(
    ("sql", "words", "column"),
    [
        ("SELECT a.v, (SELECT b.w FROM b WHERE b.k = a.k) AS w FROM a", "several rows", 21),
        ("SELECT a.v, (SELECT d.e FROM d WHERE d.e = a.k) AS w FROM a", "several rows", 21),
        ("SELECT a.v, (SELECT b.w, b.k FROM b) AS w FROM a", "of several columns", 21),
        ("SELECT a.v, (SELECT b.w FROM b GROUP BY b.w) AS w FROM a", "a row for each b.w", 43),
        (
            "SELECT a.v, (SELECT max(b.w) FROM b WHERE b.k = a.k AND coalesce(b.w, a.v) < 9) AS w "
            "FROM a",
            "which may hold where a column of the outer query is NULL",
            57,
        ),
        ("SELECT a.v FROM a ORDER BY (SELECT max(b.w) FROM b)", "a subquery in ORDER BY", 36),
        (
            "SELECT a.v FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND EXISTS "
            "(SELECT 1 FROM c WHERE c.v = a.v))",
            "two levels further out",
            105,
        ),
        ("SELECT a.v FROM a GROUP BY a.v, (SELECT max(b.w) FROM b)", "in GROUP BY", 41),
        ("SELECT a.v FROM a WHERE a.v > ANY (SELECT b.w, b.k FROM b)", "of several columns", 25),
        ("SELECT a.v FROM a WHERE a.v <=> ALL (SELECT b.w FROM b)", "ALL", 45),
        (
            "SELECT a.v FROM a LEFT JOIN b ON b.k = a.k AND b.w > (SELECT max(c.v) FROM c)",
            "a subquery here",
            62,
        ),
        ("SELECT a.v FROM a WHERE (a.k, a.v) NOT IN (SELECT b.k, b.w FROM b)", "may be NULL", 26),
    ],
)  # fmt: skip
def test_refusals_name_place_and_remedy(sql: str, words: str, column: int) -> None:
    with pytest.raises(QueryError, match=words) as found:
        parse_sql("q", sql, STREAMS)
    assert found.value.code == "unsupported-sql"
    assert found.value.position == (1, column)
    assert found.value.remedy


@pytest.mark.parametrize(
    "condition",
    [
        "a.k IN (SELECT c.v FROM c GROUP BY c.v)",
        "a.v < (SELECT max(c.v) FROM c)",
        "a.v < (SELECT max(c.v) FROM c WHERE c.v = a.k)",
        "a.k NOT IN (SELECT c.v FROM c)",
    ],
)
def test_conditions_are_above_a_full_join(condition: str) -> None:
    sql = f"SELECT a.k, b.w FROM a FULL JOIN b ON b.k = a.k WHERE {condition}"
    assert sum(compare(sql, Random(seed)) for seed in range(4))
