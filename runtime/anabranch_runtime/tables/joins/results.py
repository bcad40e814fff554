"""Results of outer joins from changed combinations of left and right rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.expressions import Column, Output
from anabranch_contract.queries.outer_joins import OuterJoin
from anabranch_contract.queries.views import CHANGE, WEIGHT, Change
from anabranch_runtime.columns.arrays import Ints
from anabranch_runtime.columns.arrow_types import arrow_type, schema_of
from anabranch_runtime.expressions.evaluate import evaluate, filter_mask
from anabranch_runtime.tables.slots import Slots
from anabranch_runtime.tables.words import Texts, TupleField, TupleLayout


class Combinations(NamedTuple):
    """Combinations of left and right rows (slots or words), and how many equal ones there are."""

    rows: Ints
    times: Ints


def results_of(outer: OuterJoin, read: Callable[[Column], pa.Array], times: Ints) -> pa.Table:
    """Return the output rows of an outer join's combinations; without a deadline, as changes.

    Args:
        read: column of left or right rows -> its values, by combination.
        times: number of times that each combination is added or, if negative, removed.

    Raises:
        ExpressionError: a condition or an output column can't be evaluated for a row.
    """
    shown = tuple(o for o in outer.projection if o.name not in (CHANGE, WEIGHT))
    mask = filter_mask(outer.where, read, len(times)) if outer.where else None
    if mask is not None:
        read, times = _taken(read, pa.array(np.flatnonzero(mask))), times[mask]
    arrays = [evaluate(o.expr, read, len(times)) for o in shown]
    schema = schema_of(shown)
    if not outer.kept:
        picked = pa.array(np.repeat(np.arange(len(times)), times))
        return pa.Table.from_arrays(arrays, schema=schema).take(picked)
    layout = TupleLayout([TupleField(o.expr.type, exact=True) for o in shown], Texts())
    words, times = net(layout.encode(arrays), times)
    columns = [c.cast(f.type) for c, f in zip(layout.decode(words), schema, strict=True)]
    last = outer.projection[-1]
    if last.name == WEIGHT:
        return pa.Table.from_arrays([*columns, pa.array(times)], schema=_with(schema, last))
    order = np.concatenate([np.flatnonzero(times < 0), np.flatnonzero(times > 0)])
    picked = np.repeat(order, np.abs(times[order]))
    kinds = pa.array([str(Change.INSERT), str(Change.DELETE)])
    columns = [c.take(pa.array(picked)) for c in columns]
    columns.append(kinds.take(pa.array((times[picked] < 0).astype(np.int64))))
    return pa.Table.from_arrays(columns, schema=_with(schema, last))


def net(rows: Ints, times: Ints) -> Combinations:
    """Return distinct ``rows`` of an outer join with the sums of their ``times`` that are not 0."""
    own = Slots(rows.shape[1])
    slots, fresh = own.find(rows)
    sums = np.zeros(own.room, np.int64)
    np.add.at(sums, slots, times)
    kept = fresh[sums[fresh] != 0]
    return Combinations(own.words[kept], sums[kept])


def _taken(read: Callable[[Column], pa.Array], places: pa.Array) -> Callable[[Column], pa.Array]:
    return lambda column: read(column).take(places)


def _with(schema: pa.Schema, last: Output) -> pa.Schema:
    return schema.append(pa.field(last.name, arrow_type(last.expr.type)))
