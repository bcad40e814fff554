"""Tests that different spellings of a query are the same query: subqueries, WITH, parentheses,
NATURAL, column lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest

from anabranch_contract.errors import QueryError
from anabranch_contract.plans.plan import Plan
from anabranch_contract.queries.joins import JoinQuery, QueryId, Stream, StreamName
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import optimise, parse_sql, parse_structured
from anabranch_planner.plans.optimise import Options
from tests.support.cases.sample_streams import sample_streams
from tests.support.cases.syntaxes import Respelled, respell
from tests.support.scenarios.queries import World
from tests.support.scenarios.rows import RECORDED, make_tables
from tests.support.scenarios.seeds import mostly_slow
from tests.support.worlds.in_memory import type_of

STREAMS = sample_streams()
MINUTE = 60_000_000
PLAIN = "SELECT R.k, S.x FROM R JOIN S ON R.k = S.k WHERE R.x > 3"


def query(sql: str, window: int | Mapping[str, int] | None = None) -> JoinQuery:
    return parse_sql("q", sql, STREAMS, window)


def meaning(q: JoinQuery) -> JoinQuery:
    """``q`` without what only people see: its aliases, their order, the original equalities."""
    order = sorted(range(len(q.members)), key=lambda i: q.members[i].label)
    return replace(
        q,
        id=QueryId(""),
        predicates=(),
        members=tuple(replace(q.members[i], alias="") for i in order),
        relations=tuple(sorted(q.relations, key=lambda r: r.id)),
        bounds=tuple(tuple(q.bounds[i][j] for j in order) for i in order),
    )


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT c.k, S.x FROM (SELECT k FROM R WHERE x > 3) AS c JOIN S ON c.k = S.k",
        "SELECT c.k, S.x FROM (SELECT * FROM R) AS c JOIN S ON c.k = S.k WHERE c.x > 3",
        "WITH c AS (SELECT k FROM R WHERE x > 3) SELECT c.k, S.x FROM c JOIN S ON c.k = S.k",
        "WITH c(key, big) AS (SELECT k, x FROM R) "
        "SELECT key AS k, S.x FROM c, S WHERE S.k = key AND big > 3",
        "WITH c AS (SELECT * FROM R), d AS (SELECT * FROM c WHERE x > 3) "
        "SELECT d.k, S.x FROM d JOIN S USING (k)",
        "SELECT j.k, j.sx AS x FROM (SELECT R.k, R.x, S.x AS sx FROM R, S WHERE R.k = S.k) j "
        "WHERE j.x > 3",
        "SELECT k, x FROM (SELECT R.k, S.x FROM R JOIN S USING (k) WHERE R.x > 3)",
        "SELECT R.k, S.x FROM (R JOIN S ON R.k = S.k) WHERE 3 < R.x",
        "SELECT R.k, S.x FROM ((R JOIN S ON R.k = S.k)) WHERE R.x > 3",
        "SELECT j.a AS k, j.d AS x FROM (SELECT R.k, R.x, S.k AS sk, S.x AS sx FROM R, S)"
        " AS j(a, b, c, d) WHERE c = a AND b > 3",
        "SELECT k, m.x FROM (SELECT k FROM R WHERE x > 3) n NATURAL JOIN (SELECT k, x FROM S) m",
        "SELECT k, b.x FROM (SELECT k FROM R WHERE x > 3) a NATURAL INNER JOIN"
        " ((SELECT k, x FROM S) AS b)",
        "WITH R AS (SELECT * FROM R WHERE x > 3) SELECT R.k, S.x FROM R JOIN S ON R.k = S.k",
        "SELECT * FROM (WITH c AS (SELECT k FROM R WHERE x > 3) "
        "SELECT c.k, S.x FROM c, S WHERE c.k = S.k) AS whole",
    ],
)
def test_a_query_in_from_leaves_no_trace(sql: str) -> None:
    assert meaning(query(sql)) == meaning(query(PLAIN))


def pairs(seed: int, count: int) -> Iterator[tuple[JoinQuery, JoinQuery, Respelled]]:
    """Return random queries, each in plain and in other SQL."""
    rng = np.random.default_rng(seed)
    tables = make_tables(rng, 8, RECORDED)
    columns = {t.name: [str(c) for c in t.data.column_names] for t in tables}
    streams = {
        t.name: Stream(
            StreamName(t.name),
            tuple((f.name, type_of(f.type)) for f in t.data.schema),
            t.event_time,
        )
        for t in tables
    }
    world = World(tables, 1000, rng, brief=False)
    for _ in range(count):
        draft = world.draft(int(rng.integers(1, 6)))
        said = respell(draft, columns, rng)
        window = {"a": 60 * MINUTE} if all(t.event_time for t in tables) else None
        moved = window and {said.aliases["a"]: 60 * MINUTE}
        try:
            plain = parse_sql("plain", draft.spark(commas=False), streams, window)
        except QueryError:
            with pytest.raises(QueryError):
                parse_sql("respelled", said.sql, streams, moved)
            continue
        yield plain, parse_sql("respelled", said.sql, streams, moved), said


@pytest.mark.parametrize("seed", mostly_slow(range(150), 40))
def test_random_queries_in_other_words_are_the_same(seed: int) -> None:
    for plain, again, said in pairs(seed, 4):
        assert meaning(again) == meaning(plain), said.sql
        assert {m.alias for m in again.members} == set(said.aliases.values())


def routes(plan: Plan, query: JoinQuery) -> set[tuple[object, ...]]:
    """Return the steps to which the tuples of ``query`` are sent."""
    return {(o.start, o.steps) for o in plan.orders if o.goal == query.id}


@pytest.mark.parametrize("seed", mostly_slow(range(1000, 1050), 10))
def test_two_queries_that_say_the_same_are_one_plan(seed: int) -> None:
    for plain, again, _ in pairs(seed, 2):
        alone = optimise([plain], Statistics(), Options(parallelism=2))
        both = optimise([plain, again], Statistics(), Options(parallelism=2))
        assert routes(both, plain) == routes(both, again)
        # Which of several plans with equal cost is chosen may differ.
        assert both.cost == pytest.approx(alone.cost)


# --- names ---------------------------------------------------------------------------------------


def test_streams_inside_are_called_by_their_path() -> None:
    sql = (
        "WITH c AS (SELECT o.k FROM R AS o JOIN S USING (k)) "
        "SELECT a.k FROM c AS a JOIN c AS b USING (k) JOIN (SELECT k FROM T) USING (k)"
    )
    q = query(sql)
    assert [m.alias for m in q.members] == ["a.o", "a.S", "b.o", "b.S", "subquery3.T"]


def test_a_window_may_name_a_query_in_from() -> None:
    sql = "SELECT c.k FROM (SELECT R.k FROM R JOIN S USING (k)) c JOIN T USING (k)"
    inner = query(sql, {"c": MINUTE})
    assert inner.bounds == ((0, MINUTE, MINUTE), (MINUTE, 0, MINUTE), (None, None, 0))
    assert query(sql, {"C.s": MINUTE}).bounds[1] == (MINUTE, 0, MINUTE)
    with pytest.raises(QueryError) as caught:
        query(sql, {"c": MINUTE, "c.R": MINUTE})
    assert (caught.value.code, caught.value.field) == ("duplicate-alias", "window.c.R")


def test_event_times_are_seen_through_queries() -> None:
    q = query(
        "SELECT a.k FROM (SELECT k, ts AS seen FROM R) a JOIN (SELECT k, ts - INTERVAL 1 MINUTE"
        " AS early FROM S) b ON a.k = b.k AND a.seen BETWEEN b.early AND b.early + INTERVAL 1 HOUR"
    )
    assert q.bounds == ((0, MINUTE), (59 * MINUTE, 0))
    assert not q.residuals


def test_expressions_of_a_query_may_be_keys() -> None:
    q = query("SELECT a.n FROM (SELECT lower(s) AS n FROM R) a JOIN S ON a.n = S.s")
    plain = query("SELECT lower(R.s) AS n FROM R JOIN S ON lower(R.s) = S.s")
    assert meaning(q) == meaning(plain)
    assert q.derived


# --- refusals, with their places ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "code", "position", "message"),
    [
        ("SELECT k\nFROM R, W", "unknown-stream", (2, 9), "'W'"),
        ("SELECT R.k,\n  R.nope AS n FROM R", "unknown-column", (2, 3), "'nope'"),
        ("SELECT k FROM R\nWHERE x > 1\n  AND foo(k) = 2", "unknown-function", (3, 7), "foo"),
        ("SELECT k FROM R JOIN S\n ON R.k = S.k", "ambiguous-column", (1, 8), "R.k or S.k"),
        ("SELECT k FROM R WHERE k =\n = 1", "malformed-sql", (2, 2), "near '='"),
        ("SELECT k FROM R\nWHERE s = 'it''s' AND s > 'a", "malformed-sql", (2, 27), "unclosed"),
        ("SELECT k /* all\nFROM R WHERE s = 'a'", "malformed-sql", (1, 10), "unclosed"),
        ("SELECT `k FROM R", "malformed-sql", (1, 8), "unclosed"),
        ("SELECT k FROM (SELECT DISTINCT k FROM R) q", "unsupported-sql", (1, 32), "DISTINCT"),
        ("SELECT k FROM\n(SELECT k FROM R GROUP BY k) a", "unsupported-sql", (2, 27), "GROUP"),
        ("SELECT a.x FROM (SELECT k FROM R) a", "unknown-column", (1, 8), "subquery 'a'"),
        ("SELECT o.k FROM (SELECT o.k FROM R o) a", "unknown-alias", (1, 8), "'o'"),
        ("SELECT k FROM R AS a(b, c)", "bad-column-list", (1, 15), "2 names"),
        ("WITH c(a) AS (SELECT k, x FROM R)\nSELECT a FROM c", "bad-column-list", (1, 6), ""),
        ("WITH c AS (SELECT k FROM R),\n C AS (SELECT k FROM S) SELECT k FROM c",
         "duplicate-alias", (2, 2), "WITH names 'C' twice"),
        ("WITH RECURSIVE c AS (SELECT k FROM R)\nSELECT k FROM c", "unsupported-sql", (1, 16),
         "RECURSIVE"),
        ("SELECT k FROM R a JOIN (SELECT k FROM S) A USING (k)", "duplicate-alias", (1, 32), "'A'"),
        ("SELECT k FROM R WHERE s > 'a' AND\n s = 5", "type-mismatch", (2, 2), "5"),
        ("SELECT k + s AS t FROM R", "type-mismatch", (1, 8), "string"),
        ("SELECT k FROM (SELECT k, x AS k FROM R) a", "ambiguous-column", (1, 8), "R.k or"),
    ],
)  # fmt: skip
def test_a_refusal_says_where(sql: str, code: str, position: tuple[int, int], message: str) -> None:
    with pytest.raises(QueryError) as caught:
        query(sql)
    error = caught.value
    assert (error.code, error.position, error.field) == (code, position, "sql")
    assert message in error.message
    assert f"sql: line {position[0]}, column {position[1]}: " in str(error)
    assert error.remedy


def test_a_place_in_a_structured_query_counts_in_its_part() -> None:
    document = {"from": ["R", "S"], "join": ["R.k = S.k"], "where": ["R.x > 1", "S.x = nope"]}
    with pytest.raises(QueryError) as caught:
        parse_structured("q", document, STREAMS)
    assert (caught.value.field, caught.value.position) == ("where[1]", (1, 7))
    with pytest.raises(QueryError) as caught:
        parse_structured("q", document | {"where": ["R.x >"]}, STREAMS)
    assert caught.value.field == "where[0]"


# --- bounded effort ------------------------------------------------------------------------------


def test_doubling_subqueries_are_refused_at_once() -> None:
    doubled = ["c0 AS (SELECT k FROM R)"]
    for n in range(1, 60):
        doubled.append(f"c{n} AS (SELECT a.k FROM c{n - 1} a JOIN c{n - 1} b USING (k))")
    with pytest.raises(QueryError) as caught:
        query(f"WITH {', '.join(doubled)} SELECT k FROM c59")
    assert caught.value.code == "too-many-sources"


def test_doubling_expressions_are_refused_at_once() -> None:
    inner = "SELECT k FROM R"
    for _ in range(40):
        inner = f"SELECT k + k AS k FROM ({inner}) a"
    with pytest.raises(QueryError) as caught:
        query(inner)
    assert caught.value.code == "too-large"


def test_ten_thousand_conditions_are_read() -> None:
    terms = " AND ".join(f"x <> {n}" for n in range(10_000))
    q = query(f"SELECT k FROM R WHERE {terms}")
    assert len(q.relations[0].filter) == 10_000
    either = " OR ".join(f"x = {n}" for n in range(10_000))
    assert len(query(f"SELECT k FROM R WHERE {either}").relations[0].filter) == 1
