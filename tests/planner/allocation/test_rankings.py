"""Tests of the choice of the attributes by which a goal's tuples are ranked under rations."""

from __future__ import annotations

from anabranch_contract.plans.rations import Ranking, RationedGoal
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.allocation.rankings import (
    goal_name,
    rationed_goals,
    tied_queries,
    universe,
)
from anabranch_planner.passes import parse_sql

_LONG, _TIME = parse_type("bigint"), parse_type("timestamp")
STREAMS = {
    name: Stream(StreamName(name), tuple((c, _LONG) for c in columns))
    for name, columns in {"r": "kax", "s": "kab", "t": "kbc", "e": "pc"}.items()
} | {"v": Stream(StreamName("v"), (("k", _LONG), ("a", _LONG), ("at", _TIME)), "at")}


def _query(sql: str, name: str = "q") -> JoinQuery:
    return parse_sql(name, f"SELECT 1 AS one FROM {sql}", STREAMS)


def _goals(*queries: JoinQuery) -> dict[tuple[str, str], Ranking]:
    streams = {s.name: s for s in STREAMS.values()}
    alias = {(str(q.id), m.label): m.alias for q in queries for m in q.members}
    found = rationed_goals(queries, streams)
    return {(str(g.query), alias[str(g.query), g.start]): g.ranking for g in found}


def _of(*columns: str, by_batch: bool = True, kind: str = "bigint") -> Ranking:
    return Ranking(tuple((c, kind) for c in columns), by_batch)


def test_a_stream_is_ranked_alike_for_all_queries() -> None:
    one = _query("r JOIN s ON r.k = s.k", "one")
    other = _query("r JOIN s ON r.a = s.a JOIN t ON s.b = t.b", "other")
    found = _goals(one, other)
    assert found["one", "r"] == found["other", "r"] == _of("k", "a")
    assert found["one", "s"] == found["other", "s"] == _of("k", "a", "b")
    assert found["other", "t"] == _of("b")


def test_event_times_count() -> None:
    found = _goals(_query("v JOIN r ON v.a = r.a"))
    assert found["q", "v"] == Ranking((("a", "bigint"), ("at", "timestamp")), by_batch=True)


def test_a_stream_that_is_read_twice_is_ranked_by_its_event_time() -> None:
    found = _goals(_query("v AS one JOIN v AS two ON one.a = two.k JOIN r ON r.x = two.a"))
    by_time = _of("at", kind="timestamp")
    assert found["q", "one"] == found["q", "two"] == by_time
    assert found["q", "r"] == _of("x")


def test_without_event_time_it_is_ranked_by_a_common_key() -> None:
    common = _query("r AS one JOIN r AS two ON one.k = two.k JOIN s ON s.k = one.k AND s.a = two.x")
    assert set(_goals(common).values()) == {_of("k", by_batch=False)}
    pair = _query("e AS child JOIN e AS parent ON child.p = parent.c")
    found = _goals(pair)
    assert found["q", "child"] == _of("p", by_batch=False)
    assert found["q", "parent"] == _of("c", by_batch=False)
    chain = _query("e AS a JOIN e AS b ON a.p = b.c JOIN e AS c ON b.p = c.c")
    assert _goals(chain) == {}


def test_a_universe_is_a_class_that_all_aliases_share() -> None:
    streams = {s.name: s for s in STREAMS.values()}
    star = _query("r JOIN s ON r.k = s.k JOIN t ON t.k = s.k AND t.b = s.b")
    (found,) = universe(star, streams)
    assert set(found.values()) == {_of("k", by_batch=False)}
    assert universe(_query("r JOIN s ON r.a = s.a JOIN t ON s.b = t.b"), streams) == ()
    derived = _query("r JOIN s ON r.k + 1 = s.k")
    assert universe(derived, streams) == ()


def test_views_are_rationed() -> None:
    sums = parse_sql(
        "sums", "SELECT r.k, count(*) AS n FROM r JOIN s ON r.k = s.k GROUP BY 1", STREAMS
    )
    assert sums.view is not None
    found = rationed_goals([sums], {s.name: s for s in STREAMS.values()})
    assert {str(goal.query) for goal in found} == {"sums"}


_TIMED = {n: Stream(StreamName(n), STREAMS["v"].columns, "at", 0) for n in "vwx"}


def _outer(on: str, left: str = "w") -> tuple[RationedGoal, ...]:
    near = "v.at BETWEEN w.at AND w.at + INTERVAL 1 HOUR"
    sql = f"SELECT w.k, v.a FROM {left} LEFT JOIN v ON {on} AND {near}"
    query = parse_sql("q", sql, _TIMED)
    assert query.outer is not None
    return rationed_goals(query.planned, {s.name: s for s in _TIMED.values()})


def test_both_joins_of_an_outer_join_are_ranked_by_a_key_of_its_condition() -> None:
    found = _outer("v.k = w.a AND v.a = w.k")
    by_name = {goal_name(g.query, g.start): g.ranking for g in found}
    assert set(by_name) == {("q", "v"), ("q", "w"), ("q", "w+left")}
    assert tied_queries(found) == {"q"}
    # One class of equal columns: the partner's column equals another column of the left row.
    classes = {
        frozenset((by_name["q", "v"], by_name["q", "w"])),
        frozenset((_of("k", by_batch=False), _of("a", by_batch=False))),
    }
    assert len(classes) == 1
    assert by_name["q", "w+left"] == by_name["q", "w"]


def test_an_outer_join_needs_a_key_that_all_of_its_aliases_share() -> None:
    assert {str(g.query) for g in _outer("v.k = w.k", "w JOIN x ON w.k = x.a")} == {"q", "q+left"}
    assert _outer("v.k = w.k", "w JOIN x ON w.a = x.a") == ()
    assert _outer("v.k = w.k + 1") == ()


def test_kept_outer_joins_are_not_rationed() -> None:
    query = parse_sql("q", "SELECT w.k FROM w LEFT JOIN v ON v.k = w.k", _TIMED)
    assert query.outer is not None
    assert query.outer.kept
    assert rationed_goals(query.planned, {s.name: s for s in _TIMED.values()}) == ()


def test_branches_of_unions_are_not_rationed() -> None:
    other = _query("r JOIN s ON r.k = s.k", "other")
    union = parse_sql(
        "all",
        "SELECT r.x FROM r JOIN s ON r.k = s.k UNION ALL SELECT t.c FROM t JOIN s ON s.b = t.b",
        STREAMS,
    )
    streams = {s.name: s for s in STREAMS.values()}
    goals = rationed_goals((other, *union.planned), streams)
    assert {str(goal.query) for goal in goals} == {"other"}
