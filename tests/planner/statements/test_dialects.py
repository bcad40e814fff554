"""Tests that statements of other SQL dialects are translated to Spark with the same meaning, or
refused.

DuckDB and SQLite answer themselves; of the others there are fixed vectors.
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlglot.dialects.dialect import Dialects

from anabranch_contract.errors import QueryError
from anabranch_planner.binding.functions.rewrites import REWRITINGS
from anabranch_planner.passes import parse_sql
from anabranch_planner.sql.dialects import to_spark
from anabranch_planner.sql.functions import names
from anabranch_planner.sql.translation.functions import NAMED
from anabranch_planner.sql.translation.meanings import MEANINGS
from anabranch_runtime.errors import ExpressionError
from tests.support.worlds.batch import batch_rows, streams_of

LEFT = pa.table({
    "id": pa.array([1, 2, 3, 4, 5, 6], pa.int32()),
    "v": pa.array([1, 2, 3, 4, None, -7], pa.int32()),
    "x": pa.array([1.5, 2.5, -1.7, 0.4, None, -2.5], pa.float64()),
    "m": pa.array([Decimal("1.50"), Decimal("2.50"), Decimal("-0.05"), None, Decimal("7.00"),
                   Decimal("0.33")], pa.decimal128(10, 2)),
    "s": ["a_b", "axb", r"a\_b", r"a\xb", None, " Äb "],
    "n": [None, "z", "b", None, "", "12"],
    "ok": [True, False, None, True, False, True],
    "d": pa.array([date(2024, 1, 31), date(2023, 12, 31), None, date(2024, 2, 29),
                   date(1969, 7, 20), date(2000, 1, 1)], pa.date32()),
    "t": pa.array([1706704200, None, -14181740, 946684800, 1709251199, 1703984400],
                  pa.timestamp("s")).cast(pa.timestamp("us")),
})  # fmt: skip
RIGHT = pa.table({
    "id": pa.array([1, 2, 3, 4, 5, 6], pa.int32()),
    "w": pa.array([1, 1, None, 4, 5, 2], pa.int64()),
    "y": pa.array([0.5, 3.0, 1.25, None, 2.0, 8.0], pa.float64()),
    "q": ["axb", None, "b", "z", "a_b", "12"],
})  # fmt: skip
TABLES = {"o": LEFT, "p": RIGHT}
STREAMS = streams_of(TABLES)
JOIN = "FROM o JOIN p ON o.id = p.id"


# --- the engines ---------------------------------------------------------------------------------


@cache
def duck() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name, table in TABLES.items():
        connection.register(name, table)
    return connection


@cache
def lite() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    for name, table in TABLES.items():
        kept = [c for c in table.column_names if c not in ("m", "ok", "d", "t")]
        connection.execute(f"CREATE TABLE {name} ({', '.join(kept)})")
        marks = ", ".join("?" for _ in kept)
        rows = zip(*(table[c].to_pylist() for c in kept), strict=True)
        connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
    return connection


def engine_rows(dialect: str, sql: str) -> list[tuple[Any, ...]]:
    """Return the engine's rows for a statement; raise its error if it refuses the statement."""
    if dialect == "duckdb":
        return duck().execute(sql).fetchall()
    return lite().execute(sql).fetchall()


def plain(value: Any) -> Any:
    """Return a value in uniform notation: numbers by value, booleans as in SQLite."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float | Decimal) and math.isfinite(value):
        return float(f"{float(value):.12g}")
    return value


def bag(rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(map(plain, row)) for row in rows)


def translated(sql: str, dialect: str) -> str | None:
    """Return the statement in Spark's SQL; None: it is refused, with a remedy."""
    try:
        spark = to_spark(sql, dialect, STREAMS)
        parse_sql("q", spark, STREAMS)
    except QueryError as refused:
        if refused.remedy:
            return None
        raise
    return spark


def compare(sql: str, dialect: str) -> bool:
    """Whether a statement runs; if so, compare its rows with the engine's."""
    spark = translated(sql, dialect)
    if spark is None:
        return False
    try:
        found = batch_rows(spark, TABLES)
    except ExpressionError:
        # Not silent: the query fails and names the row.
        return False
    wanted = engine_rows(dialect, sql)
    assert bag(found) == bag(wanted), f"{sql}\n{spark}"
    return True


# --- random expressions --------------------------------------------------------------------------

NUMBERS = ["o.v", "p.w", "o.x", "p.y", "o.m", "1", "2", "3", "1.5", "2.25", "-4", "2e0"]
TEXTS = ["o.s", "o.n", "p.q", "'a'", "'A_'", "'axb'", "' b '", r"'\'", "''", "'12'"]
PATTERNS = [r"'a\_b'", "'a_b'", "'%B%'", "'%'", r"'a\\%'", "'[a]%'", "'z'", "'1_'", r"'%\'"]
TYPES = ["INT", "INTEGER", "BIGINT", "NUMERIC", "DECIMAL(10, 1)", "DOUBLE", "REAL", "FLOAT", "TEXT",
         "VARCHAR(2)", "BOOLEAN", "DATE", "TIMESTAMP", "TIME"]  # fmt: skip
DAYS = ["o.d", "DATE '2024-01-31'", "o.t", "TIMESTAMP '2024-02-29 10:00:00'"]


@st.composite
def numbers(draw: st.DrawFn, depth: int = 0) -> str:
    if depth > 1 or draw(st.integers(0, 2)) == 0:
        return draw(st.sampled_from(NUMBERS))
    a, b = draw(numbers(depth + 1)), draw(numbers(depth + 1))
    form = draw(st.sampled_from([
        "({a} + {b})", "({a} - {b})", "({a} * {b})", "({a} / 2)", "({a} / {b})", "({a} % 2)",
        "abs({a})", "coalesce({a}, {b})", "CASE WHEN {a} > {b} THEN {a} ELSE {b} END",
        "nullif({a}, {b})", "CAST({a} AS INT)", "CAST({a} AS BIGINT)", "CAST({a} AS DOUBLE)",
        "CAST({a} AS NUMERIC)", "CAST({a} AS DECIMAL(10, 1))", "length({t})", "-{a}", "mod({a}, 3)",
        "CAST({t} AS INT)", "extract(year FROM {d})", "extract(month FROM {d})",
    ]))  # fmt: skip
    t, d = draw(st.sampled_from(TEXTS)), draw(st.sampled_from(DAYS))
    return form.format(a=a, b=b, t=t, d=d)


