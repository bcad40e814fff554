"""Live segments in the manifest of a batch, read by its tasks.

A task process reads each manifest once, and of it only changes of stores, since it keeps the
segments of the last manifest that it has read.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anabranch_contract import codec
from anabranch_runtime.state.changes import spliced
from anabranch_runtime.state.manifest import KIND, manifest_path, missing_manifest
from anabranch_runtime.storage.documents import read_exactly
from anabranch_runtime.storage.durable import durable
from anabranch_runtime.storage.segment import Segment

#: Seconds for which a task waits for its batch's manifest, and seconds between two attempts.
PATIENCE, POLL = 10.0, 0.01

#: Store -> its live segments, which probes read.
Segments = dict[str, tuple[Segment, ...]]


class _RawChange(codec.Row, frozen=True):
    """A ``StateChange`` whose parts are not decoded yet (``state.changes``)."""

    values: dict[str, codec.Raw]
    changes: dict[str, codec.Raw]
    removed: tuple[str, ...]


class _Spliced(codec.Row, frozen=True):
    """Change of a store's list of segments."""

    values: codec.Raw
    changes: codec.Raw
    removed: codec.Raw
    splices: tuple[tuple[int, int, tuple[Segment, ...]], ...]


class _StoredCommit(codec.Row, frozen=True):
    after: tuple[int, int] | None
    change: _RawChange


@dataclass(frozen=True, slots=True)
class _StoreSegments:
    """The part of ``StoreState`` that has live segments; its other fields are not decoded."""

    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class _Last:
    """The last manifest read by this process: root, batch, checksum, and live segments."""

    place: tuple[Path, int, int] | None = None
    segments: Segments = field(default_factory=dict)


_last = _Last()


def committed_segments(root: Path, batch: int, crc: int) -> Segments:
    """Return store -> live segments in the manifest from which ``batch`` starts; for tasks.

    Waits for the manifest with checksum ``crc``: shared storage may still show none, or an older
    one of the same number, since an epoch can begin without a batch. For an unchanged store, the
    last call's tuple object is returned.

    Raises:
        StateError: ``missing-manifest``: a manifest does not appear in time.
    """
    global _last
    last, deadline = _last, time.monotonic() + PATIENCE
    changes: list[_RawChange] = []
    after: tuple[int, int] | None = (batch, crc)
    while after is not None and (root, *after) != last.place:
        commit = _read_commit(root, *after, deadline)
        changes.append(commit.change)
        after = commit.after
    found = last.segments if after is not None else {}
    for change in reversed(changes):
        found = _segments_after(found, change)
    if after is None:
        found = {name: _shared(last.segments.get(name), own) for name, own in found.items()}
    _last = _Last((root, batch, crc), found)
    return found


def _read_commit(root: Path, batch: int, crc: int, deadline: float) -> _StoredCommit:
    path = manifest_path(root, batch)
    while True:
        try:
            return codec.loads(read_exactly(path, KIND, crc), _StoredCommit)
        except (OSError, ValueError) as cause:
            if time.monotonic() > deadline:
                raise missing_manifest(cause) from cause
        if not durable(root).bring(f"manifest/{path.name}", path):
            time.sleep(POLL)


def _segments_after(known: Segments, change: _RawChange) -> Segments:
    if "stores" in change.values:
        stores = codec.loads(change.values["stores"], dict[str, _StoreSegments])
        return {name: store.segments for name, store in stores.items()}
    if "stores" not in change.changes:
        return known
    inside = codec.loads(change.changes["stores"], _RawChange)
    found = {name: own for name, own in known.items() if name not in inside.removed}
    for name, value in inside.values.items():
        found[name] = codec.loads(value, _StoreSegments).segments
    for name, part in inside.changes.items():
        store = codec.loads(part, _RawChange)
        if "segments" in store.values:
            found[name] = codec.loads(store.values["segments"], tuple[Segment, ...])
        elif "segments" in store.changes:
            splices = codec.loads(store.changes["segments"], _Spliced).splices
            found[name] = tuple(spliced(known[name], splices))
    return found


def _shared(last: Sequence[Segment] | None, found: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Return ``found`` with equal objects of ``last``, since other caches compare by identity."""
    if not last:
        return found
    if tuple(last) == found:
        return tuple(last)
    known = {segment: segment for segment in last}
    return tuple(known.get(segment, segment) for segment in found)
