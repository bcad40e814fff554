"""Tests of GROUPING SETS: expanded as in DuckDB; keys, identities and refusals."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import reduce

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch_contract.queries.expressions import Call, Column, Expr, Literal
from anabranch_contract.queries.views import GROUPING_ID, View
from anabranch_planner.binding.grouping import MOST_SETS
from tests.planner.binding.test_post_join import FROM, below, parsed, refused, shown


def ids(view: View) -> list[int]:
    """Return ``grouping_id`` of each set."""
    n = len(view.keys)
    sets = view.sets or (tuple(range(n)),)
    return sorted(sum(1 << (n - 1 - i) for i in range(n) if i not in one) for one in sets)


@pytest.mark.parametrize(
    ("clause", "sets"),
    [
        ("ROLLUP (a.n, a.k)", ((0, 1), (0,), ())),
        ("a.n, a.k WITH ROLLUP", ((0, 1), (0,), ())),
        ("CUBE (a.n, a.k)", ((0, 1), (0,), (1,), ())),
        ("a.n, a.k WITH CUBE", ((0, 1), (0,), (1,), ())),
        ("ROLLUP ((a.n, a.k), a.v)", ((0, 1, 2), (0, 1), ())),
        ("GROUPING SETS ((a.n, a.k), a.n, (a.k), ())", ((0, 1), (0,), (1,), ())),
        ("GROUPING SETS (ROLLUP (a.n), CUBE (a.k), (a.v))", None),
        ("a.n, ROLLUP (a.k)", ((0, 1), (0,))),
        ("ROLLUP (a.n), CUBE (a.k)", ((0, 1), (0,), (1,), ())),
        ("a.n, a.k, a.v GROUPING SETS ((a.v), (a.n))", ((2,), (0,))),
        ("GROUPING SETS ((a.n, a.k))", ()),
        ("(a.n, a.k)", ()),
        ("()", ()),
        ("GROUPING SETS (())", ()),
        ("ROLLUP (1, 2)", ((0, 1), (0,), ())),
        ("ROLLUP (x, y)", ((0, 1), (0,), ())),
    ],
)
def test_clauses_are_sets_of_positions(clause: str, sets: tuple[tuple[int, ...], ...]) -> None:
    items = "a.n AS x, a.k AS y, " if "x" in clause or "1" in clause else ""
    sql = f"SELECT {items}count(*) AS c {FROM} GROUP BY {clause}"
    if sets is None:
        assert refused(sql).message == "a grouping set that occurs twice is not supported"
        return
    _, view = parsed(sql)
    assert view.sets == sets
    assert (GROUPING_ID in dict(view.group_keys)) is bool(sets)
    assert len(view.identity) == len(view.group_keys)


_KEYS = st.sampled_from(["n", "k", "v", "d"])
_ELEMENT = st.lists(_KEYS, min_size=0, max_size=2, unique=True).map(lambda k: f"({', '.join(k)})")
_PART = st.one_of(
    _KEYS,
    st.lists(_KEYS, min_size=1, max_size=3, unique=True).map(lambda k: f"ROLLUP ({', '.join(k)})"),
    st.lists(_KEYS, min_size=1, max_size=3, unique=True).map(lambda k: f"CUBE ({', '.join(k)})"),
    st.lists(
        st.one_of(_ELEMENT, _ELEMENT.filter(lambda e: e != "()").map(lambda e: f"ROLLUP {e}")),
        min_size=1,
        max_size=3,
    ).map(lambda e: f"GROUPING SETS ({', '.join(e)})"),
)


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as db:
        db.execute("CREATE TABLE a AS SELECT 1 AS n, 2 AS k, 3 AS v, 4 AS d")
        yield db


@settings(max_examples=150, deadline=None)
@given(parts=st.lists(_PART, min_size=1, max_size=3))
def test_sets_are_duckdbs(db: duckdb.DuckDBPyConnection, parts: list[str]) -> None:
    clause = ", ".join(parts)
    names = [k for k in ("n", "k", "v", "d") if re.search(rf"\b{k}\b", clause)]
    if not names:
        return
    shown_ids = f"grouping_id({', '.join(names)}) AS g"
    found = db.execute(f"SELECT {shown_ids} FROM a GROUP BY {clause}").fetchall()
    wanted = sorted(row[0] for row in found)
    sql = f"SELECT {shown_ids} FROM a GROUP BY {clause}"
    if len(wanted) > MOST_SETS:
        assert "grouping sets" in refused(sql).message
        return
    if len(set(wanted)) < len(wanted):
        assert "twice" in refused(sql).message
        return
    query, view = parsed(sql)
    ours = sorted(value(view.projection[0].expr, gid) for gid in ids(view))
    assert ours == wanted
    assert len(below(query)) == len(names)


def value(expr: Expr, gid: int) -> int:
    """Return the value of an expression over GROUPING_ID."""
    if isinstance(expr, Literal):
        assert isinstance(expr.value, int)
        return expr.value
    if isinstance(expr, Column):
        assert expr.name == GROUPING_ID
        return gid
    assert isinstance(expr, Call)
    assert expr.op == "case"
    *pairs, default = expr.args
    for test, then in reversed(list(zip(pairs[::2], pairs[1::2], strict=True))):
        assert isinstance(test, Call)
        if gid in [one.value for one in test.args[1:] if isinstance(one, Literal)]:
            default = then
    return value(default, gid)


def test_grouping_functions_and_their_types() -> None:
    _, view = parsed(
        f"SELECT grouping(a.n) AS g, grouping_id() AS i, grouping_id(a.k, a.n) AS j, a.n, "
        f"window.start AS s {FROM} GROUP BY window(a.ts, '1 hour'), ROLLUP (a.n, a.k) "
        "HAVING grouping(a.k) = 0 ORDER BY grouping_id() DESC"
    )
    assert [shown(view)[name][1] for name in "gij"] == ["tinyint", "bigint", "bigint"]
    assert [[value(o.expr, gid) for gid in (0, 1, 3)] for o in view.projection[:3]] == [
        [0, 0, 1],
        [0, 1, 3],
        [0, 2, 3],
    ]
    assert [str(s.expr) for s in view.order] == [GROUPING_ID]
    assert view.sets == ((0, 1), (0,), ())


def test_a_window_is_a_key_of_every_set() -> None:
    """Spark's grouping_id has a bit for the window, which is never set."""
    _, view = parsed(
        f"SELECT grouping_id() AS i {FROM} GROUP BY a.n, window(a.ts, '1 hour'), ROLLUP (a.k)"
    )
    assert view.sets == ((0, 1), (0,))
    assert [value(view.projection[0].expr, gid) for gid in (0, 1)] == [0, 1]
    _, view = parsed(
        f"SELECT grouping_id() AS i {FROM} GROUP BY ROLLUP (a.n), window(a.ts, '1 hour'), a.k"
    )
    assert [value(view.projection[0].expr, gid) for gid in (0, 2)] == [0, 4]


