"""The demo's oracle: expected results, computed by DuckDB from the same Parquet files.

A query must emit a joined row if its last-arriving input row arrived while the query was active,
and if each input row was visible to it: arrived after the activation, or in or after the batch from
which its stream was completely stored. The batch of a row follows from its position in the file.
(The demo's streams have no event time, so no condition depends on it.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch_client.replay.scenario import RecordedStream
from anabranch_client.replay.tpch import DemoQuery

if TYPE_CHECKING:
    import duckdb

_BATCH = "batch_of_row"


@dataclass(frozen=True, slots=True)
class Active:
    """The batches in which a query was active, and the first visible batch of each table."""

    activated: int
    expired: int | None
    visible_from: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Row counts: results of the pipeline and of the oracle, and rows that only one of them has."""

    results: int
    expected: int
    missing: int
    surplus: int

    @property
    def match(self) -> bool:
        """Whether the results are equal as multisets of rows."""
        return self.missing == 0 and self.surplus == 0


def oracle_sql(query: DemoQuery, active: Active) -> str:
    """The query's SQL with the conditions that ``active`` implies for each table."""
    batches = [f"{table}.{_BATCH}" for table in query.tables]
    last = f"greatest({', '.join(batches)})"
    conditions = [f"{last} >= {active.activated}"]
    if active.expired is not None:
        conditions.append(f"{last} < {active.expired}")
    for table, batch in zip(query.tables, batches, strict=True):
        first = min(active.visible_from.get(table, active.activated), active.activated)
        conditions.append(f"{batch} >= {first}")
    return f"{query.sql} WHERE {' AND '.join(conditions)}"


def compare(
    streams: Sequence[RecordedStream],
    runs: Sequence[tuple[DemoQuery, Active | None]],
    results: Path,
) -> dict[str, Comparison]:
    """Compare the files in ``results/<query>`` with the oracle's results.

    A query that was never active (None) must have no results.
    """
    with recorded_tables(streams) as connection:
        return {
            query.name: _compare_query(connection, query, active, results / query.name)
            for query, active in runs
        }


@contextmanager
def recorded_tables(streams: Sequence[RecordedStream]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB connection with the streams as views, for queries of :func:`oracle_sql`."""
    import duckdb

    with duckdb.connect() as connection:
        for stream in streams:
            connection.execute(
                f"CREATE VIEW {stream.name} AS "
                f"SELECT *, file_row_number // {stream.rows_per_batch} AS {_BATCH} "
                f"FROM read_parquet({_quoted(stream.path)}, file_row_number = true)"
            )
        yield connection


def _compare_query(
    connection: duckdb.DuckDBPyConnection, query: DemoQuery, active: Active | None, folder: Path
) -> Comparison:
    wanted = f"{query.sql} WHERE false" if active is None else oracle_sql(query, active)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE expected AS {wanted}")
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE found AS "
        f"SELECT * FROM read_parquet({_quoted(folder / '*.parquet')})"
    )
    return Comparison(
        results=_count(connection, "SELECT * FROM found"),
        expected=_count(connection, "SELECT * FROM expected"),
        missing=_count(connection, "SELECT * FROM expected EXCEPT ALL SELECT * FROM found"),
        surplus=_count(connection, "SELECT * FROM found EXCEPT ALL SELECT * FROM expected"),
    )


def _count(connection: duckdb.DuckDBPyConnection, statement: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM ({statement})").fetchone()
    return 0 if row is None else int(row[0])


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
