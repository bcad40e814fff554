"""Joined rows of a batch as input of maintained tables; changes of tables as their output."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.types import FLOATING, INTEGRAL, DataType, TypeKind
from anabranch_contract.queries.views import (
    CHANGE,
    VERSION,
    Change,
    GroupingPrefix,
    TimeWindow,
    View,
    change_columns,
)
from anabranch_runtime.columns.arrays import Bools, Floats, Ints, conform, present
from anabranch_runtime.columns.arrow_types import typed_field
from anabranch_runtime.tables.words import floats_of, halves, integers_of, read_only

#: Mask that stands for all rows.
ALL: Bools = np.empty(0, np.bool_)


def one_batch(rows: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """Return the joined rows ``rows`` as one record batch."""
    if isinstance(rows, pa.RecordBatch):
        return rows
    columns = [c.combine_chunks() if c.num_chunks != 1 else c.chunk(0) for c in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


class Inputs:
    """Input rows of a table: a record ``batch``, whose columns have the types ``kinds``."""

    __slots__ = ("_columns", "_floats", "_integers", "_valid", "batch", "kinds")

    def __init__(self, batch: pa.RecordBatch, kinds: Mapping[str, DataType]) -> None:
        self.batch = batch
        self.kinds = kinds
        self._columns: dict[str, pa.Array] = {}
        self._valid: dict[str, Bools] = {}
        self._floats: dict[str, Floats] = {}
        self._integers: dict[str, Ints] = {}

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def taken(self, rows: Ints) -> Inputs:
        """Return the input rows at these positions."""
        return Inputs(self.batch.take(pa.array(rows)), self.kinds)

    def column(self, name: str) -> pa.Array:
        """Return the column ``name`` in the Arrow type of its declared type."""
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = conform(self.batch.column(name), self.kinds[name])
        return found

    def valid(self, *names: str) -> Bools:
        """Return the mask of rows without NULL in the columns ``names``; empty: all are."""
        found = ALL
        for name in names:
            one = self._valid.get(name)
            if one is None:
                mask = present(self.column(name))
                one = self._valid[name] = ALL if mask is None else mask
            found = one if not len(found) else found & one if len(one) else found
        return found

    def floats(self, name: str) -> Floats:
        """Return the input column ``name`` as doubles; values at NULLs are undefined."""
        found = self._floats.get(name)
        if found is None:
            column, kind = self.column(name), self.kinds[name].kind
            if kind in FLOATING:
                found = floats_of(column)
            elif kind in INTEGRAL:
                found = integers_of(column).astype(np.float64)
            elif kind is TypeKind.NULL:
                found = np.zeros(len(column))
            else:
                found = floats_of(column.cast(pa.float64()))
            found = self._floats[name] = read_only(found)
        return found

    def integers(self, name: str) -> Ints:
        """Return the input column ``name`` as 64-bit integers."""
        found = self._integers.get(name)
        if found is None:
            found = self._integers[name] = read_only(integers_of(self.column(name)))
        return found

    def halves(self, name: str) -> tuple[Ints, Ints]:
        """Return the low and high words of the unscaled values of a decimal input column."""
        pairs = halves(self.column(name))
        return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


def windows(window: TimeWindow, moments: Ints, valid: Bools = ALL) -> tuple[Ints, Ints, Ints]:
    """Return the pairs of an input row and a time window that contains it: the row's position, the
    window's start, and its end.

    Args:
        moments: times of the rows, in microseconds. ``valid``: mask of the rows that have a time;
            other rows are in no window.
    """
    rows = np.flatnonzero(valid) if len(valid) else np.arange(len(moments))
    moments = moments[rows]
    newest = moments - (moments - window.start) % window.slide
    if window.length == window.slide and not window.step:
        return rows, newest, newest + window.length
    many = window.length // window.step if window.step else -(-window.length // window.slide)
    found, starts, ends = list[Ints](), list[Ints](), list[Ints]()
    for n in range(many):
        start = newest if window.step else newest - n * window.slide
        end = start + ((n + 1) * window.step or window.length)
        inside = end > moments
        found.append(rows[inside])
        starts.append(start[inside])
        ends.append(end[inside])
    return np.concatenate(found), np.concatenate(starts), np.concatenate(ends)


def grouping_ids(view: View | GroupingPrefix) -> list[int]:
    """Return the id of each grouping set, as ``grouping_id()`` in Spark."""
    last = len(view.keys) - 1
    return [sum(1 << (last - n) for n in range(last + 1) if n not in s) for s in view.sets]


def grouping_keys(view: View | GroupingPrefix, keys: list[pa.Array]) -> list[pa.Array]:
    """Return the key columns, once per grouping set; NULL where the set lacks the key."""
    found = []
    for n, key in enumerate(keys):
        nothing = pa.nulls(len(key), key.type)
        found.append(pa.concat_arrays([key if n in s else nothing for s in view.sets]))
    return found


class Changes:
    """Builds Arrow tables of a view's changes."""

    __slots__ = ("_identity", "schema")

    def __init__(self, view: View) -> None:
        self.schema = pa.schema([typed_field(name, kind) for name, kind in change_columns(view)])
        self._identity = frozenset(view.identity)

    def table(
        self, columns: Mapping[str, pa.Array], upserts: int, deletes: int, version: int
    ) -> pa.Table:
        """Return the changes of a view's ``version``.

        Args:
            columns: values of ``upserts`` rows; in identity columns, then of ``deletes`` rows.
        """
        arrays = []
        for field in self.schema:
            if field.name == CHANGE:
                array = _kinds(upserts, deletes)
            elif field.name == VERSION:
                array = pa.repeat(pa.scalar(version, field.type), upserts + deletes)
            else:
                array = columns[field.name]
                if array.type != field.type:
                    array = array.cast(field.type)
                if field.name not in self._identity and deletes:
                    array = pa.concat_arrays([array, pa.nulls(deletes, field.type)])
            arrays.append(array)
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def nothing(self) -> pa.Table:
        """Return an empty table of changes."""
        return self.schema.empty_table()


def _kinds(upserts: int, deletes: int) -> pa.Array:
    parts = [
        pa.repeat(pa.scalar(str(change), pa.string()), count)
        for change, count in ((Change.UPSERT, upserts), (Change.DELETE, deletes))
        if count
    ]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(list(parts))
