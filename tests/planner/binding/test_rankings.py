"""Tests of binding rankings: the same view for QUALIFY, DISTINCT ON, and conditions on a ranking
subquery.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.views import (
    PLACE,
    RANK,
    Frame,
    FrameUnit,
    RankFunction,
    View,
    windowed_text,
)
from anabranch_planner.passes import parse_joins, parse_sql, read_sql
from anabranch_planner.sql.named import in_parts
from tests.planner.binding.test_post_join import FROM, STREAMS, below, parsed, refused, shown
from tests.support.worlds.rewritten import STREAMS as CHANGING
from tests.support.worlds.rewritten import rewritten

RANKED = "row_number() OVER (PARTITION BY a.n ORDER BY b.v DESC, a.ts)"


def test_a_ranking_of_joined_rows() -> None:
    query, view = parsed(f"SELECT a.n, a.v {FROM} QUALIFY {RANKED} <= 3")
    assert below(query) == ["a.n", "a.v", "b.v", "a.ts"]
    assert not view.grouped
    assert [name for name, _ in view.partition] == ["c1"]
    assert [(str(s.expr), s.descending, s.nulls_first) for s in view.order] == [
        ("c3", True, False),
        ("c4", False, True),
    ]
    assert (view.limit, view.offset, view.ranking) == (3, 0, RankFunction.ROW_NUMBER)
    assert view.identity == ("n", RANK)
    assert view.whole
    assert view.ranked


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT a.n, a.v {FROM} QUALIFY 3 >= {RANKED}",
        f"SELECT a.n, a.v {FROM} QUALIFY ({RANKED}) < 4",
        f"SELECT a.n, a.v {FROM} QUALIFY {RANKED} BETWEEN 1 AND 3",
        f"SELECT a.n, a.v {FROM} QUALIFY row_number() OVER w <= 3 "
        "WINDOW W AS (PARTITION BY a.n ORDER BY b.v DESC, a.ts)",
        f"SELECT n, v FROM (SELECT a.n, a.v, {RANKED} AS rn {FROM}) WHERE rn <= 3",
        f"SELECT q.n, q.v FROM (SELECT a.n, a.v, {RANKED} AS rn {FROM}) AS q WHERE q.rn < 4",
        f"WITH q AS (SELECT a.n, a.v, {RANKED} AS rn {FROM}) SELECT n, v FROM q WHERE RN <= 3",
        f"SELECT n, v FROM (SELECT a.n, a.v, {RANKED} {FROM}) AS q(n, v, rn) WHERE 4 > rn",
        f"WITH q(n, w, p) AS (SELECT a.n, a.v, {RANKED} {FROM}) "
        "SELECT n, w AS v FROM q WHERE p < 4",
        f"SELECT n, v FROM (SELECT * FROM (SELECT a.n, a.v, {RANKED} AS rn {FROM})) WHERE rn < 4",
    ],
)
def test_spellings_of_one_ranking(sql: str) -> None:
    query, view = parsed(sql)
    wanted, same = parsed(f"SELECT a.n, a.v {FROM} QUALIFY {RANKED} <= 3")
    assert view == same
    assert below(query) == below(wanted)
    assert (query.relations, query.classes, query.bounds) == (
        wanted.relations,
        wanted.classes,
        wanted.bounds,
    )


@pytest.mark.parametrize("function", ["row_number", "rank", "dense_rank"])
def test_the_place_is_a_column(function: str) -> None:
    over = f"{function}() OVER (PARTITION BY n % 2 ORDER BY v)"
    query, view = parsed(f"SELECT {over} AS r, {over} * 10 + k AS x FROM a QUALIFY r = 1")
    assert view.ranking is RankFunction(function)
    assert shown(view) == {
        "r": (PLACE, "int"),
        "x": (f"(cast(({PLACE} * 10) as bigint) + c1)", "bigint"),
    }
    assert below(query) == ["a.k", "(a.n % 2)", "a.v"]
    assert view.identity == ("anabranch_c2", RANK)
    inner = f"(SELECT k, {over} AS r FROM a)"
    _, same = parsed(f"SELECT r, r * 10 + k AS x FROM {inner} WHERE r = 1")
    assert same == view


def test_a_ranking_of_all_rows_is_a_limit() -> None:
    _, limited = parsed("SELECT n, v FROM a ORDER BY v DESC, k LIMIT 3")
    _, view = parsed("SELECT n, v FROM a QUALIFY row_number() OVER (ORDER BY v DESC, k) <= 3")
    assert view == limited
    assert not view.ranked
    _, view = parsed("SELECT n, v FROM a QUALIFY rank() OVER (ORDER BY v DESC, k) <= 3")
    assert view.ranked
    assert view.identity == (RANK,)


def test_stars_show_places_and_no_hidden_columns() -> None:
    sql = "SELECT * FROM (SELECT *, rank() OVER (PARTITION BY n, k % 2 ORDER BY v) AS rn FROM a)"
    query, view = parsed(f"{sql} WHERE rn <= 2")
    names = [name for name, _ in STREAMS["a"].columns]
    assert [o.name for o in view.projection] == [*names, "rn"]
    assert str(view.projection[-1].expr) == PLACE
    assert view.identity == ("n", "anabranch_c7", RANK)
    assert below(query)[-1].endswith("% 2)")


def test_conditions_on_partitions_may_stand_beside() -> None:
    inner = "(SELECT n, k AS j, v, rank() OVER (PARTITION BY n, k ORDER BY v) AS r FROM a{})"
    sql = f"SELECT n, v FROM {inner.format('')} WHERE r = 1 AND n > 3 AND j < 2"
    query, view = parsed(sql)
    wanted, same = parsed(f"SELECT n, v FROM {inner.format(' WHERE n > 3 AND k < 2')} WHERE r = 1")
    assert view == same
    assert query.relations == wanted.relations


def test_distinct_on_is_the_first_of_each() -> None:
    query, view = parsed(f"SELECT DISTINCT ON (a.n) a.n, b.v {FROM} ORDER BY a.n, b.ts DESC")
    wanted, same = parsed(
        f"SELECT a.n, b.v {FROM} "
        "QUALIFY row_number() OVER (PARTITION BY a.n ORDER BY b.ts DESC) = 1"
    )
    assert view == same
    assert below(query) == below(wanted)
    _, view = parsed("SELECT DISTINCT ON (p, k) n % 2 AS p, k, v FROM a ORDER BY k, p, v")
    assert [name for name, _ in view.partition] == ["c1", "c2"]


def test_rankings_over_the_rows_of_an_outer_join() -> None:
    sql = (
        "SELECT a.n, b.v FROM a LEFT JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND "
        "a.ts + INTERVAL '1' HOUR QUALIFY row_number() OVER (PARTITION BY a.n ORDER BY b.v) = 1"
    )
    query = parse_sql("q", sql, {n: replace(s, lateness=0) for n, s in STREAMS.items()})
    assert query.outer is not None
    assert query.view is not None
    assert query.view.partition


@pytest.mark.parametrize(
    ("sql", "position", "part"),
    [
        ("SELECT n FROM a QUALIFY n > 1", (1, 25), "another condition"),
        (
            "SELECT n FROM a QUALIFY rank() OVER (PARTITION BY k) < 3",
            (1, 25),
            "rank() without ORDER BY",
        ),
        (
            "SELECT n FROM a QUALIFY rank() OVER (ORDER BY v ROWS UNBOUNDED PRECEDING) < 3",
            None,
            "a frame of rows",
        ),
        ("SELECT n FROM a QUALIFY rank() OVER (ORDER BY v) < 3 ORDER BY n", (1, 25), "ORDER BY"),
        ("SELECT n FROM a QUALIFY rank() OVER (ORDER BY v) < 3 LIMIT 3", (1, 25), "LIMIT"),
        ("SELECT DISTINCT n FROM a QUALIFY rank() OVER (ORDER BY v) < 3", (1, 34), "DISTINCT"),
        (
            "SELECT n, rank() OVER (ORDER BY k) AS r FROM a QUALIFY rank() OVER (ORDER BY v) < 3",
            (1, 11),
            "a window function",
        ),
        ("SELECT n, stddev(k) OVER (ORDER BY k) AS r FROM a", (1, 11), "stddev() OVER"),
        (
            "SELECT n FROM (SELECT n, rank() OVER (ORDER BY v) AS r FROM a)",
            (1, 26),
            "without one limit",
        ),
        (
            "SELECT n FROM (SELECT n, rank() OVER (ORDER BY v) AS r FROM a) WHERE r > 3",
            (1, 26),
            "without one limit",
        ),
        (
            "SELECT n FROM (SELECT n, rank() OVER (ORDER BY v) AS r FROM a) WHERE r < 3 AND r < 4",
            (1, 26),
            "without one limit",
        ),
        (
            "SELECT n FROM (SELECT n, v, rank() OVER (PARTITION BY n ORDER BY v) AS r FROM a) "
            "WHERE r < 3 AND v > 2",
            (1, 98),
            "already ranked (v > 2)",
        ),
        (
            "SELECT n FROM (SELECT k AS n, rank() OVER (PARTITION BY n ORDER BY v) AS r FROM a) "
            "WHERE r < 3 AND n > 2",
            (1, 100),
            "already ranked (n > 2)",
        ),
        (
            "SELECT count(*) AS c FROM (SELECT n, rank() OVER (ORDER BY v) AS r FROM a) "
            "WHERE r < 3",
            (1, 38),
            "a subquery with rank() over groups",
        ),
        (
            "SELECT n FROM (SELECT n, rank() OVER (ORDER BY v) AS r FROM a) WHERE r < 3 "
            "ORDER BY n LIMIT 2",
            (1, 26),
            "LIMIT beside a subquery with rank()",
        ),
        (
            "SELECT q.n FROM (SELECT n, k, rank() OVER (ORDER BY v) AS r FROM a) q "
            "JOIN b ON b.k = q.k WHERE r < 3",
            (1, 31),
            "a window function",
        ),
        (
            "SELECT n FROM a QUALIFY rank() OVER (w ORDER BY v) < 3 WINDOW w AS (PARTITION BY k)",
            None,
            "ORDER BY beside a named window",
        ),
        ("SELECT n FROM a WINDOW w AS (ORDER BY v)", (1, 24), "WINDOW w without a function"),
        (
            "SELECT q.n FROM (SELECT n FROM a WINDOW w AS (ORDER BY v)) AS q",
            (1, 41),
            "WINDOW w without a function",
        ),
        ("SELECT DISTINCT ON (n) n, v FROM a ORDER BY n", (1, 21), "without an order"),
        ("SELECT DISTINCT ON (n) n, v FROM a ORDER BY v, n", (1, 21), "ORDER BY begins with"),
        ("SELECT DISTINCT ON (n) n, v FROM a ORDER BY n, v LIMIT 3", (1, 21), "LIMIT"),
        ("SELECT DISTINCT ON (n) n, max(v) AS m FROM a ORDER BY n, v", (1, 21), "over groups"),
        (
            "SELECT q.n FROM (SELECT n FROM a QUALIFY rank() OVER (ORDER BY v) < 3) AS q",
            (1, 42),
            "QUALIFY in a subquery",
        ),
    ],
)
def test_refusals(sql: str, position: tuple[int, int] | None, part: str) -> None:
    error = refused(sql)
    assert (error.code, error.field) == ("unsupported-sql", "sql")
    assert part in error.message
    if position is not None:
        assert error.position == position


def test_other_refusals_have_codes_of_their_own() -> None:
    assert refused("SELECT n FROM a QUALIFY rank() OVER w < 3").code == "unknown-alias"
    assert refused("SELECT n FROM a QUALIFY rank(v) OVER (ORDER BY v) < 3").code == "bad-arguments"
    unnamed = "SELECT n, rank() OVER (ORDER BY v) FROM a QUALIFY rank() OVER (ORDER BY v) < 3"
    error = refused(unnamed)
    assert error.code == "unnamed-output"
    assert "RANK() OVER (ORDER BY v)" in error.message
    assert refused("SELECT n FROM a QUALIFY rank() OVER (ORDER BY zz) < 3").code == "unknown-column"


def test_the_joins_of_a_refused_ranking() -> None:
    sql = f"SELECT a.n, a.v AS n {FROM} QUALIFY {RANKED} <= 3"
    assert refused(sql).code == "duplicate-name"
    assert len(parse_joins(read_sql(sql), STREAMS).members) == 2


# --- functions of other rows ---------------------------------------------------------------------


def view_of(sql: str) -> View:
    view = parse_sql("q", sql, CHANGING).view
    assert view is not None
    return view


def test_functions_of_one_window_are_one_ranking() -> None:
    view = view_of(
        "SELECT k, v - lag(v) OVER w AS moved, lead(g, 2, 'none') OVER w AS next, "
        "rank() OVER w AS place FROM a WINDOW w AS (PARTITION BY k ORDER BY v DESC)"
    )
    assert [(n.function, n.number) for n in view.windowed] == [("lag", 1), ("lead", 2)]
    assert [n.default is None for n in view.windowed] == [True, False]
    assert view.limit is None
    assert view.ranking is RankFunction.RANK
    assert len(view.partition) == 1
    assert [s.descending for s in view.order] == [True]
    assert view.identity == ("k", "anabranch_rank")
    texts = {"c2": "a.v", "c3": "a.g", "c4": "'none'"}
    assert [windowed_text(n, texts, "ORDER BY a.v") for n in view.windowed] == [
        "lag(a.v) OVER (ORDER BY a.v)",
        "lead(a.g, 2, 'none') OVER (ORDER BY a.v)",
    ]


@pytest.mark.parametrize(
    ("over", "frame"),
    [
        ("ORDER BY v", Frame()),
        ("ORDER BY v RANGE UNBOUNDED PRECEDING", Frame()),
        ("ORDER BY v ROWS UNBOUNDED PRECEDING", Frame(FrameUnit.ROWS)),
        ("ORDER BY v ROWS 3 PRECEDING", Frame(FrameUnit.ROWS, -3)),
        ("ORDER BY v ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING", Frame(FrameUnit.ROWS, -3, -1)),
        ("ORDER BY v ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
         Frame(FrameUnit.ROWS, 0, None)),
        ("ORDER BY v ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
         Frame(FrameUnit.RANGE, None, None)),
        ("ORDER BY v DESC RANGE BETWEEN 2 PRECEDING AND 2 FOLLOWING",
         Frame(FrameUnit.RANGE, -2, 2)),
        ("ORDER BY CAST(v AS DECIMAL(9, 2)) RANGE 1.5 PRECEDING", Frame(FrameUnit.RANGE, -150)),
        ("ORDER BY CAST('2026-01-01' AS DATE) RANGE INTERVAL '2' DAY PRECEDING",
         Frame(FrameUnit.RANGE, -2)),
        ("ORDER BY CAST('2026-01-01' AS TIMESTAMP) RANGE INTERVAL '1' SECOND PRECEDING",
         Frame(FrameUnit.RANGE, -1_000_000)),
    ],
)  # fmt: skip
def test_frames(over: str, frame: Frame) -> None:
    (one,) = view_of(f"SELECT k, sum(v) OVER (PARTITION BY k {over}) AS s FROM a").windowed
    assert one.frame == frame


def test_a_default_has_the_type_of_the_argument() -> None:
    view = view_of("SELECT k, lag(v, 1, 0) OVER (ORDER BY v) AS p FROM a")
    (one,) = view.windowed
    assert one.default is not None
    assert one.default.type == one.type


def test_a_subquery_with_window_functions_is_a_part() -> None:
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
        ("sum(v) IGNORE NULLS OVER (ORDER BY v) AS p", "unsupported-sql"),
        ("first_value(v) FILTER (WHERE v > 1) OVER (ORDER BY v) AS p", "unsupported-sql"),
        ("count(DISTINCT v) OVER (ORDER BY v) AS p", "unsupported-sql"),
        ("stddev(v) OVER (ORDER BY v) AS p", "unsupported-sql"),
        ("sum(g) OVER (ORDER BY v) AS p", "type-mismatch"),
        ("rank() OVER (ORDER BY v ROWS 2 PRECEDING) AS p", "unsupported-sql"),
        ("lag(v) OVER (ORDER BY v ROWS 2 PRECEDING) AS p", "unsupported-sql"),
        ("sum(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS p", "unsupported-sql"),
        ("first_value(v) OVER (PARTITION BY k) AS p", "unsupported-sql"),
        ("sum(v) OVER (ORDER BY v GROUPS k PRECEDING) AS p", "bad-frame"),
        ("rank() OVER (ORDER BY v GROUPS 2 PRECEDING) AS p", "unsupported-sql"),
        ("sum(v) OVER (ORDER BY v ROWS k PRECEDING) AS p", "bad-frame"),
        ("sum(v) OVER (ORDER BY v ROWS 1.5 PRECEDING) AS p", "bad-frame"),
        ("sum(v) OVER (ORDER BY v ROWS BETWEEN 2 PRECEDING AND 3 PRECEDING) AS p", "bad-frame"),
        ("sum(v) OVER (ORDER BY v ROWS BETWEEN CURRENT ROW AND 3 PRECEDING) AS p", "bad-frame"),
        (
            "sum(v) OVER (ORDER BY v ROWS BETWEEN UNBOUNDED FOLLOWING AND 3 FOLLOWING) AS p",
            "bad-frame",
        ),
        ("sum(v) OVER (ORDER BY v, k RANGE 2 PRECEDING) AS p", "bad-frame"),
        ("sum(v) OVER (ORDER BY g RANGE 2 PRECEDING) AS p", "bad-frame"),
        ("sum(v) OVER (ORDER BY v RANGE INTERVAL '1' DAY PRECEDING) AS p", "bad-frame"),
        ("sum(v) OVER (ORDER BY v RANGE -2 PRECEDING) AS p", "bad-frame"),
        ("nth_value(v) OVER (ORDER BY v) AS p", "bad-arguments"),
        ("nth_value(v, 0) OVER (ORDER BY v) AS p", "bad-arguments"),
        ("ntile(0) OVER (ORDER BY v) AS p", "bad-arguments"),
        ("ntile(k) OVER (ORDER BY v) AS p", "bad-arguments"),
        ("percent_rank(v) OVER (ORDER BY v) AS p", "bad-arguments"),
        ("sum(v, k) OVER (ORDER BY v) AS p", "bad-arguments"),
        ("lag(lag(v) OVER (ORDER BY v)) OVER (ORDER BY v) AS p", "unsupported-sql"),
        ("lag(v) OVER (ORDER BY v) AS p, lag(v) OVER (ORDER BY k) AS q", "unsupported-sql"),
        ("rank() OVER (ORDER BY v) AS p, row_number() OVER (ORDER BY v) AS q", "unsupported-sql"),
        ("DISTINCT lag(v) OVER (ORDER BY v) AS p", "unsupported-sql"),
        ("lag(max(v)) OVER (ORDER BY k) AS p", "misplaced-aggregate"),
        ("lag(v) OVER (ORDER BY v)", "unnamed-output"),
    ],
)
def test_refusals_of_window_functions(items: str, code: str) -> None:
    with pytest.raises(QueryError) as found:
        parse_sql("q", f"SELECT {items} FROM a", CHANGING)
    assert found.value.code == code
    assert found.value.remedy
    assert found.value.position is not None


def test_the_statement_of_a_remedy_can_be_registered() -> None:
    with pytest.raises(QueryError) as found:
        parse_sql("q", "SELECT k, v FROM a QUALIFY v > 2", CHANGING)
    example = found.value.remedy.removeprefix("write ").replace("BY x", "BY v")
    view = parse_sql("q", f"SELECT k, v FROM a {example}", CHANGING).view
    assert view is not None
    assert view.limit == 3


def test_functions_of_other_rows_beside_qualify_are_refused() -> None:
    sql = "SELECT lag(v) OVER (ORDER BY v) AS p FROM a QUALIFY row_number() OVER (ORDER BY v) <= 2"
    with pytest.raises(QueryError, match="beside QUALIFY"):
        parse_sql("q", sql, CHANGING)
