"""Groups of joined rows with session windows.

All rows of a session are kept, by group and time, as later rows may merge sessions, and deletes may
split them. A batch affects only sessions near its rows. If the limits of a session change, its rows
move to the new session; if not, only the batch's rows are added. In all other respects, sessions
are groups like others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_contract.queries.views import GroupingPrefix, ViewAggregate
from anabranch_runtime.columns.arrays import Bools, Ints
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.tables.groups import Earlier, Groups
from anabranch_runtime.tables.inputs import Inputs, grouping_ids, grouping_keys
from anabranch_runtime.tables.ordered import Ordered
from anabranch_runtime.tables.slots import Slots
from anabranch_runtime.tables.words import TupleField, TupleLayout, integers_of, texts_allowed

_TIME = TupleField(DataType(TypeKind.BIGINT), nullable=False)
_WEIGHT = "anabranch_weight"


class _Rows(NamedTuple):
    """Kept rows of session windows, by group and time, and the limits of their sessions."""

    slots: Ints
    tuples: Ints
    weights: Ints
    starts: Ints
    ends: Ints

    def some(self, mask: Bools) -> _Rows:
        """Return the kept rows for which ``mask`` is True."""
        return _Rows(*(part[mask] for part in self))

    @property
    def sessions(self) -> Ints:
        """Return the session of each row: slot of its group, start, end."""
        return np.column_stack([self.slots, self.starts, self.ends])


class _LastRows(NamedTuple):
    """The rows added last and their groups; the sessions before them, and the rows after them."""

    slots: Ints
    fresh: Ints
    tuples: Ints
    weights: Ints
    owners: Ints
    limits: Ints
    after: _Rows


class SessionGroups(Groups):
    """The groups of a prefix (grouping) that has session windows."""

    _key_name, subtracts = "v{}", False

    def __init__(
        self,
        prefix: GroupingPrefix,
        kinds: Mapping[str, DataType],
        aggregates: Iterable[ViewAggregate],
        *,
        deletes: bool,
    ) -> None:
        super().__init__(prefix, kinds, aggregates, deletes=deletes)
        assert prefix.window is not None
        self._gap, self._time = prefix.window.length, prefix.window.column
        keys = [TupleField(kind) for _, kind in prefix.keys]
        keys += [_TIME] * bool(prefix.sets)
        self._group = TupleLayout(keys, self.pool)
        self._groups = Slots(max(1, self._group.width))
        self._columns_kept = prefix.kept
        fields = [_TIME, *(TupleField(kinds[n]) for n in self._columns_kept)]
        #: Kept rows (time, columns), and sessions (start, end), of each group.
        self._rows = Ordered(TupleLayout(fields, self.pool))
        self._sessions = Ordered(TupleLayout([_TIME, _TIME], self.pool))
        #: The rows that were added last, and the sessions that they replace.
        self._last: _LastRows | None = None

    def begin(self, rows: Inputs, weights: Ints, version: int) -> None:
        """Add weighted rows, as :meth:`Groups.begin`."""
        self._move(*self._given(rows, weights))
        self.version, self._pending = version, list(self.readers)

    def _given(self, rows: Inputs, weights: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Return the rows with a time (slot of the group, words, weight), and new groups' slots."""
        prefix = self.prefix
        valid = rows.valid(self._time)
        if len(valid) and not valid.all():
            rows, weights = rows.taken(np.flatnonzero(valid)), weights[valid]
        many = max(1, len(prefix.sets))
        keys = [rows.column(name) for name, _ in prefix.keys]
        if prefix.sets:
            keys = grouping_keys(prefix, keys)
            keys.append(pa.array(np.repeat(np.array(grouping_ids(prefix), np.int64), len(rows))))
        words = self._group.encode(keys) if keys else np.zeros((len(rows), 1), np.int64)
        slots, fresh = self._groups.find(words)
        self._rows.make_room(self._groups.room)
        self._sessions.make_room(self._groups.room)
        times = pa.array(integers_of(rows.column(self._time)))
        tuples = self._rows.layout.encode([times, *(rows.column(n) for n in self._columns_kept)])
        return slots, fresh, np.tile(tuples, (many, 1)), np.tile(weights, many)

    def _move(self, slots: Ints, fresh: Ints, tuples: Ints, weights: Ints) -> None:
        points = np.unique(np.column_stack([slots, tuples[:, 0]]), axis=0)
        near, place = self._sessions.between(
            points[:, 0].copy(), points[:, 1] + 1, points[:, 1] + self._gap - 1, 1, 0
        )
        owners = points[place, 0]
        near, first = np.unique(near, return_index=True)
        limits, owners = self._sessions.words[near], owners[first]
        spans = self._spans(points, owners, limits)
        before = self._kept_rows(spans)
        changes = self._rows.add(slots, tuples, weights, changes=True)
        after = self._kept_rows(spans)
        added = self._difference(before, after, slots, tuples, changes)
        self._last = _LastRows(slots, fresh, tuples, weights, owners, limits, after)
        try:
            self._add(*self._as_rows(added))
        except BaseException:
            self._take_back()
            raise

    def undo(self) -> None:
        """Remove the rows that were added last, as :meth:`Groups.undo`."""
        super().undo()
        self._take_back()

    def _take_back(self) -> None:
        last, self._last = self._last, None
        assert last is not None
        self._rows.add(last.slots, last.tuples, -last.weights)
        self._groups.drop(last.fresh)

    def _settle(self) -> None:
        super()._settle()
        last, self._last = self._last, None
        assert last is not None
        ones = np.ones(len(last.owners), np.int64)
        self._sessions.add(last.owners, last.limits, -ones)
        now = np.unique(last.after.sessions, axis=0)
        self._sessions.add(now[:, 0].copy(), now[:, 1:].copy(), np.ones(len(now), np.int64))
        touched = np.unique(last.slots)
        self._groups.drop(touched[self._rows.empty(touched)])

    def _spans(self, points: Ints, owners: Ints, limits: Ints) -> Ints:
        """Return disjoint, ascending spans (slot, first time, last time) that contain all rows of
        sessions that may change: the old sessions (``owners``, ``limits``), and ``points``."""
        old = np.column_stack([owners, limits[:, 0], limits[:, 1] - self._gap])
        both = np.concatenate([old, np.column_stack([points, points[:, 1]])])
        is_point = np.arange(len(both)) >= len(old)
        order = np.lexsort((is_point, both[:, 1], both[:, 0]))
        both, is_point = both[order], is_point[order]
        last = np.maximum.accumulate(np.where(is_point, -1, np.arange(len(both))))
        inside = (both[last, 0] == both[:, 0]) & (both[:, 1] <= both[last, 2])
        spans: Ints = both[~(is_point & (last >= 0) & inside)]
        return spans

    def _kept_rows(self, spans: Ints) -> _Rows:
        """Return the kept rows in the ``spans`` of time, with their sessions."""
        owners, lows, highs = (spans[:, n].copy() for n in range(3))
        nodes, span = self._rows.between(owners, lows, highs)
        weights = self._rows.sizes[nodes, 0]
        nodes, span, weights = (part[weights > 0] for part in (nodes, span, weights))
        slots, tuples = spans[span, 0], self._rows.words[nodes]
        times = tuples[:, 0]
        begins = np.ones(len(nodes), np.bool_)
        begins[1:] = (slots[1:] != slots[:-1]) | (np.diff(times) >= self._gap)
        at = np.flatnonzero(begins)
        session = np.cumsum(begins) - 1
        ends = times[np.append(at[1:], len(times)) - 1] if len(times) else times
        return _Rows(slots, tuples, weights, times[at][session], ends[session] + self._gap)

    def _difference(
        self, before: _Rows, after: _Rows, slots: Ints, tuples: Ints, changes: Ints
    ) -> _Rows:
        """Return the weighted rows by which the sessions ``before`` turn into those ``after``."""
        # Equal sessions (slot, start, end) before and after the change get the same number.
        both = np.concatenate([before.sessions, after.sessions])
        _, numbers = np.unique(both, axis=0, return_inverse=True)
        numbers = numbers.reshape(-1)
        old, new = numbers[: len(before.slots)], numbers[len(before.slots) :]
        stays = np.intersect1d(old, new)
        gone = before.some(~np.isin(old, stays))
        come = after.some(~np.isin(new, stays))
        remaining = after.some(np.isin(new, stays))
        parts = [gone._replace(weights=-gone.weights), come]
        if len(remaining.slots):
            sessions = np.unique(remaining.sessions, axis=0)
            own = np.concatenate([sessions[:, :2], np.column_stack([slots, tuples[:, 0]])])
            is_row = np.arange(len(own)) >= len(sessions)
            order = np.lexsort((is_row, own[:, 1], own[:, 0]))
            last = np.maximum.accumulate(np.where(is_row[order], -1, order))
            place = np.empty(len(own), np.int64)
            place[order] = last
            place = place[len(sessions) :]
            at = sessions[place]
            inside = (place >= 0) & (at[:, 0] == slots) & (tuples[:, 0] < at[:, 2])
            inside &= changes != 0
            parts.append(_Rows(slots, tuples, changes, at[:, 1], at[:, 2]).some(inside))
        return _Rows(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def _as_rows(self, rows: _Rows) -> tuple[Inputs, Ints, Ints]:
        """Return kept rows as joined rows; their weights; the words of their sessions."""
        time, *columns = self._rows.layout.decode(rows.tuples)
        fields = [time.cast(arrow_type(self.kinds[self._time])), *columns]
        names = [self._time, *self._columns_kept]
        batch = pa.RecordBatch.from_arrays(fields, names=names)
        keys = self._groups.words[rows.slots][:, : self._group.width]
        words = np.column_stack([keys, rows.starts, rows.ends])
        return Inputs(batch, self.kinds), rows.weights, words

    # --- forgetting and snapshots ----------------------------------------------------------------

    def _forget(self, clock: int) -> None:
        groups = self._groups.all()
        high = np.full(len(groups), clock)
        over, place = self._sessions.between(groups, np.full(len(groups), -(2**62)), high, 0, 1)
        owners, limits = groups[place], self._sessions.words[over]
        super()._forget(clock)
        if not len(over):
            return
        nodes, span = self._rows.between(owners, limits[:, 0].copy(), limits[:, 1] - self._gap)
        self._rows.add(owners[span], self._rows.words[nodes], -self._rows.sizes[nodes, 0])
        self._sessions.add(owners, limits, np.full(len(over), -1))
        self._groups.drop(groups[self._rows.empty(groups)])

    def dump(
        self, aggregates: Sequence[ViewAggregate], clock: int, earlier: Earlier | None = None
    ) -> list[pa.RecordBatch]:
        """Return a dump of the rows of sessions, by group, with their weights."""
        groups = self._groups.all()
        walk = self._rows.walk(groups, everything=True)
        slots = np.repeat(groups, np.diff(walk.ends, prepend=0))
        keys = self._group.decode(self._groups.words[slots])
        columns = self._rows.layout.decode(self._rows.words[walk.nodes])
        arrays = [*keys, *columns, pa.array(self._rows.sizes[walk.nodes, 0])]
        names = [*map(self._key_name.format, range(len(arrays) - 1)), _WEIGHT]
        return [pa.RecordBatch.from_arrays(arrays, names=names)]

    def load(self, dumped: Sequence[pa.RecordBatch], aggregates: Sequence[ViewAggregate]) -> None:
        """Restore the rows of sessions from a dump, unless there are rows already."""
        (batch,) = dumped
        if not batch.num_rows or len(self._rows):
            return
        *columns, weights = batch.columns
        keys = len(self._group.fields)
        words = np.zeros((batch.num_rows, 1), np.int64)
        if keys:
            words = self._group.encode(columns[:keys])
        slots, fresh = self._groups.find(words)
        self._rows.make_room(self._groups.room)
        self._sessions.make_room(self._groups.room)
        tuples = self._rows.layout.encode(columns[keys:])
        self._move(slots, fresh, tuples, np.array(weights, np.int64))
        self._end()
        self._most_texts = texts_allowed(self.pool.size)

    def _equal(self, other: Groups) -> bool:
        """Whether ``other`` groups have equal kept rows of sessions."""
        ours, theirs = (_sorted(*one.dump((), 0)) for one in (self, other))
        return bool(ours.equals(theirs))

    @property
    def bytes(self) -> int:
        """Approximate bytes of the groups and session rows in memory."""
        return super().bytes + self._groups.bytes + self._rows.bytes + self._sessions.bytes


def _sorted(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.sort_by([(name, "ascending") for name in rows.schema.names])
