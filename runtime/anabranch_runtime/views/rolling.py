"""Joined rows of a view whose presence depends on the time of the batch (``View.limits``).

The moments at which a row enters and leaves the view are known when it is joined. The first batch
after the one moment inserts it, the first batch after the other deletes it; until then it waits.
Rows wait in *queues* by their moments: sorted runs, each at least twice as long as the next. So a
row is copied a logarithmic number of times, and a batch reads only the rows that come or leave.

The result of a batch is the sum of all rows so far, with their weights, whose interval contains the
batch's time. So it depends neither on the order of rows nor on the batches before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_contract.queries.views import WEIGHT, TimeLimit
from anabranch_runtime.columns.arrays import Ints, present
from anabranch_runtime.columns.arrow_types import field_type, typed_field
from anabranch_runtime.tables.inputs import Inputs, one_batch
from anabranch_runtime.tables.words import integers_of

#: Moments of rows that have always been in the view, and of rows that never leave it.
_ALWAYS, _NEVER = -(1 << 62), 1 << 62
#: Columns with moments: when a row leaves the view, for rows not yet in it; and, in the dump of a
#: queue, the moment by which the queue orders the row.
_UNTIL, _MOMENT = "anabranch_until", "anabranch_at"


@dataclass(slots=True)
class _Run:
    """Rows in order of their ``moments``; those before ``start`` have been taken."""

    moments: Ints
    rows: pa.RecordBatch
    start: int = 0

    def __len__(self) -> int:
        return len(self.moments) - self.start

    @property
    def left(self) -> tuple[Ints, pa.RecordBatch]:
        """Rows that have not been taken, with their moments."""
        return self.moments[self.start :], self.rows.slice(self.start)


@dataclass(slots=True)
class _MomentQueue:
    """Queue of a view's rows, in the order of their moments."""

    _runs: list[_Run] = field(default_factory=list)

    def add(self, moments: Ints, rows: pa.RecordBatch) -> None:
        """Add rows to the queue by these moments."""
        if not len(moments):
            return
        order = np.argsort(moments, kind="stable")
        self._runs.append(_Run(moments[order], rows.take(pa.array(order))))
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            last, before = self._runs.pop().left, self._runs.pop().left
            self.add(
                np.concatenate([before[0], last[0]]),
                _together(before[1].schema, [before[1], last[1]]),
            )

    def take(self, now: int) -> list[pa.RecordBatch]:
        """Remove and return the rows with moments up to ``now``."""
        found = []
        for run in self._runs:
            end = int(np.searchsorted(run.moments, now, "right"))
            if end > run.start:
                found.append(run.rows.slice(run.start, end - run.start))
                run.start = end
        self._runs = [run for run in self._runs if len(run)]
        for run in self._runs:
            if run.start > len(run):
                # Free the rows that have been taken.
                moments, rows = run.left
                run.moments, run.start = moments.copy(), 0
                run.rows = rows.take(pa.array(np.arange(len(moments))))
        return found

    @property
    def next(self) -> int:
        """The least moment in the queue."""
        return min((int(run.moments[run.start]) for run in self._runs), default=_NEVER)

    @property
    def bytes(self) -> int:
        """Approximate bytes of the queue of rows in memory."""
        return sum(run.moments.nbytes + run.rows.nbytes for run in self._runs)

    def dump(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return all rows with their moments, for a checkpoint."""
        left = [run.left for run in self._runs]
        rows = _together(schema, [rows for _, rows in left])
        moments = np.concatenate([np.empty(0, np.int64), *(moments for moments, _ in left)])
        return rows.append_column(_MOMENT, pa.array(moments))

    def load(self, dumped: pa.RecordBatch) -> None:
        """Add the rows of a dump to the queue."""
        rows = dumped.drop_columns([_MOMENT])
        self.add(integers_of(dumped.column(_MOMENT)), rows)


class RollingRows:
    """The joined rows of one view that enter or leave it later.

    Args:
        columns: the columns of joined rows that the view reads.
    """

    def __init__(self, limits: Sequence[TimeLimit], columns: pa.Schema) -> None:
        self._limits = limits
        self.schema = columns.append(typed_field(WEIGHT, DataType(TypeKind.BIGINT)))
        self._kinds = {field.name: field_type(field) for field in self.schema}
        self._coming, self._leaving = _MomentQueue(), _MomentQueue()

    @property
    def next(self) -> int:
        """The next moment, in microseconds since 1970, at which a row enters or leaves the view."""
        return min(self._coming.next, self._leaving.next)

    @property
    def bytes(self) -> int:
        """Approximate bytes of the rows in memory."""
        return self._coming.bytes + self._leaving.bytes

    def apply(self, rows: pa.Table | None, now: int) -> pa.Table:
        """Add joined ``rows``, with weights if they have any. Return the changes of the rows that
        the view has at the time ``now``, as rows with weights."""
        found = [_negated(batch) for batch in self._leaving.take(now)]
        for batch in self._coming.take(now):
            ends, batch = integers_of(batch.column(_UNTIL)), batch.drop_columns([_UNTIL])
            found += self._shown(batch, ends, now)
        if rows is not None and rows.num_rows:
            batch = one_batch(rows)
            starts, ends = self._moments(batch)
            known = WEIGHT in batch.schema.names
            weights = None if known else pa.repeat(pa.scalar(1, pa.int64()), len(batch))
            given = batch.append_column(WEIGHT, weights) if weights is not None else batch
            inputs = Inputs(given, self._kinds)
            columns = [inputs.column(name) for name in self.schema.names]
            batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
            later = np.flatnonzero((starts > now) & (starts < ends))
            waiting = batch.take(pa.array(later)).append_column(_UNTIL, pa.array(ends[later]))
            self._coming.add(starts[later], waiting)
            come = np.flatnonzero(starts <= now)
            found += self._shown(batch.take(pa.array(come)), ends[come], now)
        return pa.Table.from_batches(found, schema=self.schema)

    def _shown(self, rows: pa.RecordBatch, ends: Ints, now: int) -> list[pa.RecordBatch]:
        """Return those ``rows`` that do not leave by ``now``, and queue them until they leave."""
        stay = np.flatnonzero(ends > now)
        rows, ends = rows.take(pa.array(stay)), ends[stay]
        leaving = np.flatnonzero(ends < _NEVER)
        self._leaving.add(ends[leaving], rows.take(pa.array(leaving)))
        return [rows]

    def _moments(self, rows: pa.RecordBatch) -> tuple[Ints, Ints]:
        """Return, per row, the moments at which it enters and leaves the view. A row with NULL in a
        limit never enters."""
        starts = np.full(len(rows), _ALWAYS)
        ends = np.full(len(rows), _NEVER)
        for limit in self._limits:
            column = rows.column(limit.column)
            # The limits are far beyond all batches' times, and keep sums within the range of
            # integers.
            times = np.clip(integers_of(column), -(1 << 61), 1 << 61) + limit.shift
            moments = _months(times, limit) if limit.months else _multiples(times, limit.unit)
            moments += limit.delay
            valid = present(column)
            if limit.until:
                ends = np.minimum(ends, moments)
            else:
                starts = np.maximum(starts, moments)
            if valid is not None:
                ends[~valid] = _ALWAYS
        return starts, ends

    def dump(self) -> list[pa.RecordBatch]:
        """Return the view's waiting rows, for a checkpoint."""
        coming = self.schema.append(pa.field(_UNTIL, pa.int64()))
        return [self._coming.dump(coming), self._leaving.dump(self.schema)]

    def load(self, dumped: Sequence[pa.RecordBatch]) -> None:
        """Restore the view's rows from a dump into this object, which must be new."""
        self._coming.load(dumped[0])
        self._leaving.load(dumped[1])


def _multiples(times: Ints, unit: int) -> Ints:
    """Return the first moments at or after ``times`` that are multiples of ``unit``."""
    return -(-times // unit) * unit


def _months(times: Ints, limit: TimeLimit) -> Ints:
    """Return the first beginnings of a period of ``limit.months`` months that, moved by
    ``limit.later`` months, are at or after ``times``."""
    before = (times - 1).view("datetime64[us]").astype("datetime64[M]").view(np.int64)
    found = _multiples(before + 1 - limit.later, limit.months)
    return found.view("datetime64[M]").astype("datetime64[us]").view(np.int64)


def _negated(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return ``rows`` with their weights negated (inserts become deletes)."""
    weights = pa.array(-integers_of(rows.column(WEIGHT)))
    return pa.RecordBatch.from_arrays([*rows.columns[:-1], weights], schema=rows.schema)


def _together(schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return one_batch(pa.Table.from_batches(batches, schema=schema))
