"""Compare statements with constant dates, rows and disjunctions with DuckDB's rows."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.errors import QueryError
from anabranch_planner.passes import parse_sql
from tests.support.worlds.batch import batch_rows, streams_of

DAYS = [date(1993, 11, 30), date(1994, 1, 1), date(1994, 2, 27), date(1994, 2, 28), None,
        date(1994, 12, 31), date(1995, 1, 1), date(1996, 2, 29), date(1998, 9, 2)]  # fmt: skip
#: Two tables with NULLs, duplicate rows, and comparable texts and numbers.
LEFT = pa.table({
    "id": pa.array(range(9), pa.int32()),
    "x": pa.array([1, 1, 2, 2, None, 3, None, 1, 2], pa.int32()),
    "y": pa.array([1, 2, 1, None, None, 3, 1, 1, 2], pa.int64()),
    "s": ["a", "b", None, "a", "b", "c", "a", "a", None],
    "d": pa.array(DAYS, pa.date32()),
})  # fmt: skip
RIGHT = pa.table({
    "id": pa.array([0, 1, 2, 3, 4, 5, 5], pa.int32()),
    "u": pa.array([1, 1, 2, None, 2, 3, None], pa.int64()),
    "v": pa.array([1, 2, None, None, 2, 3, 1], pa.int32()),
    "t": ["a", None, "b", "a", "b", "c", "a"],
    "e": pa.array([DAYS[n] for n in (3, 1, 4, 7, 8, 0, 2)], pa.date32()),
})  # fmt: skip
TABLES = {"o": LEFT, "p": RIGHT}
JOIN = "FROM o JOIN p ON o.id = p.id"


@cache
def duckdb_tables() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name, table in TABLES.items():
        connection.register(name, table)
    return connection


def duckdb_rows(sql: str) -> list[tuple[Any, ...]]:
    return duckdb_tables().execute(sql).fetchall()


def agree(sql: str) -> list[tuple[Any, ...]]:
    """Return the rows here, after checking that they are DuckDB's."""
    found, wanted = batch_rows(sql, TABLES), duckdb_rows(sql)
    assert Counter(found) == Counter(wanted), sql
    return found


def test_positions_in_order_by_are_columns() -> None:
    ordered = "ORDER BY 2 NULLS LAST, 1 DESC NULLS LAST LIMIT 3"
    assert len(agree(f"SELECT o.x, p.t {JOIN} {ordered}")) == 3
    with pytest.raises(QueryError, match="3 is not a position"):
        parse_sql("q", f"SELECT o.x, p.t {JOIN} ORDER BY 3 LIMIT 3", streams_of(TABLES))


# --- dates ---------------------------------------------------------------------------------------

CONSTANTS = st.dates(date(1990, 1, 1), date(2005, 12, 31)).map(lambda d: f"DATE '{d}'")


@st.composite
def intervals(draw: st.DrawFn) -> str:
    number = draw(st.integers(-40, 40))
    unit = draw(st.sampled_from(["YEAR", "MONTH", "DAY", "WEEK"]))
    if unit in ("DAY", "WEEK", "MONTH") and draw(st.booleans()):
        return f"INTERVAL '{number} {unit.lower()}s'"
    return f"INTERVAL '{number}' {unit}"


@st.composite
def moved_constants(draw: st.DrawFn) -> str:
    text = draw(CONSTANTS)
    for _ in range(draw(st.integers(1, 3))):
        text = f"{text} {draw(st.sampled_from('+-'))} {draw(intervals())}"
    return text


@given(moment=moved_constants(), op=st.sampled_from(["<", "<=", "=", ">", ">=", "<>"]))
def test_constant_dates_are_moved_as_in_duckdb(moment: str, op: str) -> None:
    agree(f"SELECT o.id AS a {JOIN} WHERE o.d {op} {moment}")
    # DuckDB makes this a timestamp, Spark and this planner a date.
    sql = f"SELECT o.id AS a, {moment} AS m {JOIN}"
    assert batch_rows(sql, TABLES) == batch_rows(
        f"SELECT o.id AS a, DATE '{duckdb_rows(sql)[0][1].date()}' AS m {JOIN}", TABLES
    )


