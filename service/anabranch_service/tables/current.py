"""DuckDB's SQL for the rows of a query's table, over its result files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from anabranch_contract.connectors.postgres.catalog import quoted
from anabranch_contract.queries.types import FIELD_TYPE, INTERVALS, TypeKind, parse_type
from anabranch_contract.queries.views import CHANGE, VERSION
from anabranch_service.streaming.samples.arrow_types import arrow_type
from anabranch_service.tables.files import FileRows, in_batches

#: Value of ``limit`` for a statement that is only bound, to get its columns, and not executed.
NO_ROWS = -1


class TableKind(StrEnum):
    """Meaning of a query's result rows: ``RESULTS`` are final, ``CHANGES`` insert or delete equal
    rows, changes of a ``VIEW`` replace or delete the row with the same identity."""

    RESULTS = "results"
    CHANGES = "changes"
    VIEW = "view"


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A query's table, or its changes, as of a batch.

    Attributes:
        run: the run of the query, whose folder has the files.
        columns, changed: (name, type) of the columns of the table, and of its changes.
        identity: columns that identify a row of a view; empty: it has one row.
        after, upto: only the results of batches after ``after``, up to ``upto``, are read.
        raw: whether to read results as they are in the files, instead of the present rows.
    """

    run: str
    kind: TableKind
    columns: tuple[tuple[str, str], ...]
    changed: tuple[tuple[str, str], ...]
    identity: tuple[str, ...] = field(default=())
    after: int = -2
    upto: int = -1
    raw: bool = False

    @property
    def shown(self) -> tuple[tuple[str, str], ...]:
        """(name, type) of the columns of the rows that are read."""
        return self.changed if self.raw else self.columns


@dataclass(frozen=True, slots=True)
class SentRows:
    """A table whose rows are part of the request: an Arrow IPC stream, as base64."""

    content: str


def schema_of(columns: Sequence[tuple[str, str]]) -> pa.Schema:
    """Return the Arrow schema of columns with Spark's types."""
    return pa.schema(
        [(n, pa.null() if t == "void" else arrow_type(parse_type(t))) for n, t in columns]
    )


def typed_schema(columns: Sequence[tuple[str, str]]) -> pa.Schema:
    """Return the schema of :func:`schema_of`, with the types and metadata that intervals have in
    result files; DuckDB reads them as numbers."""
    schema = schema_of(columns)
    for place, (name, text) in enumerate(columns):
        kind = None if text == "void" else parse_type(text)
        if kind is not None and kind.kind in INTERVALS:
            stored = pa.duration("us") if kind.kind is TypeKind.INTERVAL else schema[place].type
            note = {FIELD_TYPE: kind.encode()}
            schema = schema.set(place, pa.field(name, stored, metadata=note))
    return schema


def table_sql(spec: TableSpec, pieces: Sequence[FileRows]) -> str:
    """Return the statement that reads a table from ``pieces`` (at least one) of its files."""
    rows = _rows(spec.changed, pieces)
    if spec.raw or spec.kind is TableKind.RESULTS:
        return f"SELECT {_list(spec.shown)} FROM ({rows})"
    if spec.kind is TableKind.VIEW:
        partition = ", ".join(map(quoted, spec.identity))
        by = f"PARTITION BY {partition} " if partition else ""
        return (
            f"SELECT {_list(spec.columns)} FROM (SELECT *, row_number() OVER "
            f"({by}ORDER BY {VERSION} DESC) AS anabranch_nth FROM ({rows})) "
            f"WHERE anabranch_nth = 1 AND {CHANGE} <> 'delete'"
        )
    columns = _list(spec.columns)
    sign = f"sum(CASE {CHANGE} WHEN 'delete' THEN -1 ELSE 1 END)"
    return (
        f"SELECT {columns} FROM (SELECT {columns}, unnest(range(anabranch_net::BIGINT)) FROM "
        f"(SELECT {columns}, {sign} AS anabranch_net FROM ({rows}) GROUP BY {columns}) "
        "WHERE anabranch_net > 0)"
    )


def _rows(columns: Sequence[tuple[str, str]], pieces: Sequence[FileRows]) -> str:
    """Return SQL for all rows of the files, in their order."""
    some = _list(columns)
    parts = []
    for group in in_batches(pieces):
        files = ", ".join("'" + piece.path.replace("'", "''") + "'" for piece in group)
        first, end = group[0].first, group[0].end
        if len(group) == 1 and not group[0].is_whole:
            limits = [f"file_row_number >= {first}"]
            limits += [] if end is None else [f"file_row_number < {end}"]
            parts.append(
                f"SELECT {some} FROM read_parquet([{files}], file_row_number = true) "
                f"WHERE {' AND '.join(limits)}"
            )
        else:
            parts.append(f"SELECT {some} FROM read_parquet([{files}])")
    return " UNION ALL ".join(parts)


def _list(columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(quoted(name) for name, _ in columns)
