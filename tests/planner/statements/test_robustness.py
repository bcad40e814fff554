"""Tests that any text quickly gives either a query or a refusal with a remedy."""

from __future__ import annotations

import cProfile
import re
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch_contract.errors import QueryError
from anabranch_planner.logical.nodes import to_document, to_dot, to_text
from anabranch_planner.passes import convert_query, parse_sql
from anabranch_planner.sql.dialects import to_spark
from tests.planner.logical.test_plan import STATEMENTS
from tests.planner.logical.test_plan import STREAMS as JOINED
from tests.support.cases.sample_streams import sample_streams

Found = TypeVar("Found")

STREAMS = sample_streams() | JOINED
WRITTEN = [
    *STATEMENTS.strip().splitlines(),
    "SELECT R.k, S.x FROM R JOIN S ON R.k = S.k AND R.ts BETWEEN S.ts - INTERVAL '5' MINUTE"
    " AND S.ts + INTERVAL '1' HOUR WHERE R.s LIKE 'a%' AND S.x IN (1, 2, 3)",
    "WITH c AS (SELECT k, lower(s) AS n FROM R) SELECT c.n FROM c JOIN T ON T.s = c.n",
    "SELECT CASE WHEN R.x > 1 THEN 'a' ELSE 'b' END AS kind FROM R NATURAL JOIN S",
]
#: Statements with clauses, brackets and functions of every kind.
VALID = [
    "SELECT R.k, count(*) AS n, sum(R.x) FILTER (WHERE R.x > 1) AS more FROM R JOIN S ON R.k = S.k"
    " WHERE R.s IN ('a', 'b') GROUP BY R.k HAVING count(*) > 1 ORDER BY n DESC LIMIT 3",
    "SELECT k, row_number() OVER (PARTITION BY k ORDER BY x DESC, l) AS place FROM R\n"
    "QUALIFY place <= 3",
    "SELECT R.k,\n  CASE WHEN R.x BETWEEN 1 AND 2 THEN upper(trim(R.s)) WHEN R.x IS NULL THEN '' "
    "ELSE split(R.s, ',')[0] END AS c,\n  CAST(R.p AS DOUBLE) / 2 AS half\nFROM R",
    "SELECT R.k FROM R LEFT JOIN S ON R.k = S.k AND R.ts - S.ts < INTERVAL '5' MINUTE "
    "WHERE coalesce(S.x, 0) <> 1 -- end",
    "SELECT q.k FROM (SELECT k, x + 1 AS y FROM R WHERE s LIKE 'a%') q JOIN T ON T.k = q.k AND "
    "(T.x = q.y OR T.x > 3) /* all */",
    "SELECT k FROM R WHERE ts > now() - INTERVAL '1' HOUR AND NOT (x = 1 OR day = DATE "
    "'2024-01-01') UNION ALL SELECT k FROM S WHERE extract(YEAR FROM ts) = 2024",
    "SELECT transform(filter(array(R.x, S.x), v -> v > 1), v -> v * 2) AS xs FROM R JOIN S USING "
    "(k) CROSS JOIN LATERAL explode(array(R.x)) AS e(item)",
]
#: Pieces of random statements: words of every kind, and text that breaks tokenizers.
WORDS = [
    "SELECT", "FROM", "WHERE", "JOIN", "LEFT", "ON", "USING", "(", ")", ",", "AND", "OR", "NOT",
    "IN", "EXISTS", "NULL", "IS", "BETWEEN", "LIKE", "CASE", "WHEN", "END", "AS", "*", "a.*", "=",
    "<", "<=>", "+", "-", "/", "||", "::", "INTERVAL", "'1'", "DAY", "CAST", "DATE '2024-01-01'",
    "X'ff'", "1e400", "99999999999999999999999999999999999999999", "0.1", "''", '"q"', "`b`",
    "UNION", "GROUP BY", "ORDER BY", "LIMIT", "WITH", "LATERAL", "VALUES", "DISTINCT", "OVER",
    "count(*)", "sum(x)", "a", "b", "R", "S", "k", "x", "ts", "ü", "名", "\u0000", "\ud83d\ude00",
    "--", "/*", "*/", ";", "'", '"', "`", "\\", "{0}", "${x}", "@v", ":p", "?", "[1]", "->", "=>",
    "__query_0__", "map(1,2)", "array(1)", "struct(a)", "explode(a)", "window(ts, '1 hour')",
]  # fmt: skip


def outcome(read: Callable[[], Found]) -> tuple[Found | None, QueryError | None]:
    """Return the result of ``read``, or its refusal."""
    try:
        return read(), None
    except QueryError as error:
        return None, error


def attempt(sql: str) -> None:
    """Check that a statement is refused with a remedy, or has logical plans in every form."""
    query, refused = outcome(lambda: parse_sql("q", sql, STREAMS))
    if refused is not None:
        assert refused.remedy, refused
        assert "\n" not in str(refused)
        assert refused.field
    if query is not None:
        for plan in convert_query(query, STREAMS):
            assert to_text(plan)
            assert to_document(plan)
            assert to_dot(plan)


def damaged(sql: str, seed: int) -> str:
    """Return ``sql`` with words removed, duplicated, exchanged or inserted."""
    rng = Random(seed)
    words = sql.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(words)) if words else 0
        kind = rng.randrange(4)
        if kind == 0 and words:
            del words[at]
        elif kind == 1 and words:
            words.insert(at, words[at])
        elif kind == 2 and words:
            other = rng.randrange(len(words))
            words[at], words[other] = words[other], words[at]
        else:
            words.insert(at, rng.choice(WORDS))
    return " ".join(words)