def test_expressions_over_keys_see_their_nulls_and_aggregates_do_not() -> None:
    query, view = parsed(f"SELECT a.n + 1 AS m, sum(a.n) AS s {FROM} GROUP BY ROLLUP (a.n)")
    assert below(query) == ["a.n", "a.n"]
    assert shown(view)["m"][0] == "(k1 + 1)"
    assert view.aggregates[0].column == "a1"
    assert view.identity == ("anabranch_k1", "anabranch_grouping_id")


def test_without_sets_nothing_is_left_out() -> None:
    _, view = parsed(f"SELECT a.n, grouping(a.n) AS g, grouping_id() AS i {FROM} GROUP BY a.n")
    assert [str(o.expr) for o in view.projection] == ["k1", "0", "0"]


def test_distinct_groups_whose_keys_are_shown() -> None:
    plain = f"a.n, count(*) AS c {FROM} GROUP BY a.n"
    assert parsed(f"SELECT DISTINCT {plain}")[1] == parsed(f"SELECT {plain}")[1]
    ended = "window.end AS e, count(*) AS c FROM a GROUP BY window(ts, '1 hour')"
    assert parsed(f"SELECT DISTINCT {ended}")[1] == parsed(f"SELECT {ended}")[1]
    assert parsed("SELECT DISTINCT sum(n) AS s FROM a")[1].group_keys == ()
    all_keys = "n, count(*) AS c FROM a GROUP BY ALL"
    assert parsed(f"SELECT DISTINCT {all_keys}")[1] == parsed(f"SELECT {all_keys}")[1]


