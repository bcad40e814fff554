"""Maintained tables of groups: aggregates, HAVING, SELECT list, and their order with LIMIT."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.expressions import Column, Output
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_contract.queries.views import COPY, GroupingPrefix, View, renamed
from anabranch_runtime.columns.arrays import Bools, Ints
from anabranch_runtime.expressions.finishing import KEPT, SORT, Finisher, count_fields, shown_schema
from anabranch_runtime.tables.aggregates import totals_of
from anabranch_runtime.tables.groups import Earlier, Groups, Touched
from anabranch_runtime.tables.inputs import Changes, Inputs
from anabranch_runtime.tables.ordered import Ordered
from anabranch_runtime.tables.sessions import SessionGroups
from anabranch_runtime.tables.words import TupleField, TupleLayout, grown

_BIGINT = DataType(TypeKind.BIGINT)
_NONE = np.empty(0, np.int64)
_NOTHING_FORGOTTEN = int(np.iinfo(np.int64).min)
#: Column with the number of rows of a group (``View.copies``).
_COPIES = "anabranch_copies"
#: Keys in the metadata of a dump (checkpoint of a table).
_FORGOTTEN, _BEGUN = "forgotten", "begun"


@dataclass(frozen=True, slots=True)
class _Update:
    """The new rows of groups that a batch changes, before they are in the table.

    Attributes:
        slots: the groups.
        rows: their rows (``finishing.Finisher``).
        kept: mask of groups that are shown. ``words``, ``sorts``: their encoded rows and sort keys.
    """

    slots: Ints
    rows: pa.RecordBatch
    kept: Bools
    words: Ints
    sorts: Ints


class GroupedTable:
    """The rows of a grouped view, over groups that other views may read, too.

    Args:
        kinds: types of the columns that the view reads. ``names``: their names in the prefix
            (grouping) of its groups.

    Attributes:
        forgotten: number of present rows that were dropped as their time windows had ended.
        earlier: sums in its groups over rows that the view has not had; None: none are.
    """

    def __init__(
        self, view: View, kinds: Mapping[str, DataType], names: Mapping[str, str], *, deletes: bool
    ) -> None:
        self.view = view
        self.kinds = {names[name]: kind for name, kind in kinds.items()}
        self.aggregates = [renamed(a, names) for a in view.aggregates]
        self.clock = _NOTHING_FORGOTTEN
        self.forgotten = 0
        self.earlier: Earlier | None = None
        self._changes = Changes(view)
        prefix = GroupingPrefix.of(view, names)
        is_session = view.window is not None and view.window.session
        kind = SessionGroups if is_session else Groups
        self.groups = kind(prefix, self.kinds, self.aggregates, deletes=deletes)
        known = [name for name, _ in prefix.keys]
        #: Position of each grouping column of the view among the key columns of the groups.
        self._places = [known.index(names[name]) for name, _ in view.keys]
        self._places += range(len(known), len(known) + len(view.group_keys) - len(view.keys))
        self._fields: list[TupleField] = []
        self._read_outputs()
        #: Whether the first changes of the view have been returned.
        self._begun = not self.groups.is_one
        self.bind(self.groups)

    def _read_outputs(self) -> None:
        view, shown = self.view, shown_schema(self.view)
        known = {Column("", name, kind): n for n, (name, kind) in enumerate(view.group_keys)}
        #: Output column -> grouping column that it copies; other columns are in ``_shown``.
        self._copied: dict[str, int] = {}
        self._shown_names: list[str] = []
        for output in (*view.projection, *view.hidden):
            place = known.get(output.expr) if isinstance(output.expr, Column) else None
            if place is not None:
                self._copied[output.name] = place
            else:
                self._shown_names.append(output.name)
                self._fields.append(TupleField(output.expr.type, exact=True))
        for field in count_fields(view):
            self._shown_names.append(field.name)
            self._fields.append(TupleField(_BIGINT))
        self._names = [*shown.names, *(f.name for f in count_fields(view))]
        #: Names of the columns of upserts; a delete has only the columns of the identity.
        self._listed = list(shown.names)
        self._identity = [name for name in view.identity if name in self._listed]
        self._finished = Finisher(view)

    def bind(self, groups: Groups, earlier: Earlier | None = None) -> None:
        """Read ``groups`` from now on, whose contents (without ``earlier`` rows) are the same."""
        if self.groups is not groups:
            self.groups.leave(self)
        self.groups, self.earlier = groups, earlier
        if self not in groups.readers:
            groups.readers.append(self)
        view = self.view
        self._outputs = TupleLayout(self._fields, groups.pool)
        self._shown = np.zeros((groups.room, self._outputs.width), np.int64)
        sorts = [TupleField(s.expr.type, s.descending, s.nulls_first) for s in view.order]
        # Groups with equal sort keys are ordered by their identity, then by their number.
        ties = [TupleField(kind) for _, kind in view.group_keys] if view.order or view.whole else []
        self._sorts = TupleLayout([*sorts, *ties], groups.pool)
        self._order = np.zeros((groups.room, self._sorts.width), np.int64)
        number = TupleField(_BIGINT, nullable=False)
        self._ordered = Ordered(TupleLayout([*self._sorts.fields, number], groups.pool))
        self._present = np.zeros(groups.room, np.bool_)
        self._count = 0
        self._top = _NONE
        if self._begun and len(groups):
            self._keep(self._updated(groups.after(self.clock, earlier)), 0)

    # --- updates ---------------------------------------------------------------------------------

    def awaits(self, version: int) -> bool:
        """Whether another view has already added the rows of ``version`` to common groups."""
        return self.groups.awaits(self, version)

    def apply(self, rows: Inputs, weights: Ints, version: int) -> pa.Table:
        """Add weighted rows to closed groups; see :meth:`table.MaintainedTable.apply`."""
        began = time.thread_time()
        self.groups.begin(rows, weights, version)
        self.groups.seconds = time.thread_time() - began
        return self.changes(version)

    def changes(self, version: int) -> pa.Table:
        """Return the changes of the view's rows that the rows added last have caused."""
        groups = self.groups
        try:
            # If a total of the view changes, the rows of all groups may change.
            totals = bool(self.view.totals)
            some = groups.everything if totals else groups.touched
            update = self._updated(some(self.earlier))
        except BaseException:
            if groups.is_shared:
                groups.leave(self)
            else:
                groups.undo()
            raise
        changes = self._keep(update, version)
        groups.read(self)
        return changes

    def first_changes(self, version: int) -> pa.Table:
        """Return the single row that aggregates without GROUP BY have even if there is no input."""
        if not self.groups.is_one:
            return self._changes.nothing()
        return self._keep(self._updated(self.groups.everything(self.earlier)), version)

    def _make_room(self) -> None:
        room = self.groups.room
        if len(self._present) < room:
            self._shown = grown(self._shown, room)
            self._order = grown(self._order, room)
            present = np.zeros(room, np.bool_)
            present[: len(self._present)] = self._present
            self._present = present

    def _updated(self, touched: Touched) -> _Update:
        """Compute the view's rows for some groups.

        Raises:
            ExpressionError: an aggregate overflows, or an expression fails.
        """
        view, slots = self.view, touched.slots
        keys = self._ordered_keys(self.groups.keys(touched))
        values = self.groups.values(touched, self.aggregates)
        is_one = self.groups.is_one
        live = np.ones(len(slots), np.bool_) if is_one else touched.state[:, 0] > 0
        names = [name for name, _ in view.group_keys] + [a.name for a in view.aggregates]
        columns = [*keys, *values]
        if not columns:
            names, columns = [""], [pa.nulls(len(slots))]
        groups = pa.RecordBatch.from_arrays(columns, names=names)
        totals = totals_of(view, groups, live) if view.totals else None
        rows = self._finished(groups, totals, live)
        kept = rows.column(KEPT).to_numpy(zero_copy_only=False)
        words = self._outputs.encode([rows.column(name) for name in self._shown_names])
        if not self._shown_names:
            words = np.zeros((len(slots), 0), np.int64)
        sorts = np.zeros((len(slots), 0), np.int64)
        if self._sorts.fields:
            found = [rows.column(SORT.format(n)) for n in range(len(view.order))]
            sorts = self._sorts.encode([*found, *keys])
        return _Update(slots, rows, kept, words, sorts)

    def _ordered_keys(self, keys: list[pa.Array]) -> list[pa.Array]:
        """Return the groups' keys in the order of the view's grouping columns."""
        return [keys[place] for place in self._places]

    def _keep(self, update: _Update, version: int) -> pa.Table:
        """Put the new rows of groups into the table, and return the changes."""
        slots, kept = update.slots, update.kept
        self._begun = True
        self._make_room()
        before = self._present[slots]
        differs = kept & (~before | (self._shown[slots] != update.words).any(axis=1))
        gone = before & ~kept
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
        return changes

    def _changed(
        self,
        rows: pa.RecordBatch,
        upserts: Ints,
        gone: Ints,
        version: int,
        numbers: Mapping[str, pa.Array] = MappingProxyType({}),
    ) -> pa.Table:
        shown = rows.select(self._listed)
        if not np.array_equal(upserts, np.arange(rows.num_rows)):
            shown = shown.take(pa.array(upserts))
        columns = dict(zip(self._listed, shown.columns, strict=True))
        if len(gone):
            both = pa.array(np.concatenate([upserts, gone]))
            columns |= {name: rows.column(name).take(both) for name in self._identity}
        return self._changes.table({**columns, **numbers}, len(upserts), len(gone), version)

    # --- LIMIT -----------------------------------------------------------------------------------

    def _move(self, gone: Ints | None, come: Ints | None) -> None:
        """Remove groups ``gone`` from the order of groups, or add groups ``come`` to it."""
        for slots, weight in ((gone, -1), (come, 1)):
            if slots is not None and len(slots):
                tuples = np.column_stack([self._order[slots], slots])
                zeros = np.zeros(len(slots), np.int64)
                self._ordered.add(zeros, tuples, np.full(len(slots), weight, np.int64))

    def _of_top(self, differing: Ints, version: int) -> pa.Table:
        """Return changes of the first groups (LIMIT): new, removed, or among ``differing``."""
        before, self._top = self._top, self._first(self.view.limit)
        changed = ~np.isin(self._top, before) | np.isin(self._top, differing)
        upserts = self._top[changed]
        gone = before[~np.isin(before, self._top)]
        if not len(upserts) and not len(gone):
            return self._changes.nothing()
        return self._changes.table(self._columns(upserts, gone), len(upserts), len(gone), version)

    def _first(self, limit: int | None) -> Ints:
        """Return the slots of the first ``limit`` groups after OFFSET, in the view's order."""
        most = None if limit is None else self.view.offset + limit
        walk = self._ordered.walk(np.zeros(1, np.int64), most)
        slots: Ints = self._ordered.words[walk.nodes[self.view.offset :], -1]
        return slots

    def _columns(self, slots: Ints, gone: Ints = _NONE) -> dict[str, pa.Array]:
        """Return the output columns of groups ``slots``, then the identity columns of ``gone``."""
        keys = self._ordered_keys(self.groups.keys_of(np.concatenate([slots, gone])))
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
        """Drop groups whose time windows end at ``clock`` or before, as :mod:`table` describes."""
        if self.view.window is None or self.view.whole or clock <= self.clock:
            return
        self.groups.close()
        over = self.groups.ended(clock)
        over = over[over < len(self._present)]
        gone = int(self._present[over].sum())
        self._count -= gone
        self.forgotten += gone
        self._present[over] = False
        self.clock = clock
        self.groups.forget()

    def dump(self) -> list[pa.RecordBatch]:
        """Return the table's state for a checkpoint: groups, then each collection's tuples."""
        groups, *collections = self.groups.dump(self.aggregates, self.clock, self.earlier)
        noted = {_FORGOTTEN: str(self.forgotten), _BEGUN: str(int(self._begun))}
        order = self._places[: len(self.view.keys)]
        own = self.groups.reordered(groups, order).replace_schema_metadata(noted)
        return [own, *collections]

    def load(self, dumped: Sequence[pa.RecordBatch]) -> None:
        """Restore the state in a dump; this table must be new."""
        groups, *collections = dumped
        noted = groups.schema.metadata
        self.forgotten = int(noted[_FORGOTTEN.encode()])
        self._begun = noted.get(_BEGUN.encode(), b"1") == b"1"
        order = np.argsort(self._places[: len(self.view.keys)]).tolist()
        own = [self.groups.reordered(groups, order), *collections]
        self.groups.load(own, self.aggregates)
        self.bind(self.groups)

    # --- reading ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        if self.view.limit is None:
            return self._count
        return max(0, min(self._count - self.view.offset, self.view.limit))

    def rows(self, limit: int | None, *, counts: bool = False) -> pa.Table:
        """Return up to ``limit`` present rows in order; ``counts``: include counts of averages."""
        if self.view.limit is not None:
            slots = self._top if limit is None else self._top[:limit]
        else:
            slots = np.flatnonzero(self._present)
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
        """Return the approximate bytes of the table in memory."""
        arrays = (self._shown, self._order, self._present)
        return sum(a.nbytes for a in arrays) + self._ordered.bytes + self.groups.bytes