@st.composite
def texts(draw: st.DrawFn, depth: int = 0) -> str:
    if depth > 1 or draw(st.integers(0, 2)) == 0:
        return draw(st.sampled_from(TEXTS))
    a, b = draw(texts(depth + 1)), draw(texts(depth + 1))
    m, n = draw(st.integers(-2, 3)), draw(st.integers(-1, 3))
    form = draw(st.sampled_from([
        "lower({a})", "upper({a})", "trim({a})", "({a} || {b})", "concat({a}, {b})",
        "left({a}, {n})", "right({a}, {n})", "substring({a}, {m}, {n})", "substr({a}, {m})",
        "coalesce({a}, {b})", "CASE WHEN {a} = {b} THEN {a} ELSE {b} END", "CAST({x} AS TEXT)",
        "nullif({a}, {b})", "CAST({a} AS VARCHAR(2))", "CAST({d} AS TEXT)",
    ]))  # fmt: skip
    x, d = draw(st.sampled_from(NUMBERS)), draw(st.sampled_from(DAYS))
    return form.format(a=a, b=b, m=m, n=n, x=x, d=d)


@st.composite
def conditions(draw: st.DrawFn, depth: int = 0) -> str:
    if depth < 2 and draw(st.integers(0, 3)) == 0:
        a, b = draw(conditions(depth + 1)), draw(conditions(depth + 1))
        return draw(st.sampled_from([f"({a} AND {b})", f"({a} OR {b})", f"NOT ({a})"]))
    form = draw(st.sampled_from([
        "{x} {op} {y}", "{s} {op} {t}", "{s} LIKE {p}", "{s} NOT LIKE {p}", "{s} ILIKE {p}",
        "{s} LIKE {p} ESCAPE '!'", "{s} IS NULL", "{x} BETWEEN {y} AND 3", "{x} IN (1, 2, {y})",
        "{s} IN ('a', {t})", "(o.v, o.n) = (p.w, p.q)", "(o.v, o.n) IN ((1, 'z'), (2, 'z'))",
        "{s} IS NOT DISTINCT FROM {t}", "{x} IS DISTINCT FROM {y}", "o.ok", "o.ok IS TRUE",
        "{d} {op} {e}", "{d} + INTERVAL '1' DAY {op} {e}", "(o.v, o.n) <> (p.w, p.q)",
        "DATE '2024-01-31' + INTERVAL '1' MONTH {op} o.d", "starts_with({s}, 'a')",
    ]))  # fmt: skip
    return form.format(
        x=draw(numbers(1)),
        y=draw(numbers(1)),
        s=draw(texts(1)),
        t=draw(texts(1)),
        p=draw(st.sampled_from(PATTERNS)),
        op=draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="])),
        d=draw(st.sampled_from(DAYS)),
        e=draw(st.sampled_from(DAYS)),
    )


@pytest.mark.parametrize("dialect", ["duckdb", "sqlite"])
@given(number=numbers(), text=texts(), condition=conditions())
@example("CAST(o.x AS INTEGER)", "left(o.s, -1)", r"o.s LIKE 'a\_b'")
@example("CAST(o.x AS NUMERIC)", "substring(o.s, 0, 2)", "o.s ILIKE 'A%'")
@example("(o.v - 3) % 2", "concat(o.s, o.n)", "(o.v, o.n) = (p.w, p.q)")
@example("o.v / 2", "o.s || o.n", "(o.v, o.n) <> (p.w, p.q)")
@example("CAST(o.m AS DECIMAL(10, 1))", "trim(o.s)", "o.s LIKE '%B%'")
@example("o.m / 3", "lower(o.s)", "DATE '2024-01-31' + INTERVAL '1' MONTH > o.d")
@example("o.x % 2", "CAST(o.m AS TEXT)", "o.s IS DISTINCT FROM o.n")
def test_expressions_give_what_the_engine_gives_or_are_refused(
    dialect: str, number: str, text: str, condition: str
) -> None:
    for sql in (
        f"SELECT o.id AS a, {number} AS b {JOIN}",
        f"SELECT o.id AS a, {text} AS b {JOIN}",
        f"SELECT o.id AS a {JOIN} WHERE {condition}",
        f"SELECT o.id AS a, {condition} AS b {JOIN}",
    ):
        try:
            engine_rows(dialect, sql)
        except (duckdb.Error, sqlite3.Error):
            # The engine refuses this statement.
            continue
        compare(sql, dialect)


@pytest.mark.parametrize(
    ("dialect", "expressions"),
    [
        (
            "duckdb",
            ["o.v + p.w", "o.v / 2", "o.m / 4", "o.x / p.y", "o.v % 2", "CAST(o.v AS BIGINT)",
             "CAST(o.v AS DECIMAL(10, 1))", "CAST(o.m AS DECIMAL(10, 1))", "concat(o.s, o.n)",
             "o.s || o.n", "left(o.s, 2)", "substring(o.s, 2, 1)", "lower(o.s)", "length(o.s)",
             "CAST(o.d AS TEXT)", "extract(year FROM o.d)", "coalesce(o.n, 'x')", "-o.x",
             "CAST(o.m AS DOUBLE)", "nullif(o.n, 'z')", "CAST(o.v AS TEXT)", "abs(o.x)"],
        ),
        (
            "sqlite",
            ["o.v + p.w", "o.x / p.y", "CAST(o.x AS INTEGER)", "o.v % 2", "o.s || o.n",
             "substr(o.s, 2, 1)", "length(o.s)", "coalesce(o.n, 'x')", "o.v * 1.5", "-o.x"],
        ),
    ],
)  # fmt: skip
def test_everyday_expressions_run(dialect: str, expressions: list[str]) -> None:
    for expression in expressions:
        assert compare(f"SELECT o.id AS a, {expression} AS b {JOIN}", dialect), expression


