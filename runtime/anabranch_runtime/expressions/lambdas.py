"""Higher-order functions over the elements of arrays and the entries of maps.

The elements of all rows are one flat column, over which a lambda's body is evaluated once, with the
columns of the rows repeated by the row of each element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.queries.expressions import Call, Expr, Literal
from anabranch_runtime.columns.arrays import Bools, Ints, assemble, both, present, truths
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.columns.nested import elements, limits_of, lists, maps, owners
from anabranch_runtime.errors import ExpressionError
from anabranch_runtime.expressions.functions.collections import unique_keys, zipped

#: Maximum number of elements of an array that ``aggregate`` merges one by one.
MOST_AGGREGATED = 10_000


class Rows(Protocol):
    """Rows over which expressions are evaluated, with the parameters of enclosing lambdas."""

    length: int

    def at(self, rows: Ints, parameters: Mapping[int, pa.Array]) -> Rows:
        """Return certain rows, which may repeat, with further parameters of lambdas."""

    def value(self, expr: Expr) -> pa.Array:
        """Return the values of an SQL expression on these rows."""


class _Elements:
    """The elements of all rows' arrays, or the entries of their maps, for lambdas.

    Attributes:
        limits, parents: offsets per row, and the row of each element.
        values: the elements; of a map, structs of key and value.
    """

    def __init__(self, expr: Call, frame: Rows) -> None:
        column = frame.value(expr.args[1])
        self.frame, self.first, self.valid = frame, _first(expr), present(column)
        self.limits, self.values = elements(column)
        self.parents = owners(self.limits)

    def places(self) -> pa.Array:
        """Return each array element's position in its array, from 0."""
        return pa.array((np.arange(len(self.parents)) - self.limits[self.parents]).astype(np.int32))

    def entries(self) -> tuple[pa.Array, pa.Array]:
        """Return the keys and the values of the maps of all rows."""
        keys, values = self.values.flatten()
        return keys, values

    def of(self, body: Expr, *parameters: pa.Array) -> pa.Array:
        """Return the values of a lambda's ``body`` on all elements."""
        numbered = dict(enumerate(parameters, self.first))
        return self.frame.at(self.parents, numbered).value(body)

    def kept(self, held: Bools) -> tuple[Ints, pa.Array]:
        """Select elements where ``held`` is true: return offsets per row, and their positions."""
        places = np.flatnonzero(held)
        sizes = np.bincount(self.parents[places], minlength=self.frame.length)
        return limits_of(sizes), pa.array(places)

    def some(self, held: Bools) -> Bools:
        """Return the mask of rows with at least one array element for which ``held`` is true."""
        return np.bincount(self.parents[held], minlength=self.frame.length) > 0


def _first(expr: Call) -> int:
    number = expr.args[0]
    assert isinstance(number, Literal)
    assert isinstance(number.value, int)
    return number.value


def _transform(expr: Call, frame: Rows) -> pa.Array:
    own = _Elements(expr, frame)
    found = own.of(expr.args[2], own.values, own.places())
    return lists(own.limits, found, own.valid, arrow_type(expr.type))


def _filter(expr: Call, frame: Rows) -> pa.Array:
    own = _Elements(expr, frame)
    limits, places = own.kept(truths(own.of(expr.args[2], own.values, own.places())))
    return lists(limits, own.values.take(places), own.valid, arrow_type(expr.type))


def _exists(expr: Call, frame: Rows) -> pa.Array:
    """Evaluate ``exists``: true if so for an element, else NULL if NULL for one or no array."""
    own = _Elements(expr, frame)
    held = own.of(expr.args[2], own.values)
    found, unknown = own.some(truths(held)), own.some(_absent(held))
    return pa.array(found, mask=_unknown(own.valid, unknown & ~found))


def _forall(expr: Call, frame: Rows) -> pa.Array:
    """Evaluate ``forall``: false if so for an element, else NULL if NULL for one or no array."""
    own = _Elements(expr, frame)
    held = own.of(expr.args[2], own.values)
    fails, unknown = own.some(truths(pc.invert(held))), own.some(_absent(held))
    return pa.array(~fails, mask=_unknown(own.valid, unknown & ~fails))


def _absent(held: pa.Array) -> Bools:
    return np.asarray(held.is_null().to_numpy(zero_copy_only=False), np.bool_)


