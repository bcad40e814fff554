"""Expansion of rows into the elements of their arrays and the entries of their maps.

The elements of all rows form one flat column; the rows' other columns are repeated per element. So
an expansion is linear: each element of a row has the row's weight, and a delete removes what its
insert has added.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.expressions import Column, Expansion
from anabranch_contract.queries.types import TypeKind
from anabranch_runtime.columns.arrays import Ints, conform
from anabranch_runtime.columns.nested import elements, limits_of, owners
from anabranch_runtime.errors import ExpressionError
from anabranch_runtime.expressions.evaluate import Fetch, evaluate, filter_mask

#: Maximum number of rows into which one task of a batch may expand a query's rows.
MOST_EXPANDED = 20_000_000


def expanded(
    expansions: Iterable[Expansion], fetch: Fetch, length: int, most: int = MOST_EXPANDED
) -> tuple[Fetch, Ints]:
    """Return a reader of the expanded rows' columns, and per expanded row, the row it came from.

    Args:
        fetch, length: reader of the columns of the rows, and their number.
        most: maximum number of rows that one expansion may make.

    Raises:
        ExpressionError: there would be more than ``most`` rows, or an expression fails.
    """
    known: dict[Column, pa.Array] = {}

    def read(column: Column) -> pa.Array:
        found = known.get(column)
        if found is None:
            found = known[column] = conform(fetch(column), column.type)
        return found

    rows = np.arange(length)
    own: Fetch = read
    for expansion in expansions:
        own, parents = _expanded(expansion, own, len(rows), most)
        rows = rows[parents]
    return own, rows


def _expanded(expansion: Expansion, fetch: Fetch, length: int, most: int) -> tuple[Fetch, Ints]:
    limits, values = elements(evaluate(expansion.value, fetch, length))
    sizes = np.diff(limits)
    found = np.maximum(sizes, 1) if expansion.outer else sizes
    total = int(found.sum())
    if total > most:
        raise ExpressionError(
            "too-long",
            f"the expansion of {expansion.value} makes {total} rows of {length}, beyond the limit "
            f"of {MOST_EXPANDED} of a batch",
            remedy="filter rows before, or shorten arrays: slice(x, 1, 1000)",
        )
    begins = limits_of(found)
    parents = owners(begins)
    places = np.arange(total) - begins[parents]
    lacking = None
    if total > len(values):
        lacking = sizes[parents] == 0
        at = np.where(lacking, 0, limits[parents] + places)
        values = values.take(pa.array(at, mask=lacking))
    children = [pa.array(places.astype(np.int32), mask=lacking)] if expansion.position else []
    if expansion.fields or expansion.value.type.kind is TypeKind.MAP:
        children += values.flatten()
    else:
        children.append(values)
    own = dict(zip(expansion.columns, children, strict=True))

    def read(column: Column) -> pa.Array:
        made = own.get(column)
        return fetch(column).take(repeated) if made is None else made

    repeated = pa.array(parents)
    mask = filter_mask(expansion.conditions, read, total) if expansion.conditions else None
    if mask is not None:
        kept = pa.array(np.flatnonzero(mask))
        own = {column: values.take(kept) for column, values in own.items()}
        parents = parents[mask]
        repeated = pa.array(parents)
    return read, parents