# --- fixed vectors -------------------------------------------------------------------------------

#: Dialect, expression over o and p -> its translation; None: refused.
VECTORS: list[tuple[str, str, str | None]] = [
    # CAST rounds there; here it truncates.
    *[(d, "CAST(o.x AS INT)", None) for d in ("postgres", "mysql", "oracle", "snowflake",
                                               "bigquery", "trino", "redshift", "duckdb")],
    *[(d, "CAST(o.x AS INT)", "CAST(o.x AS INT)") for d in ("tsql", "clickhouse", "sqlite")],
    ("postgres", "o.v::bigint", "CAST(o.v AS BIGINT)"),
    ("postgres", "o.n::int", "CAST(o.n AS INT)"),
    ("mysql", "CAST(o.n AS SIGNED)", None),
    # Decimals without precision have as many digits as the dialect says.
    ("duckdb", "CAST(o.v AS NUMERIC)", "CAST(o.v AS DECIMAL(18, 3))"),
    ("snowflake", "CAST(o.v AS NUMBER)", "CAST(o.v AS DECIMAL(38, 0))"),
    ("tsql", "CAST(o.v AS DECIMAL)", "CAST(o.v AS DECIMAL(18, 0))"),
    ("bigquery", "CAST(o.v AS NUMERIC)", "CAST(o.v AS DECIMAL(38, 9))"),
    ("mysql", "CAST(o.v AS DECIMAL)", "CAST(o.v AS DECIMAL(10, 0))"),
    ("postgres", "CAST(o.v AS NUMERIC)", None),
    ("oracle", "CAST(o.v AS NUMBER)", None),
    ("postgres", "CAST(o.v AS NUMERIC(10, 2))", "CAST(o.v AS DECIMAL(10, 2))"),
    ("clickhouse", "CAST(o.m AS DECIMAL(10, 1))", None),
    ("postgres", "CAST(o.x AS NUMERIC(10, 2))", None),
    # Types with another meaning than in Spark.
    ("postgres", "o.t::time", None),
    ("duckdb", "o.t::time", None),
    ("tsql", "CAST(o.v AS FLOAT)", "CAST(o.v AS DOUBLE)"),
    ("snowflake", "CAST(o.v AS FLOAT)", "CAST(o.v AS DOUBLE)"),
    ("oracle", "CAST(o.t AS DATE)", None),
    ("postgres", "CAST(o.s AS VARCHAR(2))", None),
    ("postgres", "CAST(o.x AS TEXT)", None),
    ("postgres", "CAST(o.d AS TEXT)", "CAST(o.d AS STRING)"),
    ("oracle", "CAST(o.d AS VARCHAR2(20))", None),
    ("tsql", "TRY_CAST(o.n AS INT)", None),
    # LIKE: escapes, classes, case.
    ("postgres", r"o.s LIKE 'a\_b'", r"o.s LIKE 'a\\_b'"),
    ("oracle", r"o.s LIKE 'a\_b'", r"o.s LIKE 'a\\\\_b'"),
    ("duckdb", r"o.s LIKE 'a\_b'", r"o.s LIKE 'a\\\\_b'"),
    ("oracle", "o.s LIKE 'a!_b' ESCAPE '!'", "o.s LIKE 'a!_b' ESCAPE '!'"),
    ("tsql", "o.s LIKE '[a-c]%'", None),
    ("sqlite", "o.s LIKE 'A%'", None),
    ("postgres", "o.s SIMILAR TO 'a|b'", None),
    ("postgres", "o.s ~ 'a'", "o.s RLIKE '(?s)a'"),
    ("duckdb", "regexp_matches(o.s, 'a')", None),
    ("duckdb", "o.s GLOB 'a*'", None),
    # Texts.
    *[(d, "left(o.s, -1)", None) for d in ("postgres", "mysql", "snowflake", "duckdb")],
    *[(d, "substring(o.s, 0, 2)", None) for d in ("postgres", "mysql", "bigquery", "duckdb")],
    ("postgres", "substring(o.s, 2, 3)", "SUBSTRING(o.s, 2, 3)"),
    ("postgres", "substring(o.s, o.v)", None),
    ("postgres", "concat(o.s, o.n)", "CONCAT(COALESCE(o.s, ''), COALESCE(o.n, ''))"),
    ("tsql", "concat(o.s, o.n)", "CONCAT(COALESCE(o.s, ''), COALESCE(o.n, ''))"),
    ("mysql", "concat(o.s, o.n)", "CONCAT(o.s, o.n)"),
    ("oracle", "concat(o.s, o.n)", None),
    ("oracle", "o.s || o.n", None),
    ("oracle", "o.s = ''", None),
    ("mysql", "length(o.s)", None),
    ("tsql", "len(o.s)", None),
    ("clickhouse", "length(o.s)", None),
    ("sqlite", "upper(o.s)", None),
    ("bigquery", "trim(o.s)", None),
    ("mysql", r"o.s = 'a\'b'", r"o.s = 'a\'b'"),
    # Numbers.
    *[(d, "o.v / 2", None) for d in ("postgres", "mysql", "oracle", "tsql", "snowflake", "sqlite",
                                     "bigquery", "trino")],
    ("postgres", "CAST(o.v AS DOUBLE PRECISION) / 2", "CAST(o.v AS DOUBLE) / 2"),
    ("mysql", "o.x / p.y", "o.x / NULLIF(p.y, 0)"),
    ("duckdb", "o.v / 2", "CAST(o.v AS DOUBLE) / CAST(2 AS DOUBLE)"),
    ("duckdb", "o.v // 2", None),
    ("mysql", "o.v DIV 2", None),
    ("sqlite", "o.x % 2", None),
    ("postgres", "o.v % 2", "o.v % 2"),
    ("bigquery", "o.x * 1.5", "o.x * 1.5e0"),
    ("postgres", "o.x * 1.5", "o.x * 1.5"),
    ("postgres", "o.v ^ 2", None),
    ("postgres", "round(o.x)", None),
    ("mysql", "o.v XOR o.v", None),
    # Rows.
    ("postgres", "(o.v, o.n) = (1, 'a')", "(o.v = 1 AND o.n = 'a')"),
    ("mysql", "(o.v, o.n) IN ((1, 'a'), (2, 'b'))",
     "(o.v = 1 AND o.n = 'a' OR o.v = 2 AND o.n = 'b')"),
    ("duckdb", "(o.v, o.n) = (1, 'a')", "(o.v, o.n) = (1, 'a')"),
    ("clickhouse", "(o.v, o.n) = (1, 'a')", None),
    # Dates.
    ("postgres", "o.d + INTERVAL '1 day' > o.d", "o.d + INTERVAL '1' DAY > o.d"),
    ("postgres", "o.d + INTERVAL '1 day'", None),
    ("postgres", "o.t + INTERVAL '1 day'", "o.t + INTERVAL '1' DAY"),
    ("mysql", "o.d + INTERVAL 1 DAY", "o.d + INTERVAL '1' DAY"),
    ("postgres", "o.t + INTERVAL '1 month'", "o.t + INTERVAL '1' MONTH"),
    *[(d, "o.t - o.t", "o.t - o.t") for d in ("postgres", "duckdb", "trino")],
    *[(d, "o.t - o.t", None) for d in ("mysql", "sqlite", "tsql", "snowflake", "clickhouse")],
    *[(d, "o.d - o.d", None) for d in ("postgres", "duckdb", "mysql", "oracle")],
    ("mysql", "o.t - o.t > INTERVAL 1 DAY", "o.t - o.t > INTERVAL '1' DAY"),
    ("postgres", "extract(hour FROM o.t - o.t)", "EXTRACT(HOUR FROM o.t - o.t)"),
    *[(d, "o.t AT TIME ZONE 'Europe/Oslo'", "TIMEZONE('Europe/Oslo', o.t)")
      for d in ("postgres", "duckdb")],
    ("postgres", "o.t AT TIME ZONE 'UTC' AT TIME ZONE 'Asia/Tokyo'",
     "TIMEZONE('Asia/Tokyo', TIMEZONE('UTC', o.t))"),
    ("duckdb", "TIMESTAMP '2024-01-01 02:00:00' AT TIME ZONE 'UTC'",
     "TIMEZONE('UTC', CAST('2024-01-01 02:00:00' AS TIMESTAMP_NTZ))"),
    ("postgres", "o.t AT TIME ZONE '+02:00'", None),
    ("postgres", "coalesce(o.t, o.t) AT TIME ZONE 'UTC'", None),
    ("snowflake", "o.t AT TIME ZONE 'UTC'", None),
    ("postgres", "(o.t, o.t) OVERLAPS (o.t, INTERVAL '1 day')",
     "(o.t, o.t) OVERLAPS (o.t, INTERVAL '1' DAY)"),
    ("snowflake", "(o.t, o.t) OVERLAPS (o.d, o.d)", None),
    ("postgres", "date_trunc('month', o.t)", None),
    ("postgres", "extract(dow FROM o.d)", "(DAYOFWEEK(o.d) - 1)"),
    ("snowflake", "extract(dow FROM o.d)", None),
    ("postgres", "extract(year FROM o.d)", "EXTRACT(YEAR FROM o.d)"),
    ("postgres", "now()", "CURRENT_TIMESTAMP()"),
    ("mysql", "now()", None),
    ("snowflake", "DATEDIFF(month, o.d, o.d)",
     "TIMESTAMPDIFF(MONTH, DATE_TRUNC('MONTH', o.d), DATE_TRUNC('MONTH', o.d))"),
    ("trino", "date_diff('month', o.d, o.d)", None),
    ("snowflake", "DATEADD(month, o.v, o.d)", "ADD_MONTHS(o.d, o.v)"),
    ("snowflake", "DATEADD(week, -1, o.d)", "DATE_ADD(o.d, -1 * 7)"),
    ("snowflake", "DATEADD(hour, 1, o.d)", None),
    ("snowflake", "TO_DATE(o.d)", "CAST(o.d AS DATE)"),
    ("snowflake", "TO_DATE(o.s)", None),
    ("snowflake", "GREATEST(o.v, p.w)", None),
    ("duckdb", "greatest(o.v, p.w)", "GREATEST(o.v, p.w)"),
    ("snowflake", "ROUND(o.m, 1)", "ROUND(o.m, 1)"),
    ("snowflake", "ROUND(o.x, 1)", None),
    ("snowflake", "SPLIT_PART(o.s, '_', 2)", "SPLIT_PART(o.s, '_', 2)"),
    ("trino", "split_part(o.s, '_', 2)", None),
    ("snowflake", "CONTAINS(o.s, 'a')", "CONTAINS(o.s, 'a')"),
    ("bigquery", "REPLACE(o.s, 'a', 'b')", "REPLACE(o.s, 'a', 'b')"),
    ("mysql", "REPLACE(o.s, 'a', 'b')", None),
    ("trino", "strpos(o.s, 'a')", "LOCATE('a', o.s)"),
    ("bigquery", "SAFE_DIVIDE(o.x, p.y)", None),
    ("snowflake", "IFF(o.v > 1, o.s, o.n)", "IF(o.v > 1, o.s, o.n)"),
    ("postgres", "o.v IS DISTINCT FROM p.w", "NOT (o.v IS NOT DISTINCT FROM p.w)"),
    ("postgres", "o.s COLLATE \"C\" = 'a'", None),
    ("snowflake", "o.s:a::int", None),
    ("postgres", "o.v = ANY(ARRAY[1, 2])", None),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "expression", "wanted"), VECTORS)
