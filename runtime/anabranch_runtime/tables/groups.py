"""Maintained tables of groups: aggregates, HAVING, SELECT list, and their order with LIMIT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.expressions import Column, Output
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_contract.queries.views import COPY, View
from anabranch_runtime.columns.arrays import Bools, Ints
from anabranch_runtime.expressions.finishing import (
    KEPT,
    SORT,
    count_fields,
    finished,
    shown_schema,
)
from anabranch_runtime.tables.aggregates import GroupAggregates, totals_of
from anabranch_runtime.tables.inputs import Changes, Inputs, grouping_ids, grouping_keys, windows
from anabranch_runtime.tables.ordered import Ordered
from anabranch_runtime.tables.slots import Slots
from anabranch_runtime.tables.words import Texts, TupleField, TupleLayout, grown, plain_column

_BIGINT = DataType(TypeKind.BIGINT)
_NONE = np.empty(0, np.int64)
_NEVER = int(np.iinfo(np.int64).max)
#: Column with the number of a group's rows.
_COPIES = "anabranch_copies"
#: Entries of the metadata of a dump.
_FORGOTTEN, _BEGUN = "forgotten", "begun"


@dataclass(frozen=True, slots=True)
class _Update:
    """New state and rows of the groups that a batch changes, not yet in the table.

    Attributes:
        slots: the groups. ``state``: their new state rows.
        rows: their rows (``finishing.finished``).
        kept: mask of groups that are shown. ``words``, ``sorts``: their encoded rows and sort keys.
    """

    slots: Ints
    state: Ints
    rows: pa.RecordBatch
    kept: Bools
    words: Ints
    sorts: Ints


class GroupedTable:
    """The state of a grouped view without sessions."""

    def __init__(self, view: View, kinds: Mapping[str, DataType], *, deletes: bool) -> None:
        self.view = view
        self._kinds = kinds
        self.pool = Texts()
        self._changes = Changes(view)
        keys = [TupleField(kind) for _, kind in view.keys]
        window = 0 if view.window is None else view.window.edges
        keys += [TupleField(_BIGINT, nullable=False)] * (bool(view.sets) + window)
        # All rows form one group without keys, of one constant word.
        self._one_group = not keys
        self._keys = TupleLayout(keys or [TupleField(_BIGINT, nullable=False)], self.pool)
        self._slots = Slots(self._keys.width)
        # Rows move between sessions.
        deletes = deletes or (view.window is not None and view.window.session)
        self._aggregates = GroupAggregates(view.aggregates, kinds, self.pool, deletes=deletes)
        self._state = np.zeros((self._slots.room, self._aggregates.width), np.int64)
        self._start_outputs()
        self._present = np.zeros(self._slots.room, np.bool_)
        self._count = 0
        self._top = _NONE
        #: Whether changes have been returned; number of rows forgotten while present; lower limit
        #: of the ends of time windows.
        self._begun = not self._one_group
        self.forgotten = 0
        self._next_end = _NEVER
        if self._one_group:
            self._slots.find(np.zeros((1, 1), np.int64))

    def _start_outputs(self) -> None:
        view, shown = self.view, shown_schema(self.view)
        known = {Column("", name, kind): n for n, (name, kind) in enumerate(view.group_keys)}
        #: Output column -> grouping column whose value it is; others are in ``_shown``.
        self._copied: dict[str, int] = {}
        fields: list[TupleField] = []
        self._shown_names: list[str] = []
        for output in (*view.projection, *view.hidden):
            place = known.get(output.expr) if isinstance(output.expr, Column) else None
            if place is not None:
                self._copied[output.name] = place
            else:
                self._shown_names.append(output.name)
                fields.append(TupleField(output.expr.type, exact=True))
        for field in count_fields(view):
            self._shown_names.append(field.name)
            fields.append(TupleField(_BIGINT))
        self._names = [*shown.names, *(f.name for f in count_fields(view))]
        self._outputs = TupleLayout(fields, self.pool)
        self._shown = np.zeros((self._slots.room, self._outputs.width), np.int64)
        sorts = [TupleField(s.expr.type, s.descending, s.nulls_first) for s in view.order]
        # Groups equal in all sort keys are ordered by their identity, then their number.
        ties = [TupleField(kind) for _, kind in view.group_keys] if view.order or view.whole else []
        self._sorts = TupleLayout([*sorts, *ties], self.pool)
        self._order = np.zeros((self._slots.room, self._sorts.width), np.int64)
        number = TupleField(_BIGINT, nullable=False)
        self._ordered = Ordered(TupleLayout([*self._sorts.fields, number], self.pool))

    # --- updates ---------------------------------------------------------------------------------

    def apply(self, rows: Inputs, weights: Ints, version: int) -> pa.Table:
        """Add weighted rows; see :meth:`table.MaintainedTable.apply`."""
        return self._added(*self._repeated(rows, weights), version)

    def _added(self, rows: Inputs, weights: Ints, tuples: Ints, version: int) -> pa.Table:
        """Add weighted rows; ``tuples``: the words of each row's grouping keys."""
        slots, fresh = self._slots.find(tuples)
        self._make_room(fresh)
        touched, index = self._slots.distinct(slots)
        if self.view.totals:
            # Totals may change the rows of all groups.
            index = touched[index]
            touched = self._slots.all()
            index = np.searchsorted(touched, index)
        state = self._state[touched]
        try:
            self._aggregates.add(state, slots, index, rows, weights)
            update = self._updated(touched, state)
        except BaseException:
            self._aggregates.undo()
            self._slots.drop(fresh)
            raise
        self._aggregates.settle()
        return self._keep(update, version)

    def first_changes(self, version: int) -> pa.Table:
        """Return the row that aggregates without GROUP BY have without any input."""
        if not self._one_group:
            return self._changes.nothing()
        slots = self._slots.all()
        return self._keep(self._updated(slots, self._state[slots]), version)

    def _repeated(self, rows: Inputs, weights: Ints) -> tuple[Inputs, Ints, Ints]:
        """Return the rows, each once per window and grouping set, with weights and group keys."""
        view = self.view
        edges: tuple[Ints, ...] = ()
        if view.window is not None:
            column = view.window.column
            picked, *limits = windows(view.window, rows.integers(column), rows.valid(column))
            edges = tuple(limits[: view.window.edges])
            if len(picked) != len(rows) or view.window.shares_rows:
                rows, weights = rows.taken(picked), weights[picked]
        if self._one_group:
            return rows, weights, np.zeros((len(rows), 1), np.int64)
        keys = [rows.column(name) for name, _ in view.keys]
        if view.sets:
            many = len(view.sets)
            keys = grouping_keys(view, keys)
            keys.append(pa.array(np.repeat(np.array(grouping_ids(view), np.int64), len(rows))))
            rows = rows.taken(np.tile(np.arange(len(rows)), many))
            weights = np.tile(weights, many)
            edges = tuple(np.tile(edge, many) for edge in edges)
        keys += map(pa.array, edges)
        return rows, weights, self._keys.encode(keys)

    def _make_room(self, fresh: Ints) -> None:
        room = self._slots.room
        if len(self._state) < room:
            self._state = grown(self._state, room)
            self._shown = grown(self._shown, room)
            self._order = grown(self._order, room)
            present = np.zeros(room, np.bool_)
            present[: len(self._present)] = self._present
            self._present = present
        self._aggregates.make_room(room)
        self._state[fresh] = 0
        if self.view.window is not None and len(fresh):
            ends = self._limits(self._slots.words[fresh])[1]
            self._next_end = min(self._next_end, int(ends.min()))
        self._present[fresh] = False

    def _updated(self, slots: Ints, state: Ints) -> _Update:
        """Compute the rows of ``slots`` from their state rows.

        Raises:
            ExpressionError: an aggregate overflows, or an expression fails.
        """
        view = self.view
        keys = self._key_columns(slots)
        values = self._aggregates.values(state, slots)
        live = np.ones(len(slots), np.bool_) if self._one_group else state[:, 0] > 0
        names = [name for name, _ in view.group_keys] + [a.name for a in view.aggregates]
        columns = [*keys, *values]
        if not columns:
            names, columns = [""], [pa.nulls(len(slots))]
        groups = pa.RecordBatch.from_arrays(columns, names=names)
        totals = totals_of(view, groups, live) if view.totals else None
        rows = finished(view, groups, totals, live)
        kept = rows.column(KEPT).to_numpy(zero_copy_only=False)
        words = self._outputs.encode([rows.column(name) for name in self._shown_names])
        if not self._shown_names:
            words = np.zeros((len(slots), 0), np.int64)
        sorts = np.zeros((len(slots), 0), np.int64)
        if self._sorts.fields:
            found = [rows.column(SORT.format(n)) for n in range(len(view.order))]
            sorts = self._sorts.encode([*found, *keys])
        return _Update(slots, state, rows, kept, words, sorts)

    def _key_columns(self, slots: Ints) -> list[pa.Array]:
        if self._one_group:
            return []
        view, words = self.view, self._slots.words[slots]
        columns = self._keys.decode(words, 0, len(view.keys) + bool(view.sets))
        if view.window is not None:
            for moments in self._limits(words):
                columns.append(plain_column(moments, None, pa.timestamp("us", "UTC")))
        return columns

    def _limits(self, words: Ints) -> tuple[Ints, Ints]:
        """Return the starts and ends of groups' time windows, from the words of their keys."""
        assert self.view.window is not None
        if self.view.window.edges > 1:
            return words[:, -2], words[:, -1]
        return words[:, -1], words[:, -1] + self.view.window.length

    def _keep(self, update: _Update, version: int) -> pa.Table:
        """Keep an update, and return its changes."""
        slots, kept = update.slots, update.kept
        self._begun = True
        before = self._present[slots]
        differs = kept & (~before | (self._shown[slots] != update.words).any(axis=1))
        gone = before & ~kept
        self._state[slots] = update.state
        if self.view.limit is not None:
            moved = differs | gone | (kept & (self._order[slots] != update.sorts).any(axis=1))
            self._move(slots[moved & before], None)
        self._shown[slots] = update.words
        self._order[slots] = update.sorts
        self._present[slots] = kept
        self._count += int(kept.sum()) - int(before.sum())
        if self.view.limit is not None:
            self._move(None, slots[moved & kept])
            changes = self._of_top(slots[differs], version)
        elif differs.any() or gone.any():
            changes = self._changed(
                update.rows, np.flatnonzero(differs), np.flatnonzero(gone), version
            )
        else:
            changes = self._changes.nothing()
        self._drop_blank(update)
        return changes

    def _changed(
        self,
        rows: pa.RecordBatch,
        upserts: Ints,
        gone: Ints,
        version: int,
        numbers: Mapping[str, pa.Array] = MappingProxyType({}),
    ) -> pa.Table:
        identity = self.view.identity
        both = pa.array(np.concatenate([upserts, gone]) if len(gone) else upserts)
        some = pa.array(upserts)
        columns = {
            name: rows.column(name).take(both if name in identity else some)
            for name in shown_schema(self.view).names
        }
        return self._changes.table({**columns, **numbers}, len(upserts), len(gone), version)

    def _drop_blank(self, update: _Update) -> None:
        if self._one_group:
            return
        empty = update.state[:, 0] == 0
        if not empty.any():
            return
        slots = update.slots[empty]
        blank = self._aggregates.blank(update.state[empty], slots)
        self._slots.drop(slots[blank])

    # --- LIMIT -----------------------------------------------------------------------------------

    def _move(self, gone: Ints | None, come: Ints | None) -> None:
        """Remove groups from, or add groups to, the order of groups."""
        for slots, weight in ((gone, -1), (come, 1)):
            if slots is not None and len(slots):
                tuples = np.column_stack([self._order[slots], slots])
                zeros = np.zeros(len(slots), np.int64)
                self._ordered.add(zeros, tuples, np.full(len(slots), weight, np.int64))

    def _of_top(self, differing: Ints, version: int) -> pa.Table:
        """Return changes of the first groups (LIMIT): added, removed, or in ``differing``."""
        before, self._top = self._top, self._first(self.view.limit)
        changed = ~np.isin(self._top, before) | np.isin(self._top, differing)
        upserts = self._top[changed]
        gone = before[~np.isin(before, self._top)]
        if not len(upserts) and not len(gone):
            return self._changes.nothing()
        return self._changes.table(self._columns(upserts, gone), len(upserts), len(gone), version)

    def _first(self, limit: int | None) -> Ints:
        """Return the slots of the first groups after OFFSET, in order."""
        most = None if limit is None else self.view.offset + limit
        walk = self._ordered.walk(np.zeros(1, np.int64), most)
        slots: Ints = self._ordered.words[walk.nodes[self.view.offset :], -1]
        return slots

    def _columns(self, slots: Ints, gone: Ints = _NONE) -> dict[str, pa.Array]:
        """Return the output columns of ``slots``; identity columns also of ``gone``."""
        keys = self._key_columns(np.concatenate([slots, gone]))
        own = dict(zip(self._shown_names, self._outputs.decode(self._shown[slots]), strict=True))
        found = {}
        for name in self._names:
            if name in self._copied:
                column = keys[self._copied[name]]
                found[name] = column if name in self.view.identity else column[: len(slots)]
            else:
                found[name] = own[name]
        return found

    # --- forgetting and snapshots ----------------------------------------------------------------

    def forget(self, clock: int) -> None:
        """Drop groups whose time windows end at ``clock`` or before; see :mod:`table`."""
        window = self.view.window
        if window is None or self.view.whole or clock < self._next_end:
            return
        slots = self._slots.all()
        ends = self._limits(self._slots.words[slots])[1]
        over = slots[ends <= clock]
        self._next_end = int(ends[ends > clock].min(initial=_NEVER))
        if not len(over):
            return
        gone = int(self._present[over].sum())
        self._count -= gone
        self.forgotten += gone
        self._present[over] = False
        self._aggregates.clear(over)
        self._slots.drop(over)

    def dump(self) -> list[pa.RecordBatch]:
        """Return the state: groups, then the tuples of each collection."""
        slots = self._slots.all()
        keys = self._keys.decode(self._slots.words[slots])
        columns, collections = self._aggregates.dump(self._state[slots], slots)
        names = [*(f"k{n}" for n in range(len(keys))), *columns]
        noted = {_FORGOTTEN: str(self.forgotten), _BEGUN: str(int(self._begun))}
        groups = pa.RecordBatch.from_arrays([*keys, *columns.values()], names=names)
        return [groups.replace_schema_metadata(noted), *collections]

    def load(self, dumped: Sequence[pa.RecordBatch]) -> None:
        """Restore the state of a dump in a new table."""
        groups, *collections = dumped
        noted = groups.schema.metadata
        self.forgotten, begun = int(noted[_FORGOTTEN.encode()]), noted[_BEGUN.encode()] == b"1"
        columns = dict(zip(groups.schema.names, groups.columns, strict=True))
        keys = [columns[f"k{n}"] for n in range(len(self._keys.fields))]
        slots, fresh = self._slots.find(self._keys.encode(keys))
        self._make_room(fresh)
        self._state[slots] = self._aggregates.load(columns, collections, slots)
        if len(slots) and begun:
            self._keep(self._updated(slots, self._state[slots]), 0)

    # --- reading ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        if self.view.limit is None:
            return self._count
        return max(0, min(self._count - self.view.offset, self.view.limit))

    def rows(self, limit: int | None, *, counts: bool = False) -> pa.Table:
        """Return up to ``limit`` present rows in order; ``counts``: with the counts of averages."""
        if self.view.limit is not None:
            slots = self._top if limit is None else self._top[:limit]
        else:
            slots = np.flatnonzero(self._present & self._slots.alive)
            if self.view.order:
                tuples = np.column_stack([self._order[slots], slots])
                sorted_ = Ordered(self._ordered.layout)
                sorted_.add(np.zeros(len(slots), np.int64), tuples, np.ones(len(slots), np.int64))
                walk = sorted_.walk(np.zeros(1, np.int64), limit)
                slots = sorted_.words[walk.nodes, -1]
            elif limit is not None:
                slots = slots[:limit]
        columns = self._columns(slots)
        schema = shown_schema(self.view)
        if counts:
            schema = pa.schema([*schema, *count_fields(self.view)])
        arrays = [columns[f.name].cast(f.type) for f in schema]
        return pa.Table.from_arrays(arrays, schema=schema)

    @property
    def bytes(self) -> int:
        """Return the approximate size in memory."""
        arrays = (self._state, self._shown, self._order, self._present)
        others = (self.pool, self._slots, self._aggregates, self._ordered)
        return sum(a.nbytes for a in arrays) + sum(o.bytes for o in others)


