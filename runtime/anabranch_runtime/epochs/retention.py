"""Dropping stored rows that no query needs. Pure functions over the state.

A stored tuple of alias ``i`` is not needed by a query once every alias ``j`` whose tuples may
still arrive is too late for it: ``tau_i < watermark_j - D_ij`` for all ``j``, where ``D`` is the
closed bound matrix. A segment is dropped when no active query needs any of its rows; what
has been dropped is remembered, so that a later query is not promised it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from anabranch_runtime.epochs.access import relation_tiles
from anabranch_runtime.epochs.lifecycle import serves

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from anabranch_contract.plans.ruleset import QuerySpec, Ruleset
    from anabranch_contract.queries.joins import Relation
    from anabranch_runtime.state.coverage import Access
    from anabranch_runtime.state.manifest import State, StoreState
    from anabranch_runtime.storage.segment import Segment

#: Per member of a store, a time in microseconds; None: no limit.
Limits: TypeAlias = "tuple[int | None, ...]"


def watermarks(state: State) -> dict[str, int]:
    """Stream -> watermark, for streams where something can be late."""
    marks = {name: stream.watermark() for name, stream in state.streams.items()}
    return {name: mark for name, mark in marks.items() if mark is not None}


def clocks(state: State) -> dict[str, int]:
    """Stream -> the time by which rows expire and windows of views close: its watermark, or that of
    the oldest batch that is still owed, what was needed then being needed again.
    """
    found = watermarks(state)
    for owed in state.debt.withheld:
        known = owed.watermarks
        found = {name: min(mark, known[name]) for name, mark in found.items() if name in known}
    return found


def horizons(
    ruleset: Ruleset, marks: Mapping[str, int], past: Collection[str] = ()
) -> dict[tuple[str, str], int | None]:
    """(query, label) -> event time below which its tuples are not needed; None: none.

    Args:
        past: the queries that results of the past are owed to: they need all that they see.
    """
    streams = {r.id: r.stream for r in ruleset.relations}
    found: dict[tuple[str, str], int | None] = {}
    for query in _joins(ruleset):
        for i, (_, label, _) in enumerate(query.members):
            limits: list[int | None] = []
            for j, (_, _, other) in enumerate(query.members):
                if i == j:
                    continue
                mark, bound = marks.get(streams[other]), query.retention[i][j]
                limits.append(None if mark is None or bound is None else mark - bound)
            finite = [x for x in limits if x is not None]
            known = len(finite) == len(limits) and query.id not in past
            found[query.id, label] = min(finite) if known else None
    return found


def _joins(ruleset: Ruleset) -> list[QuerySpec]:
    """The queries that need stored rows: a row of one stream by itself is a result at once."""
    return [query for query in ruleset.queries if len(query.members) > 1]


def expire(state: State, ruleset: Ruleset) -> State:
    """``state`` less the segments that no active query can use any more."""
    needed = needed_from(state, ruleset)
    if needed is None:
        return state
    # What arrived since then may be what is owed, though nothing that arrives later needs it.
    owed = min((one.first for one in state.debt.withheld), default=state.next_batch)
    stores = {n: _expire_store(store, needed(store), owed) for n, store in state.stores.items()}
    return replace(state, stores=stores)


def needed_from(state: State, ruleset: Ruleset) -> Callable[[StoreState], Limits] | None:
    """Store -> per member, the event time below which nobody needs its rows. None: all are needed
    for ever.
    """
    limits = horizons(ruleset, clocks(state), state.debt.past)
    if all(t is None for t in limits.values()):
        return None
    return _readers(ruleset, limits).thresholds


def _expire_store(store: StoreState, thresholds: Limits, before: int) -> StoreState:
    """``store`` less segments of batches ``before`` one that nobody needs."""

    def dead(segment: Segment) -> bool:
        return segment.last_batch < before and any(
            limit is not None and newest is not None and newest < limit
            for limit, newest in zip(thresholds, segment.tau_max, strict=True)
        )

    backfill = store.backfill
    pending = () if backfill is None else backfill.segments
    gone = [segment for segment in (*store.segments, *pending) if dead(segment)]
    if not gone:
        return store
    below = list(store.expired_below)
    for segment in gone:
        for at, newest in enumerate(segment.tau_max):
            if newest is not None:
                known = below[at]
                below[at] = newest + 1 if known is None else max(known, newest + 1)
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
    """Who reads what: the event times from which readers need rows (None: all rows).

    Attributes:
        relations: each relation with what labels over it need.
        queries: set of labels -> per label what the queries with exactly these labels need.
    """

    relations: tuple[tuple[Relation, tuple[int | None, ...]], ...]
    queries: dict[frozenset[str], dict[str, list[int | None]]]

    def thresholds(self, store: StoreState) -> Limits:
        """Per member of ``store``, the event time below which nobody needs rows."""
        if store.is_base:
            served = (limits for r, limits in self.relations if serves(store, r))
            return (_least(itertools.chain.from_iterable(served)),)
        members = store.spec.members
        wanted = frozenset(members)
        users = [needs for labels, needs in self.queries.items() if wanted <= labels]
        return tuple(_least(itertools.chain.from_iterable(n[m] for n in users)) for m in members)


def _readers(ruleset: Ruleset, limits: Mapping[tuple[str, str], int | None]) -> _Readers:
    relations: dict[str, list[int | None]] = {r.id: [] for r in ruleset.relations}
    queries: dict[frozenset[str], dict[str, list[int | None]]] = {}
    for query in _joins(ruleset):
        labels = frozenset(label for _, label, _ in query.members)
        needs = queries.setdefault(labels, {label: [] for label in labels})
        for _, label, relation in query.members:
            relations[relation].append(limits[query.id, label])
            needs[label].append(limits[query.id, label])
    return _Readers(tuple((r, tuple(relations[r.id])) for r in ruleset.relations), queries)


def _least(limits: Iterable[int | None]) -> int | None:
    """The smallest limit; None if any is unlimited, or where nobody reads."""
    known = list(limits)
    finite = [x for x in known if x is not None]
    return min(finite) if finite and len(finite) == len(known) else None


def drop_unused(state: State, ruleset: Ruleset, access: Mapping[str, Access]) -> State:
    """``state`` less the stores that no rule probes and no plan could come to need: kept are the
    epoch's own, those that answer a probe, and per relation of an active query one tiling.
    """
    used: set[str] = {s.id for s in ruleset.stores}
    tiles = [t for one in access.values() for t in one.tiles]
    tiles += [t for one in access.values() for filled in one.fill for t in filled]
    for relation in ruleset.relations:
        tiles += relation_tiles(state, relation, (0, state.next_batch))
    used |= {t.store for t in tiles}
    used |= {
        source.store
        for store in state.stores.values()
        if store.backfill is not None
        for source in store.backfill.sources
    }
    used |= {source.store for source in state.debt.sources}
    return state.with_stores({n: s for n, s in state.stores.items() if n in used})
