"""Subqueries of expressions as joins: rewritten statements have their own rows in DuckDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

import duckdb
import pyarrow as pa
import pytest

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.changes import ChangeFormat
from anabranch_contract.queries.joins import Stream, StreamKind, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import parse_sql, read_sql
from anabranch_planner.sql.unresolved import Unresolved
from anabranch_planner.subqueries.decorrelation import decorrelated
from anabranch_runtime.columns.arrow_types import spark_type
from tests.support.oracles.tree_text import text_of
from tests.support.worlds.changed_views import COLUMNS, draw_row
from tests.support.worlds.subqueries import Grammar
from tests.support.worlds.view_runs import comparable

STREAMS = {
    name: Stream(
        StreamName(name),
        (*((c, spark_type(kind)) for c, kind in columns.items()), ("op", parse_type("string"))),
        kind=StreamKind.CHANGES,
        changes=ChangeFormat("op"),
    )
    for name, columns in COLUMNS.items()
}
STREAMS["d"] = Stream(
    StreamName("d"),
    (*((name, parse_type("bigint")) for name in ("k", "e")), ("op", parse_type("string"))),
    retain=None,
    kind=StreamKind.UPSERT,
    changes=ChangeFormat("op", key=("k",)),
)


def rewritten(sql: str) -> Unresolved:
    return decorrelated(read_sql(sql), STREAMS)


def fill(connection: duckdb.DuckDBPyConnection, rng: Random, most: int) -> None:
    """Random rows, of some streams none."""
    for name, columns in COLUMNS.items():
        rows = [draw_row(name, rng) for _ in range(rng.choice((0, most, most, most)))]
        values = list(zip(*rows, strict=True)) or [() for _ in columns]
        arrays = [pa.array(list(v), kind) for v, kind in zip(values, columns.values(), strict=True)]
        connection.register(name, pa.table(arrays, names=list(columns)))
    rows = [(k, rng.choice((None, *range(5)))) for k in range(5) if rng.random() < 0.8]
    values = list(zip(*rows, strict=True)) or [(), ()]
    connection.register("d", pa.table([pa.array(v, pa.int64()) for v in values], names=["k", "e"]))


def compare(sql: str, rng: Random, rows: Iterable[int] = (4, 8, 20)) -> int:
    """Compare a statement with its rewriting over random rows; how many rows they had.

    Raises:
        AssertionError: they differ.
        QueryError: the statement is refused.
    """
    text, count = text_of(rewritten(sql)), 0
    with duckdb.connect() as connection:
        for most in rows:
            fill(connection, rng, most)
            wanted = comparable(connection.execute(sql).fetchall())
            found = comparable(connection.execute(text).fetchall())
            assert found == wanted, f"{sql}\n{text}\n{found}\n{wanted}"
            count += len(wanted)
    return count


def compare_random(seeds: Iterable[int]) -> Counter[str]:
    counts = Counter[str]()
    for seed in seeds:
        rng = Random(seed)
        sql = Grammar(rng).statement()
        try:
            counts["rows" if compare(sql, rng) else "empty"] += 1
        except QueryError as error:
            counts["refused" if error.remedy and error.position else "vague"] += 1
    return counts


def test_random_subqueries() -> None:
    counts = compare_random(range(60))
    assert counts["rows"] > 25, counts
    assert counts["refused"] < 6, counts
    assert not counts["vague"], counts


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_many_random_subqueries(part: int) -> None:
    counts = compare_random(range(1000 + 500 * part, 1500 + 500 * part))
    assert counts["refused"] < 30, counts
    assert not counts["vague"], counts


NULLS = (
    # NOT IN: no row once the subquery has a NULL; all rows over no row.
    "SELECT a.v FROM a WHERE a.k NOT IN (SELECT b.k FROM b)",
    "SELECT a.v FROM a WHERE a.k NOT IN (SELECT b.k FROM b WHERE b.w > 99)",
    "SELECT a.v FROM a WHERE a.k NOT IN (SELECT b.k FROM b WHERE b.k IS NOT NULL)",
    "SELECT a.v FROM a WHERE a.v NOT IN (SELECT c.v FROM c WHERE c.t = a.g)",
    "SELECT a.k NOT IN (SELECT b.k FROM b) AS n, a.v FROM a",
    "SELECT a.v IN (SELECT c.v FROM c WHERE c.t = a.g) AS n, a.v FROM a",
    "SELECT a.v FROM a WHERE (a.k NOT IN (SELECT b.k FROM b)) IS NULL",
    # An empty scalar subquery is NULL, but its count is 0.
    "SELECT a.v, (SELECT max(b.w) FROM b WHERE b.k = a.k AND b.w > 99) AS m FROM a",
    "SELECT a.v, (SELECT count(*) FROM b WHERE b.k = a.k) AS n FROM a",
    "SELECT a.v, (SELECT count(b.w) + 1 FROM b WHERE b.k = a.k AND b.w > 4) AS n FROM a",
    "SELECT a.v FROM a WHERE (SELECT count(*) FROM b WHERE b.k = a.k) = 0",
    "SELECT a.v, (SELECT count(*) FROM b WHERE b.k = a.k GROUP BY b.k) AS n FROM a",
    "SELECT a.v, (SELECT coalesce(sum(b.w), -1) FROM b WHERE b.k = a.k) AS s FROM a",
    "SELECT a.v, (SELECT max(b.w) FROM b HAVING count(*) > 99) AS s FROM a",
    "SELECT a.v FROM a WHERE (SELECT max(b.w) FROM b WHERE b.k = a.k) IS NULL",
    # Correlated by other conditions than equalities.
    "SELECT a.v, (SELECT count(*) FROM b WHERE b.k = a.k AND b.w < a.v) AS n FROM a",
    "SELECT a.v FROM a WHERE 1 < "
    "(SELECT max(b.w) FROM b WHERE b.k = a.k AND b.w BETWEEN a.k AND a.v)",
    "SELECT a.k, sum(a.v) AS s FROM a GROUP BY a.k HAVING sum(a.v) > "
    "(SELECT sum(b.w) FROM b WHERE b.k = a.k AND b.w > a.k)",
    "SELECT a.v FROM a WHERE a.v > 3 OR EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.w > a.v)",
    # One row by keys.
    "SELECT a.v, (SELECT d.e FROM d WHERE d.k = a.v) AS e FROM a",
    "SELECT a.v FROM a WHERE (SELECT d.e FROM d WHERE d.k = a.v) > 1",
    "SELECT a.v, (SELECT d.e FROM d WHERE d.k = 2) AS e FROM a",
    "SELECT a.v, (SELECT e.e FROM d JOIN d e ON e.k = d.e WHERE d.k = a.v) AS e FROM a",
    "WITH m AS (SELECT b.k, max(b.w) AS w FROM b GROUP BY b.k) "
    "SELECT a.v, (SELECT m.w FROM m WHERE m.k = a.k) AS w FROM a",
)  # fmt: skip


@pytest.mark.parametrize("sql", NULLS)
def test_null_count_and_one_row(sql: str) -> None:
    assert compare(sql, Random(sql), (1, 2, 2, 3, 4, 8, 20, 20))


@pytest.mark.parametrize(
    ("sql", "words", "column"),
    [
        ("SELECT a.v, (SELECT b.w FROM b WHERE b.k = a.k) AS w FROM a", "several rows", 21),
        ("SELECT a.v, (SELECT d.e FROM d WHERE d.e = a.k) AS w FROM a", "several rows", 21),
        ("SELECT a.v, (SELECT b.w, b.k FROM b) AS w FROM a", "of several columns", 21),
        ("SELECT a.v, (SELECT b.w FROM b GROUP BY b.w) AS w FROM a", "a row for each b.w", 43),
        (
            "SELECT a.v, (SELECT max(b.w) FROM b WHERE b.k = coalesce(a.k, 1) AND b.w < a.v) AS w "
            "FROM a",
            "b.w < a.v, which correlates",
            72,
        ),
        ("SELECT a.v FROM a ORDER BY (SELECT max(b.w) FROM b)", "a subquery in ORDER BY", 36),
        (
            "SELECT a.v FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND EXISTS "
            "(SELECT 1 FROM c WHERE c.v = a.v))",
            "two levels further out",
            105,
        ),
        ("SELECT a.v FROM a WHERE (a.k, a.v) NOT IN (SELECT b.k, b.w FROM b)", "may be NULL", 26),
    ],
)  # fmt: skip
def test_refusals_name_place_and_remedy(sql: str, words: str, column: int) -> None:
    with pytest.raises(QueryError, match=words) as found:
        parse_sql("q", sql, STREAMS)
    assert found.value.code == "unsupported-sql"
    assert found.value.position == (1, column)
    assert found.value.remedy


def test_a_look_up_by_key_needs_no_part() -> None:
    made = parse_sql("q", "SELECT a.v, (SELECT d.e FROM d WHERE d.k = a.v) AS e FROM a", STREAMS)
    other = parse_sql("q", "SELECT a.v, d.e FROM a LEFT JOIN d ON d.k = a.v", STREAMS)
    assert made == other


def test_star_shows_no_columns_of_subqueries() -> None:
    sql = "SELECT * FROM a WHERE a.v > (SELECT max(b.w) FROM b WHERE b.k = a.k)"
    found = rewritten(sql)
    assert [(item.node, item.qualifier) for item in found.items] == [(None, "a")]
