"""What the stores hold, as documents (:mod:`anabranch_planner.state_report`)."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch_planner.reads import Reads
from anabranch_planner.ruleset import Edge
from anabranch_planner.state_report import (
    EdgeReport,
    IndexReport,
    LevelReport,
    SegmentReport,
    StateReport,
    StoreParts,
    StoreReport,
)
from anabranch_runtime.ownership import ownership
from anabranch_runtime.state.access import accesses
from anabranch_runtime.state.reads import sum_reads

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from anabranch_planner.ruleset import Ruleset
    from anabranch_runtime.state.manifest import State, StoreState
    from anabranch_runtime.state.segment import Segment

    #: Store -> edge -> the queries that it serves, and whether the store only fills gaps.
    Readers = Mapping[str, Mapping[str, EdgeReport]]

#: Segments of a store that are reported, and edges, and queries of an edge.
MOST_SEGMENTS, MOST_EDGES, MOST_QUERIES = 1000, 200, 50


@dataclass(frozen=True, slots=True)
class Packs:
    """The files of a state.

    Attributes:
        disk: pack -> bytes of its file.
        live: pack -> bytes of the segments in it that are needed.
    """

    disk: Mapping[str, int]
    live: Mapping[str, int]

    @staticmethod
    def of(root: Path, state: State) -> Packs:
        """Those of ``state``, which is kept in ``root``."""
        live: dict[str, int] = defaultdict(int)
        for store in state.stores.values():
            for segment in store.kept:
                live[segment.path] += segment.bytes
        return Packs({pack: pack_bytes(root / pack) for pack in live}, live)

    def share(self, segments: Sequence[Segment], sizes: Sequence[int]) -> int:
        """The part of the files that falls to ``segments`` of these ``sizes``."""
        parts = (
            size * self.disk[s.path] / self.live[s.path]
            for s, size in zip(segments, sizes, strict=True)
        )
        return round(sum(parts))


def state_report(
    root: Path, state: State, ruleset: Ruleset | None, users: Readers | None = None
) -> StateReport:
    """All stores of ``state``, which is kept in ``root``; without its ruleset nobody knows who uses
    them. ``users``: :func:`readers`, where they are known.
    """
    inserted, merged = state.written
    packs = Packs.of(root, state)
    disk, total = sum(packs.disk.values()), state.bytes
    users = readers(state, ruleset) if users is None else users
    return StateReport(
        next_batch=state.next_batch,
        epoch=state.epoch,
        ruleset_epoch=state.ruleset_epoch,
        bytes=total,
        packs=len(packs.disk),
        disk_bytes=disk,
        space_amplification=disk / total if total else None,
        inserted_bytes=inserted,
        merged_bytes=merged,
        write_amplification=(inserted + merged) / inserted if inserted else None,
        stores=tuple(
            store_report(name, store, state, ruleset, users, packs)
            for name, store in sorted(state.stores.items())
        ),
    )


def pack_bytes(pack: Path) -> int:
    """The size of a file; 0 where it has just been deleted."""
    try:
        return pack.stat().st_size
    except FileNotFoundError:
        return 0


def readers(state: State, ruleset: Ruleset | None) -> Readers:
    """Who reads each store: earlier layouts too, of which a probe by the running rules needs what
    only they have.
    """
    found: dict[str, dict[str, EdgeReport]] = defaultdict(dict)
    if ruleset is not None:
        owners = ownership(ruleset)
        for edge, access in accesses(state, ruleset).items():
            queries = tuple(sorted(owners.of_edge(Edge(edge))))
            for tile in itertools.chain(*access.fill):
                found[tile.store][edge] = EdgeReport(edge, queries, fill=True)
            for tile in access.tiles:
                found[tile.store][edge] = EdgeReport(edge, queries, fill=False)
    return found


def store_report(
    name: str,
    store: StoreState,
    state: State,
    ruleset: Ruleset | None,
    users: Readers,
    packs: Packs,
) -> StoreReport:
    """One store of ``state``, which ``users`` (:func:`readers`) read."""
    spec = store.spec
    current: Collection[str] = [s.id for s in ruleset.stores] if ruleset is not None else ()
    segments = store.segments
    sizes = [s.bytes for s in segments]
    total = sum(sizes)
    return StoreReport(
        store=name,
        kind="stream" if store.is_base else "intermediate result",
        mir=spec["mir"],
        members=() if store.is_base else tuple(spec["members"]),
        streams=tuple(store.streams),
        filter=tuple(store.filter),
        partition=_attribute(spec["partition"]),
        partitions=spec["partitions"],
        batches=store.covers(state.next_batch - 1),
        growing=name in current and store.open_since is not None,
        queries=tuple(sorted({q for e in users.get(name, {}).values() for q in e.queries})),
        rows=sum(s.rows for s in segments),
        bytes=total,
        index_bytes=total - sum(s.data[1] for s in segments),
        segments=len(segments),
        levels=tuple(_levels(segments, sizes)),
        expired_below=tuple(store.expired_below),
        backfill=store.backfill is not None,
        ttl=tuple(_ttl(state, stream) for stream in store.streams),
        disk_bytes=packs.share(segments, sizes),
        indexes=tuple(_indexes(name, segments, state)),
    )


def store_parts(name: str, state: State, users: Readers) -> StoreParts:
    """The segments and the readers of one store of ``state``."""
    segments = state.stores[name].segments
    shown: Collection[int] = range(len(segments))
    if len(segments) > MOST_SEGMENTS:
        by_size = sorted(shown, key=lambda i: segments[i].bytes, reverse=True)
        shown = sorted(by_size[:MOST_SEGMENTS])
    edges = [edge for _, edge in sorted(users.get(name, {}).items())]
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
    """A stream's ttl; None too where the running rules have no such stream any more."""
    known = state.streams.get(stream)
    ttl: int | None = None if known is None else known.spec.get("ttl")
    return ttl


def _attribute(partition: list[list[str]] | None) -> str | None:
    if partition is None:
        return None
    (label, attribute), _ = partition
    return f"{label}.{attribute}"


def _levels(segments: Iterable[Segment], sizes: Iterable[int]) -> Iterator[LevelReport]:
    levels: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for segment, size in zip(segments, sizes, strict=True):
        levels[segment.level].append((segment.rows, size))
    for level, found in sorted(levels.items()):
        yield LevelReport(
            level=level,
            segments=len(found),
            rows=sum(rows for rows, _ in found),
            bytes=sum(size for _, size in found),
        )


def _indexes(name: str, segments: Iterable[Segment], state: State) -> Iterator[IndexReport]:
    """Every index that segments have, or that has been asked for (and made for the moment)."""
    known = (
        {name: found[name]} if name in found else {} for found in (state.reads_before, state.reads)
    )
    reads = sum_reads(*known, stores=(name,)).get(name, {})
    sizes: dict[str, tuple[int, int, int]] = dict.fromkeys(reads, (0, 0, 0))
    for segment in segments:
        for key, _, blobs in segment.indexes:
            entries, size, screen = sizes.get(key, (0, 0, 0))
            lengths = [length for _, length, _ in blobs]
            sizes[key] = (
                entries + lengths[0] // 8,
                size + sum(lengths),
                screen + sum(lengths[3:]),
            )
    for key, (entries, size, screen) in sorted(sizes.items()):
        yield IndexReport(key, entries, size, screen, Reads(*reads.get(key, ())))