@pytest.mark.parametrize(
    ("sql", "code", "position", "part"),
    [
        ("SELECT DISTINCT n FROM a GROUP BY n, k", "unsupported-sql", (1, 17), "keys"),
        ("SELECT DISTINCT n FROM a GROUP BY ROLLUP (n)", "unsupported-sql", (1, 17), "keys"),
        (
            "SELECT DISTINCT count(*) AS c FROM a GROUP BY window(ts, '1 hour')",
            "unsupported-sql",
            None,
            "keys",
        ),
        ("SELECT 1 AS x FROM a GROUP BY n, ROLLUP (n)", "unsupported-sql", (1, 31), "twice"),
        (
            "SELECT 1 AS x FROM a GROUP BY ROLLUP (n + 1, (n + 1))",
            "unsupported-sql",
            (1, 39),
            "twice",
        ),
        (
            "SELECT 1 AS x FROM a GROUP BY ROLLUP (window(ts, '1 hour'))",
            "unsupported-sql",
            (1, 39),
            "a window inside",
        ),
        (
            f"SELECT 1 AS x FROM a GROUP BY CUBE ({', '.join(['n', 'k', 'v'] * 10)})",
            "too-many-grouping-sets",
            (1, 37),
            "over a million grouping sets",
        ),
        (
            "SELECT 1 AS x FROM a GROUP BY CUBE (n, k, v, d), CUBE (n + 1, k + 1, v + 1, n + 2, n)",
            "too-many-grouping-sets",
            (1, 37),
            "has 512 grouping sets",
        ),
        ("SELECT 1 AS x FROM a GROUP BY ROLLUP (count(*))", "misplaced-aggregate", (1, 39), ""),
        ("SELECT k FROM a GROUP BY ROLLUP (n)", "not-grouped", (1, 8), "a.k"),
        (
            "SELECT grouping(k) AS g FROM a GROUP BY ROLLUP (n)",
            "not-grouped",
            (1, 17),
            "k in grouping() is not a key",
        ),
        ("SELECT grouping() AS g FROM a GROUP BY ROLLUP (n)", "bad-arguments", None, "one key"),
        ("SELECT n FROM a GROUP BY n WITH TOTALS", "unsupported-sql", (1, 8), "TOTALS"),
        ("SELECT n FROM a GROUP BY ROLLUP (4)", "bad-ordinal", (1, 34), "4 is not a position"),
        ("SELECT n FROM a WHERE grouping(n) = 1 GROUP BY n", "misplaced-aggregate", (1, 23), ""),
    ],
)
def test_refusals(sql: str, code: str, position: tuple[int, int] | None, part: str) -> None:
    error = refused(sql)
    assert (error.code, error.field) == (code, "sql")
    assert part in error.message
    if position is not None:
        assert error.position == position


def test_the_limit_of_sets_is_reached() -> None:
    keys = [f"n % {i}" for i in range(2, 2 + MOST_SETS.bit_length() - 1)]
    _, view = parsed(f"SELECT count(*) AS c FROM a GROUP BY CUBE ({', '.join(keys)})")
    assert len(view.sets) == MOST_SETS
    assert reduce(lambda a, b: a and b, (one == tuple(sorted(one)) for one in view.sets))


def test_totals_of_groups_that_share_rows_are_refused() -> None:
    inner = "(SELECT sum(n) FROM a)"
    for clause in ("ROLLUP (k)", "k, window(ts, '2 hours', '1 hour')"):
        error = refused(f"SELECT count(*) AS c FROM a GROUP BY {clause} HAVING sum(n) > {inner}")
        assert "groups that share rows" in error.message
    _, view = parsed(
        f"SELECT count(*) AS c FROM a GROUP BY window(ts, '1 hour') HAVING sum(n) > {inner}"
    )
    assert view.totals
