"""Joined rows of queries with post-join parts: written by tasks, read by maintained tables.

A task writes its rows of all such joins of a batch as one pack (``storage.segment``), with at least
one segment per join. The manifest of the batch names them (``state.tables``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from anabranch_contract.plans.ruleset import QuerySpec
from anabranch_contract.queries.expressions import Output
from anabranch_runtime.columns.arrow_types import typed_field
from anabranch_runtime.sinks.parquet import RowBuffer, output_schema
from anabranch_runtime.storage.segment import PackWriter, Segment
from anabranch_runtime.storage.segment_cache import read_segment

#: Prefix for names of columns that are added to a query's own columns.
HIDDEN = "anabranch_"


class JoinedRows(RowBuffer):
    """Writes the joined rows of one query in one batch to a pack."""

    def __init__(
        self, writer: PackWriter, join: str, batch: int, schema: pa.Schema, page: int
    ) -> None:
        """``page``: maximum bytes of a segment of joined rows; a wider row has its own segment."""
        super().__init__(schema, page)
        self._pack, self._join, self._batch = writer, join, batch

    def _write(self, rows: pa.Table) -> None:
        (together,) = rows.combine_chunks().to_batches() or [None]
        if together is not None:
            self._pack.add_plain(together, store=self._join, batch=self._batch)


def column_name(output: Output) -> str:
    """Return the name of a column of joined rows, the same for equal expressions."""
    return str(output.expr)


def rows_schema(query: QuerySpec) -> pa.Schema:
    """Return the schema of a query's joined rows; outer joins and unions keep projected names."""
    if query.has_outer_join or query.united:
        return output_schema(query)
    fields = {column_name(o): typed_field(column_name(o), o.expr.type) for o in query.projection}
    return pa.schema(list(fields.values()))


class JoinedBatch:
    """The joined rows of one batch, by query. Each pack is read once."""

    def __init__(
        self, root: str, segments: Sequence[Segment], feeds: Mapping[str, Sequence[str]]
    ) -> None:
        """``feeds``: joins whose joined rows several queries share -> these queries."""
        self._root = root
        self._joins: dict[str, list[Segment]] = {}
        #: Reader (query, or join of an outer join) -> joins that have its rows.
        self._read_by: dict[str, list[str]] = {}
        for segment in segments:
            self._joins.setdefault(segment.store, []).append(segment)
        for join in self._joins:
            for reader in feeds.get(join, (join,)):
                self._read_by.setdefault(reader, []).append(join)
        self._tables: dict[tuple[str, ...], pa.Table] = {}

    def __contains__(self, reader: str) -> bool:
        return reader in self._read_by

    def sources(self, reader: str) -> Sequence[str]:
        """Return the joins with rows of ``reader``; several readers may share a join's rows."""
        return self._read_by.get(reader, ())

    def rows(self, reader: str, query: QuerySpec) -> pa.Table | None:
        """Return the rows of ``reader``, a query or a part of its outer join; None if it has none.

        Columns have the names of the projection; further ones (``sampling``) come last.

        Raises:
            StateError: a pack is missing or damaged.
        """
        found = self.common(reader)
        return None if found is None else self._of(found, query)

    def common(self, reader: str) -> pa.Table | None:
        """Return the rows of ``reader`` as shared: all columns, named by their expressions."""
        joins = self._read_by.get(reader)
        if joins is None:
            return None
        found = self._tables.get(tuple(joins))
        if found is None:
            parts = (read_segment(self._root, s).batch for join in joins for s in self._joins[join])
            tables = [pa.Table.from_batches([part]) for part in parts]
            found = tables[0]
            if len(tables) > 1:
                found = pa.concat_tables(tables, promote_options="default")
            self._tables[tuple(joins)] = found
        return found

    def _of(self, rows: pa.Table, query: QuerySpec) -> pa.Table:
        if query.has_outer_join or query.united:
            return rows
        own = {output.name: rows[column_name(output)] for output in query.projection}
        more = [n for n in rows.column_names if n.startswith(HIDDEN) and "." not in n]
        return pa.table({**own, **{name: rows[name] for name in more}})
