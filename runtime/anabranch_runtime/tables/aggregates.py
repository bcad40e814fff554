"""Aggregates of groups: accumulators in state rows, and values with Spark's types and errors.

A state row is a group's row of words; its first word is the group's net number of rows. Aggregates
share accumulators: ``sum(x)`` and ``avg(x)`` have one sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.types import INTEGRAL, INTERVALS, DataType, TypeKind
from anabranch_contract.queries.views import PAIRS, AggregateFunction, View, ViewAggregate
from anabranch_runtime.columns.arrays import Bools, Floats, Ints, intervals, overflow
from anabranch_runtime.columns.arrow_types import arrow_type, spark_type
from anabranch_runtime.expressions import arithmetic
from anabranch_runtime.tables import sums
from anabranch_runtime.tables.accumulators import (
    Accumulator,
    BitCounts,
    Count,
    DecimalSum,
    FloatSum,
    IntegerSum,
    Least,
    PowerSum,
    ProductSum,
)
from anabranch_runtime.tables.collections import Collection
from anabranch_runtime.tables.inputs import Inputs
from anabranch_runtime.tables.moments import exact, higher_moments
from anabranch_runtime.tables.words import Texts, TupleField, decimal_column, integers_of

_F = AggregateFunction
_DOUBLE = DataType(TypeKind.DOUBLE)
_VARIANCES = frozenset({_F.VAR_POP, _F.VAR_SAMP, _F.STDDEV_POP, _F.STDDEV_SAMP})
_BITS = frozenset({_F.BIT_AND, _F.BIT_OR, _F.BIT_XOR})
#: Sums of products of pairs (y, x) that a function reads; functions not listed read ``yx`` only.
_PRODUCTS: dict[_F, tuple[str, ...]] = {
    **dict.fromkeys((_F.CORR, _F.REGR_R2), ("yx", "yy", "xx")),
    **dict.fromkeys((_F.REGR_SLOPE, _F.REGR_INTERCEPT), ("yx", "xx")),
    _F.REGR_SXX: ("xx",),
    _F.REGR_SYY: ("yy",),
}
#: Functions whose sums of products around the means are not divided by the number of pairs.
_UNDIVIDED = frozenset({_F.REGR_SXX, _F.REGR_SXY, _F.REGR_SYY})
_ROOTS = frozenset({_F.STDDEV_POP, _F.STDDEV_SAMP})
_SAMPLES = frozenset({_F.VAR_SAMP, _F.STDDEV_SAMP, _F.COVAR_SAMP})
#: Decimal places above which Spark rounds a quotient twice (``arithmetic``).
_EXACT_SCALE = 20

#: Function that computes an aggregate, one value per group, from groups' state rows and slots.
Value = Callable[[Ints, Ints], pa.Array]


class GroupAggregates:
    """The aggregates of a view's groups.

    Attributes:
        width: number of words of a group's state row.
    """

    def __init__(
        self,
        aggregates: Sequence[ViewAggregate],
        kinds: Mapping[str, DataType],
        pool: Texts,
        *,
        deletes: bool,
    ) -> None:
        self._kinds, self._pool, self._deletes = kinds, pool, deletes
        self.collections: list[Collection] = []
        self._known_collections: dict[object, int] = {}
        self.parts: list[tuple[Accumulator, int]] = []
        self._places: dict[object, int] = {}
        self.width = 0
        self._part(Count(()))
        self._values = {a: self._value(a) for a in aggregates}
        self._counted = {part.once for part, _ in self.parts}
        carries = [n > 0 for part, _ in self.parts for size in part.numbers for n in range(size)]
        self._carries: Bools = np.array(carries, np.bool_)

    # --- updates ---------------------------------------------------------------------------------

    def add(self, state: Ints, slots: Ints, index: Ints, rows: Inputs, weights: Ints) -> None:
        """Add weighted ``rows`` to groups' state rows, and to the collections of values.

        Args:
            slots: slot of the group of each input row. ``index``: row of ``state`` of that group.
        """
        once: dict[int | None, Ints] = {None: weights}
        for number, collection in enumerate(self.collections):
            counted = number in self._counted
            once[number] = collection.add(slots, rows, weights, crossings=counted)
        for part, at in self.parts:
            part.add(state, at, index, rows, once[part.once])

    def undo(self) -> None:
        """Undo the last :meth:`add` of rows to groups, in the collections of values."""
        for collection in self.collections:
            collection.undo()

    def settle(self) -> None:
        """Confirm the last :meth:`add` in the collections, after which it can't be undone."""
        for collection in self.collections:
            collection.settle()

    def make_room(self, slots: int) -> None:
        """Make room in the collections for slots below ``slots``."""
        for collection in self.collections:
            collection.values.make_room(slots)

    def clear(self, slots: Ints) -> None:
        """Delete the collected values of the groups ``slots``."""
        for collection in self.collections:
            collection.values.clear(slots)

    def blank(self, state: Ints, slots: Ints) -> Bools:
        """Return the mask of groups whose state is that of a new (empty) group."""
        found: Bools = np.logical_not(state.any(axis=1))
        for collection in self.collections:
            found = found & collection.values.empty(slots)
        return found

    def value(self, aggregate: ViewAggregate, state: Ints, slots: Ints) -> pa.Array:
        """Return the column of values of one aggregate, with a value per state row.

        Raises:
            ExpressionError: a sum does not fit its type.
        """
        return self._values[aggregate](state, slots)

    def layout(self, aggregates: Sequence[ViewAggregate]) -> GroupAggregates:
        """Return the layout of a dump that has only these aggregates."""
        return GroupAggregates(aggregates, self._kinds, Texts(), deletes=self._deletes)

    def dump(
        self, state: Ints, slots: Ints, layout: GroupAggregates
    ) -> tuple[dict[str, pa.Array], list[pa.RecordBatch]]:
        """Return the aggregates of ``layout`` for a checkpoint: the columns of state rows; and each
        collection's tuples, with the group's position in ``slots``, the fields, and the weight."""
        columns = {}
        for key, (part, own) in layout.known_parts():
            at = self._places[key]
            for n in range(part.width):
                columns[f"w{own + n}"] = pa.array(state[:, at + n])
            if isinstance(part, Least) and part.layout.texts.any():
                known = self._least(at)
                for n in range(len(part.layout.fields)):
                    columns[f"l{own}_{n}"] = known.value(state, at, n)
        numbers = (self._known_collections[key] for key in layout._known_collections)
        return columns, [self.collections[number].dump(slots) for number in numbers]

    def load(
        self,
        columns: Mapping[str, pa.Array],
        collections: Sequence[pa.RecordBatch],
        slots: Ints,
        layout: GroupAggregates,
        state: Ints,
    ) -> None:
        """Restore state rows, and collections of ``slots`` (which are empty), from a dump."""
        for key, (part, own) in layout.known_parts():
            at = self._places[key]
            for n in range(part.width):
                state[:, at + n] = integers_of(columns[f"w{own + n}"])
            if isinstance(part, Least) and part.layout.texts.any():
                known = self._least(at)
                some = state[:, at] != 0
                fields = range(len(part.layout.fields))
                tuples = known.layout.encode([columns[f"l{own}_{n}"] for n in fields])
                state[some, at + 1 : at + part.width] = tuples[some]
        for key, batch in zip(layout._known_collections, collections, strict=True):
            collection = self.collections[self._known_collections[key]]
            if not len(collection.values):
                collection.load(batch, slots)

    def known_parts(self) -> Iterator[tuple[object, tuple[Accumulator, int]]]:
        """Yield the key of each accumulator, with the accumulator and its first word."""
        return zip(self._places, self.parts, strict=True)

    def _least(self, at: int) -> Least:
        found = next(part for part, place in self.parts if place == at)
        assert isinstance(found, Least)
        return found

    def words(self, aggregates: Sequence[ViewAggregate]) -> Bools:
        """Return the mask of the words in a state row on which these aggregates depend."""
        found = np.zeros(self.width, np.bool_)
        for key, (part, _) in self.layout(aggregates).known_parts():
            at = self._places[key]
            found[at : at + part.width] = True
        return found

    def subtract(self, state: Ints, others: Ints) -> None:
        """Subtract the numbers in the state rows ``others`` from those in ``state``."""
        sums.subtract(state.view(np.uint64), others.view(np.uint64), self._carries)

    def rounds(self, state: Ints) -> bool:
        """Whether some group's float sum includes rounded doubles besides its exact number."""
        places = (at for part, at in self.parts if part.numbers == sums.FLOAT_NUMBERS)
        return any(bool(state[:, at + sums.BESIDE_COUNT].any()) for at in places)

    @property
    def bytes(self) -> int:
        """Size in memory of the groups' collections of values, in bytes."""
        return sum(c.values.bytes for c in self.collections)

    # --- parts -----------------------------------------------------------------------------------

    def _part(self, part: Accumulator, key: object = None) -> int:
        """Return an accumulator's first word in state rows; equal keys share an accumulator."""
        if key is None:
            key = part
            if part.once is not None:
                # A collection's index depends on the other aggregates, so the key omits it.
                plain = replace(cast(Any, part), once=None)
                key = plain, list(self._known_collections)[part.once]
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = self.width
            self.parts.append((part, place))
            self.width += part.width
        return place

    def _collection(
        self,
        columns: tuple[str, ...],
        fields: tuple[TupleField, ...],
        known: str,
        *,
        numbers: bool = False,
    ) -> int:
        key = (columns, fields, known, numbers)
        number = self._known_collections.get(key)
        if number is None:
            number = self._known_collections[key] = len(self.collections)
            made = Collection(columns, fields, known, self._pool, numbers=numbers)
            self.collections.append(made)
        return number

    def _of_column(self, name: str) -> int:
        """Return the index of the collection that has a column's values by group."""
        return self._collection((name,), (TupleField(self._kinds[name], nullable=False),), name)

    def _value(self, aggregate: ViewAggregate) -> Value:
        function, column = aggregate.function, aggregate.column
        if column is None:
            return lambda state, _: pa.array(state[:, 0])
        if function in (_F.MIN, _F.MAX):
            return self._extreme(aggregate, (column,), column)
        if function in (_F.MIN_BY, _F.MAX_BY):
            assert aggregate.by is not None
            return self._extreme(aggregate, (aggregate.by, column), aggregate.by)
        if function in (_F.PERCENTILE_CONT, _F.PERCENTILE_DISC):
            return self._percentile(aggregate, column)
        if function in (_F.LISTAGG, _F.COLLECT_LIST):
            return self._list(aggregate, column)
        if function is _F.MODE:
            field = TupleField(self._kinds[column], aggregate.descending, nullable=False)
            values = self.collections[self._collection((column,), (field,), column)]
            return lambda _, slots: values.frequent(slots)
        if function in _BITS:
            n, at = self._part(Count((column,))), self._part(BitCounts(column))
            return lambda state, _: _bits(state, n, at, aggregate)
        once = self._of_column(column) if aggregate.distinct else None
        if function is _F.COUNT:
            at = self._part(Count((column,), once))
            return lambda state, _: pa.array(state[:, at])
        if function in (_F.SUM, _F.AVG):
            return self._sum(aggregate, column, once)
        if function in _VARIANCES:
            return self._variance(function, column, once)
        if function in (_F.SKEWNESS, _F.KURTOSIS):
            return self._moment(function, column)
        assert function in PAIRS, function
        assert aggregate.by is not None
        return self._of_pairs(function, column, aggregate.by)

    # --- sums ------------------------------------------------------------------------------------

    def _sum(self, aggregate: ViewAggregate, column: str, once: int | None) -> Value:
        kind, result = self._kinds[column], aggregate.type
        counted = self._part(Count((column,), once))
        mean = aggregate.function is _F.AVG
        if kind.kind in INTEGRAL or kind.kind in INTERVALS:
            at = self._part(IntegerSum(column, once))
            if result.kind in INTERVALS:
                return lambda state, _: _intervals(state, at, counted, result, mean=mean)
            return lambda state, _: integer_values(state, at, state[:, counted], result, mean=mean)
        if kind.kind is TypeKind.DECIMAL:
            at = self._part(DecimalSum(column, once))
            return lambda state, _: decimal_values(
                state, at, state[:, counted], kind, result, mean=mean
            )
        at = self._part(FloatSum(column, None, once))
        return lambda state, _: _floats(state, at, state[:, counted], mean=mean)

    def _variance(self, function: _F, column: str, once: int | None) -> Value:
        x = self._part(FloatSum(column, None, once))
        xx = self._part(ProductSum(column, column, once=once))
        n = self._part(Count((column,), once))
        return lambda state, _: _spread(state, n, (x, x, xx), function)

    def _moment(self, function: _F, column: str) -> Value:
        n = self._part(Count((column,)))
        powers = [
            self._part(FloatSum(column)),
            self._part(ProductSum(column, column)),
            self._part(PowerSum(column, 3)),
        ]
        if function is _F.KURTOSIS:
            powers.append(self._part(PowerSum(column, 4)))
        return lambda state, _: higher_moments(state, n, powers)

    def _of_pairs(self, function: _F, column: str, other: str) -> Value:
        n = self._part(Count((column, other)))
        y, x = self._part(FloatSum(column, other)), self._part(FloatSum(other, column))
        known = {
            "yx": (y, x, ProductSum(column, other)),
            "yy": (y, y, ProductSum(column, column, other)),
            "xx": (x, x, ProductSum(other, other, column)),
        }
        places = {}
        for name in _PRODUCTS.get(function, ("yx",)):
            one, two, product = known[name]
            places[name] = one, two, self._part(product)
        if len(places) > 1:
            return lambda state, _: _regression(state, n, places, function)
        (only,) = places.values()
        return lambda state, _: _spread(state, n, only, function)

    # --- least values and collections ------------------------------------------------------------

    def _extreme(self, aggregate: ViewAggregate, columns: tuple[str, ...], known: str) -> Value:
        greatest = aggregate.function in (_F.MAX, _F.MAX_BY)
        last = len(columns) - 1
        if self._deletes:
            fields = tuple(
                TupleField(self._kinds[c], nullable=n > 0) for n, c in enumerate(columns)
            )
            collection = self.collections[self._collection(columns, fields, known)]
            rank = -1 if greatest else 0
            return lambda _, slots: collection.at(slots, np.full(len(slots), rank), last)
        fields = tuple(
            TupleField(self._kinds[c], greatest, not greatest, nullable=n > 0)
            for n, c in enumerate(columns)
        )
        least = Least(columns, fields, known, self._pool)
        at = self._part(least, (columns, fields, known))
        found = self._least(at)
        return lambda state, _: found.value(state, at, last)

    def _percentile(self, aggregate: ViewAggregate, column: str) -> Value:
        fraction = Fraction(Decimal(aggregate.option))
        if aggregate.function is _F.PERCENTILE_CONT:
            field = TupleField(_DOUBLE, nullable=False)
            number = self._collection((column,), (field,), column, numbers=True)
            share = float(1 - fraction if aggregate.descending else fraction)
            values = self.collections[number]
            return lambda _, slots: values.interpolated(slots, share)
        field = TupleField(self._kinds[column], aggregate.descending, nullable=False)
        values = self.collections[self._collection((column,), (field,), column)]
        return lambda _, slots: values.discrete(slots, *fraction.as_integer_ratio())

    def _list(self, aggregate: ViewAggregate, column: str) -> Value:
        keys = [] if aggregate.by is None else [(aggregate.by, aggregate.descending)]
        keys += aggregate.then
        if not keys or keys[-1][0] != column:
            keys.append((column, False))
        columns = [name for name, _ in keys]
        fields = [TupleField(self._kinds[name], down, not down) for name, down in keys]
        fields[-1] = replace(fields[-1], nulls_first=True, nullable=False)
        number = self._collection(tuple(columns), tuple(fields), column)
        values, kind = self.collections[number], arrow_type(aggregate.type)
        if aggregate.function is _F.COLLECT_LIST:
            return lambda _, slots: values.gathered(slots, kind, once=aggregate.distinct)
        return lambda _, slots: values.listed(
            slots, aggregate.option, kind, once=aggregate.distinct
        )


