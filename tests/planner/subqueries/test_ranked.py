"""Tests of subqueries with rankings, which become separate queries (parts) if they can't be a
clause.
"""

from __future__ import annotations

import pytest

from anabranch_planner.sql.named import in_parts
from anabranch_planner.subqueries.ranked import ranked_apart
from tests.support.worlds.rewritten import rewritten

PLACES = "SELECT k, v, rank() OVER (PARTITION BY k ORDER BY v) AS n FROM a"


@pytest.mark.parametrize(
    ("sql", "parts"),
    [
        (PLACES, 0),
        # One statement with a ranking: no parts.
        (f"SELECT k, v FROM ({PLACES}) x WHERE n <= 3", 0),
        (f"SELECT k, v FROM ({PLACES}) x WHERE n <= 3 AND k > 1", 0),
        (f"WITH r(p, q, m) AS ({PLACES}) SELECT p FROM r WHERE m <= 3", 0),
        # No limit, a condition besides the ranking, or other clauses: a part.
        (f"SELECT k, n FROM ({PLACES}) x", 1),
        (f"SELECT k, n FROM ({PLACES}) x WHERE n > 2", 1),
        (f"SELECT k, n FROM ({PLACES}) x WHERE n <= 2 AND v > 1", 1),
        (f"SELECT n, count(*) AS c FROM ({PLACES}) x GROUP BY n", 1),
        (f"SELECT * FROM ({PLACES}) x WHERE n <= 2 ORDER BY k, v LIMIT 2", 1),
        (f"WITH r(p, q, m) AS ({PLACES}) SELECT p, count(*) AS c FROM r GROUP BY p", 1),
        # Joined: one part, however often it is read.
        (f"SELECT x.k, b.w FROM ({PLACES}) x JOIN b ON b.k = x.n", 1),
        (f"WITH r AS ({PLACES}) SELECT x.k FROM r x JOIN r y ON y.n = x.n + 1", 1),
        (f"SELECT b.w FROM b JOIN (SELECT k, v FROM ({PLACES}) x WHERE n <= 1) y ON y.k = b.k", 1),
        (f"SELECT b.w FROM b WHERE b.k IN (SELECT k FROM ({PLACES}) x WHERE n <= 1)", 1),
        (f"SELECT k FROM ({PLACES}) x UNION ALL SELECT k FROM b", 1),
        # One part per partition and order.
        ("SELECT k, rank() OVER (ORDER BY v) AS n, rank() OVER (ORDER BY k) AS m FROM a", 1),
        ("SELECT k, rank() OVER (ORDER BY v) AS n, rank() OVER (ORDER BY k) AS m FROM a LIMIT 2",
         2),
        ("SELECT k, rank() OVER (ORDER BY v) AS n, lag(v) OVER (ORDER BY v) AS m FROM a", 0),
        ("SELECT k, rank() OVER (ORDER BY v) AS n, dense_rank() OVER (ORDER BY v) AS m FROM a", 1),
        ("SELECT DISTINCT k, rank() OVER (ORDER BY k) AS n FROM a", 1),
    ],
)  # fmt: skip
def test_rankings_are_parts(sql: str, parts: int) -> None:
    assert len(in_parts(ranked_apart(rewritten(sql)), "p{}".format)) == parts + 1


def test_a_limit_goes_with_the_ranking() -> None:
    sql = f"SELECT * FROM ({PLACES}) x WHERE n <= 2 ORDER BY k, v LIMIT 2"
    part, whole = in_parts(ranked_apart(rewritten(sql)), "p{}".format)
    assert len(part.conditions) == 1
    assert whole.conditions == ()


def test_other_statements_stay_as_they_are() -> None:
    made = rewritten("SELECT a.k, count(*) AS n FROM a JOIN b ON b.k = a.k GROUP BY a.k")
    assert ranked_apart(made) is made
