"""Values of other rows of a partition: lag, lead, and places of all rows."""

from __future__ import annotations

import pytest

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.views import RankFunction, View, neighbour_text
from anabranch_planner.passes import parse_sql
from anabranch_planner.sql.named import in_parts
from tests.support.worlds.rewritten import STREAMS, rewritten


def view_of(sql: str) -> View:
    view = parse_sql("q", sql, STREAMS).view
    assert view is not None
    return view


def test_functions_of_one_window_are_one_ranking() -> None:
    view = view_of(
        "SELECT k, v - lag(v) OVER w AS moved, lead(g, 2, 'none') OVER w AS next, "
        "rank() OVER w AS place FROM a WINDOW w AS (PARTITION BY k ORDER BY v DESC)"
    )
    assert [(n.distance, n.default is None) for n in view.neighbours] == [(1, True), (-2, False)]
    assert view.limit is None
    assert view.ranking is RankFunction.RANK
    assert len(view.partition) == 1
    assert [s.descending for s in view.order] == [True]
    assert view.identity == ("k", "anabranch_rank")
    texts = {"c2": "a.v", "c3": "a.g", "c4": "'none'"}
    assert [neighbour_text(n, texts) for n in view.neighbours] == [
        "lag(a.v)",
        "lead(a.g, 2, 'none')",
    ]


def test_a_default_has_the_type_of_the_argument() -> None:
    view = view_of("SELECT k, lag(v, 1, 0) OVER (ORDER BY v) AS p FROM a")
    (one,) = view.neighbours
    assert one.default is not None
    assert one.default.type == one.type


def test_a_subquery_with_neighbours_is_a_part() -> None:
    sql = (
        "SELECT x.k, x.p FROM (SELECT k, v, lag(v) OVER (PARTITION BY k ORDER BY v) AS p FROM a) x "
        "WHERE x.v > x.p"
    )
    assert len(in_parts(rewritten(sql), "p{}".format)) == 2


@pytest.mark.parametrize(
    ("items", "code"),
    [
        ("lag(v) OVER (PARTITION BY k) AS p", "unsupported-sql"),
        ("lag(v) AS p", "unsupported-sql"),
        ("lag() OVER (ORDER BY v) AS p", "bad-arguments"),
        ("lag(v, -1) OVER (ORDER BY v) AS p", "bad-arguments"),
        ("lag(v, k) OVER (ORDER BY v) AS p", "bad-arguments"),
        ("lag(v, 1, 'x') OVER (ORDER BY v) AS p", "type-mismatch"),
        ("lag(v) IGNORE NULLS OVER (ORDER BY v) AS p", "unsupported-sql"),
        ("lag(lag(v) OVER (ORDER BY v)) OVER (ORDER BY v) AS p", "unsupported-sql"),
        ("lag(v) OVER (ORDER BY v) AS p, lag(v) OVER (ORDER BY k) AS q", "unsupported-sql"),
        ("rank() OVER (ORDER BY v) AS p, row_number() OVER (ORDER BY v) AS q", "unsupported-sql"),
        ("DISTINCT lag(v) OVER (ORDER BY v) AS p", "unsupported-sql"),
        ("lag(max(v)) OVER (ORDER BY k) AS p", "unsupported-sql"),
        ("lag(v) OVER (ORDER BY v)", "unnamed-output"),
    ],
)
def test_refusals(items: str, code: str) -> None:
    with pytest.raises(QueryError) as found:
        parse_sql("q", f"SELECT {items} FROM a", STREAMS)
    assert found.value.code == code
    assert found.value.remedy
    assert found.value.position is not None


def test_neighbours_beside_qualify_are_refused() -> None:
    sql = "SELECT lag(v) OVER (ORDER BY v) AS p FROM a QUALIFY row_number() OVER (ORDER BY v) <= 2"
    with pytest.raises(QueryError, match="beside QUALIFY"):
        parse_sql("q", sql, STREAMS)