def _unknown(valid: Bools | None, unknown: Bools) -> Bools:
    return unknown if valid is None else unknown | ~valid


def _map_filter(expr: Call, frame: Rows) -> pa.Array:
    own = _Elements(expr, frame)
    keys, values = own.entries()
    limits, places = own.kept(truths(own.of(expr.args[2], keys, values)))
    return maps(limits, keys.take(places), values.take(places), own.valid)


def _transform_values(expr: Call, frame: Rows) -> pa.Array:
    own = _Elements(expr, frame)
    keys, values = own.entries()
    return maps(own.limits, keys, own.of(expr.args[2], keys, values), own.valid)


def _transform_keys(expr: Call, frame: Rows) -> pa.Array:
    own = _Elements(expr, frame)
    keys, values = own.entries()
    return unique_keys(own.limits, own.of(expr.args[2], keys, values), values, own.valid)


def _map_zip_with(expr: Call, frame: Rows) -> pa.Array:
    """Evaluate ``map_zip_with``: the lambda gets a key's values in both maps; NULL if missing."""
    limits, keys, values, valid = zipped(*(frame.value(arg) for arg in expr.args[1:3]))
    numbered = dict(enumerate((keys, *values), _first(expr)))
    return maps(limits, keys, frame.at(owners(limits), numbered).value(expr.args[3]), valid)


def _zip_with(expr: Call, frame: Rows) -> pa.Array:
    """Evaluate ``zip_with``: the lambda gets elements of equal positions; NULL if missing."""
    columns = [frame.value(arg) for arg in expr.args[1:3]]
    valid = both(*(present(column) for column in columns))
    parts = [elements(column) for column in columns]
    sizes = np.maximum(*(np.diff(limits) for limits, _ in parts))
    limits = limits_of(sizes if valid is None else np.where(valid, sizes, 0))
    parents = owners(limits)
    places = np.arange(len(parents)) - limits[parents]
    padded = []
    for own, values in parts:
        lacking = places >= np.diff(own)[parents]
        padded.append(values.take(pa.array(own[parents] + places, mask=lacking)))
    found = frame.at(parents, dict(enumerate(padded, _first(expr)))).value(expr.args[3])
    return lists(limits, found, valid, arrow_type(expr.type))


def _aggregate(expr: Call, frame: Rows) -> pa.Array:
    """Evaluate ``aggregate``: the lambda merges elements one by one, for all rows at once.

    Raises:
        ExpressionError: an array has more than :data:`MOST_AGGREGATED` elements.
    """
    own = _Elements(expr, frame)
    _, _, start, merge, *finish = expr.args
    sizes, found = np.diff(own.limits), frame.value(start)
    most = int(sizes.max(initial=0))
    if most > MOST_AGGREGATED:
        raise ExpressionError(
            "too-long",
            f"aggregate() of an array of {most} elements, {MOST_AGGREGATED} at most",
            remedy="write LATERAL VIEW explode(x) t AS item, and an aggregate of item",
        )
    for place in range(most):
        rows = np.flatnonzero(sizes > place)
        values = own.values.take(pa.array(own.limits[rows] + place))
        numbered = {own.first: found.take(pa.array(rows)), own.first + 1: values}
        pieces = [(rows, frame.at(rows, numbered).value(merge))]
        if len(rows) < frame.length:
            rest = np.flatnonzero(sizes <= place)
            pieces.append((rest, found.take(pa.array(rest))))
        found = assemble(pieces, frame.length, arrow_type(merge.type))
    if finish:
        found = frame.at(np.arange(frame.length), {own.first: found}).value(finish[0])
    if own.valid is None:
        return found
    return pc.if_else(pa.array(own.valid), found, pa.scalar(None, found.type))


#: Operation -> function that evaluates it on the rows of a frame.
LAMBDAS: dict[str, Callable[[Call, Rows], pa.Array]] = {
    "aggregate": _aggregate,
    "exists": _exists,
    "filter": _filter,
    "forall": _forall,
    "map_filter": _map_filter,
    "map_zip_with": _map_zip_with,
    "transform": _transform,
    "transform_keys": _transform_keys,
    "transform_values": _transform_values,
    "zip_with": _zip_with,
}
