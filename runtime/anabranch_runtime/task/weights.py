"""Weights of the rows of a stream of changes: from their operation column, and in merges.

>>> import numpy as np
>>> rows = pa.record_batch({"x": [7, 7, 8, 7], "#weight": pa.array([1, -1, -1, 1], pa.int8())})
>>> batch = np.array([0, 4, 5, 6])
>>> cancelled(rows, ["x"], batch, np.arange(4), ()).tolist()
[True, True, False, False]
>>> cancelled(rows, ["x"], batch, np.arange(4), (2,)) is None
True
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.queries.changes import TUPLE_WEIGHT, ChangeFormat
from anabranch_contract.queries.views import Change
from anabranch_runtime.columns.arrays import Bools, Ints, fixed
from anabranch_runtime.columns.nested import exact_text, is_nested


def weights_of(
    rows: pa.RecordBatch, changes: ChangeFormat
) -> tuple[pa.Array, pa.BooleanArray | None]:
    """Return the weight (1, -1, or 0 for a tombstone) of each row of a stream of changes.

    Returns:
        The weights as int8, and the mask of rows whose operation is unknown or NULL (None: no such
        row).
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


def cancelled(
    rows: pa.RecordBatch, columns: Sequence[str], batch: Ints, ranks: Ints, cells: Sequence[int]
) -> Bools | None:
    """Return the mask of tuples and later deletes that cancel each other out; None if there is no
    such pair. If all rows cancel, one group of equal tuples stays, as no segment is empty.

    Args:
        columns: the columns in which a tuple and its delete are equal, bit by bit.
        batch: batches of arrival. ``ranks``: order of arrival.
        cells: first batches of the ranges that readers see; no pair spans two ranges.
    """
    weight = fixed(rows.column(TUPLE_WEIGHT), np.int8).astype(np.int64)
    if not (weight < 0).any() or not (weight > 0).any():
        return None
    groups = np.searchsorted(np.array(cells, np.int64), batch, side="right").astype(np.int64)
    for name in columns:
        codes = _codes(rows.column(name))
        groups = np.unique(groups * (codes.max() + 1) + codes, return_inverse=True)[1]
    order = np.lexsort((ranks, groups))
    sorted_groups, signs = groups[order], weight[order]
    gone = np.zeros(len(weight), np.bool_)
    closed = (signs < 0) & ~_lowest(sorted_groups, signs)
    opened = (signs > 0) & ~_lowest(-sorted_groups[::-1], -signs[::-1])[::-1]
    gone[order] = closed | opened
    if not gone.any():
        return None
    if gone.all():
        gone &= groups != groups[0]
    return gone


def net_changes(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return ``rows`` without inserts and deletes of equal rows that cancel (last column: kind)."""
    deletes = pc.equal(rows.columns[-1], str(Change.DELETE)).to_numpy(zero_copy_only=False)
    if deletes.all() or not deletes.any():
        return rows
    groups = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns[:-1]:
        codes = _codes(column)
        groups = np.unique(groups * (codes.max() + 1) + codes, return_inverse=True)[1]
    signs = np.where(deletes, -1, 1)
    sums = np.bincount(groups, weights=signs).astype(np.int64)[groups]
    candidates = np.flatnonzero(signs == np.sign(sums))
    ordered = candidates[np.argsort(groups[candidates], kind="stable")]
    numbers = groups[ordered]
    first = np.searchsorted(numbers, numbers)
    kept = ordered[np.arange(len(ordered)) - first < np.abs(sums[ordered])]
    return rows.take(pa.array(np.sort(kept)))


def _codes(column: pa.Array) -> Ints:
    """Return a number per row of a column, equal for equal values; floats differ by their bits."""
    if pa.types.is_floating(column.type):
        column = column.view(pa.int64() if column.type.bit_width == 64 else pa.int32())
    if is_nested(column.type):
        column = exact_text(column)
    indices = column.dictionary_encode(null_encoding="encode").indices
    return fixed(indices, np.int32).astype(np.int64)


def _lowest(groups: Ints, signs: Ints) -> Bools:
    """Return the mask of rows that no earlier row of their group cancels, as of closing brackets
    (-1) without an opening one (1): there the running sum falls below 0 and all earlier sums."""
    _, numbers = np.unique(groups, return_inverse=True)
    first = np.concatenate([[True], numbers[1:] != numbers[:-1]])
    sums = np.cumsum(signs)
    base = np.repeat((sums - signs)[first], np.diff(np.flatnonzero(first), append=len(signs)))
    # Levels of each group are below all earlier groups' levels: a minimum stays in its group.
    floor = -numbers * (2 * len(signs) + 2)
    levels = sums - base + floor
    least = np.minimum.accumulate(levels)
    before = np.where(first, floor, np.minimum(np.concatenate([[0], least[:-1]]), floor))
    found: Bools = levels < before
    return found
