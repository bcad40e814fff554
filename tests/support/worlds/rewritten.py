"""Compare statements with their rewriting without subqueries in DuckDB, over random rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

import duckdb
import pyarrow as pa

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.changes import ChangeFormat
from anabranch_contract.queries.joins import Stream, StreamKind, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import read_sql
from anabranch_planner.sql.unresolved import Unresolved
from anabranch_planner.subqueries.decorrelation import decorrelated
from anabranch_runtime.columns.arrow_types import spark_type
from tests.support.oracles.tree_text import text_of
from tests.support.worlds.changed_views import COLUMNS, draw_row
from tests.support.worlds.subqueries import Grammar
from tests.support.worlds.view_runs import comparable

#: The streams of :mod:`.changed_views`, and the stream of upserts ``d``.
STREAMS = {
    name: Stream(
        StreamName(name),
        tuple((c, spark_type(kind)) for c, kind in columns.items()),
        kind=StreamKind.CHANGES,
        changes=ChangeFormat("op"),
    )
    for name, columns in COLUMNS.items()
}
STREAMS["d"] = Stream(
    StreamName("d"),
    tuple((name, parse_type("bigint")) for name in ("k", "e")),
    retain=None,
    kind=StreamKind.UPSERT,
    changes=ChangeFormat("op", key=("k",)),
)


def rewritten(sql: str) -> Unresolved:
    """Return the rewriting of a statement without subqueries in expressions."""
    return decorrelated(read_sql(sql), STREAMS)


def fill(connection: duckdb.DuckDBPyConnection, rng: Random, most: int) -> None:
    """Insert random rows into the streams' tables, into some of them none."""
    for name, columns in COLUMNS.items():
        rows = [draw_row(name, rng) for _ in range(rng.choice((0, most, most, most)))]
        values = list(zip(*rows, strict=True)) or [() for _ in columns]
        arrays = [pa.array(list(v), kind) for v, kind in zip(values, columns.values(), strict=True)]
        connection.register(name, pa.table(arrays, names=list(columns)))
    rows = [(k, rng.choice((None, *range(5)))) for k in range(5) if rng.random() < 0.8]
    values = list(zip(*rows, strict=True)) or [(), ()]
    connection.register("d", pa.table([pa.array(v, pa.int64()) for v in values], names=["k", "e"]))


def compare(sql: str, rng: Random, rows: Iterable[int] = (4, 8, 20)) -> int:
    """Compare a statement with its rewriting over random rows; return the numbers of result rows.

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
    """Compare random statements; return how many had rows, no rows, or were refused."""
    counts = Counter[str]()
    for seed in seeds:
        rng = Random(seed)
        sql = Grammar(rng).statement()
        try:
            counts["rows" if compare(sql, rng) else "empty"] += 1
        except QueryError as error:
            counts["refused" if error.remedy and error.position else "vague"] += 1
    return counts
