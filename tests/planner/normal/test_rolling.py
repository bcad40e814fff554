"""Tests of conditions on ``now()`` as limits of rows' age, and of refused ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.types import parse_type
from anabranch_contract.queries.views import View
from anabranch_planner.passes import parse_sql
from tests.support.cases.refusals import refusal
from tests.support.cases.sample_streams import sample_streams

_HOUR = 3_600_000_000
_DAY = 24 * _HOUR


def _view(condition: str) -> tuple[View, dict[str, str]]:
    query = parse_sql("q", f"SELECT k FROM R WHERE {condition}", sample_streams())
    assert query.view is not None
    return query.view, {o.name: str(o.expr) for o in query.projection}


@pytest.mark.parametrize(
    "condition",
    [
        "ts > now() - INTERVAL '24' HOUR",
        "ts > current_timestamp - INTERVAL 1 DAY",
        "now() - INTERVAL '1' DAY < ts",
        "now() < ts + INTERVAL '24' HOUR",
        "now() - ts < INTERVAL '1' DAY",
        "INTERVAL '1' DAY > now() - ts",
        "ts > dateadd(DAY, -1, now())",
        "ts > timestampadd(HOUR, -24, current_timestamp())",
        "ts + INTERVAL '2' DAY - INTERVAL '12' HOUR > now() + INTERVAL '12' HOUR",
        "CAST(ts AS TIMESTAMP_NTZ) > now() - INTERVAL '1' DAY",
        "NOT ts <= now() - INTERVAL '1' DAY",
    ],
)
def test_spellings_of_one_condition(condition: str) -> None:
    view, columns = _view(condition)
    (limit,) = view.limits
    assert (limit.shift, limit.until, limit.unit, limit.delay) == (_DAY, True, 1, 0)
    assert "R.ts" in columns[limit.column]


@pytest.mark.parametrize(
    ("condition", "limits"),
    [
        ("ts >= now() - INTERVAL '1' DAY", [(_DAY + 1, True, 1, 0)]),
        ("ts <= now()", [(0, False, 1, 0)]),
        ("ts < now()", [(1, False, 1, 0)]),
        ("ts BETWEEN now() - INTERVAL '1' DAY AND now()",
         [(_DAY + 1, True, 1, 0), (0, False, 1, 0)]),
        ("date(ts) = current_date()", [(1, True, _DAY, 0), (0, False, _DAY, 0)]),
        ("date(ts) >= current_date() - 7", [(7 * _DAY + 1, True, _DAY, 0)]),
        ("datediff(now(), ts) < 7", [(7 * _DAY, True, _DAY, 0)]),
        ("date(now() - INTERVAL '6' HOUR) < day", [(0, True, _DAY, _DAY // 4)]),
        ("ts > date_trunc('hour', now())", [(0, True, _HOUR, 0)]),
        ("ts > date_trunc('day', date_trunc('hour', now()))", [(0, True, _DAY, 0)]),
        ("ts >= date_trunc('week', now())", [(1 - 4 * _DAY, True, 7 * _DAY, 4 * _DAY)]),
        ("day < trunc(date_trunc('day', now()), 'WEEK')",
         [(1 - 4 * _DAY, False, 7 * _DAY, 4 * _DAY)]),
        ("timestampdiff(HOUR, ts, now()) < 24", [(_DAY, True, 1, 0)]),
        ("24 <= timestampdiff(HOUR, ts, now())", [(_DAY, False, 1, 0)]),
        ("timestampdiff(DAY, ts, now()) = 0", [(1 - _DAY, False, 1, 0), (_DAY, True, 1, 0)]),
        ("unix_millis(now()) <= unix_millis(ts) + 86400000", [(_DAY + 1, True, 1000, 0)]),
    ],
)  # fmt: skip
def test_moments(condition: str, limits: list[tuple[int, bool, int, int]]) -> None:
    view, _ = _view(condition)
    assert [(one.shift, one.until, one.unit, one.delay) for one in view.limits] == limits


@pytest.mark.parametrize(
    "condition",
    [
        "ts > now() OR ts < now() - INTERVAL '1' DAY",
        "ts > now() - INTERVAL '400000' DAY OR k = 1",
        "date_trunc('month', now() + INTERVAL '1' MONTH) < ts",
        "date_trunc('month', date_trunc('week', now())) < ts",
        "date_trunc('month', now()) + INTERVAL '1' DAY - INTERVAL '1' MONTH < ts",
        "unix_seconds(now()) + datediff(now(), ts) < 5",
        "CASE WHEN ts > now() THEN true END",
        "year(ts) = year(now())",
        "ts > now() - INTERVAL '1' MONTH",
        "ts = greatest(now(), ts)",
        "ts <> now()",
        "timestampdiff(MONTH, ts, now()) < 24",
        "timestampdiff(HOUR, ts, now()) <> 24",
        "now() > now()",
        "now() IS NOT NULL",
    ],
)
def test_conditions_without_one_moment(condition: str) -> None:
    error = refusal(f"SELECT k FROM R\nWHERE {condition}")
    assert error.code == "unsupported-sql"
    assert error.position is not None
    assert error.position[0] == 2
    assert "INTERVAL '" in error.remedy or "date_trunc('" in error.remedy


@pytest.mark.parametrize(
    ("condition", "limits"),
    [
        ("ts >= date_trunc('month', now())", [(1, True, 1, 0)]),
        ("ts < date_trunc('QUARTER', now())", [(1, False, 3, 0)]),
        ("trunc(day, 'YEAR') = trunc(now(), 'YEAR')", [(1, True, 12, 0), (0, False, 12, 0)]),
        ("ts > date_trunc('month', now()) - INTERVAL '2' MONTH", [(0, True, 1, -2)]),
        ("ts > date_trunc('year', date_trunc('month', now()))", [(0, True, 12, 0)]),
        ("day >= add_months(trunc(current_date(), 'MM'), 12)", [(1, True, 1, 12)]),
    ],
)
def test_moments_at_the_first_of_months(
    condition: str, limits: list[tuple[int, bool, int, int]]
) -> None:
    view, _ = _view(condition)
    assert [(one.shift, one.until, one.months, one.later) for one in view.limits] == limits


def test_alternatives_without_the_clock_are_moments_far_away() -> None:
    view, columns = _view("NOT (ts <= now() - INTERVAL '1' DAY AND k <> 1 OR ts > now())")
    assert [limit.until for limit in view.limits] == [True, False]
    assert ["CASE" in columns[limit.column] for limit in view.limits] == [True, False]


@pytest.mark.parametrize("clauses", ["", "ORDER BY k", "GROUP BY R.k", "ORDER BY k LIMIT 3"])
@pytest.mark.parametrize("join", ["R", "R JOIN S ON S.k = R.k", "R LEFT JOIN S ON S.k = R.k"])
def test_rows_of_every_clause_leave(join: str, clauses: str) -> None:
    sql = f"SELECT R.k FROM {join} WHERE R.ts > now() - INTERVAL '1' HOUR {clauses}"
    query = parse_sql("q", sql, sample_streams())
    assert query.view is not None
    assert query.view.limits
    assert (query.view.copies is None) == clauses.startswith(("GROUP", "ORDER BY k LIMIT"))
    assert query.unsorted == (clauses == "ORDER BY k")


@pytest.mark.parametrize(
    "condition",
    ["now() > ts + wait", "ts < now() - wait", "NOT now() - ts <= wait"],
)
def test_lengths_of_time_of_rows(condition: str) -> None:
    wait = ("wait", parse_type("interval day to second"))
    known = sample_streams()
    streams = {**known, "R": replace(known["R"], columns=(*known["R"].columns, wait))}
    query = parse_sql("q", f"SELECT k FROM R WHERE {condition}", streams)
    assert query.view is not None
    (limit,) = query.view.limits
    assert (limit.shift, limit.until, limit.unit, limit.delay) == (1, False, 1, 0)
    columns = {o.name: str(o.expr) for o in query.projection}
    assert columns[limit.column] == "(R.ts + R.wait)"


def test_operands_of_a_union_have_equal_limits() -> None:
    one = "SELECT k FROM R WHERE ts > now() - INTERVAL '1' HOUR UNION ALL SELECT k FROM S"
    with pytest.raises(QueryError, match="differ between the operands"):
        parse_sql("q", one, sample_streams())
    view = parse_sql("q", f"{one} WHERE ts > now() - INTERVAL '1' HOUR", sample_streams()).view
    assert view is not None
    assert len(view.limits) == 1