@settings(max_examples=400)
@given(st.sampled_from(WRITTEN), st.integers(0, 2**32))
def test_damaged_statements(sql: str, seed: int) -> None:
    attempt(damaged(sql, seed))


#: Errors of the whole statement, which have no place.
_PLACELESS = re.compile(r"the statement is (empty|nested too deeply)|time bounds among")


@settings(max_examples=400)
@given(
    st.sampled_from([*WRITTEN, *VALID]),
    st.integers(0, 10**6),
    st.sampled_from(
        ["", "", "(", ")", "[", "]", ",", "'", "CASE", "END", "AND", "=", "FORM", "/*"]
    ),
    st.booleans(),
)
@example("SELECT R.k FROM R JOIN S ON (R.k = S.k)", 38, "", True)
def test_cut_statements_are_refused_at_a_place(sql: str, at: int, put: str, cut: bool) -> None:
    at %= len(sql) + 1
    text = f"{sql[:at]} {put} {'' if cut else sql[at:]}".strip()
    _, refused = outcome(lambda: parse_sql("q", text, STREAMS))
    if refused is None:
        return
    assert refused.remedy, refused
    if not _PLACELESS.search(refused.message):
        assert refused.position, (text, refused)
        line, column = refused.position
        assert 1 <= line <= text.count("\n") + 1
        assert 1 <= column <= len(text.split("\n")[line - 1]) + 1, (text, refused)


@settings(max_examples=300)
@given(st.lists(st.sampled_from(WORDS), max_size=25))
@example(["SELECT", "*", "FROM", "a", "JOIN", "b", "USING", "(", "k", ")"])
def test_heaps_of_words(words: list[str]) -> None:
    attempt(" ".join(words))


@settings(max_examples=200)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    attempt(text)


@settings(max_examples=150)
@given(
    st.sampled_from(WRITTEN),
    st.integers(0, 2**32),
    st.sampled_from(["postgres", "mysql", "duckdb", "tsql", "bigquery", "oracle"]),
)
def test_damaged_statements_of_other_dialects(sql: str, seed: int, dialect: str) -> None:
    text = damaged(sql, seed)
    spark, refused = outcome(lambda: to_spark(text, dialect))
    assert refused is None or refused.remedy
    if spark is not None:
        attempt(spark)


@pytest.mark.parametrize("argument", ["s IS", "'('"])
def test_failures_of_a_dialects_parser_are_refusals(argument: str) -> None:
    sql = f"SELECT REGEXP_EXTRACT({argument}, '[a-z]+') AS w FROM R"
    for text in (sql, sql.replace("'[a-z]+'", argument)):
        _, refused = outcome(partial(to_spark, text, "bigquery"))
        assert refused is not None
        assert refused.remedy


HUGE: dict[str, Callable[[int], str]] = {
    "parentheses": lambda n: "SELECT k FROM R WHERE " + "(" * n + "k = 1" + ")" * n,
    "NOT": lambda n: "SELECT k FROM R WHERE " + "NOT " * n + "k = 1",
    "minus": lambda n: "SELECT k FROM R WHERE k = " + "- " * n + "1",
    "plus": lambda n: "SELECT k FROM R WHERE k = " + " + ".join(["1"] * n),
    "OR": lambda n: "SELECT k FROM R WHERE " + " OR ".join(f"k = {i}" for i in range(n)),
    "AND": lambda n: "SELECT k FROM R WHERE " + " AND ".join(f"x <> {i}" for i in range(n)),
    "joined": lambda n: (
        "SELECT R.k FROM R JOIN S ON R.k = S.k AND "
        + " AND ".join(f"R.x <> S.x + {i}" for i in range(n))
    ),
    "IN": lambda n: f"SELECT k FROM R WHERE k IN ({', '.join(map(str, range(n)))})",
    "items": lambda n: "SELECT " + ", ".join(f"k + {i} AS c{i}" for i in range(n)) + " FROM R",
    "nested": lambda n: "SELECT k FROM " + "(SELECT k FROM " * n + "R" + ") a" * n,
    "sources": lambda n: "SELECT 1 AS o FROM " + ", ".join(f"R AS r{i}" for i in range(n)),
    "CASE": lambda n: (
        "SELECT CASE " + " ".join(f"WHEN k = {i} THEN {i}" for i in range(n)) + " END AS c FROM R"
    ),
    "arguments": lambda n: f"SELECT concat({', '.join(['s'] * n)}) AS c FROM R",
    "quotes": lambda n: f"SELECT 'a{chr(39) * 2 * n}' AS t FROM R",
    "comment": lambda n: f"SELECT k FROM R -- {'x' * n}",
}


def calls(sql: str) -> int:
    """Return the number of function calls for parsing ``sql``: its cost, equal on all machines."""
    profile = cProfile.Profile()
    profile.runcall(attempt, sql)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("kind", HUGE)
def test_effort_grows_with_the_text(kind: str) -> None:
    """A statement five times as long costs about five times as much, not 25 times."""
    calls(HUGE[kind](10))
    assert calls(HUGE[kind](1000)) < 12 * calls(HUGE[kind](200))


@pytest.mark.slow
@pytest.mark.parametrize("kind", HUGE)
def test_ten_thousand_of_anything_are_read_or_refused(kind: str) -> None:
    attempt(HUGE[kind](10_000))
