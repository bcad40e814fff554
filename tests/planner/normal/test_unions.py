"""Tests of set operations: DuckDB's rows, normal forms, and refusals with place and remedy."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.logical.plan import logical_plan
from anabranch_planner.passes import parse_sql
from anabranch_planner.sql.dialects import to_spark
from tests.planner.statements.test_against_duckdb import TABLES, duckdb_rows
from tests.support.cases.sample_streams import sample_streams
from tests.support.scenarios.seeds import mostly_slow
from tests.support.worlds.batch import batch_rows

STREAMS = sample_streams()
#: Operands with two numbers and a text, of different types.
OPERANDS = (
    "SELECT x, y, s FROM o",
    "SELECT x, x AS z, s FROM o WHERE y > 1",
    "SELECT u, v, t FROM p",
    "SELECT v, u, t FROM p",
    "SELECT o.x, p.u, o.s FROM o JOIN p ON o.id = p.id",
    "SELECT p.v, o.y + 1, p.t FROM o JOIN p ON o.x = p.u",
    "SELECT x, CAST(y AS DOUBLE), s FROM o",
    "SELECT u, CAST(NULL AS INT), t FROM p",
    "SELECT 1, v, 'a' FROM p",
    "SELECT o.x, 2, o2.s FROM o JOIN o o2 ON o2.x = o.x AND o2.y < o.y",
)
DISTINCT = ("UNION", "INTERSECT", "EXCEPT")


def _some(rng: Random, depth: int, *, every: bool) -> str:
    """A random set operation, or an operand; ``every``: INTERSECT ALL and EXCEPT ALL, too."""
    if depth == 0 or rng.random() < 0.3:
        return rng.choice(OPERANDS)
    operation = rng.choice((*DISTINCT, "UNION ALL"))
    sides = [_some(rng, depth - 1, every=False) for _ in range(2)]
    if every and rng.random() < 0.7:
        operation = rng.choice(("EXCEPT ALL", "INTERSECT ALL"))
    texts = [f"({side})" if rng.random() < 0.5 or " ALL " in side else side for side in sides]
    return f"{texts[0]} {operation} {texts[1]}"


@pytest.mark.parametrize("seed", mostly_slow(range(150), 40))
def test_rows_are_those_of_duckdb(seed: int) -> None:
    rng = Random(seed)
    parts = [_some(rng, 2, every=True) for _ in range(rng.choice((1, 1, 2)))]
    sql = f" {rng.choice(DISTINCT)} ".join(f"({part})" for part in parts)
    if len(parts) == 1 and rng.random() < 0.5:
        sql = parts[0]
    assert Counter(batch_rows(sql, TABLES)) == Counter(duckdb_rows(sql)), sql


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT x FROM o UNION SELECT v FROM p INTERSECT SELECT y FROM o",
        "(SELECT x FROM o UNION SELECT v FROM p) INTERSECT SELECT y FROM o",
        "SELECT x FROM o EXCEPT SELECT v FROM p UNION SELECT y FROM o",
        "SELECT x FROM o EXCEPT ALL SELECT v FROM p EXCEPT ALL SELECT y FROM o",
        "SELECT x FROM o UNION ALL SELECT x FROM o EXCEPT ALL SELECT v FROM p",
        "SELECT x FROM o INTERSECT ALL (SELECT v FROM p UNION ALL SELECT x FROM o)",
        "SELECT x FROM o UNION ALL SELECT v FROM p ORDER BY 1 DESC NULLS LAST LIMIT 4",
        "SELECT x, s FROM o UNION SELECT v, t FROM p ORDER BY s NULLS FIRST, x NULLS LAST LIMIT 5",
        "SELECT u.x, p.t FROM (SELECT x FROM o UNION ALL SELECT y FROM o) u JOIN p ON p.v = u.x",
        "WITH u AS (SELECT x, s FROM o UNION ALL SELECT v, t FROM p) "
        "SELECT u.s, count(*) AS n, sum(w.x) AS m FROM u JOIN u w ON w.s = u.s GROUP BY u.s",
        "SELECT a, count(*) AS n FROM (SELECT x, y FROM o UNION ALL SELECT u, v FROM p) q(a, b) "
        "WHERE b > 1 GROUP BY a HAVING count(*) > 1",
        "SELECT DISTINCT s FROM (SELECT s FROM o UNION ALL SELECT t FROM p) u",
        "SELECT q.x AS a, q.x + 1 AS b FROM (SELECT x FROM (SELECT x FROM o UNION ALL SELECT v "
        "FROM p) r WHERE x > 1 UNION ALL (SELECT y FROM o)) q WHERE q.x < 3",
    ],
)
def test_statements_over_set_operations(sql: str) -> None:
    assert Counter(batch_rows(sql, TABLES)) == Counter(duckdb_rows(sql))


def parsed(sql: str, **more: Any) -> JoinQuery:
    return parse_sql("q", sql, STREAMS, **more)


def test_union_all_is_one_join_per_operand() -> None:
    sql = "SELECT k, s FROM R UNION ALL SELECT S.l, T.s FROM S JOIN T ON T.k = S.k"
    query = parsed(sql)
    assert [join.id for join in query.planned] == ["q", "q+union2"]
    # No result can be deleted, so results are rows, not changes of a table.
    assert query.view is None
    assert [(o.name, str(o.expr.type)) for o in query.shown] == [("k", "bigint"), ("s", "string")]
    assert [[str(o.expr) for o in join.projection] for join in query.planned] == [
        ["cast(R.k as bigint)", "R.s"],
        ["S.l", "T.s"],
    ]


def test_branches_have_aliases_of_their_own() -> None:
    union = "(SELECT k FROM R UNION ALL SELECT k FROM S)"
    query = parsed(f"SELECT u.k FROM {union} u JOIN {union} w ON w.k = u.k")
    assert [[m.alias for m in join.members] for join in query.planned] == [
        ["u.R", "w.R"],
        ["u.R#2", "w.S"],
        ["u.S", "w.R#3"],
        ["u.S#4", "w.S#4"],
    ]


def test_a_filter_and_a_window_reach_every_branch() -> None:
    union = "(SELECT k, ts FROM R UNION ALL SELECT k, ts FROM S)"
    sql = f"SELECT u.k FROM {union} u JOIN T ON T.k = u.k WHERE u.k > 3"
    query = parsed(sql, window={"u.R": 60_000_000, "T": 60_000_000})
    for join in query.planned:
        assert all(relation.filter for relation in join.relations if relation.stream != "T")
    minute = 60_000_000
    assert [join.bounds for join in query.planned] == [
        ((0, minute), (minute, 0)),
        ((0, None), (minute, 0)),
    ]
    with pytest.raises(QueryError) as caught:
        parsed(sql, window={"nope": 60_000_000})
    assert (caught.value.code, caught.value.field) == ("unknown-alias", "window.nope")


def test_the_plan_with_binary_joins_has_a_union() -> None:
    union = "SELECT k FROM R UNION ALL SELECT S.k FROM S JOIN T ON T.k = S.k"
    plan = logical_plan(parsed(union), STREAMS)
    assert str(plan) == "Union of 2"
    plan = logical_plan(parsed("SELECT k FROM R EXCEPT ALL SELECT k FROM S ORDER BY k"), STREAMS)
    shown = [str(plan)]
    while len(plan.inputs) == 1:
        plan = plan.inputs[0]
        shown.append(str(plan))
    assert shown[0] == "Sort k"
    assert any(text == "Copies count(a1) - count(a2)" for text in shown), shown
    assert shown[-1] == "Union of 2"


@pytest.mark.parametrize(
    ("sql", "code", "place", "words"),
    [
        ("SELECT k, s FROM R UNION ALL SELECT k FROM S", "different-columns", (1, 37),
         "the first SELECT of the set operation has 2 columns, the second has 1"),
        ("SELECT k FROM R UNION SELECT k FROM S UNION SELECT k, s FROM S", "different-columns",
         (1, 52), "the third has 2"),
        ("SELECT k FROM R EXCEPT SELECT s FROM S", "type-mismatch", (1, 31),
         "column 'k' of the set operation is of type int, and string in the second SELECT"),
        ("SELECT x, k AS n FROM R INTERSECT SELECT x, ts FROM S", "type-mismatch", (1, 45),
         "column 'n' of the set operation is of type int, and timestamp"),
        ("SELECT u.n FROM (SELECT k AS n FROM R UNION ALL SELECT day FROM S) u", "type-mismatch",
         (1, 56), "column 'n'"),
        ("SELECT k FROM R ORDER BY k UNION ALL SELECT k FROM S", "unsupported-sql", (1, 26),
         "ORDER BY in an operand of a set operation"),
        ("SELECT k FROM R LIMIT 3 INTERSECT SELECT k FROM S", "unsupported-sql", (1, 23), "LIMIT"),
        ("SELECT k FROM R UNION ALL SELECT k FROM S ORDER BY 2 LIMIT 3", "bad-ordinal", (1, 52),
         "2 is not a position"),
        ("SELECT k FROM R UNION ALL SELECT x AS z FROM S ORDER BY z LIMIT 3", "unknown-column",
         (1, 57), "'z'"),
        ("SELECT k AS a, x AS a FROM R UNION ALL SELECT k, x FROM S", "duplicate-name", None,
         "two columns of the set operation are called 'a'"),
        ("SELECT u.k FROM (SELECT k FROM R UNION ALL SELECT k FROM S) u LEFT JOIN T ON T.k = u.k",
         "unsupported-sql", (1, 73), "UNION ALL in the FROM of a LEFT JOIN"),
        ("SELECT R.k FROM R LEFT JOIN (SELECT k FROM S UNION ALL SELECT k FROM T) u ON R.k = u.k",
         "unsupported-sql", (1, 37), "UNION ALL in the FROM of a LEFT JOIN"),
        ("SELECT k FROM R UNION ALL SELECT 1 AS k", "malformed-sql", (1, 34), "no FROM clause"),
    ],
)  # fmt: skip
def test_refusals_name_place_and_remedy(
    sql: str, code: str, place: tuple[int, int] | None, words: str
) -> None:
    with pytest.raises(QueryError) as caught:
        parsed(sql)
    error = caught.value
    assert (error.code, error.field, error.position) == (code, "sql", place)
    assert words in error.message
    assert error.remedy


def test_too_many_combinations_are_refused() -> None:
    union = " UNION ALL ".join(["SELECT k FROM R"] * 6)
    assert len(parsed(union).planned) == 6
    with pytest.raises(QueryError) as caught:
        parsed(f"SELECT u.k FROM ({union}) u JOIN ({union}) w ON w.k = u.k")
    assert caught.value.code == "too-many-branches"
    assert "36 combinations" in caught.value.message


@pytest.mark.parametrize(
    ("dialect", "sql", "spark"),
    [
        ("snowflake", "SELECT k FROM R MINUS SELECT k FROM S", "R EXCEPT SELECT"),
        ("bigquery", "SELECT k FROM R UNION DISTINCT SELECT k FROM S", "R UNION SELECT"),
        ("postgres", "SELECT k FROM R UNION SELECT k FROM S INTERSECT SELECT k FROM T",
         "UNION (SELECT k FROM S INTERSECT"),
        # Oracle evaluates all set operations from left to right.
        ("oracle", "SELECT k FROM R UNION SELECT k FROM S INTERSECT SELECT k FROM T",
         "(SELECT k FROM R UNION SELECT k FROM S) INTERSECT"),
        ("mysql", "(SELECT k FROM R) UNION ALL (SELECT k FROM S) ORDER BY k LIMIT 3", "LIMIT 3"),
    ],
)  # fmt: skip
def test_dialects(dialect: str, sql: str, spark: str) -> None:
    found = to_spark(sql, dialect, STREAMS)
    assert spark in found
    assert len(parsed(found).planned) == sql.count("SELECT")


@pytest.mark.parametrize(
    ("dialect", "sql", "words"),
    [
        # The column is DOUBLE, and Postgres rounds doubles when casting to integers.
        ("postgres", "SELECT CAST(u.k AS INT) AS i FROM (SELECT k FROM R UNION ALL SELECT g FROM S)"
         " u", "may have a fraction"),
        ("postgres", "SELECT CAST(u.k AS INT) AS i FROM (SELECT * FROM R UNION SELECT * FROM S) u",
         "may have a fraction"),
        ("clickhouse", "SELECT k FROM R EXCEPT SELECT k FROM S", "keeps equal rows"),
        ("duckdb", "SELECT k FROM R UNION ALL BY NAME SELECT k FROM S", "BY NAME"),
    ],
)  # fmt: skip
def test_refusals_of_dialects(dialect: str, sql: str, words: str) -> None:
    with pytest.raises(QueryError, match=words):
        to_spark(sql, dialect, STREAMS)
    same = sql.replace("SELECT g", "SELECT x").replace("*", "k")
    if dialect == "postgres":
        assert to_spark(same, dialect, STREAMS)


@pytest.mark.parametrize(
    ("where", "branches"),
    [
        ("l.part = 'a' AND r.part = 'b'", 1),
        ("l.part = 'a' AND 'b' = r.part", 1),
        ("l.part = 'a'", 2),
        ("l.part = 'nowhere' AND r.part = 'b'", 1),
        # Only an equality with a text excludes operands.
        ("l.part <> 'a'", 4),
        ("l.part = 'a' OR r.part = 'b'", 4),
        ("l.part = r.part", 4),
        ("l.n = 1", 4),
    ],
)
def test_operands_that_a_constant_excludes_are_no_branches(where: str, branches: int) -> None:
    sql = (
        "WITH t AS (SELECT k, 'a' AS part, 1 AS n FROM R UNION ALL SELECT k, 'b', 2 FROM S) "
        f"SELECT l.k FROM t l JOIN t r ON r.k = l.k WHERE {where}"
    )
    assert len(parse_sql("q", sql, STREAMS).planned) == branches


@pytest.mark.parametrize(
    ("left", "right", "found"),
    [
        ("decimal(38,19)", "decimal(38,9)", "decimal(38,9)"),
        ("decimal(38,9)", "decimal(38,19)", "decimal(38,9)"),
        ("decimal(38,0)", "decimal(10,4)", "decimal(38,0)"),
        ("bigint", "decimal(38,30)", "decimal(38,18)"),
        ("decimal(10,2)", "decimal(10,4)", "decimal(12,4)"),
    ],
)
def test_types_of_more_than_38_digits_lose_fraction_digits(
    left: str, right: str, found: str
) -> None:
    sql = f"SELECT CAST(k AS {left}) AS c FROM R UNION ALL SELECT CAST(k AS {right}) FROM S"
    first, second = parse_sql("q", sql, STREAMS).planned
    assert {str(o.expr.type) for one in (first, second) for o in one.projection} == {found}