def test_expressions_of_other_dialects(dialect: str, expression: str, wanted: str | None) -> None:
    sql = f"SELECT o.id AS a, {expression} AS b {JOIN}"
    if wanted is None:
        with pytest.raises(QueryError) as refused:
            to_spark(sql, dialect, STREAMS)
        assert refused.value.remedy
        assert refused.value.field == "sql"
        return
    spark = to_spark(sql, dialect, STREAMS)
    assert spark == f"SELECT o.id AS a, {wanted} AS b FROM o JOIN p ON o.id = p.id"
    assert translated(sql, dialect) == spark


#: Dialect, statement, part of the refusal's message.
REFUSED = [
    ("oracle", "SELECT o.id AS a, p.w AS b FROM o, p WHERE o.id = p.id (+)", "(+)"),
    ("clickhouse", f"SELECT o.id AS a {JOIN} PREWHERE o.v > 1", "PREWHERE"),
    ("clickhouse", "SELECT o.id AS a FROM o FINAL JOIN p ON o.id = p.id", "FINAL"),
    ("clickhouse", "SELECT o.id AS a FROM o AS o FINAL JOIN p AS p ON o.id = p.id", "FINAL"),
    ("clickhouse", "SELECT o.id AS a FROM o ANY JOIN p ON o.id = p.id", "ANY JOIN"),
    ("clickhouse", "SELECT o.id AS a FROM o GLOBAL JOIN p ON o.id = p.id", "GLOBAL JOIN"),
    ("clickhouse", "SELECT o.id AS a FROM o LEFT JOIN p ON o.id = p.id", "LEFT JOIN"),
    ("clickhouse", f"SELECT o.id AS a {JOIN} ORDER BY o.id LIMIT 1 BY o.v", "LIMIT ... BY"),
    ("clickhouse", f"SELECT o.id AS a {JOIN} ORDER BY o.id WITH FILL LIMIT 3", "WITH FILL"),
    ("clickhouse", f"SELECT o.id AS a {JOIN} SETTINGS join_use_nulls = 1", "SETTINGS"),
    ("clickhouse", "SELECT o.id AS a FROM o SAMPLE 0.1 JOIN p ON o.id = p.id", "TABLESAMPLE"),
    ("duckdb", f"SELECT DISTINCT ON (o.v) o.id AS a {JOIN}", "DISTINCT ON"),
    ("clickhouse", f"SELECT DISTINCT ON (v) v, id {JOIN} ORDER BY v, id", "DISTINCT ON"),
    ("clickhouse", f"SELECT s, count(*) AS n {JOIN} GROUP BY s WITH ROLLUP", "a grouping set"),
    ("postgres", f"SELECT max_by(o.v, p.w) AS a {JOIN}", "max_by()"),
    ("duckdb", f"SELECT arg_max(o.v, p.w, 3) AS a {JOIN}", "COUNT of ARG MAX"),
    ("duckdb", f"SELECT first(o.v ORDER BY p.w) AS a {JOIN}", "first() with an order"),
    ("duckdb", f"SELECT quantile_cont(o.m, 0.3) AS a {JOIN}", "percentile_cont()"),
    ("duckdb", f"SELECT quantile_cont(o.v, [0.3, 0.5]) AS a {JOIN}", "[0.3, 0.5]"),
    ("duckdb", f"SELECT mode(o.v) AS a {JOIN}", "mode()"),
    ("clickhouse", f"SELECT quantile(0.5)(o.x) AS a {JOIN}", "quantile()"),
    ("snowflake", f"SELECT median(o.v) AS a {JOIN}", "median()"),
    ("snowflake", f"SELECT approx_percentile(o.v, 0.5) AS a {JOIN}", "approximate percentile"),
    ("snowflake", f"SELECT listagg(o.x, ',') AS a {JOIN}", "listagg()"),
    ("mysql", f"SELECT group_concat(o.s) AS a {JOIN}", "listagg()"),
    ("trino", f"SELECT listagg(o.s) WITHIN GROUP (ORDER BY o.s) AS a {JOIN}", "a separator"),
    ("oracle", f"SELECT corr(o.v, p.w) AS a {JOIN}", "corr()"),
    ("oracle", f"SELECT regr_slope(o.v, p.w) AS a {JOIN}", "regr_slope()"),
    ("duckdb", f"SELECT regr_slope(o.v) AS a {JOIN}", "regr_slope() takes two arguments"),
    (
        "postgres",
        f"SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY o.v DESC) AS a {JOIN}",
        "descending order",
    ),
    ("postgres", f"SELECT mode() WITHIN GROUP (ORDER BY o.v) AS a {JOIN}", "mode()"),
    ("duckdb", "SELECT o.id AS a FROM o ASOF JOIN p ON o.id >= p.id", "ASOF JOIN"),
    ("duckdb", "SELECT o.id AS a FROM o POSITIONAL JOIN p", "POSITIONAL JOIN"),
    ("duckdb", f"SELECT o.id AS a {JOIN} USING SAMPLE 10%", "TABLESAMPLE"),
    ("tsql", f"SELECT TOP 50 PERCENT o.id AS a {JOIN} ORDER BY o.id", "PERCENT"),
    ("tsql", f"SELECT TOP 5 WITH TIES o.id AS a {JOIN} ORDER BY o.id", "TIES"),
    ("tsql", "SELECT o.id AS a FROM o WITH (NOLOCK) JOIN p ON o.id = p.id", "a hint after a table"),
    ("oracle", f"SELECT o.id AS a {JOIN} FETCH FIRST 5 PERCENT ROWS ONLY", "PERCENT"),
    ("oracle", "SELECT o.id AS a FROM o START WITH o.id = 1 CONNECT BY o.id = o.v", "CONNECT BY"),
    ("mysql", f"SELECT STRAIGHT_JOIN o.id AS a {JOIN}", "modifier of SELECT"),
    (
        "mysql",
        "SELECT o.id AS a FROM o USE INDEX (i) JOIN p ON o.id = p.id",
        "a hint after a table",
    ),
    ("bigquery", f"SELECT AS STRUCT o.id {JOIN}", "SELECT AS"),
    ("snowflake", f"SELECT * RENAME (id AS i) {JOIN}", "of STAR"),
    ("postgres", f"SELECT o.id AS a {JOIN} FOR UPDATE", "FOR UPDATE"),
    ("postgres", f"SELECT avg(o.m) AS a {JOIN}", "avg()"),
    ("tsql", f"SELECT avg(o.v) AS a {JOIN}", "avg()"),
    ("oracle", f"SELECT variance(o.x) AS a {JOIN}", "variance()"),
    ("duckdb", f"SELECT list(o.v) AS a {JOIN}", ""),
]


