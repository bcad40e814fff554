"""Tables that are reloaded: switching to the next version, and dropping rows of the version before.

The batch's offsets in the journal determine which version the batch reads and whether it completes
this version (``sources.loads``). So a repeated batch decides the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from anabranch_contract.protocol.table_progress import TableProgress
from anabranch_runtime.epochs.access import latest_since
from anabranch_runtime.sources.loads import Load
from anabranch_runtime.state.coverage import tile
from anabranch_runtime.state.manifest import State, StoreState, StreamState
from anabranch_runtime.state.table_versions import TableVersions
from anabranch_runtime.state.unread import FeedState
from anabranch_runtime.storage.segment import Segment


def begin_versions(state: State, loads: Mapping[str, Load]) -> State:
    """Record the table versions that begin with the next batch; ``loads``: feed -> its load."""
    streams = dict(state.streams)
    for load in loads.values():
        known = streams.get(load.stream)
        if known is None and load.version == 1:
            continue
        known = known or StreamState()
        versions = known.versions or TableVersions()
        begun = versions.begun(load.version, state.next_batch)
        if begun is not versions:
            streams[load.stream] = replace(known, versions=begun)
    return replace(state, streams=streams)


def end_versions(
    state: State, loads: Mapping[str, Load], feeds: Mapping[str, FeedState], now: float
) -> State:
    """After a batch, switch to the table versions that have been read completely, and drop rows
    that no tuple looks up any more.

    Args:
        loads, feeds: at the batch's end, feed -> load that is being read; feed -> its state.
        now: seconds since 1970.
    """
    found = versions_of(state)
    if not found:
        return state
    streams = dict(state.streams)
    for feed, load in loads.items():
        known, held = streams.get(load.stream), feed in feeds and feeds[feed].held is not None
        if known is None or known.versions is None or load.is_first or held:
            continue
        versions = known.versions.read_whole(load.version, now)
        streams[load.stream] = replace(known, versions=versions)
    state = replace(state, streams=streams)
    found = versions_of(state)
    return replace(state, stores={n: _current(s, found) for n, s in state.stores.items()})


def _current(store: StoreState, versions: Mapping[str, TableVersions]) -> StoreState:
    """Drop a store's segments of outdated table versions.

    A row of a materialized join counts as of the batch of its last-arriving member.
    """
    known = [versions[s] for s in store.streams if s in versions]
    if store.is_base:
        kept = tuple(
            s
            for s in store.segments
            if not any(v.is_outdated(s.first_batch, s.last_batch) for v in known)
        )
    else:
        kept = tuple(s for s in store.segments if not any(s.last_batch < v.first for v in known))
    return store if len(kept) == len(store.segments) else replace(store, segments=kept)


def looked_up(state: State) -> dict[str, tuple[int, int | None]]:
    """Return reloaded table -> interval of the batches whose rows are looked up."""
    found = {name: v.interval for name, v in versions_of(state).items()}
    return {name: interval for name, interval in found.items() if interval != (0, None)}


def versions_of(state: State) -> dict[str, TableVersions]:
    """Return reloaded table -> its versions (:class:`TableVersions`), as in ``state``."""
    return {n: s.versions for n, s in state.streams.items() if s.versions is not None}


def superseding(state: State) -> dict[str, int]:
    """Return, per stream that keeps the latest tuple per key, the first batch whose tuples replace
    older ones permanently. Tables being reloaded are left out: their former version is in use."""
    rereads = {n for n, v in versions_of(state).items() if v.until is not None}
    return {n: b for n, b in latest_since(state).items() if n not in rereads}


def sides(state: State, store: StoreState) -> Callable[[Segment], int]:
    """Return a function from a segment to its table version's number; merges never mix versions."""
    versions = versions_of(state).get(store.streams[0]) if store.is_base else None
    return lambda segment: 0 if versions is None else versions.side(segment.first_batch)


def rows_kept(state: State, table: str) -> int | None:
    """Count the stored rows of the current version, including superseded rows that no merge has
    dropped yet; None if overlapping copies prevent an exact count."""
    versions = versions_of(state).get(table, TableVersions())
    end = (state.next_batch if versions.until is None else versions.until) - 1
    copies = {n: s for n, s in state.stores.items() if s.streams == (table,) and not s.filter}
    covered = {n: s.covers(state.next_batch - 1) for n, s in copies.items()}
    longest = sorted(covered.items(), key=lambda c: (sum(a - b for a, b in c[1]), c[0]))
    tiles, gaps = tile([(versions.first, end)] if versions.first <= end else [], longest)
    rows = 0
    for found in tiles:
        low, high = found.interval
        for segment in copies[found.store].segments:
            inside = [low <= b <= high for b in (segment.first_batch, segment.last_batch)]
            if any(inside) and not all(inside):
                return None
            rows += segment.rows if all(inside) else 0
    return None if gaps else rows


def table_progress(state: State) -> dict[str, TableProgress]:
    """Return reloaded table -> version and row counts, for progress reports."""
    tables = {n: s.versions for n, s in state.streams.items() if s.spec and s.spec.is_table}
    return {
        name: TableProgress(v.number, v.coming, v.read_at, rows_kept(state, name))
        for name, v in ((n, known or TableVersions()) for n, known in tables.items())
    }
