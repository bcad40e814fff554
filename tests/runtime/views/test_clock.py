"""Tests of views' clocks (watermarks), with times of any year: no row of a view or outer join is
lost.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch_contract.plans.ruleset import QuerySpec, Ruleset
from anabranch_planner.passes import parse_sql
from anabranch_runtime.tables.joins.outer import FIRST
from anabranch_runtime.views.clock import clock_of
from tests.support.scenarios.seeds import mostly_slow
from tests.support.worlds.far_times import run_outer, run_windows
from tests.support.worlds.outer_runs import STREAMS

#: 28 and 29: left rows whose deadlines had passed waited for the partner's stream, which was at the
#: end of the year 9999.
OUTER = (28, 1, 0, 3, 29)


def test_a_bound_longer_than_all_of_time_leaves_a_clock_that_can_be_written() -> None:
    query = parse_sql(
        "v",
        "SELECT window.start AS s, count(*) AS n FROM a JOIN c ON c.k = a.k AND c.ts BETWEEN "
        "a.ts AND a.ts + INTERVAL '100000000' DAY GROUP BY window(a.ts, '1 hour')",
        STREAMS,
    )
    members = tuple((m.alias, m.label, m.relation) for m in query.members)
    spec = QuerySpec(query.id, members, query.bounds, query.projection, view=query.view)
    streams = tuple(STREAMS.values())
    ruleset = Ruleset(0, streams, query.relations, (spec,), (), (), (), ())
    clock = clock_of(spec, ruleset, {"a": 0, "c": 0})
    assert clock == FIRST


def test_windows_over_a_kept_outer_join_never_end() -> None:
    """A partner may arrive at any time, and changes the row of its left row's window."""
    query = parse_sql(
        "v",
        "SELECT window.start AS s, count(c.k) AS n FROM a LEFT JOIN c ON c.k = a.k AND c.ts >= a.ts"
        " GROUP BY window(a.ts, '1 hour')",
        STREAMS,
    )
    assert query.left is not None
    pairs, left = (
        QuerySpec(
            q.id,
            tuple((m.alias, m.label, m.relation) for m in q.members),
            q.bounds,
            q.projection,
            view=q.view,
            outer=q.outer,
            left_of=None if q is query else query.id,
        )
        for q in (query, query.left)
    )
    relations = (*query.relations, *query.left.relations)
    ruleset = Ruleset(0, tuple(STREAMS.values()), relations, (pairs, left), (), (), (), ())
    assert clock_of(pairs, ruleset, {"a": 10**15, "c": 10**15}) is None


def test_the_clock_of_a_union_is_the_least_of_its_branches() -> None:
    query = parse_sql(
        "v",
        "SELECT window.start AS s, count(*) AS n FROM (SELECT ts FROM a UNION ALL SELECT ts FROM c)"
        " u GROUP BY window(ts, '1 hour')",
        STREAMS,
    )
    specs = tuple(
        QuerySpec(
            q.id,
            tuple((m.alias, m.label, m.relation) for m in q.members),
            q.bounds,
            q.projection,
            view=q.view,
            united=True,
        )
        for q in query.planned
    )
    relations = tuple(r for q in query.planned for r in q.relations)
    ruleset = Ruleset(0, tuple(STREAMS.values()), relations, specs, (), (), (), ())
    marks = {"a": 10**15, "c": 10**15 + 1}
    assert clock_of(specs[0], ruleset, marks) == 10**15
    assert clock_of(specs[0], ruleset, {**marks, "c": 5}) == 5
    # No row of a stream has arrived: any of its windows may still get rows.
    assert clock_of(specs[0], ruleset, {"a": 10**15}) is None


@pytest.mark.parametrize("seed", mostly_slow(range(5), 2))
def test_no_row_of_any_year_is_missing_in_windows(seed: int, tmp_path: Path) -> None:
    run_windows(tmp_path, seed)


@pytest.mark.parametrize("seed", mostly_slow(OUTER, 2))
def test_no_left_row_of_any_year_is_missing(seed: int, tmp_path: Path) -> None:
    run_outer(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
@pytest.mark.parametrize("run", [run_windows, run_outer])
def test_many_times_of_any_year(
    run: Callable[[Path, int], object],
    seed: int,
    tmp_path: Path,
) -> None:
    run(tmp_path, seed)
