"""Workloads: rows of streams, generated before the measurement, equal in every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from anabranch_client.replay.tpch import DemoQuery
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_runtime.columns.arrow_types import spark_type
from anabranch_runtime.sources.blocks import Block

#: Stream -> its rows in a batch.
Rows = Mapping[str, pa.Table]


#: Name of the event-time column, if there is one, and lateness in microseconds; no row is late.
TIME, LATENESS = "at", 1_000_000


@dataclass(frozen=True, slots=True)
class Workload:
    """Rows of streams by batch, queries over them, and the queries' expected numbers of results."""

    name: str
    batches: tuple[Rows, ...]
    queries: tuple[DemoQuery, ...]
    results: Mapping[str, int]

    @property
    def streams(self) -> list[Stream]:
        """The streams in the planner's form."""
        return [_stream(name, table.schema) for name, table in sorted(self.batches[0].items())]

    def blocks(self, batch: int, task: int, tasks: int) -> list[Block]:
        """Return a task's share of a batch."""
        found = []
        for name, table in sorted(self.batches[batch].items()):
            rows = _part(table, task, tasks).combine_chunks().to_batches()
            found += [Block(StreamName(name), one) for one in rows]
        return found


def counted(name: str, batches: Sequence[Rows], queries: tuple[DemoQuery, ...]) -> Workload:
    """Return a workload whose results DuckDB has counted."""
    results = {}
    with duckdb.connect() as connection:
        for table in batches[0]:
            connection.register(table, pa.concat_tables([rows[table] for rows in batches]))
        for query in queries:
            found = connection.sql(f"SELECT count(*) FROM {query.source}").fetchall()
            results[query.name] = int(found[0][0])
    return Workload(name, tuple(batches), queries, results)


def cut(tables: Rows, batches: int) -> list[Rows]:
    """Cut every table into equal shares, one per batch."""
    return [
        {name: _part(table, batch, batches) for name, table in tables.items()}
        for batch in range(batches)
    ]


def _part(table: pa.Table, number: int, parts: int) -> pa.Table:
    first, last = (table.num_rows * n // parts for n in (number, number + 1))
    return table.slice(first, last - first)


def _stream(name: str, schema: pa.Schema) -> Stream:
    columns = tuple((field.name, spark_type(field.type)) for field in schema)
    if TIME not in schema.names:
        return Stream(StreamName(name), columns)
    return Stream(StreamName(name), columns, event_time=TIME, lateness=LATENESS)
