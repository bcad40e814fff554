"""Compare random statements with subqueries with their rewritings in DuckDB."""

from __future__ import annotations

import pytest

from tests.support.worlds.rewritten import compare_random, rewritten


def test_random_subqueries() -> None:
    counts = compare_random(range(60))
    assert counts["rows"] > 25, counts
    assert counts["refused"] < 6, counts
    assert not counts["vague"], counts


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_many_random_subqueries(part: int) -> None:
    counts = compare_random(range(1000 + 500 * part, 1500 + 500 * part))
    assert counts["refused"] < 30, counts
    assert not counts["vague"], counts


def test_star_shows_no_columns_of_subqueries() -> None:
    sql = "SELECT * FROM a WHERE a.v > (SELECT max(b.w) FROM b WHERE b.k = a.k)"
    found = rewritten(sql)
    assert [(item.node, item.qualifier) for item in found.items] == [(None, "a")]