@given(days=st.integers(-999, 999), sign=st.sampled_from("+-"), op=st.sampled_from(["<", "=", ">"]))
def test_date_columns_are_moved_by_days(days: int, sign: str, op: str) -> None:
    moved = f"o.d {sign} INTERVAL '{days}' DAY"
    agree(f"SELECT o.id AS a {JOIN} WHERE {moved} {op} p.e")
    agree(f"SELECT o.id AS a, p.id AS b FROM o JOIN p ON {moved} = p.e")
    agree(f"SELECT o.id AS a, CAST({moved} AS DATE) AS m {JOIN}")
    found = batch_rows(f"SELECT o.id AS a, {moved} AS m {JOIN}", TABLES)
    by = timedelta(days=days if sign == "+" else -days)
    assert {m for a, m in found} == {d and d + by for d in DAYS[:6]}
    moved = f"o.d {sign} INTERVAL '{days}' HOUR"
    agree(f"SELECT o.id AS a {JOIN} WHERE {moved} {op} TIMESTAMP '1994-02-03 10:00:00'")


def test_days_keep_a_date_and_hours_make_a_timestamp() -> None:
    query = parse_sql(
        "q",
        f"SELECT o.d + INTERVAL '1' DAY AS a, o.d - INTERVAL '2' WEEK AS b, "
        f"INTERVAL '3' DAY + o.d AS c, o.d + INTERVAL '24' HOUR AS d, o.d + INTERVAL '1' DAY + "
        f"INTERVAL '2' HOUR AS e, o.d + (INTERVAL '1' DAY + INTERVAL '2' DAY) AS f, "
        f"DATE '2020-01-31' + INTERVAL '1-1' YEAR TO MONTH AS g, "
        f"TIMESTAMP '2020-01-31 10:00:00' - INTERVAL '1' MONTH AS h {JOIN}",
        streams_of(TABLES),
    )
    # Types in Spark 4.
    kinds = ["date", "date", "date", "timestamp", "timestamp", "date", "date", "timestamp"]
    assert [str(o.expr.type) for o in query.projection] == kinds
    rows = batch_rows(
        f"SELECT DATE '2020-01-31' + INTERVAL '1-1' YEAR TO MONTH AS g, "
        f"CAST(TIMESTAMP '2020-03-31 10:00:00' - INTERVAL '1' MONTH AS STRING) AS h {JOIN}",
        TABLES,
    )
    assert set(rows) == {(date(2021, 2, 28), "2020-02-29 10:00:00")}


@pytest.mark.parametrize(
    ("condition", "message", "remedy"),
    [
        (
            "o.d < DATE '1994-01-01' + INTERVAL '1 month 2 days'",
            "mixes months",
            "one after the other",
        ),
        (
            "o.d < DATE '1994-01-01' + INTERVAL '1.5' YEAR",
            "'1.5' is not a number of years",
            "MONTH",
        ),
        ("o.d < DATE '9999-12-01' + INTERVAL '1' MONTH", "out of the years 1 to 9999", "shorter"),
        ("o.d < DATE '0001-01-01' - INTERVAL '1' DAY", "out of the years 1 to 9999", "shorter"),
        ("o.x < 3 + INTERVAL '1' MONTH", "of types int and interval month", "DATE '1994-01-31'"),
    ],
)
def test_other_sums_are_refused_with_a_remedy(condition: str, message: str, remedy: str) -> None:
    with pytest.raises(QueryError) as refused:
        parse_sql("q", f"SELECT o.id AS a {JOIN} WHERE {condition}", streams_of(TABLES))
    assert message in refused.value.message
    assert remedy in refused.value.remedy
    assert refused.value.position is not None


# --- rows ----------------------------------------------------------------------------------------

VALUES = {"o.x": ["1", "2", "NULL"], "o.y": ["1", "2", "NULL"], "o.s": ["'a'", "'b'", "NULL"]}
PARTNERS = {"o.x": "p.v", "o.y": "p.u", "o.s": "p.t"}


