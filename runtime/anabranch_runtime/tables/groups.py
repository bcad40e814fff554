"""Groups of joined rows with their aggregates, shared by views with equal grouping of equal rows.

The state of a group is a row of accumulators, one for each aggregate that some view reads. An
accumulator depends only on the rows, not on other accumulators. So each view reads the same values
as it would from groups of its own. Views that begin later or continue after a failure have separate
groups until they get the same rows as others. Then they read common groups if both are equal
(:meth:`Groups.agrees`), or if their aggregates are sums, from which the rows that they have not had
are subtracted (:class:`Earlier`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_contract.queries.views import GroupingPrefix, ViewAggregate
from anabranch_runtime.columns.arrays import Ints
from anabranch_runtime.tables.aggregates import GroupAggregates
from anabranch_runtime.tables.inputs import Inputs, grouping_ids, grouping_keys, windows
from anabranch_runtime.tables.slots import Slots
from anabranch_runtime.tables.words import (
    Texts,
    TupleField,
    TupleLayout,
    grown,
    plain_column,
    texts_allowed,
)

_BIGINT = DataType(TypeKind.BIGINT)
_NEVER = int(np.iinfo(np.int64).max)


class GroupReader(Protocol):
    """A view's rows, computed from the groups that it reads."""

    @property
    def aggregates(self) -> Sequence[ViewAggregate]:
        """Aggregates, over columns of joined rows, that the view reads from the groups."""

    @property
    def kinds(self) -> Mapping[str, DataType]:
        """Types of the columns of joined rows that the view reads."""

    @property
    def clock(self) -> int:
        """Time up to which the view has dropped groups, by the ends of their time windows."""

    @property
    def groups(self) -> Groups:
        """The groups that the view reads."""

    @property
    def earlier(self) -> Earlier | None:
        """Sums, included in the groups, over rows that the view has not had; None: no such rows."""

    def bind(self, groups: Groups, earlier: Earlier | None = None) -> None:
        """Read ``groups`` from now on, whose contents (without ``earlier`` rows) are the same."""


@dataclass(slots=True, eq=False)
class Earlier:
    """Sums over rows that some readers of common groups have not had, because they began later.

    Attributes:
        state: the sums by slot, as state rows; greater slots have no such rows.
    """

    state: Ints

    def of(self, slots: Ints) -> Ints:
        """Return the sums of the groups ``slots`` as state rows."""
        found = np.zeros((len(slots), self.state.shape[1]), np.int64)
        known = slots < len(self.state)
        found[known] = self.state[slots[known]]
        return found

    def drop(self, slots: Ints) -> None:
        """Drop the sums of the groups ``slots``."""
        self.state[slots[slots < len(self.state)]] = 0


@dataclass(slots=True)
class Touched:
    """Groups that rows have changed, and their columns, which several views read.

    Attributes:
        slots: the groups. ``state``: their state rows.
        fresh, before: slots of new groups, and state rows before the last rows were added.
        later: per readers' :class:`Earlier` rows, the same groups without these rows.
    """

    slots: Ints
    state: Ints
    fresh: Ints
    before: Ints
    keys: list[pa.Array] | None = None
    values: dict[ViewAggregate, pa.Array] = field(default_factory=dict)
    later: dict[Earlier, Touched] = field(default_factory=dict)


