"""What the stores hold, as a document (:mod:`anabranch_planner.state_report`)."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING

from anabranch_planner.ruleset import Edge
from anabranch_planner.state_report import LevelReport, StateReport, StoreReport
from anabranch_runtime.ownership import ownership
from anabranch_runtime.state.access import accesses
from anabranch_runtime.state.manifest import packs_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from anabranch_planner.ruleset import Ruleset
    from anabranch_runtime.state.manifest import State, StoreState
    from anabranch_runtime.state.segment import Segment


def state_report(root: Path, state: State, ruleset: Ruleset | None) -> StateReport:
    """All stores of ``state``, which is kept in ``root``; without its ruleset nobody knows who uses
    them.
    """
    inserted, merged = state.written
    packs = packs_of(state)
    # Of a pack that only an object store has, as much as is known.
    ends: dict[str, int] = {}
    for segment in (s for store in state.stores.values() for s in store.kept):
        end = max(offset + length for offset, length, _ in segment.blobs)
        ends[segment.path] = max(ends.get(segment.path, 0), end)
    disk = sum(pack_bytes(root / pack) or ends[pack] for pack in packs)
    users = readers(state, ruleset)
    return StateReport(
        next_batch=state.next_batch,
        epoch=state.epoch,
        ruleset_epoch=state.ruleset_epoch,
        bytes=state.bytes,
        packs=len(packs),
        disk_bytes=disk,
        space_amplification=disk / state.bytes if state.bytes else None,
        inserted_bytes=inserted,
        merged_bytes=merged,
        write_amplification=(inserted + merged) / inserted if inserted else None,
        stores=tuple(
            store_report(name, store, state, ruleset, users)
            for name, store in sorted(state.stores.items())
        ),
    )


def pack_bytes(pack: Path) -> int:
    """The size of a file; 0 where it has just been deleted."""
    try:
        return pack.stat().st_size
    except FileNotFoundError:
        return 0


def readers(state: State, ruleset: Ruleset | None) -> dict[str, set[str]]:
    """Store -> the queries whose probes read it: those of earlier layouts too, of which a probe by
    the running rules needs what only they have.
    """
    found: dict[str, set[str]] = defaultdict(set)
    if ruleset is not None:
        owners = ownership(ruleset)
        for edge, access in accesses(state, ruleset).items():
            for tile in itertools.chain(access.tiles, *access.fill):
                found[tile.store] |= owners.of_edge(Edge(edge))
    return found


def store_report(
    name: str,
    store: StoreState,
    state: State,
    ruleset: Ruleset | None,
    users: Mapping[str, Collection[str]],
) -> StoreReport:
    """One store of ``state``, which ``users`` (:func:`readers`) read."""
    spec = store.spec
    current: Collection[str] = [s.id for s in ruleset.stores] if ruleset is not None else ()
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
        queries=tuple(sorted(users.get(name, ()))),
        rows=sum(s.rows for s in store.segments),
        bytes=sum(s.bytes for s in store.segments),
        index_bytes=sum(s.bytes - s.data[1] for s in store.segments),
        segments=len(store.segments),
        levels=tuple(_levels(store.segments)),
        expired_below=tuple(store.expired_below),
        backfill=store.backfill is not None,
        ttl=tuple(_ttl(state, stream) for stream in store.streams),
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


def _levels(segments: Iterable[Segment]) -> Iterator[LevelReport]:
    levels: dict[int, list[Segment]] = defaultdict(list)
    for segment in segments:
        levels[segment.level].append(segment)
    for level, found in sorted(levels.items()):
        yield LevelReport(
            level=level,
            segments=len(found),
            rows=sum(s.rows for s in found),
            bytes=sum(s.bytes for s in found),
        )
