"""What may be dropped, and what is worth merging. Pure functions over the state.

A stored tuple of alias ``i`` is of no more use to a query once every alias ``j`` whose tuples may
still arrive is too late for it: ``tau_i < watermark_j - D_ij`` for all ``j``, where ``D`` is the
closed bound matrix. A segment is dropped when all its rows are of no use to any active query; what
has been dropped is remembered, so that a later query is not promised it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch_runtime.context import Merge
from anabranch_runtime.state.access import relation_tiles
from anabranch_runtime.state.lifecycle import serves

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from anabranch_planner.ruleset import QuerySpec, Ruleset
    from anabranch_runtime.context import Access
    from anabranch_runtime.state.manifest import State, StoreState
    from anabranch_runtime.state.segment import Segment

#: Segments of one level that become one of the next.
FANOUT = 6


def watermarks(state: State) -> dict[str, int]:
    """Stream -> watermark, for streams where something can be late."""
    marks = {name: stream.watermark() for name, stream in state.streams.items()}
    return {name: mark for name, mark in marks.items() if mark is not None}


def horizons(ruleset: Ruleset, marks: Mapping[str, int]) -> dict[tuple[str, str], int | None]:
    """(query, label) -> event time below which its tuples are of no more use; None: never."""
    streams = {r.id: r.stream for r in ruleset.relations}
    found: dict[tuple[str, str], int | None] = {}
    for query in ruleset.queries:
        for i, (_, label, _) in enumerate(query.members):
            limits: list[int | None] = []
            for j, (_, _, other) in enumerate(query.members):
                if i == j:
                    continue
                mark, bound = marks.get(streams[other]), query.retention[i][j]
                limits.append(None if mark is None or bound is None else mark - bound)
            finite = [x for x in limits if x is not None]
            found[query.id, label] = min(finite) if limits and len(finite) == len(limits) else None
    return found


def expire(state: State, ruleset: Ruleset) -> State:
    """``state`` less the segments that no active query can use any more."""
    limits = horizons(ruleset, watermarks(state))
    if all(t is None for t in limits.values()):
        return state
    stores = {name: _expire_store(store, ruleset, limits) for name, store in state.stores.items()}
    return replace(state, stores=stores)


def _expire_store(
    store: StoreState, ruleset: Ruleset, limits: Mapping[tuple[str, str], int | None]
) -> StoreState:
    thresholds = [
        _least(limits[user] for user in _users(store, ruleset.queries, ruleset, at))
        for at in range(len(store.streams))
    ]
    kept: list[Segment] = []
    below = list(store.expired_below)
    for segment in store.segments:
        dead = [
            at
            for at, (limit, newest) in enumerate(zip(thresholds, segment.tau_max, strict=True))
            if limit is not None and newest is not None and newest < limit
        ]
        if not dead:
            kept.append(segment)
            continue
        for at, newest in enumerate(segment.tau_max):
            if newest is not None:
                known = below[at]
                below[at] = newest + 1 if known is None else max(known, newest + 1)
    if len(kept) == len(store.segments):
        return store
    return replace(store, segments=tuple(kept), expired_below=tuple(below))


def _users(
    store: StoreState, queries: Iterable[QuerySpec], ruleset: Ruleset, at: int
) -> list[tuple[str, str]]:
    """(query, label) pairs that read member ``at`` of ``store``."""
    relations = {r.id: r for r in ruleset.relations}
    found: list[tuple[str, str]] = []
    for query in queries:
        if store.is_base:
            found += [
                (query.id, label)
                for _, label, relation in query.members
                if serves(store, relations[relation])
            ]
        elif set(store.spec["members"]) <= {label for _, label, _ in query.members}:
            found.append((query.id, store.spec["members"][at]))
    return found


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
    return replace(state, stores={n: s for n, s in state.stores.items() if n in used})


def merges(state: State, ruleset: Ruleset) -> tuple[Merge, ...]:
    """Groups of ``FANOUT`` segments of one level, oldest first, smallest levels first."""
    found: list[Merge] = []
    for spec in ruleset.stores:
        store = state.stores[spec.id]
        groups: dict[tuple[int, int], list[Segment]] = {}
        for segment in store.segments:
            groups.setdefault((segment.level, segment.partition), []).append(segment)
        for _, segments in sorted(groups.items()):
            if len(segments) >= FANOUT:
                found.append(Merge(tuple(segments[:FANOUT])))
    return tuple(sorted(found, key=lambda m: -sum(s.rows for s in m.segments)))
