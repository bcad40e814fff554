"""Merges of stored changes: where a tuple and its delete cancel.

Results are right without it; with it a store does not grow with updates. A pair may cancel only if
nothing ever reads one of the two without the other. Readers see rows by ranges of batches: of
stores, of gaps of intermediate results, of visibility. So a pair cancels if no such range begins or
ends between the arrivals of the two, and not while a backfill or a catch-up reads stored rows piece
by piece. Ranges that begin later begin after both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from anabranch_runtime.state.manifest import State
from anabranch_runtime.storage.segment import Merge, Segment

#: Stream of changes -> first batches of ranges that readers of its rows distinguish, sorted.
Boundaries: TypeAlias = Mapping[str, tuple[int, ...]]


def boundaries(state: State) -> Boundaries:
    """Return the boundaries of each stream of changes; empty while none of them may cancel."""
    changing = {n for n, s in state.streams.items() if s.spec is not None and s.spec.has_changes}
    if not changing or state.debt.batches:
        return {}
    if any(store.backfill is not None for store in state.stores.values()):
        return {}
    visible = {
        seen.batch
        for query in state.queries.values()
        if query.expired_batch is None
        for seen in query.visible_from.values()
    }
    found = {name: set(visible) for name in changing}
    for store in state.stores.values():
        ends = {b for first, last in store.intervals for b in (first, last + 1)}
        if store.open_since is not None:
            ends.add(store.open_since)
        for name in changing.intersection(store.streams):
            found[name] |= ends
    return {name: tuple(sorted(ends)) for name, ends in found.items()}


def still_right(used: Boundaries, now: Boundaries, merge: Merge, merged: Segment) -> bool:
    """Whether a ``merge`` by the boundaries ``used`` is right by the present ones."""
    streams = now.keys() & used.keys()
    last = max(s.last_batch for s in merge.segments)
    return merged.rows == sum(s.rows for s in merge.segments) or (
        bool(streams) and all(b > last or b in used[n] for n in streams for b in now[n])
    )
