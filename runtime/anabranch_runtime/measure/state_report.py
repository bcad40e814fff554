"""Reports of stored state as documents of the protocol (``contract.protocol.state_report``)."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from anabranch_contract.plans.ruleset import Edge, Ruleset
from anabranch_contract.protocol.reads import Reads
from anabranch_contract.protocol.state_report import (
    EdgeReport,
    IndexReport,
    LevelReport,
    SegmentReport,
    StateReport,
    StoreParts,
    StoreReport,
    TableReport,
)
from anabranch_contract.queries.joins import QueryId
from anabranch_runtime.epochs.access import accesses
from anabranch_runtime.epochs.ownership import ownership
from anabranch_runtime.epochs.per_ruleset import per_ruleset
from anabranch_runtime.state.coverage import Access
from anabranch_runtime.state.manifest import State, StoreState
from anabranch_runtime.state.measured import sum_reads
from anabranch_runtime.state.tables import TableCost, TableCounts, TablesState
from anabranch_runtime.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class StoreReaders:
    """Probes and queries that read one store.

    Attributes:
        edges: edge whose probe reads the store -> report on the probe: its queries, and whether it
            reads the store in place of an incomplete materialized join.
        queries: the queries of all its probes, sorted.
    """

    edges: Mapping[str, EdgeReport] = field(default_factory=dict)
    queries: tuple[str, ...] = ()


#: Store -> its readers.
Readers = Mapping[str, StoreReaders]
_UNREAD = StoreReaders()

#: Maximum number of segments and of probing edges reported per store, of queries per edge.
MOST_SEGMENTS, MOST_EDGES, MOST_QUERIES = 1000, 200, 50


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """Sizes of a stored segment: total ``bytes``; ``data``: bytes of the rows; and of each index,
    its key, number of entries, bytes, and its filter's bytes."""

    bytes: int
    data: int
    indexes: tuple[tuple[str, int, int, int], ...]

    @staticmethod
    def of(segment: Segment) -> SegmentSize:
        """Compute the sizes of a segment from its descriptor."""
        indexes, total = [], segment.data[1]
        for key, _, blobs in segment.indexes:
            lengths = [length for _, length, _ in blobs]
            size = sum(lengths)
            indexes.append((key, lengths[0] // 8, size, sum(lengths[3:])))
            total += size
        return SegmentSize(total, segment.data[1], tuple(indexes))


@dataclass(slots=True)
class Weights:
    """Cache of segments' sizes, since most segments stay from report to report."""

    _known: dict[str, tuple[tuple[Segment, ...], dict[int, SegmentSize]]] = field(
        default_factory=dict
    )

    def of(self, store: str, segments: tuple[Segment, ...]) -> list[SegmentSize]:
        """Return the size of each of ``segments``, which are segments of ``store``."""
        known, weights = self._known.get(store, ((), {}))
        if segments is not known:
            # Segments are compared by identity, which is safe as ``known`` keeps them alive.
            found = {id(s): weights.get(id(s)) or SegmentSize.of(s) for s in segments}
            self._known[store] = segments, found
            weights = found
        return [weights[id(s)] for s in segments]

    def forget(self, stores: Collection[str]) -> None:
        """Drop the cached sizes of stores other than ``stores``."""
        for store in self._known.keys() - stores:
            del self._known[store]


@dataclass(frozen=True, slots=True)
class Packs:
    """Sizes of the pack files with a state's segments.

    Attributes:
        disk: pack -> bytes of its file.
        live: pack -> bytes of its needed segments.
    """

    disk: Mapping[str, int]
    live: Mapping[str, int]

    @staticmethod
    def of(root: Path, state: State, weights: Weights) -> Packs:
        """Measure the packs of ``state`` in the directory ``root``."""
        live: dict[str, int] = defaultdict(int)
        for name, store in state.stores.items():
            for segment, weight in zip(
                store.segments, weights.of(name, store.segments), strict=True
            ):
                live[segment.path] += weight.bytes
        for segment in _backfilling(state):
            live[segment.path] += segment.bytes
        # For a pack that is only in the object store, the size of its needed segments is reported.
        return Packs({pack: pack_bytes(root / pack) or size for pack, size in live.items()}, live)

    def share(self, segments: Sequence[Segment], weights: Sequence[SegmentSize]) -> int:
        """Return the bytes on disk of ``segments``: their share of each pack's needed bytes."""
        parts = (
            w.bytes * self.disk[s.path] / self.live[s.path]
            for s, w in zip(segments, weights, strict=True)
        )
        return round(sum(parts))


def _backfilling(state: State) -> Iterator[Segment]:
    """Yield segments that only a backfill needs: its results, and inputs from no present store."""
    works = [store for store in state.stores.values() if store.backfill is not None]
    if works:
        known = {(s.path, s.data) for store in state.stores.values() for s in store.segments}
        for segment in itertools.chain(*(store.kept for store in works)):
            if (segment.path, segment.data) not in known:
                known.add((segment.path, segment.data))
                yield segment


def state_report(
    root: Path,
    state: State,
    ruleset: Ruleset | None,
    users: Readers | None = None,
    weights: Weights | None = None,
    costs: Mapping[str, TableCost] | None = None,
) -> StateReport:
    """Report all stores of ``state`` in the directory ``root``; without a ruleset their readers
    are unknown.

    ``users``: result of :func:`readers`, if already computed. ``weights``: cache of sizes.
    ``costs``: query -> measured cost of its table.
    """
    inserted, merged = state.measured.written
    weights = Weights() if weights is None else weights
    weights.forget(state.stores.keys())
    packs = Packs.of(root, state, weights)
    users = readers(state, ruleset) if users is None else users
    current = current_stores(ruleset)
    stores = tuple(
        store_report(name, store, state, current, users, packs, weights)
        for name, store in sorted(state.stores.items())
    )
    pending = (s for store in state.stores.values() for s in store.pending)
    total = sum(s.bytes for s in stores) + sum(s.bytes for s in pending)
    disk = sum(packs.disk.values())
    return StateReport(
        next_batch=state.next_batch,
        epoch=state.epoch,
        ruleset_epoch=state.ruleset.epoch,
        revision=state.ruleset.revision,
        bytes=total,
        packs=len(packs.disk),
        disk_bytes=disk,
        space_amplification=disk / total if total else None,
        inserted_bytes=inserted,
        merged_bytes=merged,
        write_amplification=(inserted + merged) / inserted if inserted else None,
        stores=stores,
        tables=tuple(table_reports(state.tables, costs or {})),
        table_bytes=state.tables.bytes,
    )


def table_reports(tables: TablesState, costs: Mapping[str, TableCost]) -> Iterator[TableReport]:
    """Report the maintained tables, by query, with their measured costs if known."""
    rounds = [one.batch for one in tables.rounds]
    for query, held in sorted(tables.held.items()):
        counts = tables.counts.get(query, TableCounts())
        since = len(rounds) - bisect_left(rounds, held.next)
        cost = costs.get(query, TableCost())
        shown = query, counts.shown, counts.version, counts.written, since
        yield TableReport(*shown, **asdict(cost))


def pack_bytes(pack: Path) -> int:
    """Size of a pack file in bytes; 0 if it does not exist any more."""
    try:
        return pack.stat().st_size
    except FileNotFoundError:
        return 0


def readers(state: State, ruleset: Ruleset | None) -> Readers:
    """Return the probes that read each store, including older stores still read by the ruleset."""
    if ruleset is None:
        return {}
    access, known = accesses(state, ruleset), _last_readers(ruleset)
    if not known or known[0][0] is not access:
        known[:] = [(access, _readers(access, ruleset))]
    return known[0][1]


@per_ruleset
def _last_readers(_: Ruleset) -> list[tuple[Mapping[str, Access], Readers]]:
    """Return a ruleset's cache: its last accesses and the readers found from them, or nothing."""
    return []


def _readers(access: Mapping[str, Access], ruleset: Ruleset) -> Readers:
    found: dict[str, dict[str, EdgeReport]] = defaultdict(dict)
    users: dict[str, set[QueryId]] = defaultdict(set)
    owners = ownership(ruleset)
    for edge, one in access.items():
        own = owners.of_edge(Edge(edge))
        queries = tuple(sorted(own))
        for tile in itertools.chain(*one.fill):
            found[tile.store][edge] = EdgeReport(edge, queries, fill=True)
            users[tile.store] |= own
        for tile in one.tiles:
            found[tile.store][edge] = EdgeReport(edge, queries, fill=False)
            users[tile.store] |= own
    return {name: StoreReaders(e, tuple(sorted(users[name]))) for name, e in found.items()}


def current_stores(ruleset: Ruleset | None) -> frozenset[str]:
    """Return ids of the stores of ``ruleset``; empty without a ruleset."""
    return frozenset() if ruleset is None else frozenset(s.id for s in ruleset.stores)


def store_report(
    name: str,
    store: StoreState,
    state: State,
    current: Collection[str],
    users: Readers,
    packs: Packs,
    weights: Weights,
) -> StoreReport:
    """Report one store of ``state``: sizes, covered batches and readers.

    ``users``: result of :func:`readers`. ``current``: ids of the running ruleset's stores.
    """
    spec = store.spec
    segments = store.segments
    heavy = weights.of(name, segments)
    total = sum(w.bytes for w in heavy)
    return StoreReport(
        store=name,
        mir=spec.mir,
        members=() if store.is_base else tuple(spec.members),
        streams=tuple(store.streams),
        filter=tuple(store.filter),
        partition=None if spec.partition is None else str(spec.partition[0]),
        partitions=spec.partitions,
        batches=store.covers(state.next_batch - 1),
        growing=name in current and store.open_since is not None,
        queries=users.get(name, _UNREAD).queries,
        rows=sum(s.rows for s in segments),
        bytes=total,
        index_bytes=total - sum(w.data for w in heavy),
        segments=len(segments),
        levels=tuple(_levels(segments, heavy)),
        expired_below=tuple(store.expired_below),
        backfill=store.backfill is not None,
        ttl=tuple(_ttl(state, stream) for stream in store.streams),
        disk_bytes=packs.share(segments, heavy),
        indexes=tuple(_indexes(name, heavy, state)),
    )


def store_parts(name: str, state: State, users: Readers) -> StoreParts:
    """Report the segments and the probes that read one store of ``state``."""
    segments = state.stores[name].segments
    shown: Collection[int] = range(len(segments))
    if len(segments) > MOST_SEGMENTS:
        by_size = sorted(shown, key=lambda i: segments[i].bytes, reverse=True)
        shown = sorted(by_size[:MOST_SEGMENTS])
    edges = [edge for _, edge in sorted(users.get(name, _UNREAD).edges.items())]
    return StoreParts(
        store=name,
        next_batch=state.next_batch,
        segments=tuple(_segment(segments[i]) for i in shown),
        omitted=len(segments) - len(shown),
        edges=tuple(
            EdgeReport(e.edge, e.queries[:MOST_QUERIES], e.fill) for e in edges[:MOST_EDGES]
        ),
        edges_omitted=max(len(edges) - MOST_EDGES, 0),
    )


def _segment(segment: Segment) -> SegmentReport:
    least = [t for t in segment.tau_min if t is not None]
    greatest = [t for t in segment.tau_max if t is not None]
    return SegmentReport(
        partition=segment.partition,
        level=segment.level,
        rows=segment.rows,
        bytes=segment.bytes,
        batches=(segment.first_batch, segment.last_batch),
        event_time=(min(least), max(greatest)) if least and greatest else None,
    )


def _ttl(state: State, stream: str) -> int | None:
    """Return a stream's ttl in microseconds for the report; None: no ttl, or in no ruleset."""
    known = state.streams.get(stream)
    return None if known is None or known.spec is None else known.spec.ttl


def _levels(segments: Iterable[Segment], weights: Iterable[SegmentSize]) -> Iterator[LevelReport]:
    levels: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for segment, weight in zip(segments, weights, strict=True):
        levels[segment.level].append((segment.rows, weight.bytes))
    for level, found in sorted(levels.items()):
        yield LevelReport(
            level=level,
            segments=len(found),
            rows=sum(rows for rows, _ in found),
            bytes=sum(size for _, size in found),
        )


def _indexes(name: str, weights: Iterable[SegmentSize], state: State) -> Iterator[IndexReport]:
    """Yield reports on the segments' indexes, and on indexes that probes built in memory."""
    before, now = state.measured.reads_before.get(name, {}), state.measured.reads.get(name, {})
    reads = sum_reads({name: before}, {name: now}, stores=(name,))[name]
    sizes: dict[str, tuple[int, int, int]] = dict.fromkeys(reads, (0, 0, 0))
    for key, *more in itertools.chain.from_iterable(w.indexes for w in weights):
        entries, size, screen = sizes.get(key, (0, 0, 0))
        sizes[key] = (entries + more[0], size + more[1], screen + more[2])
    for key, (entries, size, screen) in sorted(sizes.items()):
        yield IndexReport(key, entries, size, screen, reads.get(key, Reads()))
