"""Compare translated functions of other dialects over random rows with their engines: a PostgreSQL
server, and DuckDB.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from psycopg2.extras import execute_values

from anabranch_contract.errors import QueryError
from anabranch_planner.passes import parse_sql
from anabranch_planner.sql.dialects import to_spark
from scripts.postgres import Server
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.postgres import server as running
from tests.support.surroundings.postgres import session
from tests.support.worlds.batch import batch_rows, streams_of

_MOMENT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([
    ("id", pa.int32()), ("a", _MOMENT), ("b", _MOMENT), ("d", pa.date32()), ("e", pa.date32()),
    ("m", pa.decimal128(12, 3)), ("k", pa.int32()), ("s", pa.string()), ("ok", pa.bool_()),
])  # fmt: skip
_COLUMNS = (
    "id int, a timestamptz, b timestamptz, d date, e date, m numeric(12,3), k int, s text, ok bool"
)
#: Translated expressions of PostgreSQL.
EXPRESSIONS = [
    *(f"date_trunc('{unit}', {x})" for unit in ("year", "quarter", "month", "week", "day", "hour",
                                                "minute", "second") for x in "ab"),
    *(f"extract({part} FROM {x})" for part in ("year", "month", "day", "dow", "isodow", "doy",
                                               "week", "quarter") for x in "ad"),
    "extract(epoch FROM a)", "extract(epoch FROM a - b)", "date_part('hour', b)",
    *(f"extract({part} FROM age({x}, {y}))" for part in ("year", "month")
      for x, y in ("ab", "ba", "de", "ed", "ad", "eb")),
    "greatest(m, k, 7)", "least(k, m)", "greatest(a, b)", "least(d, e)", "greatest(s, 'b')",
    "round(m, 1)", "round(m)", "round(m, 0)", "round(k)", "ceil(m)", "floor(m)", "floor(k)",
    "split_part(s, '-', 1)", "split_part(s, '-', 3)", "position('b' in s)", "strpos(s, 'ab')",
    "replace(s, 'a', '')", "replace(s, 'ab', 'é')",
    *(f"s {operator} {pattern}" for operator in ("~", "!~", "~*") for pattern in (
        "'a'", "'^a'", "'b$'", "'^a.b$'", "'^[a-c]+$'", "'(a|x)-?b'", r"'\d{2,3}'", "'^$'",
        r"'\.'", "'[^a-z]'", "'a.*b'", "'^.$'",
    )),
    "k IS NOT NULL", "(s IS NOT NULL) = ok", "ok IS NOT TRUE", "ok IS NOT FALSE", "m IS NOT NULL",
]  # fmt: skip
#: Translated expressions of DuckDB.
OF_DUCKDB = [
    *(f"date_trunc('{unit}', {x})" for unit in ("year", "quarter", "month", "week", "day", "hour",
                                                "minute", "second") for x in "ab"),
    *(f"extract({part} FROM {x})" for part in ("dow", "isodow", "doy", "week") for x in "ad"),
    *(f"datediff('{unit}', {x}, {y})" for unit in ("year", "quarter", "month", "day")
      for x, y in ("ab", "ba", "de", "ed")),
    *(f"date_diff('{unit}', a, b)" for unit in ("hour", "minute", "second")),
    "greatest(m, k, 7)", "least(k, m)", "greatest(a, b)", "round(m, 1)", "round(k)", "ceil(m)",
    "floor(m)", "split_part(s, '-', 1)", "split_part(s, '-', 3)", "strpos(s, 'ab')",
    "position('b' in s)", "replace(s, 'a', '')", "contains(s, 'a-b')", "k IS NOT NULL",
]  # fmt: skip
#: Refused expressions: their values have no equivalent, or differ.
REFUSED = [
    "age(a, b)", "age(a)", "extract(day FROM age(a, b))", r"s ~ '\w'", "s ~ 'a(?=b)'",
    "s ~ s", "s ~ '[[:alpha:]]'", "initcap(s)", "round(CAST(m AS DOUBLE PRECISION))",
    "split_part(s, '-', -1)", "date_trunc('decade', a)", "date_trunc('day', d)",
    "extract(epoch FROM d)", "greatest(s, k)",
]  # fmt: skip
_TEXTS = ("a", "ab", "a-b", "x-b-c", "A-B", "", "abcab", "12", "1.5", "a\nb", "ab\n", "é", "éb-é")
_DAYS = ("2024-01-31", "2024-02-29", "2023-02-28", "2024-03-01", "2023-12-31", "2000-02-29",
         "1969-12-31", "2024-12-30")  # fmt: skip


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    yield from running({"timezone": "UTC"})


def rows(rng: Random, count: int) -> list[tuple[Any, ...]]:
    """Return random rows, with ends of months, NULLs and halves."""

    def day() -> dt.date:
        far = dt.date(1960, 1, 1) + dt.timedelta(days=rng.randrange(40000))
        return rng.choice((dt.date.fromisoformat(rng.choice(_DAYS)), far))

    def moment() -> dt.datetime:
        times = (dt.time(0), dt.time(23, 59, 59, 999999), dt.time(12, rng.randrange(60), 1, 500000))
        return dt.datetime.combine(day(), rng.choice(times), dt.UTC)

    def some(value: Any) -> Any:
        return None if rng.random() < 0.1 else value

    return [
        (
            number, some(moment()), some(moment()), some(day()), some(day()),
            some(Decimal(rng.randrange(-30000, 30000)) * 5 / 100), some(rng.randrange(-50, 50)),
            some(rng.choice(_TEXTS)), some(rng.random() < 0.5),
        )
        for number in range(count)
    ]  # fmt: skip


def plain(value: Any) -> Any:
    """Return a value in uniform notation: numbers by value, times in UTC."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | Decimal):
        return Decimal(value).normalize() + 0
    if isinstance(value, float) and math.isfinite(value):
        return Decimal(value).normalize() + 0
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value


