"""Outer, semi and anti joins with tables (look-ups): results of a batch from its left rows and its
pairs of left row and matching table row.

All matches of a left row are found in its own batch. Left rows that are equal in all columns have
the same matches, so ``n`` equal left rows with ``m`` matches have ``n * m`` pairs, and each row
gets ``m`` of them. In a chain of look-ups (``LookUp.parent``) the pairs of the earlier one are the
left rows of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.expressions import Column
from anabranch_contract.queries.outer_joins import JoinKind, OuterJoin
from anabranch_contract.queries.types import DataType
from anabranch_runtime.columns.arrays import Ints
from anabranch_runtime.columns.arrow_types import arrow_type, schema_of
from anabranch_runtime.expressions.evaluate import evaluate, filter_mask

Columns = tuple[tuple[str, DataType], ...]


#: Row number for a left row without a match in a table.
_NONE = -1


def columns_of(outer: OuterJoin) -> list[Columns]:
    """Return the columns of left rows, then of each look-up's pairs (left row, table row)."""
    columns = [outer.left]
    for look_up in outer.look_ups:
        columns.append((*columns[look_up.parent], *look_up.columns))
    return columns


def results(outer: OuterJoin, tables: Sequence[pa.Table]) -> pa.Table:
    """Compute the results of one batch.

    Args:
        tables: left rows, then the pairs of each look-up, with the columns of :func:`columns_of`.

    Raises:
        ExpressionError: a condition or an output column can't be evaluated for a row.
    """
    columns = columns_of(outer)
    tables = [_columns(one, names) for one, names in zip(tables, columns, strict=True)]
    rows = [np.arange(tables[0].num_rows)]
    for number, look_up in enumerate(outer.look_ups, 1):
        names = [name for name, _ in columns[look_up.parent]]
        partners = _partners(tables[look_up.parent], tables[number], names)
        rows = _looked_up(look_up.kind, rows, rows[look_up.parent], partners)
    return _shown(outer, tables, rows)


def _columns(rows: pa.Table, columns: Columns) -> pa.Table:
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in columns])
    return rows.select(schema.names).cast(schema).combine_chunks()


@dataclass(frozen=True, slots=True)
class _Partners:
    """Pairs grouped by left row: row ``i`` has ``counts[i]`` of ``pairs`` from ``starts[i]`` on."""

    starts: Ints
    counts: Ints
    pairs: Ints


def _partners(parent: pa.Table, pairs: pa.Table, names: Sequence[str]) -> _Partners:
    """Assign ``pairs`` to the left rows ``parent`` that equal them in the columns ``names``."""
    rows = parent.num_rows
    groups = _identities([pa.concat_tables([parent, pairs.select(names)])[n] for n in names])
    of_rows, of_pairs = groups[:rows], groups[rows:]
    equal = np.bincount(of_rows, minlength=int(groups.max(initial=-1)) + 1)
    own = _identities([pairs[n] for n in pairs.column_names])
    order = np.lexsort((own, of_pairs))
    own = own[order]
    first = np.flatnonzero(np.diff(own, prepend=-1))
    sizes = np.diff(first, append=len(own))
    # Equal left rows get equal parts of their common pairs.
    each = equal[of_pairs[order[first]]]
    assert not (sizes % np.maximum(each, 1)).any(), "pairs without their rows"
    place = np.arange(len(own)) - np.repeat(first, sizes)
    kept = order[place < np.repeat(sizes // np.maximum(each, 1), sizes)]
    counts = np.bincount(of_pairs[kept], minlength=len(equal))
    starts = np.cumsum(counts) - counts
    return _Partners(starts[of_rows], counts[of_rows], kept)


def _identities(columns: Sequence[pa.ChunkedArray]) -> Ints:
    """Number the rows such that rows equal in all columns have equal numbers; NULL equals NULL."""
    found = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        codes = column.combine_chunks().dictionary_encode(null_encoding="encode").indices
        values = codes.to_numpy(zero_copy_only=False).astype(np.int64)
        both = found * (values.max(initial=0) + 1) + values
        found = np.unique(both, return_inverse=True)[1]
    return found


def _looked_up(kind: JoinKind, rows: list[Ints], parents: Ints, partners: _Partners) -> list[Ints]:
    """Join ``rows`` (row numbers per table) with the matches of one more look-up."""
    counts = np.zeros(len(parents), np.int64)
    there = parents != _NONE
    counts[there] = partners.counts[parents[there]]
    if kind is not JoinKind.LEFT:
        chosen = np.flatnonzero((counts > 0) == (kind is JoinKind.SEMI))
        return [*(r[chosen] for r in rows), np.full(len(chosen), _NONE)]
    times = np.maximum(counts, 1)
    chosen = np.repeat(np.arange(len(counts)), times)
    place = np.arange(len(chosen)) - np.repeat(np.cumsum(times) - times, times)
    own = np.full(len(chosen), _NONE)
    found = counts[chosen] > 0
    own[found] = partners.pairs[partners.starts[parents[chosen[found]]] + place[found]]
    return [*(r[chosen] for r in rows), own]


def _shown(outer: OuterJoin, tables: Sequence[pa.Table], rows: Sequence[Ints]) -> pa.Table:
    """Return the output rows for ``rows``, the row numbers in each of ``tables``."""
    source = {name: (0, kind) for name, kind in outer.left}
    for number, look_up in enumerate(outer.look_ups, 1):
        source |= {name: (number, kind) for name, kind in look_up.columns}

    def fetch(column: Column) -> pa.Array:
        number, kind = source[column.name]
        places = pa.array(rows[number], mask=rows[number] == _NONE)
        return tables[number][column.name].combine_chunks().take(places).cast(arrow_type(kind))

    if outer.where:
        mask = filter_mask(outer.where, fetch, len(rows[0]))
        if mask is not None:
            rows = [r[mask] for r in rows]
    arrays = [evaluate(o.expr, fetch, len(rows[0])) for o in outer.projection]
    return pa.Table.from_arrays(arrays, schema=schema_of(outer.projection))