class CopiedTable(GroupedTable):
    """The state of a grouped view with several rows per group (``View.copies``)."""

    def __init__(self, view: View, kinds: Mapping[str, DataType], *, deletes: bool) -> None:
        assert view.copies is not None
        own = (*view.projection, Output(_COPIES, view.copies))
        super().__init__(replace(view, copies=None, projection=own), kinds, deletes=deletes)
        self._changes = Changes(view)

    def _keep(self, update: _Update, version: int) -> pa.Table:
        slots = update.slots
        self._begun = True
        # Groups that are not shown have NULL as the number of their rows.
        before = _numbers(self._outputs.decode(self._shown[slots])[0], self._present[slots])
        after = _numbers(update.rows.column(_COPIES), update.kept)
        self._state[slots], self._shown[slots] = update.state, update.words
        self._order[slots], self._present[slots] = update.sorts, update.kept
        self._count += int((after - before).sum())
        come, first = _copies(after, before)
        gone, last = _copies(before, after)
        changes = self._changes.nothing()
        if len(come) or len(gone):
            numbers = {COPY: pa.array(np.concatenate([first, last]))}
            changes = self._changed(update.rows, come, gone, version, numbers)
        self._drop_blank(update)
        return changes

    def rows(self, limit: int | None, *, counts: bool = False) -> pa.Table:
        """Return up to ``limit`` present rows in order, numbered from 1 within each group."""
        groups = super().rows(limit, counts=counts)
        numbers = groups[_COPIES].to_numpy()
        picked, copies = _copies(numbers, np.zeros(len(numbers), np.int64))
        found = groups.drop_columns([_COPIES]).take(pa.array(picked[:limit]))
        return found.append_column(pa.field(COPY, pa.int64()), pa.array(copies[:limit]))


def _numbers(column: pa.Array, shown: Bools) -> Ints:
    """Return the number of rows of each group; 0 where a group is not ``shown``."""
    found: Ints = np.where(shown, column.fill_null(0).to_numpy(zero_copy_only=False), 0)
    return found


def _copies(many: Ints, few: Ints) -> tuple[Ints, Ints]:
    """Return the rows ``few[i] + 1`` to ``many[i]`` of each group ``i``: positions of the groups,
    and row numbers within them, from 1.
    """
    more = np.maximum(many - few, 0)
    groups = np.repeat(np.arange(len(more)), more)
    starts = np.repeat(np.cumsum(more) - more, more)
    return groups, few[groups] + np.arange(len(groups)) - starts + 1