@pytest.mark.parametrize("comparison", ["> ALL", "<= ANY", "= ANY", "<> ALL"])
def test_comparisons_with_rows_of_subqueries_are_kept(comparison: str) -> None:
    sql = f"SELECT o.id AS a FROM o WHERE o.v {comparison} (SELECT p.w FROM p WHERE p.id = o.id)"
    for dialect in ("duckdb", "postgres", "mysql", "snowflake"):
        assert to_spark(sql, dialect, STREAMS) == sql


@pytest.mark.parametrize(("dialect", "sql", "part"), REFUSED)
def test_clauses_that_spark_does_not_have_are_refused_by_name(
    dialect: str, sql: str, part: str
) -> None:
    with pytest.raises(QueryError) as refused:
        parse_sql("q", to_spark(sql, dialect, STREAMS), STREAMS)
    assert part in refused.value.message
    assert refused.value.remedy


#: Dialect, item of SELECT, the same in Spark's SQL.
AGGREGATES = [
    ("duckdb", "max_by(v, w)", "max_by(v, CASE WHEN NOT v IS NULL THEN w END)"),
    ("duckdb", "arg_min(s, w) FILTER (WHERE v > 1)",
     "min_by(s, CASE WHEN NOT s IS NULL THEN w END) FILTER (WHERE v > 1)"),
    ("snowflake", "max_by(v, w)", "max_by(v, w)"),
    ("trino", "min_by(v, w)", "min_by(v, w)"),
    ("clickhouse", "argMax(v, w)", "max_by(v, CASE WHEN NOT v IS NULL THEN w END)"),
    ("postgres", "any_value(s)", "any_value(s)"),
    ("duckdb", "any_value(s) FILTER (WHERE v > 1)", "any_value(s) FILTER (WHERE v > 1)"),
    ("duckdb", "last(s)", "any_value(s)"),
    ("trino", "arbitrary(s)", "any_value(s)"),
    ("duckdb", "median(v)", "median(v)"),
    ("duckdb", "quantile_cont(v, 0.3)", "percentile(v, 0.3)"),
    ("duckdb", "quantile_disc(m, 0.3)", "percentile_approx(m, 0.3)"),
    ("duckdb", "quantile(v, 0.3)", "percentile_approx(v, 0.3)"),
    ("duckdb", "approx_quantile(v, 0.3)", "percentile_approx(v, 0.3)"),
    ("postgres", "percentile_cont(0.3) WITHIN GROUP (ORDER BY m DESC)",
     "percentile_cont(0.3) WITHIN GROUP (ORDER BY m DESC)"),
    ("postgres", "percentile_cont(0.3) WITHIN GROUP (ORDER BY v) FILTER (WHERE x > 1)",
     "percentile_cont(0.3) WITHIN GROUP (ORDER BY v) FILTER (WHERE x > 1)"),
    ("postgres", "percentile_disc(0.3) WITHIN GROUP (ORDER BY m)", "percentile_approx(m, 0.3)"),
    ("snowflake", "percentile_disc(0.3) WITHIN GROUP (ORDER BY x DESC)",
     "percentile_disc(0.3) WITHIN GROUP (ORDER BY x DESC)"),
    ("trino", "approx_percentile(v, 0.3)", "percentile_approx(v, 0.3)"),
    ("trino", "approx_distinct(v)", "approx_count_distinct(v)"),
    ("bigquery", "approx_count_distinct(v)", "approx_count_distinct(v)"),
    ("postgres", "string_agg(s, ',' ORDER BY s DESC)",
     "listagg(s, ',') WITHIN GROUP (ORDER BY s DESC)"),
    ("postgres", "string_agg(s, ',' ORDER BY w, x DESC)",
     "listagg(s, ',') WITHIN GROUP (ORDER BY w NULLS LAST, x DESC NULLS FIRST)"),
    ("postgres", "string_agg(DISTINCT s, '-')", "listagg(DISTINCT s, '-')"),
    ("duckdb", "group_concat(s)", "listagg(s, ',')"),
    ("redshift", "listagg(s)", "listagg(s, '')"),
    ("bigquery", "string_agg(s ORDER BY w)", "listagg(s, ',') WITHIN GROUP (ORDER BY w)"),
    ("tsql", "string_agg(s, '+') WITHIN GROUP (ORDER BY w)",
     "listagg(s, '+') WITHIN GROUP (ORDER BY w)"),
    ("trino", "listagg(s, ',') WITHIN GROUP (ORDER BY s)", "listagg(s, ',')"),
    ("postgres", "corr(v, m)", "corr(v, m)"),
    ("snowflake", "corr(v, m)", "corr(v, m)"),
    ("duckdb", "covar_samp(v, x)", "covar_samp(v, x)"),
    ("duckdb", "corr(v, m) / 2", "corr(v, m) / 2"),
    ("duckdb", "regr_slope(v, x) / regr_count(v, x)", "regr_slope(v, x) / regr_count(v, x)"),
    ("postgres", "regr_intercept(m, v) FILTER (WHERE x > 1)",
     "regr_intercept(m, v) FILTER (WHERE x > 1)"),
    ("snowflake", "regr_r2(v, m)", "regr_r2(v, m)"),
    ("postgres", "regr_sxx(v, m)", "regr_sxx(v, m)"),
    ("oracle", "regr_sxy(CAST(v AS DOUBLE PRECISION), CAST(m AS DOUBLE PRECISION))",
     "regr_sxy(CAST(v AS DOUBLE), CAST(m AS DOUBLE))"),
    ("trino", "regr_syy(v, m)", "regr_syy(v, m)"),
    ("bigquery", "regr_avgx(v, m)", "regr_avgx(v, m)"),
    ("duckdb", "regr_avgy(v, m)", "regr_avgy(v, m)"),
    ("postgres", "sum(DISTINCT v)", "sum(DISTINCT v)"),
    ("mysql", "count(DISTINCT v, s)", "count(DISTINCT v, s)"),
    ("snowflake", "boolor_agg(ok)", "bool_or(ok)"),
    ("bigquery", "countif(ok)", "count_if(ok)"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "call", "wanted"), AGGREGATES)
