"""Weights of the rows of a stream of changes, from their operation column."""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.queries.changes import ChangeFormat


def weights_of(
    rows: pa.RecordBatch, changes: ChangeFormat
) -> tuple[pa.Array, pa.BooleanArray | None]:
    """Return the weights (1, -1, or 0 for a tombstone) of the rows with a known operation.

    Returns:
        The weights as int8, and the mask of rows whose operation is unknown or NULL; None: all are
        known.
    """
    found, unknown = _by_operation(rows, changes)
    if changes.null_deletes:
        others = {changes.operation, *changes.key}
        values = [rows.column(n) for n in rows.schema.names if n not in others]
        nothing = reduce(pc.and_, (pc.is_null(v) for v in values))
        if unknown is not None:
            nothing = nothing.filter(pc.invert(unknown))
        found = pc.if_else(nothing, pa.scalar(0, pa.int8()), found)
    return found, unknown


def _by_operation(
    rows: pa.RecordBatch, changes: ChangeFormat
) -> tuple[pa.Array, pa.BooleanArray | None]:
    if changes.operation is None:
        return pa.repeat(pa.scalar(1, pa.int8()), rows.num_rows), None
    coded = rows.column(changes.operation).cast(pa.string()).dictionary_encode()
    known = [changes.weight(text) for text in coded.dictionary.to_pylist()]
    found = pa.array(known, pa.int8()).take(coded.indices)
    if not found.null_count:
        return found, None
    return found.drop_null(), pc.is_null(found)
