"""Values of columns per group, with net weights, for aggregates such as percentiles."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from anabranch_runtime.columns.arrays import Bools, Ints
from anabranch_runtime.columns.nested import limits_of, lists
from anabranch_runtime.tables import trees
from anabranch_runtime.tables.accumulators import masked
from anabranch_runtime.tables.inputs import Inputs
from anabranch_runtime.tables.kernels import NONE
from anabranch_runtime.tables.ordered import Ordered
from anabranch_runtime.tables.words import Texts, TupleField, TupleLayout, integers_of, text_column


class Collection:
    """Collected tuples of the values of ``columns``, by group, in order.

    Attributes:
        known: a column; rows with NULL in it are excluded.
        numbers: whether values are converted to doubles.
    """

    def __init__(
        self,
        columns: tuple[str, ...],
        fields: tuple[TupleField, ...],
        known: str,
        pool: Texts,
        *,
        numbers: bool = False,
    ) -> None:
        self.columns, self.known, self.numbers = columns, known, numbers
        self.values = Ordered(TupleLayout(fields, pool))
        self._last: tuple[Ints, Ints, Ints] | None = None

    def add(self, slots: Ints, rows: Inputs, weights: Ints, *, crossings: bool) -> Ints:
        """Add weighted ``rows`` to the tuples of the groups ``slots``; see :meth:`Ordered.add`."""
        if self.numbers:
            columns = [pa.array(rows.floats(name)) for name in self.columns]
        else:
            columns = [rows.column(name) for name in self.columns]
        tuples = self.values.layout.encode(columns)
        valid = rows.valid(self.known)
        if len(valid):
            slots = np.where(valid, slots, NONE)
        crossed = self.values.add(slots, tuples, weights, crossings=crossings)
        self._last = slots, tuples, weights
        return crossed

    def undo(self) -> None:
        """Undo the last :meth:`add` of values to groups, unless it has been settled."""
        if self._last is not None:
            slots, tuples, weights = self._last
            self.values.add(slots, tuples, -weights)
            self._last = None

    def settle(self) -> None:
        """Confirm the last :meth:`add`, after which it can't be undone."""
        self._last = None

    def dump(self, slots: Ints) -> pa.RecordBatch:
        """Return all tuples of the groups ``slots``: position in ``slots``, fields, weight."""
        walk = self.values.walk(slots, everything=True)
        groups = np.repeat(np.arange(len(slots)), np.diff(walk.ends, prepend=0))
        columns = self.values.layout.decode(self.values.words[walk.nodes])
        weights = pa.array(self.values.sizes[walk.nodes, 0])
        names = ["group", *(f"v{n}" for n in range(len(columns))), "weight"]
        return pa.RecordBatch.from_arrays([pa.array(groups), *columns, weights], names=names)

    def load(self, dumped: pa.RecordBatch, slots: Ints) -> None:
        """Add the tuples in a dump (:meth:`dump`) of the groups ``slots``."""
        *columns, weights = dumped.columns[1:]
        tuples = self.values.layout.encode(columns)
        groups = slots[integers_of(dumped.column(0))]
        self.values.add(groups, tuples, np.array(weights, np.int64))

    def at(self, slots: Ints, ranks: Ints, field: int) -> pa.Array:
        """Return ``field`` of groups' tuples at ranks (negative: from the end); NULL if none."""
        nodes = self.values.at(slots, ranks)
        found: Bools = nodes != NONE
        words = self.values.words[np.where(found, nodes, 0)]
        if not found.all():
            words[~found] = 0
        return masked(self.values.layout.column(words, field), found)

    def interpolated(self, slots: Ints, fraction: float) -> pa.Array:
        """Return the interpolated percentile at ``fraction`` of each group, as in Spark."""
        totals = self.values.totals(slots)
        position = fraction * np.maximum(totals - 1, 0)
        low, high = np.floor(position), np.ceil(position)
        lower, higher = (
            np.asarray(self.at(slots, r.astype(np.int64), 0).fill_null(0.0), dtype=np.float64)
            for r in (low, high)
        )
        with np.errstate(invalid="ignore", over="ignore"):
            values = (high - position) * lower + (position - low) * higher
        values = np.where((low == high) | (lower == higher), lower, values)
        values = np.where(np.isnan(lower) & np.isnan(higher), np.nan, values)
        return pa.array(values, mask=totals == 0)

    def discrete(self, slots: Ints, numerator: int, denominator: int) -> pa.Array:
        """Return each group's first value at a cumulative share of ``numerator / denominator``."""
        totals = self.values.totals(slots)
        if numerator * int(totals.max(initial=0)) < 2**62:
            ranks = -(-numerator * totals // denominator)
        else:
            exact = [-(-numerator * int(n) // denominator) for n in totals]
            ranks = np.array(exact, np.int64)
        return self.at(slots, np.where(totals > 0, np.maximum(ranks, 1) - 1, 0), 0)

    def gathered(self, slots: Ints, kind: pa.DataType, *, once: bool) -> pa.Array:
        """Return each group's values of the last field as a list, ``once``: without duplicates."""
        walk, layout = self.values.walk(slots), self.values.layout
        times = np.ones_like(walk.times) if once else walk.times
        column = layout.column(self.values.words[walk.nodes], len(layout.fields) - 1)
        values = column.take(pa.array(np.repeat(np.arange(len(times)), times)))
        ends = np.concatenate([[0], walk.ends])
        return lists(limits_of(times)[ends], values, None, kind)

    def frequent(self, slots: Ints) -> pa.Array:
        """Return each group's most frequent value (of several, the first in order), or NULL."""
        walk = self.values.walk(slots)
        found = np.zeros(len(slots), np.int64)
        lengths = np.diff(walk.ends, prepend=0)
        some = np.flatnonzero(lengths)
        if len(some):
            starts = walk.ends[some] - lengths[some]
            most = np.repeat(np.maximum.reduceat(walk.times, starts), lengths[some])
            places = np.where(walk.times == most, np.arange(len(walk.times)), len(walk.times))
            found[some] = walk.nodes[np.minimum.reduceat(places, starts)]
        words = self.values.words[found]
        if len(some) < len(slots):
            words[lengths == 0] = 0
        return masked(self.values.layout.column(words, 0), lengths > 0)

    def listed(self, slots: Ints, separator: str, kind: pa.DataType, *, once: bool) -> pa.Array:
        """Return each group's texts joined by ``separator``; ``once``: without duplicates."""
        values, pool = self.values, self.values.layout.pool
        walk = values.walk(slots)
        between = np.frombuffer(separator.encode(), np.uint8)
        offsets, data = trees.listed(
            walk.nodes,
            walk.times,
            walk.ends,
            values.layout.width - 1,
            values.words,
            between,
            pool.data,
            pool.ends,
            once,
        )
        found = np.diff(walk.ends, prepend=0) > 0
        return text_column(offsets, data, None if found.all() else found, kind)