def test_aggregates_of_other_dialects(dialect: str, call: str, wanted: str) -> None:
    spark = to_spark(f"SELECT {call} AS a {JOIN}", dialect, STREAMS)
    found = parse_sql("q", spark, STREAMS)
    assert found == parse_sql("q", f"SELECT {wanted} AS a {JOIN}", STREAMS), spark


@pytest.mark.parametrize(
    ("dialect", "sql", "wanted"),
    [
        (
            "postgres",
            f"SELECT s, v, grouping(s, v) AS g {JOIN} GROUP BY ROLLUP (s, v)",
            f"SELECT s, v, grouping_id(s, v) AS g {JOIN} GROUP BY ROLLUP (s, v)",
        ),
        (
            "duckdb",
            f"SELECT s, grouping(s) AS g {JOIN} GROUP BY CUBE (s, v), d",
            f"SELECT s, grouping(s) AS g {JOIN} GROUP BY CUBE (s, v), d",
        ),
        (
            "trino",
            f"SELECT s, count(*) AS n {JOIN} GROUP BY GROUPING SETS ((s, v), s, ())",
            f"SELECT s, count(*) AS n {JOIN} GROUP BY GROUPING SETS ((s, v), s, ())",
        ),
        (
            "mysql",
            f"SELECT s, count(*) AS n {JOIN} GROUP BY s, v WITH ROLLUP",
            f"SELECT s, count(*) AS n {JOIN} GROUP BY ROLLUP (s, v)",
        ),
        (
            "duckdb",
            f"SELECT o.*, p.y {JOIN} "
            "QUALIFY row_number() OVER (PARTITION BY v ORDER BY x DESC) <= 3",
            f"SELECT o.*, p.y {JOIN} "
            "QUALIFY row_number() OVER (PARTITION BY v ORDER BY x DESC) <= 3",
        ),
        (
            "snowflake",
            f"SELECT o.id, rank() OVER (PARTITION BY v ORDER BY x) AS r {JOIN} QUALIFY r = 1",
            f"SELECT o.id, rank() OVER (PARTITION BY v ORDER BY x NULLS LAST) AS r {JOIN} "
            "QUALIFY r = 1",
        ),
        (
            "postgres",
            f"SELECT * FROM (SELECT o.id, row_number() OVER (ORDER BY x DESC) AS n {JOIN}) AS q "
            "WHERE n <= 3",
            f"SELECT o.id, row_number() OVER (ORDER BY x DESC NULLS FIRST) AS n {JOIN} "
            "QUALIFY n <= 3",
        ),
        (
            "postgres",
            f"SELECT DISTINCT ON (v) v, x {JOIN} ORDER BY v, x DESC",
            f"SELECT v, x {JOIN} "
            "QUALIFY row_number() OVER (PARTITION BY v ORDER BY x DESC NULLS FIRST) = 1",
        ),
    ],
)
def test_groups_and_rankings_of_other_dialects(dialect: str, sql: str, wanted: str) -> None:
    spark = to_spark(sql, dialect, STREAMS)
    found, same = parse_sql("q", spark, STREAMS), parse_sql("q", wanted, STREAMS)
    assert found.view == same.view, spark
    assert [str(o.expr) for o in found.projection] == [str(o.expr) for o in same.projection]


