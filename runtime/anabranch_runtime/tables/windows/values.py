"""Values of window functions, one per sorted row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.types import INTEGRAL, TypeKind
from anabranch_contract.queries.views import Windowed, WindowFunction
from anabranch_runtime.columns.arrays import Bools, Ints, present
from anabranch_runtime.columns.arrow_types import spark_type
from anabranch_runtime.tables.aggregates import decimal_values, integer_values
from anabranch_runtime.tables.windows import kernels
from anabranch_runtime.tables.windows.frames import SortedRows
from anabranch_runtime.tables.words import TupleLayout, floats_of, halves, integers_of

_F = WindowFunction
_SHIFTED = frozenset({_F.LAG, _F.LEAD})
_PICKED = frozenset({_F.FIRST_VALUE, _F.LAST_VALUE, _F.NTH_VALUE}) | _SHIFTED
_EXTREMES = frozenset({_F.MIN, _F.MAX})


def window_values(
    one: Windowed,
    rows: SortedRows,
    words: Ints,
    layout: TupleLayout,
    field: int | None,
    evaluated: Callable[[Expr], pa.Array],
) -> pa.Array:
    """Return the values of a window function, one per sorted row.

    Args:
        words: tuples of the rows in ``layout``. ``field``: number of the argument's field.
        evaluated: evaluates an expression over the rows.

    Raises:
        ExpressionError: a sum does not fit its type.
    """
    if one.function in (_F.NTILE, _F.PERCENT_RANK, _F.CUME_DIST):
        return _share(one, rows)
    if field is None:
        starts, ends = rows.frames(one.frame)
        return pa.array((ends - starts).sum(axis=0))
    column = layout.column(words, field)
    found = present(column)
    valid = np.ones(len(column), np.bool_) if found is None else np.array(found)
    if one.function in _PICKED:
        places = _picked(one, rows, valid)
    elif one.function in _EXTREMES:
        places = _extreme(one, rows, words, layout, field, valid)
    else:
        return _aggregate(one, rows, column, valid)
    there = places >= 0
    picked = column.take(pa.array(places, mask=~there))
    if one.default is None:
        return picked
    return pc.if_else(pa.array(there), picked, evaluated(one.default))


def _share(one: Windowed, rows: SortedRows) -> pa.Array:
    """Return the values of ``ntile``, ``percent_rank`` or ``cume_dist``."""
    counts = rows.ends - rows.starts
    if one.function is _F.CUME_DIST:
        return pa.array((rows.end_peers - rows.starts) / np.maximum(counts, 1))
    if one.function is _F.PERCENT_RANK:
        return pa.array((rows.first_peers - rows.starts) / np.maximum(counts - 1, 1))
    place = np.arange(len(counts)) - rows.starts
    size, larger = np.divmod(counts, one.number)
    within = larger * (size + 1)
    later = larger + (place - within) // np.maximum(size, 1)
    return pa.array(np.where(place < within, place // (size + 1), later) + 1).cast(pa.int32())


def _picked(one: Windowed, rows: SortedRows, valid: Bools) -> Ints:
    """Return, per row, the row whose value it gets (``lag``, ``first_value``, ...); -1: no row."""
    count, here = len(valid), np.arange(len(valid))
    # Rows that the function considers, and their number before each row.
    known = np.flatnonzero(valid) if one.ignore_nulls else here
    before = np.zeros(count + 1, np.int64)
    before[1:] = np.cumsum(valid) if one.ignore_nulls else here + 1
    places = np.full(count, -1)
    if one.function in _SHIFTED:
        first, end = before[rows.starts], before[rows.ends]
        if one.number == 0:
            return here
        at = before[here] - one.number
        if one.function is _F.LEAD:
            at = before[here + 1] + one.number - 1
        there = (at >= first) & (at < end)
        places[there] = known[at[there]]
        return places
    starts, ends = rows.frames(one.frame)
    first, end = before[starts], before[ends]
    # Number of considered rows before the one that is wanted, in the order of the frame.
    last = one.function is _F.LAST_VALUE
    left = (end - first).sum(axis=0) - 1 if last else np.full(count, one.number - 1)
    for at, number in zip(first, end - first, strict=True):
        there = (left >= 0) & (left < number)
        places[there] = known[(at + left)[there]]
        left = left - np.where(left >= 0, number, 0)
    return places


def _extreme(
    one: Windowed, rows: SortedRows, words: Ints, layout: TupleLayout, field: int, valid: Bools
) -> Ints:
    """Return, per row, the row with the least or greatest value of its window frame; -1: none."""
    out, pool = np.empty(len(words), np.int64), layout.pool
    kernels.extremes(
        words,
        layout.end(field),
        layout.end(field + 1),
        valid,
        *rows.frames(one.frame),
        1 if one.function is _F.MIN else -1,
        layout.texts,
        pool.data,
        pool.ends,
        out,
    )
    return out


def _aggregate(one: Windowed, rows: SortedRows, column: pa.Array, valid: Bools) -> pa.Array:
    """Return counts, sums or averages over window frames."""
    starts, ends = rows.frames(one.frame)
    before = np.concatenate([[0], np.cumsum(valid)])
    counts = (before[ends] - before[starts]).sum(axis=0)
    if one.function is _F.COUNT:
        return pa.array(counts)
    mean, kind = one.function is _F.AVG, spark_type(column.type)
    if kind.kind not in INTEGRAL and kind.kind is not TypeKind.DECIMAL:
        sums = np.empty(len(counts))
        kernels.float_sums(np.array(floats_of(column)), valid, starts, ends, sums)
        none = counts == 0
        return pa.array(sums / np.where(none, 1, counts) if mean else sums, mask=none)
    out = np.empty((len(counts), kernels.SUM_WORDS), np.uint64)
    if kind.kind is TypeKind.DECIMAL:
        pairs = halves(column)
        low, high = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
    else:
        low = np.array(integers_of(column))
        high = low >> np.int64(63)
    kernels.sums(low.view(np.uint64), high, valid, starts, ends, out)
    state = out.view(np.int64)
    if kind.kind is TypeKind.DECIMAL:
        return decimal_values(state, 0, counts, kind, one.type, mean=mean)
    return integer_values(state, 0, counts, one.type, mean=mean)
