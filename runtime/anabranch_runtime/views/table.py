"""Tables of a view's rows per version (result of a micro-batch), and changes between versions.

Rows are compared by their JSON text, which is equal exactly for equal rows (``sinks.rows``). The
table of each version is kept as a file, because a version may have to be repeated from the table
before it. Views with a LIMIT need tables to compute changes; other views have one for readers, as
long as it is small.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch_contract.queries.views import CHANGE, RANK, VERSION, Change, View
from anabranch_runtime.sinks.parquet import change_schema
from anabranch_runtime.sinks.rows import json_rows
from anabranch_runtime.views.finishing import (
    KEPT,
    SORT,
    count_fields,
    shown_schema,
    sort_fields,
)

#: Maximum number of rows kept for readers of a view without a LIMIT.
MOST_KEPT = 10_000
_GIVEN_UP = "too-large"


def row_schema(view: View) -> pa.Schema:
    """Return a table's schema: the view's columns, and the rank if rows are identified by it."""
    found = shown_schema(view)
    return found if view.grouped else found.append(pa.field(RANK, pa.int64()))


@dataclass(frozen=True, slots=True)
class ViewTables:
    """The tables of one view, one file per version in ``folder``."""

    folder: Path
    view: View

    def before(self, version: int) -> pa.Table | None:
        """Return the table of the last version before ``version``; None if it is not kept."""
        if (self.folder / _GIVEN_UP).exists():
            return None
        older = [(v, path) for v, path in self._files() if v < version]
        if not older:
            return self._schema().empty_table()
        return pq.read_table(older[-1][1], schema=self._schema(), use_threads=False)

    def keep(self, version: int, table: pa.Table) -> None:
        """Write the table of ``version``, and delete tables before the last version."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.view.whole and table.num_rows > MOST_KEPT:
            (self.folder / _GIVEN_UP).touch()
            for _, path in self._files():
                path.unlink()
            return
        fresh = self.folder / f"{version:010d}.new"
        pq.write_table(table, fresh)
        fresh.rename(self.folder / f"{version:010d}.parquet")
        for _, path in [f for f in self._files() if f[0] <= version][:-2]:
            path.unlink()

    def _schema(self) -> pa.Schema:
        others = (*sort_fields(self.view), *count_fields(self.view))
        return pa.schema([*row_schema(self.view), *others])

    def _files(self) -> list[tuple[int, Path]]:
        if not self.folder.exists():
            return []
        return sorted((int(p.stem), p) for p in self.folder.glob("*.parquet"))


def updated(
    view: View, before: pa.Table | None, groups: pa.Table, version: int
) -> tuple[pa.Table, pa.Table | None]:
    """Return the changes due to changed ``groups`` (:func:`finishing.finished`), and the new table.

    A group excluded by HAVING is deleted. If the former table is unknown, the deletion is written
    even if the table did not have the group.
    """
    kept = groups[KEPT].combine_chunks()
    upserts, gone = groups.filter(kept), groups.filter(pc.invert(kept))
    if before is not None:
        gone = gone.filter(pc.is_in(identities(view, gone), identities(view, before)))
    changes = _changes(view, upserts, gone, version)
    if before is None:
        return changes, None
    touched = pc.is_in(identities(view, before), identities(view, groups))
    table = pa.concat_tables(
        [before.filter(pc.invert(touched)), upserts.select(before.column_names)]
    )
    return changes, table


def replaced(view: View, before: pa.Table, after: pa.Table, version: int) -> pa.Table:
    """Return the changes from table ``before`` to table ``after``."""
    names = row_schema(view).names
    same = pc.is_in(texts(after.select(names)), texts(before.select(names)))
    gone = pc.invert(pc.is_in(identities(view, before), identities(view, after)))
    return _changes(view, after.filter(pc.invert(same)), before.filter(gone), version)


def _changes(view: View, upserts: pa.Table, gone: pa.Table, version: int) -> pa.Table:
    schema = change_schema(view)
    parts = []
    for rows, change in ((upserts, Change.UPSERT), (gone, Change.DELETE)):
        count, columns = rows.num_rows, []
        for field in schema:
            if field.name == CHANGE:
                columns.append(pa.array([str(change)] * count, field.type))
            elif field.name == VERSION:
                columns.append(pa.array([version] * count, field.type))
            elif change is Change.DELETE and field.name not in view.identity:
                columns.append(pa.nulls(count, field.type))
            else:
                columns.append(rows[field.name].cast(field.type))
        parts.append(pa.table(columns, schema=schema))
    return pa.concat_tables(parts)


def identities(view: View, rows: pa.Table) -> pa.Array:
    """Return each row's identity (grouping columns or rank) as a JSON object."""
    if not view.identity:
        return pa.array(["{}"] * rows.num_rows, pa.large_string())
    return texts(rows.select(list(view.identity)))


def texts(rows: pa.Table) -> pa.Array:
    """Return each row as a JSON object."""
    return json_rows(rows.combine_chunks().to_batches()[0] if rows.num_rows else _nothing(rows))


def _nothing(rows: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.nulls(0, f.type) for f in rows.schema], schema=rows.schema
    )


def visible(view: View, table: pa.Table) -> pa.Table:
    """Return a table without the rows that OFFSET skips."""
    return table if view.grouped else table.filter(pc.greater(table[RANK], 0))


def in_order(view: View, table: pa.Table) -> pa.Table:
    """Return a table's rows sorted by ORDER BY or rank, for readers."""
    if not view.grouped:
        return table.sort_by(RANK)
    for number, sort in reversed(list(enumerate(view.order))):
        how = "descending" if sort.descending else "ascending"
        nulls = "at_start" if sort.nulls_first else "at_end"
        column = table[SORT.format(number)].combine_chunks()
        table = table.take(pc.array_sort_indices(column, order=how, null_placement=nulls))
    return table