@pytest.mark.parametrize(
    ("dialect", "order"),
    [("duckdb", "NULLS LAST"), ("postgres", "NULLS LAST"), ("mysql", ""), ("sqlite", "")],
)
def test_nulls_are_ordered_as_in_the_dialect(dialect: str, order: str) -> None:
    spark = to_spark(f"SELECT o.id AS a {JOIN} ORDER BY o.n LIMIT 3", dialect, STREAMS)
    assert f"ORDER BY {' '.join(['o.n', order]).strip()} LIMIT 3" in spark


@pytest.mark.parametrize(
    ("dialect", "sql", "what", "remedy"),
    [
        (
            "postgres",
            "SELECT o.t + make_interval(months => 1, days => o.v) AS d FROM o",
            "make_interval()",
            "write 1 * INTERVAL '1 month' + o.v * INTERVAL '1 day'",
        ),
        (
            "postgres",
            "SELECT o.t + make_interval(0, 0, 0, 2) AS d FROM o",
            "make_interval()",
            "write 2 * INTERVAL '1 day'",
        ),
        (
            "snowflake",
            "SELECT to_varchar(o.t, 'YYYY-MM-DD HH24:MI') AS d FROM o",
            "to_varchar()",
            "write the statement in Spark's dialect: date_format(o.t, 'yyyy-MM-dd HH:mm')",
        ),
        (
            "snowflake",
            "SELECT to_varchar(o.x, '999.00') AS d FROM o",
            "to_varchar()",
            "write the statement in Spark's dialect: to_char(o.x, '999.00')",
        ),
        (
            "snowflake",
            "SELECT to_varchar(o.v) AS d FROM o",
            "to_varchar()",
            "write CAST(o.v AS VARCHAR)",
        ),
        (
            "postgres",
            "SELECT CAST(o.x AS REAL) AS r FROM o",
            "CAST to REAL, which has another width",
            "cast to DOUBLE",
        ),
    ],
)
def test_functions_of_other_systems_have_a_remedy(
    dialect: str, sql: str, what: str, remedy: str
) -> None:
    with pytest.raises(QueryError) as caught:
        to_spark(sql, dialect, STREAMS)
    error = caught.value
    comma = "," if "which" in what else ""
    assert error.message == f"{what} (read as {dialect}){comma} is not supported"
    assert error.remedy == remedy


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        ("postgres", "SELECT o.t + 1 * INTERVAL '1 month' + o.v * INTERVAL '1 day' AS d"),
        ("postgres", "SELECT o.t + 2 * INTERVAL '1 day' AS d"),
        ("snowflake", "SELECT CAST(o.v AS VARCHAR) AS d"),
        ("spark", "SELECT date_format(o.t, 'yyyy-MM-dd HH:mm') AS d"),
    ],
)
def test_what_remedies_say_runs(dialect: str, sql: str) -> None:
    spark = to_spark(f"{sql} FROM o", dialect, STREAMS)
    assert [one.name for one in parse_sql("q", spark, STREAMS).projection] == ["d"]


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("LATERAL FLATTEN(input => o.s:items) f", "LATERAL variant_explode(o.s:items) AS f"),
        (
            "TABLE(FLATTEN(o.s)) AS g",
            "LATERAL explode(o.s) AS g(value) of an array, LATERAL variant_explode(o.s) AS g of "
            "a VARIANT",
        ),
    ],
)
@pytest.mark.parametrize("dialect", ["snowflake", "spark"])
def test_flatten_is_named_with_its_counterpart(dialect: str, source: str, remedy: str) -> None:
    sql = f"SELECT o.id AS id FROM o, {source}"
    with pytest.raises(QueryError) as caught:
        parse_sql("q", to_spark(sql, dialect, STREAMS), STREAMS)
    assert caught.value.message == "FLATTEN is not supported"
    before = "write the statement in Spark's dialect: " if dialect == "snowflake" else "write "
    assert caught.value.remedy == before + remedy


