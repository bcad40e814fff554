"""Cache of the segments opened by this process. Each pack file is mapped once, and unmapped when no
batch can need it any more, or when it has been evicted from the directory. Until it is unmapped, a
deleted pack takes up disk space. A missing pack is fetched from the object store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anabranch_runtime.errors import StateError
from anabranch_runtime.index import prefetch
from anabranch_runtime.storage.durable import durable
from anabranch_runtime.storage.paging import Mapped, fits
from anabranch_runtime.storage.segment import (
    UNCHANGED,
    ChangedColumns,
    Segment,
    SegmentReader,
    map_pack,
)


@dataclass(slots=True)
class _Opened:
    """The open packs and segments of one state directory."""

    packs: dict[str, Mapped] = field(default_factory=dict)
    #: (pack, offset) -> open reader of the segment there.
    readers: dict[tuple[str, int], SegmentReader] = field(default_factory=dict)
    #: Store -> its segments at the last update, their packs, and these segments' total bytes.
    stores: dict[str, tuple[Sequence[Segment], frozenset[str], int]] = field(default_factory=dict)
    #: Whether the live segments exceed the memory that can cache their pages (``paging``).
    scattered: bool = False

    def look(self, live: Mapping[str, Sequence[Segment]]) -> None:
        """Update :attr:`stores` for the stores in ``live`` whose lists of segments have changed."""
        known, self.stores = self.stores, {}
        for name, segments in live.items():
            one = known.get(name)
            if one is None or one[0] is not segments:
                packs = frozenset(s.path for s in segments)
                one = (segments, packs, sum(s.bytes for s in segments))
            self.stores[name] = one


#: Number of attempts to fetch and map a pack before a missing pack is an error.
_TRIES = 3
_ROOTS: dict[str, _Opened] = {}


def open_segment(root: str, segment: Segment, changed: ChangedColumns = UNCHANGED) -> SegmentReader:
    """Return the shared reader for ``segment`` of the state directory ``root``.

    Args:
        changed: columns that may have changed since the segment's rows were written.

    Raises:
        StateError: its pack is missing, or too short.
    """
    opened = _ROOTS.get(root)
    if opened is None:
        opened = _ROOTS[root] = _Opened()
    key = (segment.path, segment.data[0])
    reader = opened.readers.get(key)
    if reader is None or (reader.changed is not changed and reader.changed != changed):
        pack = opened.packs.get(segment.path)
        if pack is None:
            pack = opened.packs[segment.path] = _map(root, segment)
            pack.scatter(opened.scattered)
        reader = opened.readers[key] = SegmentReader.of(segment, pack.buffer, changed)
    durable(root).touch(segment.path)
    return reader


def read_segment(root: str, segment: Segment, changed: ChangedColumns = UNCHANGED) -> SegmentReader:
    """Return a new reader for ``segment`` that is not kept open.

    Raises:
        StateError: its pack is missing, or too short.
    """
    return SegmentReader.of(segment, _map(root, segment).buffer, changed)


def keep_open(root: str, live: Mapping[str, Sequence[Segment]]) -> None:
    """Release all packs of ``root`` without ``live`` segments (by store), and check whether all
    live segments, open or not, fit into memory.

    Memory is unmapped with the last array over it, so existing readers stay valid.
    """
    if root not in _ROOTS and not any(live.values()):
        return
    opened = _ROOTS.setdefault(root, _Opened())
    opened.look(live)
    paths = frozenset[str]().union(*(packs for _, packs, _ in opened.stores.values()))
    paths -= durable(root).evicted(opened.packs)
    if not opened.packs.keys() <= paths:
        opened = _ROOTS[root] = _Opened(
            {p: b for p, b in opened.packs.items() if p in paths},
            {k: r for k, r in opened.readers.items() if k[0] in paths},
            opened.stores,
            opened.scattered,
        )
    scattered = not fits(sum(size for _, _, size in opened.stores.values()))
    if scattered != opened.scattered:
        opened.scattered = scattered
        for pack in opened.packs.values():
            pack.scatter(scattered)
        prefetch.enable(any(o.scattered for o in _ROOTS.values()))


def _map(root: str, segment: Segment) -> Mapped:
    for _ in range(_TRIES):
        try:
            return map_pack(root, segment.path)
        except StateError:
            # Another process may have evicted the pack between the fetch and the mapping.
            if not durable(root).fetch(segment):
                raise
    return map_pack(root, segment.path)


def close_all() -> None:
    """Release all packs and segments that this process has opened."""
    _ROOTS.clear()
    prefetch.enable(False)