class CopiedTable(GroupedTable):
    """The rows of a grouped view with several rows per group (``View.copies``)."""

    def __init__(
        self, view: View, kinds: Mapping[str, DataType], names: Mapping[str, str], *, deletes: bool
    ) -> None:
        assert view.copies is not None
        own = (*view.projection, Output(_COPIES, view.copies))
        super().__init__(replace(view, copies=None, projection=own), kinds, names, deletes=deletes)
        self._changes = Changes(view)

    def _keep(self, update: _Update, version: int) -> pa.Table:
        slots = update.slots
        self._begun = True
        self._make_room()
        # Groups that are not shown have NULL instead of a number of copies.
        before = _numbers(self._outputs.decode(self._shown[slots])[0], self._present[slots])
        after = _numbers(update.rows.column(_COPIES), update.kept)
        self._shown[slots], self._order[slots] = update.words, update.sorts
        self._present[slots] = update.kept
        self._count += int((after - before).sum())
        come, first = _copies(after, before)
        gone, last = _copies(before, after)
        changes = self._changes.nothing()
        if len(come) or len(gone):
            numbers = {COPY: pa.array(np.concatenate([first, last]))}
            changes = self._changed(update.rows, come, gone, version, numbers)
        return changes

    def rows(self, limit: int | None, *, counts: bool = False) -> pa.Table:
        """Return up to ``limit`` present rows in order; copies are numbered from 1 by group."""
        groups = super().rows(limit, counts=counts)
        numbers = groups[_COPIES].to_numpy()
        picked, copies = _copies(numbers, np.zeros(len(numbers), np.int64))
        found = groups.drop_columns([_COPIES]).take(pa.array(picked[:limit]))
        return found.append_column(pa.field(COPY, pa.int64()), pa.array(copies[:limit]))


def _numbers(column: pa.Array, shown: Bools) -> Ints:
    """Return the number of copies in each group; 0 where a group is not ``shown``."""
    found: Ints = np.where(shown, column.fill_null(0).to_numpy(zero_copy_only=False), 0)
    return found


def _copies(many: Ints, few: Ints) -> tuple[Ints, Ints]:
    """Return the copies ``few[i] + 1`` to ``many[i]`` of each group ``i``: the group's position,
    and the copy's number in the group, from 1."""
    more = np.maximum(many - few, 0)
    groups = np.repeat(np.arange(len(more)), more)
    starts = np.repeat(np.cumsum(more) - more, more)
    return groups, few[groups] + np.arange(len(groups)) - starts + 1