class Groups:
    """The groups of one prefix (grouping) over the same joined rows.

    Args:
        kinds: types of the columns of joined rows. ``deletes``: whether rows may be deleted.

    Attributes:
        columns: the columns of joined rows that are read.
        readers: the views that read the groups. ``version``: version of the rows added last.
    """

    #: Name of key columns in a dump; whether rows that a reader has not had can be subtracted.
    _key_name, subtracts = "k{}", True

    def __init__(
        self,
        prefix: GroupingPrefix,
        kinds: Mapping[str, DataType],
        aggregates: Iterable[ViewAggregate],
        *,
        deletes: bool,
    ) -> None:
        self.prefix, self.kinds, self.deletes = prefix, dict(kinds), deletes
        self.pool = Texts()
        keys = [TupleField(kind) for _, kind in prefix.keys]
        edges = 0 if prefix.window is None else prefix.window.edges
        keys += [TupleField(_BIGINT, nullable=False)] * (bool(prefix.sets) + edges)
        # All rows form one group without keys, of one constant word.
        self.is_one = not keys
        self._keys = TupleLayout(keys or [TupleField(_BIGINT, nullable=False)], self.pool)
        self._slots = Slots(self._keys.width)
        # Session windows may change; then rows are deleted from one group and added to another.
        moves = prefix.window is not None and prefix.window.session
        self.aggregates = tuple(dict.fromkeys(aggregates))
        self._parts = GroupAggregates(self.aggregates, kinds, self.pool, deletes=deletes or moves)
        self._state = np.zeros((self._slots.room, self._parts.width), np.int64)
        window = [] if prefix.window is None else [prefix.window.column]
        read = [c for a in self.aggregates for c in a.reads]
        self.columns = list(dict.fromkeys([*(n for n, _ in prefix.keys), *window, *read]))
        self.readers: list[GroupReader] = []
        self.version = -1
        #: CPU seconds that it has taken to add the last rows.
        self.seconds = 0.0
        #: Groups changed by the last rows, until all readers have read them; readers still to come.
        self._touched: Touched | None = None
        self._pending: list[GroupReader] = []
        #: Whether a reader has left, so that some aggregates may be read by no view.
        self._wider = False
        #: Lower bound of the ends of the present groups' time windows.
        self._next_end = _NEVER
        self._most_texts = texts_allowed(self.pool.size)
        if self.is_one:
            self._slots.find(np.zeros((1, 1), np.int64))

    @property
    def room(self) -> int:
        """Number of slots for which arrays by slot must have space."""
        return self._slots.room

    @property
    def is_shared(self) -> bool:
        """Whether several views read the groups."""
        return len(self.readers) > 1

    def __len__(self) -> int:
        return len(self._slots)

    # --- rows ------------------------------------------------------------------------------------

    def begin(self, rows: Inputs, weights: Ints, version: int) -> None:
        """Add a version's weighted rows to the groups; all readers then read the changed groups."""
        self._add(*self._repeated(rows, weights))
        self.version, self._pending = version, list(self.readers)

    def _add(self, rows: Inputs, weights: Ints, tuples: Ints) -> None:
        """Add weighted rows to the groups; ``tuples``: words of each row's grouping keys."""
        slots, fresh = self._slots.find(tuples)
        self._make_room(fresh)
        touched, index = self._slots.distinct(slots)
        state = self._state[touched]
        before = state.copy()
        try:
            self._parts.add(state, slots, index, rows, weights)
        except BaseException:
            self._parts.undo()
            self._slots.drop(fresh)
            raise
        self._state[touched] = state
        self._touched = Touched(touched, state, fresh, before)

    def undo(self) -> None:
        """Remove the rows that were added last from the groups."""
        touched, self._touched, self._pending = self._touched, None, []
        assert touched is not None
        self._parts.undo()
        self._state[touched.slots] = touched.before
        self._slots.drop(touched.fresh)

    def touched(self, earlier: Earlier | None = None) -> Touched:
        """Return the groups that the last rows changed, with ``earlier`` rows subtracted."""
        assert self._touched is not None
        found = self._touched
        if earlier is None:
            return found
        known = found.later.get(earlier)
        if known is None:
            state = self._without(earlier, found.slots, found.state)
            keys = self.keys(found)
            known = Touched(found.slots, state, found.fresh, found.before, keys)
            found.later[earlier] = known
        return known

    def everything(self, earlier: Earlier | None = None) -> Touched:
        """Return all groups, with ``earlier`` rows subtracted."""
        return self._some(self._slots.all(), earlier)

    def after(self, clock: int, earlier: Earlier | None = None) -> Touched:
        """Return the groups whose windows end after ``clock``, with ``earlier`` rows subtracted."""
        slots = self._slots.all()
        if self.prefix.window is not None:
            slots = slots[self._limits(self._slots.words[slots])[1] > clock]
        return self._some(slots, earlier)

    def _some(self, slots: Ints, earlier: Earlier | None) -> Touched:
        state = self._state[slots]
        if earlier is not None:
            state = self._without(earlier, slots, state)
            if not self.is_one:
                known = state.any(axis=1)
                slots, state = slots[known], state[known]
        return Touched(slots, state, slots[:0], state)

    def _without(self, earlier: Earlier, slots: Ints, state: Ints) -> Ints:
        """Return state rows from which the sums over ``earlier`` rows are subtracted."""
        found = state.copy()
        self._parts.subtract(found, earlier.of(slots))
        return found

    @property
    def _earlier(self) -> list[Earlier]:
        """Return the different :class:`Earlier` rows of the readers."""
        return list(dict.fromkeys(r.earlier for r in self.readers if r.earlier is not None))

    def awaits(self, reader: GroupReader, version: int) -> bool:
        """Whether another reader has already added the rows of ``version``, for all readers."""
        return self.version == version and any(one is reader for one in self._pending)

    def read(self, reader: GroupReader) -> None:
        """Record that ``reader`` has read the last rows' groups; the last reader closes them."""
        self._pending = [one for one in self._pending if one is not reader]
        if not self._pending:
            self.close()

    def close(self) -> None:
        """Close the version of the last rows, after which readers may be bound to other groups."""
        self._end()
        count, used = self.pool.size
        if self._wider or count > self._most_texts[0] or used > self._most_texts[1]:
            # Drop aggregates and texts that are not used any more, to free memory.
            rebuild([self], self.readers)

    def _end(self) -> None:
        """Make the last rows permanent: they can't be undone any more."""
        touched, self._touched = self._touched, None
        self._pending = []
        if touched is not None:
            self._settle()
            self._drop_blank(touched)

    def _settle(self) -> None:
        self._parts.settle()

    def _drop_blank(self, touched: Touched) -> None:
        if self.is_one:
            return
        empty = touched.state[:, 0] == 0
        if empty.any():
            slots = touched.slots[empty]
            blank = self._parts.blank(touched.state[empty], slots)
            for earlier in self._earlier:
                blank &= ~earlier.of(slots).any(axis=1)
            self._slots.drop(slots[blank])

    def _repeated(self, rows: Inputs, weights: Ints) -> tuple[Inputs, Ints, Ints]:
        """Repeat the rows per window and grouping set; return rows, weights, and words of keys."""
        prefix = self.prefix
        edges: tuple[Ints, ...] = ()
        if prefix.window is not None:
            column = prefix.window.column
            picked, *limits = windows(prefix.window, rows.integers(column), rows.valid(column))
            edges = tuple(limits[: prefix.window.edges])
            if len(picked) != len(rows) or prefix.window.shares_rows:
                rows, weights = rows.taken(picked), weights[picked]
        if self.is_one:
            return rows, weights, np.zeros((len(rows), 1), np.int64)
        keys = [rows.column(name) for name, _ in prefix.keys]
        if prefix.sets:
            many = len(prefix.sets)
            keys = grouping_keys(prefix, keys)
            keys.append(pa.array(np.repeat(np.array(grouping_ids(prefix), np.int64), len(rows))))
            rows = rows.taken(np.tile(np.arange(len(rows)), many))
            weights = np.tile(weights, many)
            edges = tuple(np.tile(edge, many) for edge in edges)
        keys += map(pa.array, edges)
        return rows, weights, self._keys.encode(keys)

    def _make_room(self, fresh: Ints) -> None:
        room = self._slots.room
        if len(self._state) < room:
            self._state = grown(self._state, room)
        self._parts.make_room(room)
        self._state[fresh] = 0
        if self.prefix.window is not None and len(fresh):
            ends = self._limits(self._slots.words[fresh])[1]
            self._next_end = min(self._next_end, int(ends.min()))

    # --- columns ---------------------------------------------------------------------------------

    def values(self, touched: Touched, aggregates: Sequence[ViewAggregate]) -> list[pa.Array]:
        """Return a column of groups' values per aggregate, computed once for all readers.

        Raises:
            ExpressionError: a sum does not fit its type.
        """
        known = touched.values
        for one in aggregates:
            if one not in known:
                known[one] = self._parts.value(one, touched.state, touched.slots)
        return [known[one] for one in aggregates]

    def keys(self, touched: Touched) -> list[pa.Array]:
        """Return the key columns of changed groups: ``prefix.keys``, grouping id, window limits."""
        if touched.keys is None:
            touched.keys = self.keys_of(touched.slots)
        return touched.keys

    def keys_of(self, slots: Ints) -> list[pa.Array]:
        """Return the key columns of the groups ``slots``, as :meth:`keys`."""
        if self.is_one:
            return []
        prefix, words = self.prefix, self._slots.words[slots]
        columns = self._keys.decode(words, 0, len(prefix.keys) + bool(prefix.sets))
        if prefix.window is not None:
            for moments in self._limits(words):
                columns.append(plain_column(moments, None, pa.timestamp("us", "UTC")))
        return columns

    def _limits(self, words: Ints) -> tuple[Ints, Ints]:
        """Return the starts and ends of groups' time windows, from the words of their keys."""
        assert self.prefix.window is not None
        if self.prefix.window.edges > 1:
            return words[:, -2], words[:, -1]
        return words[:, -1], words[:, -1] + self.prefix.window.length

    # --- forgetting ------------------------------------------------------------------------------

    def ended(self, clock: int) -> Ints:
        """Return the groups whose time windows end at ``clock`` or before."""
        if self.prefix.window is None or clock < self._next_end:
            return np.empty(0, np.int64)
        slots = self._slots.all()
        return slots[self._limits(self._slots.words[slots])[1] <= clock]

    def forget(self) -> None:
        """Drop the groups that all readers have dropped, as their time windows have ended."""
        clock = min(reader.clock for reader in self.readers)
        if clock >= self._next_end:
            self._forget(clock)

    def _forget(self, clock: int) -> None:
        over = self.ended(clock)
        self._parts.clear(over)
        self._slots.drop(over)
        for earlier in self._earlier:
            earlier.drop(over)
        left = self._slots.all()
        ends = self._limits(self._slots.words[left])[1]
        self._next_end = int(ends.min(initial=_NEVER))

    # --- copies ----------------------------------------------------------------------------------

    def dump(
        self, aggregates: Sequence[ViewAggregate], clock: int, earlier: Earlier | None = None
    ) -> list[pa.RecordBatch]:
        """Return a dump: groups whose windows end after ``clock``, with some aggregates,
        ``earlier`` rows subtracted: keys and state rows, then the tuples of each collection."""
        return self._dumped(self.after(clock, earlier), aggregates)

    def _dumped(self, some: Touched, aggregates: Sequence[ViewAggregate]) -> list[pa.RecordBatch]:
        keys = self._keys.decode(self._slots.words[some.slots])
        layout = self._parts.layout(aggregates)
        columns, collections = self._parts.dump(some.state, some.slots, layout)
        names = [*map(self._key_name.format, range(len(keys))), *columns]
        groups = pa.RecordBatch.from_arrays([*keys, *columns.values()], names=names)
        return [groups, *collections]

    def reordered(self, dumped: pa.RecordBatch, order: Sequence[int]) -> pa.RecordBatch:
        """Return the first batch of a dump with its first grouping keys in another ``order``."""
        names = [self._key_name.format(n) for n in range(len(order))]
        columns = dict(zip(dumped.schema.names, dumped.columns, strict=True))
        moved = columns | {n: columns[names[place]] for n, place in zip(names, order, strict=True)}
        return pa.RecordBatch.from_arrays(list(moved.values()), names=list(moved))

    def load(self, dumped: Sequence[pa.RecordBatch], aggregates: Sequence[ViewAggregate]) -> None:
        """Restore some aggregates of the groups from a dump with these aggregates."""
        groups, *collections = dumped
        columns, slots, _ = self._entered(groups)
        state = self._state[slots]
        self._parts.load(columns, collections, slots, self._parts.layout(aggregates), state)
        self._state[slots] = state
        if not self.is_one:
            zero = slots[state[:, 0] == 0]
            self._slots.drop(zero[self._parts.blank(self._state[zero], zero)])
        self._most_texts = texts_allowed(self.pool.size)

    def _entered(self, dumped: pa.RecordBatch) -> tuple[dict[str, pa.Array], Ints, Ints]:
        """Return a dump's columns, and its groups' slots, which are added if they are new."""
        columns = dict(zip(dumped.schema.names, dumped.columns, strict=True))
        keys = [columns[self._key_name.format(n)] for n in range(len(self._keys.fields))]
        slots, fresh = self._slots.find(self._keys.encode(keys))
        self._make_room(fresh)
        return columns, slots, fresh

    def _beyond(
        self, dumped: Sequence[pa.RecordBatch], aggregates: Sequence[ViewAggregate]
    ) -> Earlier | None:
        """Return the sums of the groups beyond a dump of ``aggregates``, which are all sums; None:
        there is no difference. Groups that only the dump has are added."""
        columns, slots, fresh = self._entered(dumped[0])
        own = np.zeros_like(self._state)
        rows = own[slots]
        self._parts.load(columns, (), slots, self._parts.layout(aggregates), rows)
        own[slots] = rows
        found = self._state.copy()
        self._parts.subtract(found, own)
        found[:, ~self._parts.words(aggregates)] = 0
        found[~self._slots.alive[: len(found)]] = 0
        if not self.is_one:
            self._slots.drop(fresh[~found[fresh].any(axis=1)])
        return Earlier(found) if found.any() else None

    def attach(self, readers: Sequence[GroupReader]) -> None:
        """Let ``readers`` of other groups read these groups, which have all their aggregates, and
        get the same rows from now on; rows that the readers have not had are subtracted."""
        known: dict[tuple[int, Earlier | None], Earlier | None] = {}
        clock = min((reader.clock for reader in readers), default=_NEVER)
        for reader in readers:
            groups, key = reader.groups, (id(reader.groups), reader.earlier)
            if key not in known:
                own = [a for a in groups.aggregates if a.is_linear and a in self.aggregates]
                known[key] = self._beyond(groups.dump(own, clock, reader.earlier), own)
            reader.bind(self, known[key])

    @property
    def rounds(self) -> bool:
        """Whether some group has a float sum that is rounded."""
        return self._parts.rounds(self._state[self._slots.all()])

    def agrees(self, other: Groups) -> bool:
        """Whether ``other`` has the same groups, with equal states of all aggregates of both."""
        self._end()
        other._end()
        if self.prefix != other.prefix or len(self) != len(other) or self.deletes != other.deletes:
            return False
        return self._equal(other)

    def _equal(self, other: Groups) -> bool:
        common = [a for a in self.aggregates if a in other.aggregates]
        theirs = other.everything()
        keys = other._keys.decode(other._slots.words[theirs.slots])
        slots, fresh = self._slots.find(self._keys.encode(keys))
        if len(fresh):
            self._make_room(fresh)
            self._slots.drop(fresh)
            return False
        state = self._state[slots]
        ours = Touched(slots, state, slots[:0], state)
        pairs = zip(self._dumped(ours, common), other._dumped(theirs, common), strict=True)
        return all(one.equals(another) for one, another in pairs)

    def made(self, readers: Sequence[GroupReader]) -> Groups:
        """Return empty groups with the same prefix (grouping) for ``readers``."""
        kinds = {name: kind for reader in readers for name, kind in reader.kinds.items()}
        read = (a for reader in readers for a in reader.aggregates)
        return type(self)(self.prefix, kinds, read, deletes=self.deletes)

    def leave(self, reader: GroupReader) -> None:
        """Remove ``reader``; the next rows drop aggregates that no other view reads."""
        self.readers = [one for one in self.readers if one is not reader]
        self._pending = [one for one in self._pending if one is not reader]
        self._wider = True

    @property
    def bytes(self) -> int:
        """Return the approximate bytes of the groups in memory."""
        others = (self.pool, self._slots, self._parts)
        states = [self._state, *(earlier.state for earlier in self._earlier)]
        return sum(s.nbytes for s in states) + sum(o.bytes for o in others)


def rebuild(sources: Sequence[Groups], readers: Sequence[GroupReader]) -> None:
    """Make new groups for ``readers``, with the contents of ``sources``, which agree.

    The new groups have all aggregates of the readers. For readers of other groups than ``sources``,
    rows that they have not had are subtracted (:meth:`Groups.attach`).
    """
    if not readers:
        return
    found = sources[0].made(readers)
    clock = min(reader.clock for reader in readers)
    own = [reader for reader in readers if any(reader.groups is one for one in sources)]
    first = None
    if len(sources) == 1 and all(reader.earlier is not None for reader in own):
        # No reader needs the rows that came before the first of them began.
        first = own[0].earlier
    for source in sources:
        some = [a for a in source.aggregates if a in found.aggregates]
        found.load(source.dump(some, clock, first), some)
    same = [reader for reader in own if reader.earlier is first]
    found.attach([reader for reader in readers if not any(reader is one for one in same)])
    for reader in same:
        reader.bind(found)