@pytest.mark.parametrize("seed", mostly_slow(range(30), 2))
def test_expressions_have_the_values_of_postgresql(seed: int, postgres: Server) -> None:
    drawn = rows(Random(f"postgres {seed}"), 60)
    columns = zip(*drawn, strict=True)
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    tables = {"t": pa.Table.from_arrays(arrays, schema=SCHEMA)}
    streams = streams_of(tables)
    with session(postgres) as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS t; CREATE TABLE t ({_COLUMNS})")
        execute_values(cursor, "INSERT INTO t VALUES %s", drawn)
        for expression in EXPRESSIONS:
            sql = f"SELECT id, {expression} AS x FROM t"
            cursor.execute(sql)
            wanted = Counter(tuple(map(plain, row)) for row in cursor.fetchall())
            spark = to_spark(sql, "postgres", streams)
            found = Counter(tuple(map(plain, row)) for row in batch_rows(spark, tables))
            assert found == wanted, f"{sql}\n{spark}"


@pytest.mark.parametrize("seed", mostly_slow(range(30), 2))
def test_expressions_have_the_values_of_duckdb(seed: int) -> None:
    drawn = rows(Random(f"duckdb {seed}"), 60)
    columns = zip(*drawn, strict=True)
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    tables = {"t": pa.Table.from_arrays(arrays, schema=SCHEMA)}
    streams, duck = streams_of(tables), duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    duck.register("t", tables["t"])
    for expression in OF_DUCKDB:
        sql = f"SELECT id, {expression} AS x FROM t"
        wanted = Counter(tuple(map(plain, row)) for row in duck.execute(sql).fetchall())
        spark = to_spark(sql, "duckdb", streams)
        found = Counter(tuple(map(plain, row)) for row in batch_rows(spark, tables))
        assert found == wanted, f"{sql}\n{spark}"


@pytest.mark.parametrize("expression", REFUSED)
def test_expressions_with_other_values_are_refused(expression: str) -> None:
    streams = streams_of({"t": SCHEMA.empty_table()})
    with pytest.raises(QueryError) as refused:
        to_spark(f"SELECT id, {expression} AS x FROM t", "postgres", streams)
    assert "(read as postgres)" in refused.value.message
    assert refused.value.remedy


def test_remedies_of_age_are_accepted() -> None:
    streams = streams_of({"t": SCHEMA.empty_table()})
    with pytest.raises(QueryError, match="EXTRACT") as refused:
        to_spark("SELECT age(a, b) AS x FROM t", "postgres", streams)
    assert "EXTRACT(YEAR FROM age(a, b))" in refused.value.remedy
    for remedy in ("EXTRACT(YEAR FROM age(a, b))", "EXTRACT(MONTH FROM age(d, e))", "a - b"):
        sql = to_spark(f"SELECT {remedy} AS x FROM t", "postgres", streams)
        assert parse_sql("q", sql, streams).projection
