"""Dropping stored rows that no query needs. Pure functions over the state.

A stored tuple of alias ``i`` is not needed by a query once tuples of any alias ``j`` that may still
arrive are too late for it: ``tau_i < watermark_j - D_ij``, where ``tau`` is event time and ``D_ij``
bounds ``tau_j - tau_i``. A segment is dropped when no active query needs any of its rows; the
expiry is recorded, so that a later query's visible past does not include expired rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from anabranch_contract.plans.ruleset import QuerySpec, Ruleset
from anabranch_runtime.epochs.access import Generations, relation_tiles
from anabranch_runtime.epochs.lookups import unprobed
from anabranch_runtime.epochs.per_ruleset import per_ruleset
from anabranch_runtime.state.coverage import Access
from anabranch_runtime.state.manifest import State, StoreState
from anabranch_runtime.storage.segment import Segment
from anabranch_runtime.traced import changed

#: Per member of a store, an event time or duration in microseconds, or None (no limit).
Limits: TypeAlias = "tuple[int | None, ...]"


def watermarks(state: State) -> dict[str, int]:
    """Return stream -> watermark, for the streams in ``state`` that have one."""
    marks = {name: stream.watermark() for name, stream in state.streams.items()}
    return {name: mark for name, mark in marks.items() if mark is not None}


def clocks(state: State) -> dict[str, int]:
    """Return stream -> event time by which rows expire and windows close: the watermark, but in
    case of debt that of the oldest batch with results still owed, for which rows are needed again.
    """
    found = watermarks(state)
    for owed in state.debt.withheld:
        known = owed.watermarks
        found = {name: min(mark, known[name]) for name, mark in found.items() if name in known}
    return found


@dataclass(frozen=True, slots=True)
class _Need:
    """The rows that readers still need, by event time.

    Attributes:
        behind: stream -> microseconds. Rows that are at most this far behind the clock of one of
            the streams are needed; empty: no rows are needed.
        always: whether all rows are needed.
    """

    behind: Mapping[str, int]
    always: bool = False

    def at(self, marks: Mapping[str, int]) -> int | None:
        """Return the event time below which no row is needed; None: unknown, or all are needed."""
        if self.always or any(stream not in marks for stream in self.behind):
            return None
        return min((marks[stream] - bound for stream, bound in self.behind.items()), default=None)


def _together(needs: Iterable[_Need]) -> _Need:
    """Return the rows that at least one of several queries needs."""
    behind: dict[str, int] = {}
    for need in needs:
        if need.always:
            return need
        for stream, bound in need.behind.items():
            behind[stream] = max(bound, behind.get(stream, bound))
    return _Need(behind)


_ALL = _Need({}, always=True)


def _needs(query: QuerySpec, streams: Mapping[str, str]) -> list[_Need]:
    """Compute which stored rows ``query`` needs, per member; ``streams``: relation -> stream. Rows
    are not needed for later tuples that are only looked up."""
    found = []
    waits_for = query.completing
    for i, bounds in enumerate(query.retention):
        others = [(streams[query.members[j][2]], bounds[j]) for j in waits_for if j != i]
        if any(bound is None for _, bound in others):
            found.append(_ALL)
        else:
            found.append(
                _together(_Need({stream: bound}) for stream, bound in others if bound is not None)
            )
    return found


@dataclass(slots=True)
class _Expired:
    """Result of the last expiry under a ruleset: its clocks, and store -> the store afterwards with
    the streams by whose clocks its rows expire."""

    marks: Mapping[str, int] = field(default_factory=dict)
    stores: dict[str, tuple[StoreState, frozenset[str]]] = field(default_factory=dict)


@per_ruleset
def _expired(_: Ruleset) -> _Expired:
    return _Expired()


def expire(state: State, ruleset: Ruleset) -> State:
    """Return ``state`` without the stored segments that no active query needs any more.

    While no results are owed, only stores are examined that have changed, or whose streams' clocks
    have, since the last call.
    """
    marks, past, last = clocks(state), frozenset(state.debt.past), _expired(ruleset)
    if not marks:
        return state
    known = _readers(ruleset, past)
    # A catch-up may still need rows of batches with results still owed, and of all later batches.
    owed = min((one.first for one in state.debt.withheld), default=state.next_batch)
    if past or state.debt.withheld:
        last.stores.clear()
    moved = {s for s in marks.keys() | last.marks.keys() if marks.get(s) != last.marks.get(s)}
    stores = dict[str, StoreState]()
    for name, store in state.stores.items():
        before = last.stores.get(name)
        if before is not None and before[0] is store and moved.isdisjoint(before[1]):
            continue
        needs = known.needs(store)
        left = _expire_store(store, tuple(need.at(marks) for need in needs), owed)
        if left is not store:
            stores[name] = left
        if not (past or state.debt.withheld):
            last.stores[name] = left, frozenset(s for need in needs for s in need.behind)
    if len(last.stores) > len(state.stores):
        last.stores = {name: one for name, one in last.stores.items() if name in state.stores}
    last.marks = marks
    return replace(state, stores=changed(state.stores, stores)) if stores else state


def needed_from(state: State, ruleset: Ruleset) -> Callable[[StoreState], Limits] | None:
    """Return a function from a store to the event times, per member, below which no query needs its
    rows; None if all rows of all stores are needed."""
    marks, past = clocks(state), frozenset(state.debt.past)
    if not marks:
        return None
    known = _readers(ruleset, past)
    return lambda store: tuple(need.at(marks) for need in known.needs(store))


def _expire_store(store: StoreState, thresholds: Limits, before: int) -> StoreState:
    """Return ``store`` without unneeded segments of batches earlier than ``before``."""
    known = [(at, limit) for at, limit in enumerate(thresholds) if limit is not None]
    if not known:
        return store

    def dead(segment: Segment) -> bool:
        if segment.last_batch >= before:
            return False
        newest = segment.tau_max
        return any((tau := newest[at]) is not None and tau < limit for at, limit in known)

    backfill, pending = store.backfill, store.pending
    gone = [segment for segment in (*store.segments, *pending) if dead(segment)]
    if not gone:
        return store
    below = list(store.expired_below)
    for segment in gone:
        for at, newest in enumerate(segment.tau_max):
            if newest is not None:
                last = below[at]
                below[at] = newest + 1 if last is None else max(last, newest + 1)
    if backfill is not None:
        backfill = replace(backfill, segments=tuple(s for s in pending if not dead(s)))
    return replace(
        store,
        segments=tuple(s for s in store.segments if not dead(s)),
        expired_below=tuple(below),
        backfill=backfill,
    )


@dataclass(frozen=True, slots=True)
class _Readers:
    """Index over a ruleset's queries, to find the rows of a store that they need.

    Attributes:
        relations: stream -> its relations: (filter conjuncts, needed rows of all aliases over it).
        retained: retained stream -> rows needed for later queries.
        queries: set of labels (aliases) -> label -> rows needed by the queries over these labels.
        known: cached needs of stores, which depend on the store's definition only.
    """

    relations: Mapping[str, Sequence[tuple[frozenset[str], _Need]]]
    queries: Mapping[frozenset[str], Mapping[str, _Need]]
    retained: Mapping[str, _Need]
    known: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple[_Need, ...]]

    def needs(self, store: StoreState) -> tuple[_Need, ...]:
        """Return, per member of ``store``, which of its rows are needed."""
        key = (store.streams, store.filter if store.is_base else store.spec.members)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._of_base(store) if store.is_base else self._of(store)
        return found

    def _of_base(self, store: StoreState) -> tuple[_Need, ...]:
        stream = store.streams[0]
        relations = self.relations.get(stream, ())
        # Relations whose filters imply the store's filter read the store (``lifecycle.serves``).
        needs = [need for texts, need in relations if texts.issuperset(store.filter)]
        # A query registered later may read this store instead of the retained stream's own store,
        # so its rows are kept as long.
        own = self.retained.get(stream)
        return (_together(needs if own is None else [own, *needs]),)

    def _of(self, store: StoreState) -> tuple[_Need, ...]:
        members = store.spec.members
        wanted = frozenset(members)
        users = [needs for labels, needs in self.queries.items() if wanted <= labels]
        return tuple(_together(needs[member] for needs in users) for member in members)


def _readers(ruleset: Ruleset, past: Collection[str]) -> _Readers:
    # Queries whose owed results are from before their activation need all visible rows.
    return _of_readers(ruleset, past) if past else _usual_readers(ruleset)


@per_ruleset
def _usual_readers(ruleset: Ruleset) -> _Readers:
    return _of_readers(ruleset, frozenset())


def _of_readers(ruleset: Ruleset, past: Collection[str]) -> _Readers:
    streams: dict[str, str] = {r.id: r.stream for r in ruleset.relations}
    relations: dict[str, list[_Need]] = {r.id: [] for r in ruleset.relations}
    queries: dict[frozenset[str], dict[str, list[_Need]]] = {}
    # Of queries that need the same rows, one is examined: thousands may read a shared store.
    different = {
        (query.members, query.retention, query.looked_up, query.id in past): query
        for query in ruleset.queries
        if len(query.members) > 1
    }
    for query in different.values():
        labels = frozenset(label for _, label, _ in query.members)
        by_label = queries.setdefault(labels, {label: [] for label in labels})
        needs = _needs(query, streams)
        for (_, label, relation), own in zip(query.members, needs, strict=True):
            need = _ALL if query.id in past else own
            relations[relation].append(need)
            by_label[label].append(need)
    by_stream: dict[str, list[tuple[frozenset[str], _Need]]] = defaultdict(list)
    for known in ruleset.relations:
        texts = frozenset(str(f) for f in known.filter)
        by_stream[known.stream].append((texts, _together(relations[known.id])))
    return _Readers(
        by_stream,
        {
            labels: {label: _together(needs) for label, needs in by_label.items()}
            for labels, by_label in queries.items()
        },
        {
            stream.name: _ALL if stream.retain is None else _Need({stream.name: stream.retain})
            for stream in ruleset.streams
            if stream.is_retained
        },
        {},
    )


def drop_unused(state: State, ruleset: Ruleset, access: Mapping[str, Access]) -> State:
    """Return ``state`` without the stores that neither a rule nor a later plan can need.

    The following are kept: the ruleset's stores, stores that its probes read, stores that cover the
    past of relations of active queries, and inputs of backfills and catch-ups.
    """
    used: set[str] = {s.id for s in ruleset.stores}
    tiles = [t for one in access.values() for t in one.tiles]
    tiles += [t for one in access.values() for filled in one.fill for t in filled]
    generations, ignored = Generations(state), unprobed(ruleset)
    for relation in ruleset.relations:
        if relation.id in ignored:
            continue
        tiles += relation_tiles(state, relation, (0, state.next_batch), generations=generations)
    used |= {t.store for t in tiles}
    used |= {
        source.store
        for store in state.stores.values()
        if store.backfill is not None
        for source in store.backfill.sources
    }
    used |= {source.store for source in state.debt.sources}
    return state.with_stores({n: s for n, s in state.stores.items() if n in used})
