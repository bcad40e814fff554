"""Cancellation of stored changes in merges: a tuple and its later delete are both dropped.

Results don't depend on it; without it, stores would grow with every update. A tuple and its delete
may cancel only if no reader ever sees one without the other. Readers see ranges of batches: of a
store, of a gap of an intermediate result, of a query's visibility. So the two cancel if no such
range begins or ends between their arrivals, and not while a backfill or a catch-up reads stored
rows piece by piece. Ranges chosen later begin after both arrivals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from anabranch_runtime.state.manifest import State
from anabranch_runtime.storage.segment import Merge, Segment

#: Stream of changes -> sorted batches at which ranges of batches begin for readers of its rows.
Boundaries: TypeAlias = Mapping[str, tuple[int, ...]]


def boundaries(state: State) -> Boundaries:
    """Return stream of changes -> batches where readers' ranges begin; empty: no row may cancel."""
    changing = {n for n, s in state.streams.items() if s.spec is not None and s.spec.is_weighted}
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
    """Whether ``merged``, a segment made with boundaries ``used``, is valid with those ``now``."""
    streams = now.keys() & used.keys()
    last = max(s.last_batch for s in merge.segments)
    return merged.rows == sum(s.rows for s in merge.segments) or (
        bool(streams) and all(b > last or b in used[n] for n in streams for b in now[n])
    )