def test_the_dialects_with_a_table_are_documented() -> None:
    text = Path("docs/sql.md").read_text(encoding="utf-8")
    section = text[text.index("### Other dialects") : text.index("### Explain")]
    assert all(f"`{dialect}`" in section for dialect in MEANINGS)
    assert set(MEANINGS) <= {d.value for d in Dialects}


def test_types_come_from_streams_and_are_unknown_without_them() -> None:
    sql = f"SELECT o.id AS i, CAST(o.v AS BIGINT) AS b {JOIN}"
    assert "CAST(o.v AS BIGINT)" in to_spark(sql, "postgres", STREAMS)
    with pytest.raises(QueryError, match="may have a fraction"):
        to_spark(sql, "postgres")
    # Another column of that name, or an alias, makes its type unknown.
    shadowed = f"SELECT q.v::int AS b FROM (SELECT o.x AS v, o.id {JOIN}) AS q JOIN p USING (id)"
    with pytest.raises(QueryError, match="may have a fraction"):
        to_spark(shadowed, "postgres", STREAMS)
    renamed = f"SELECT q.v::int AS b FROM (SELECT o.x, o.id {JOIN}) AS q (v, id) JOIN p USING (id)"
    with pytest.raises(QueryError, match="may have a fraction"):
        to_spark(renamed, "postgres", STREAMS)


@given(
    dialect=st.sampled_from(sorted({d.value for d in Dialects if d.value} - {"spark"})),
    number=numbers(),
    text=texts(),
    condition=conditions(),
)
def test_every_dialect_is_translated_or_refused(
    dialect: str, number: str, text: str, condition: str
) -> None:
    """No crash, no refusal without a remedy; if the dialect is unknown, nothing that differs
    between dialects.
    """
    for sql in (
        f"SELECT o.id AS a, {number} AS b {JOIN}",
        f"SELECT o.id AS a, {text} AS b {JOIN} WHERE {condition}",
    ):
        spark = translated(sql, dialect)
        if dialect not in MEANINGS and dialect != "databricks" and spark is not None:
            assert not any(
                word in spark for word in ("LIKE", "LOWER", "CONCAT", "TRIM", "SUBSTRING", "1.5 ")
            )


@pytest.mark.parametrize(
    ("dialect", "expression", "remedy"),
    [
        ("postgres", "initcap(o.s)", "INITCAP(o.s)"),
        ("postgres", "generate_series(1, o.v)", "EXPLODE(SEQUENCE(1, o.v))"),
        ("snowflake", "REGEXP_SUBSTR(o.s, '[a-z]')", "REGEXP_EXTRACT(o.s, '[a-z]', 0)"),
        ("snowflake", "PARSE_JSON(o.s):a.b", "get_json_object(o.s, '$.a.b')"),
        ("trino", "date_diff('day', o.d, o.d)", "timestampdiff(DAY, o.d, o.d)"),
        ("snowflake", "GREATEST(o.v, p.w)", "greatest(o.v, p.w)"),
        ("postgres", "o.v / p.w", "CAST(o.v AS DOUBLE) / p.w"),
        ("postgres", r"o.s ~ '\w'", r"o.s RLIKE '\\w'"),
    ],
)
def test_remedies_have_the_expression_in_sparks_words(
    dialect: str, expression: str, remedy: str
) -> None:
    with pytest.raises(QueryError) as refused:
        to_spark(f"SELECT o.id AS a, {expression} AS b {JOIN}", dialect, STREAMS)
    assert remedy in refused.value.remedy
    if "PARSE_JSON" not in expression and "timestampdiff" not in remedy:
        query = parse_sql("q", f"SELECT o.id AS a, {remedy} AS b {JOIN}", STREAMS)
        assert query.id == "q"


def test_functions_in_remedies_exist() -> None:
    assert {*NAMED} - {*REWRITINGS, *names()} <= {"explode", "extract", "nullif"}