@st.composite
def row_conditions(draw: st.DrawFn) -> str:
    columns = draw(st.lists(st.sampled_from(list(VALUES)), min_size=2, max_size=3))
    left = f"({', '.join(columns)})"

    def other() -> str:
        cells = [draw(st.sampled_from([*VALUES[c], PARTNERS[c]])) for c in columns]
        return f"({', '.join(cells)})"

    if draw(st.booleans()):
        return f"{left} {draw(st.sampled_from(['=', '<>']))} {other()}"
    items = ", ".join(other() for _ in range(draw(st.integers(1, 3))))
    return f"{left} {draw(st.sampled_from(['IN', 'NOT IN']))} ({items})"


@given(condition=row_conditions(), negated=st.booleans())
def test_rows_are_compared_as_in_duckdb(condition: str, negated: bool) -> None:
    agree(f"SELECT o.id AS a, p.id AS b {JOIN} WHERE {'NOT ' if negated else ''}({condition})")
    agree(f"SELECT o.id AS a, {condition} AS c {JOIN}")


@given(pairs=st.lists(st.sampled_from(list(PARTNERS.items())), min_size=2, max_size=3))
def test_rows_join_as_in_duckdb(pairs: list[tuple[str, str]]) -> None:
    left, right = (f"({', '.join(side)})" for side in zip(*pairs, strict=True))
    found = agree(f"SELECT o.id AS a, p.id AS b FROM o, p WHERE {left} = {right}")
    assert found
    agree(f"SELECT o.id AS a, p.id AS b FROM o JOIN p ON {right} IN ({left})")


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("(o.x, o.y) < (1, 2)", "a comparison of rows by order"),
        ("(o.x, o.y) = (1, 2, 3)", "a row of 2 is compared with one of 3"),
        ("(o.x, o.y) IN ((1, 2), (3))", "a row of 2 is compared with one of 1"),
        ("(o.x, o.y) = o.s", "a row of 2 is compared with one of 1"),
    ],
)
def test_other_comparisons_of_rows_are_refused(condition: str, message: str) -> None:
    with pytest.raises(QueryError) as refused:
        parse_sql("q", f"SELECT o.id AS a {JOIN} WHERE {condition}", streams_of(TABLES))
    assert message in refused.value.message
    assert refused.value.remedy


# --- disjunctions --------------------------------------------------------------------------------

ATOMS = ["o.x = 1", "o.s = 'a'", "p.u > 1", "p.t <> 'b'", "o.y BETWEEN 1 AND 2", "o.x IS NULL",
         "o.y < p.v", "p.t IN ('a', 'c')", "(o.x, o.s) = (1, 'a')"]  # fmt: skip
KEYS = ["o.id = p.id", "p.id = o.id", "O.ID = P.ID", "(o.id) = p.id"]


@st.composite
def disjunctions(draw: st.DrawFn, depth: int = 0) -> str:
    alternatives = []
    for _ in range(draw(st.integers(2, 3))):
        parts = draw(st.lists(st.sampled_from(ATOMS), max_size=3))
        if depth < 1 and draw(st.booleans()):
            parts.append(f"({draw(disjunctions(depth + 1))})")
        else:
            parts.append(draw(st.sampled_from(KEYS)))
        alternatives.append(" AND ".join(draw(st.permutations(parts))))
    return " OR ".join(alternatives)


@given(condition=disjunctions())
def test_equalities_of_every_alternative_join(condition: str) -> None:
    agree(f"SELECT o.id AS a, p.u AS b FROM o, p WHERE {condition}")
    agree(f"SELECT o.id AS a, p.u AS b FROM o JOIN p ON {condition}")


@given(condition=disjunctions(), more=st.sampled_from(ATOMS))
def test_an_alternative_without_the_equality_is_no_join(condition: str, more: str) -> None:
    sql = f"SELECT o.id AS a FROM o, p WHERE {condition} OR {more}"
    query = parse_sql("q", sql, streams_of(TABLES))
    assert all("constant" in str(member) for key in query.classes for member in key.members)
    agree(sql)


def test_the_result_of_timestamps_is_as_in_duckdb() -> None:
    moment = "1994-02-28 12:00:00"
    rows = batch_rows(f"SELECT TIMESTAMP_NTZ '{moment}' + INTERVAL '1' YEAR AS m {JOIN}", TABLES)
    assert set(rows) == set(duckdb_rows(f"SELECT TIMESTAMP '{moment}' + INTERVAL '1' YEAR {JOIN}"))