def integer_values(state: Ints, at: int, counts: Ints, kind: DataType, *, mean: bool) -> pa.Array:
    """Return groups' sums or averages (``mean``) of integers; NULL where ``counts`` is 0.

    Args:
        at: first word of the sums in ``state``. ``kind``: type of the result.

    Raises:
        ExpressionError: a sum does not fit its type.
    """
    low, high = state[:, at], state[:, at + 1]
    none = counts == 0
    fits = high == low >> np.int64(63)
    if mean:
        unsigned = np.ascontiguousarray(low).view(np.uint64).astype(np.float64)
        sums_ = np.where(fits, low.astype(np.float64), high * 2.0**64 + unsigned)
        return pa.array(sums_ / np.where(none, 1, counts), mask=none)
    if not (fits | none).all():
        raise overflow(kind)
    return pa.array(low, mask=none)


def _intervals(state: Ints, at: int, counted: int, kind: DataType, *, mean: bool) -> pa.Array:
    counts = state[:, counted]
    found = integer_values(state, at, counts, kind, mean=False)
    if mean:
        none = counts == 0
        means = arithmetic.half_up(np.ascontiguousarray(state[:, at]), np.where(none, 1, counts))
        found = pa.array(means, mask=none)
    return intervals(found, kind)


def decimal_values(
    state: Ints, at: int, counts: Ints, given: DataType, kind: DataType, *, mean: bool
) -> pa.Array:
    """Return groups' sums or averages of decimals of type ``given``, as :func:`integer_values`."""
    low, middle, high = state[:, at], state[:, at + 1], state[:, at + 2]
    none = counts == 0
    valid = None if not none.any() else ~none
    total = DataType(TypeKind.DECIMAL, min(given.precision + 10, 38), given.scale)
    if mean:
        fits = (high == low >> np.int64(63)) & (middle == low >> np.int64(63))
        factor = 10 ** (kind.scale - given.scale)
        small = fits & (np.abs(low.astype(np.float64)) < 2.0**62 / factor)
        if (small | none).all() and kind.scale <= _EXACT_SCALE:
            some = np.abs(np.where(none, 1, counts))
            size, rest = np.divmod(np.abs(low) * factor, some)
            size += 2 * rest >= some
            signed = np.where((low < 0) == (counts < 0), size, -size)
            return decimal_column(signed, signed >> np.int64(63), valid, arrow_type(kind))
    # A sum of more than 128 bits does not fit any decimal type.
    if not ((high == middle >> np.int64(63)) | none).all():
        raise overflow(total)
    column = decimal_column(low, middle, valid, pa.decimal128(38, given.scale))
    wanted = total if mean else kind
    bound = _pair(10**wanted.precision)
    negative = middle < 0
    with np.errstate(over="ignore"):
        size_low = np.where(negative, -low, low).view(np.uint64)
        size_high = np.where(negative, ~middle + (low == 0), middle).view(np.uint64)
    beyond = (size_high > bound[1]) | ((size_high == bound[1]) & (size_low >= bound[0]))
    if (beyond & ~none).any():
        raise overflow(wanted)
    if not mean:
        return decimal_column(low, middle, valid, arrow_type(kind))
    divisor = pa.array(np.where(none, 1, counts)).cast(pa.decimal128(20, 0))
    return arithmetic.binary("div", column, divisor, kind)


