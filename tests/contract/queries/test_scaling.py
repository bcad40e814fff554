"""Tests of the columns of views that are scaled under rations, and of those marked as partial, by
function.
"""

from __future__ import annotations

import pytest

from anabranch_contract.queries import scaling
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.scaling import partial_marks, scalable
from anabranch_contract.queries.types import parse_type
from anabranch_contract.queries.views import AggregateFunction
from anabranch_planner.passes import parse_sql

_COLUMNS = {"k": "int", "g": "string", "d": "decimal(8,2)", "n": "bigint", "ts": "timestamp"}
STREAM = Stream(
    StreamName("t"), tuple((c, parse_type(t)) for c, t in _COLUMNS.items()), "ts", lateness=0
)


def said(sql: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the scaled columns, and the marked ones."""
    view = parse_sql("v", sql, {"t": STREAM}).view
    assert view is not None
    return list(scalable(view)), [(m.column, m.code) for m in partial_marks(view)]


@pytest.mark.parametrize(
    ("aggregate", "code"),
    [
        ("count(*)", None),
        ("count(n)", None),
        ("count(*) FILTER (WHERE n > 1)", None),
        ("count_if(n > 1)", None),
        ("sum(d)", None),
        ("avg(d)", None),
        ("CAST(avg(d) AS DOUBLE)", None),
        ("min(g)", "min"),
        ("max(n)", "max"),
        ("bool_or(n > 1)", "max"),
        ("count(DISTINCT g)", "distinct"),
        ("stddev(n)", "stddev_samp"),
        ("var_pop(n)", "var_pop"),
        ("sum(n) / count(n)", "expression"),
        ("CAST(sum(n) AS STRING)", "expression"),
        ("sum(DISTINCT n)", "distinct"),
        ("approx_count_distinct(n)", "distinct"),
        ("max_by(g, n)", "max_by"),
        ("min_by(g, n)", "min_by"),
        ("median(n)", "percentile_cont"),
        ("percentile_approx(n, 0.5)", "percentile_disc"),
        ("listagg(g, ',')", "listagg"),
        ("listagg(DISTINCT g)", "distinct"),
        ("corr(n, d)", "corr"),
        ("covar_pop(n, d)", "covar_pop"),
        ("covar_samp(n, d)", "covar_samp"),
        ("regr_slope(n, d)", "regr_slope"),
        ("regr_intercept(n, d)", "regr_intercept"),
        ("regr_r2(n, d)", "regr_r2"),
        ("regr_sxx(n, d)", "regr_sxx"),
        ("regr_sxy(n, d)", "regr_sxy"),
        ("regr_syy(n, d)", "regr_syy"),
        ("skewness(d)", "skewness"),
        ("kurtosis(d)", "kurtosis"),
        ("bit_and(n)", "bit_and"),
        ("bit_or(n)", "bit_or"),
        ("bit_xor(n)", "bit_xor"),
        ("mode(n)", "mode"),
    ],
)
def test_each_function(aggregate: str, code: str | None) -> None:
    scaled, marks = said(f"SELECT k, {aggregate} AS o FROM t GROUP BY k")
    assert scaled == ([] if code else ["o"])
    assert marks == [("", "groups"), *([("o", code)] if code else [])]


def test_which_rows_there_are() -> None:
    having = "SELECT k, count(*) AS c FROM t GROUP BY k HAVING count(*) > 2 ORDER BY c LIMIT 3"
    assert said(having) == (["c"], [("", "groups"), ("", "having"), ("", "limit")])
    assert said("SELECT DISTINCT k FROM t") == ([], [("", "distinct")])
    assert said("SELECT k FROM t ORDER BY n LIMIT 3") == ([], [("", "limit")])
    places = "SELECT k, rank() OVER (ORDER BY n) AS r FROM t QUALIFY r < 3"
    assert said(places) == ([], [("", "limit"), ("r", "place")])
    session = "SELECT count(*) AS c FROM t GROUP BY session_window(ts, '1 minute')"
    assert said(session) == (["c"], [("", "groups"), ("", "sessions")])
    # An aggregate without GROUP BY always has one row.
    assert said("SELECT count(*) AS c FROM t") == (["c"], [])
    share = "SELECT k, sum(n) / (SELECT sum(n) FROM t) AS p FROM t GROUP BY k"
    assert said(share) == ([], [("", "groups"), ("p", "expression")])


def test_each_function_has_a_reason_of_its_own() -> None:
    calls = ["max_by(g, n)", "median(n)", "listagg(g)", "corr(n, d)", "sum(DISTINCT n)", "max(n)"]
    view = parse_sql("v", f"SELECT {', '.join(f'{c} AS c{i}' for i, c in enumerate(calls))} FROM t",
                     {"t": STREAM}).view  # fmt: skip
    assert view is not None
    reasons = [m.reason for m in partial_marks(view)]
    assert len(set(reasons)) == len(calls)
    assert all("that were kept" in reason for reason in reasons)


def test_every_aggregate_that_is_not_scaled_has_a_reason() -> None:
    assert {*scaling._REASONS, *scaling.SCALABLE} == set(AggregateFunction)