def _pair(value: int) -> tuple[np.uint64, np.uint64]:
    """Return the low and the high word of a positive integer below 2^128."""
    return np.uint64(value & (2**64 - 1)), np.uint64(value >> 64)


def _float_sums(state: Ints, at: int) -> Floats:
    out = np.empty(len(state))
    sums.float_sums(state.view(np.uint64), state.view(np.float64), at, out)
    return out


def _floats(state: Ints, at: int, counts: Ints, *, mean: bool) -> pa.Array:
    none = counts == 0
    found = _float_sums(state, at)
    if mean:
        found /= np.where(none, 1, counts)
    return pa.array(found, mask=none)


def _central(state: Ints, counts: Ints, places: tuple[int, int, int]) -> Floats:
    """Return ``n * sum(x y) - sum(x) * sum(y)`` of each group."""
    out, doubtful = np.zeros(len(state)), np.zeros(len(state), np.bool_)
    unsigned, floats = state.view(np.uint64), state.view(np.float64)
    sums.central_moments(unsigned, floats, counts, *places, out, doubtful)
    for row in np.flatnonzero(doubtful):
        x, y, xy = (exact(state[row], at) for at in places)
        out[row] = float(int(counts[row]) * xy - x * y)
    return out


def _bits(state: Ints, n: int, at: int, aggregate: ViewAggregate) -> pa.Array:
    """Return per group the bits that all, some, or an odd number of its values have set."""
    counts, bits = state[:, n, np.newaxis], state[:, at : at + 64]
    held = bits == counts if aggregate.function is _F.BIT_AND else bits != 0
    if aggregate.function is _F.BIT_XOR:
        held = bits & 1 != 0
    packed = np.packbits(held, axis=1, bitorder="little").view("<i8").reshape(-1)
    # The sign is extended, so that the value fits the type.
    kind = arrow_type(aggregate.type)
    return pa.array(packed.astype(kind.to_pandas_dtype()), kind, mask=state[:, n] == 0)


def _spread(
    state: Ints, at: int, places: tuple[int, int, int], function: AggregateFunction
) -> pa.Array:
    """Return variances, standard deviations, covariances or sums of products around the means; NULL
    for groups with too few rows."""
    counts = np.ascontiguousarray(state[:, at])
    found = _central(state, counts, places)
    sample = function in _SAMPLES
    none = counts <= (1 if sample else 0)
    n = np.where(none, 2, counts).astype(np.float64)
    found = found / n / (1 if function in _UNDIVIDED else n - 1 if sample else n)
    if function in _VARIANCES:
        found = np.where(found < 0, 0.0, found)
    if function in _ROOTS:
        found = np.sqrt(found)
    return pa.array(found, mask=none)


def _regression(
    state: Ints, at: int, places: Mapping[str, tuple[int, int, int]], function: AggregateFunction
) -> pa.Array:
    """Return correlations, or properties of the regression line; NULL for groups with fewer than
    two pairs or a constant ``x``, and for correlations also with a constant ``y``."""
    counts = np.ascontiguousarray(state[:, at])
    found = {name: _central(state, counts, place) for name, place in places.items()}
    yx, xx = found["yx"], found["xx"]
    none = (counts <= 1) | (xx <= 0)
    with np.errstate(over="ignore", invalid="ignore"):
        values = yx / np.where(none, 1.0, xx)
        if function is _F.REGR_INTERCEPT:
            y, x, _ = places["yx"]
            values = _float_sums(state, y) - values * _float_sums(state, x)
            values /= np.where(none, 1, counts)
        elif function is not _F.REGR_SLOPE:
            constant = found["yy"] <= 0
            yy = np.where(constant, 1.0, found["yy"])
            if function is _F.REGR_R2:
                values = np.where(constant, 1.0, values * (yx / yy))
            else:
                none |= constant
                values = yx / (np.sqrt(yy) * np.sqrt(np.where(none, 1.0, xx)))
    return pa.array(values, mask=none)


def totals_of(view: View, groups: pa.RecordBatch, live: Bools) -> dict[str, pa.Scalar]:
    """Return name -> total of the view over all ``groups`` that are ``live`` (have rows).

    Raises:
        ExpressionError: a sum overflows.
    """
    kinds: dict[str, DataType] = {
        t.aggregate: spark_type(groups.column(t.aggregate).type) for t in view.totals
    }
    wanted = [
        ViewAggregate(t.name, t.function, t.aggregate, distinct=False, type=t.type)
        for t in view.totals
    ]
    aggregates = GroupAggregates(wanted, kinds, Texts(), deletes=False)
    some = groups.select(list(kinds)).filter(pa.array(live))
    state = np.zeros((1, aggregates.width), np.int64)
    rows, zeros = Inputs(some, kinds), np.zeros(some.num_rows, np.int64)
    aggregates.add(state, zeros, zeros, rows, np.ones(some.num_rows, np.int64))
    zero = np.zeros(1, np.int64)
    return {
        t.name: aggregates.value(one, state, zero).cast(arrow_type(t.type))[0]
        for t, one in zip(view.totals, wanted, strict=True)
    }
