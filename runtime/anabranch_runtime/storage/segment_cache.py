"""Segments that this process has opened: each pack is mapped once, and let go of when no batch can
need it any more, or when it has left the directory as a cache of an object store. Until then a
pack that has been deleted still takes its place on the disk. A pack that is missing is fetched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anabranch_runtime.errors import StateError
from anabranch_runtime.index import prefetch
from anabranch_runtime.storage.durable import durable
from anabranch_runtime.storage.paging import Mapped, fits
from anabranch_runtime.storage.segment import Segment, SegmentReader, map_pack


@dataclass(slots=True)
class _Opened:
    """The open packs and segments of one state directory."""

    packs: dict[str, Mapped] = field(default_factory=dict)
    #: By pack and offset.
    readers: dict[tuple[str, int], SegmentReader] = field(default_factory=dict)
    #: Store -> its segments at the last look, their packs, and their bytes.
    stores: dict[str, tuple[Sequence[Segment], frozenset[str], int]] = field(default_factory=dict)
    #: Whether it is more than memory holds (``paging``).
    scattered: bool = False

    def look(self, live: Mapping[str, Sequence[Segment]]) -> None:
        """Look at those stores of ``live`` that are not the same object as the last time."""
        known, self.stores = self.stores, {}
        for name, segments in live.items():
            one = known.get(name)
            if one is None or one[0] is not segments:
                packs = frozenset(s.path for s in segments)
                one = (segments, packs, sum(s.bytes for s in segments))
            self.stores[name] = one


#: Number of trials to fetch a pack before it must be there.
_TRIES = 3
_ROOTS: dict[str, _Opened] = {}


def open_segment(root: str, segment: Segment) -> SegmentReader:
    """A reader for ``segment`` of the state directory ``root``; the same each time.

    Raises:
        StateError: its pack is missing, or too short.
    """
    opened = _ROOTS.get(root)
    if opened is None:
        opened = _ROOTS[root] = _Opened()
    key = (segment.path, segment.data[0])
    reader = opened.readers.get(key)
    if reader is None:
        pack = opened.packs.get(segment.path)
        if pack is None:
            pack = opened.packs[segment.path] = _map(root, segment)
            pack.scatter(opened.scattered)
        reader = opened.readers[key] = SegmentReader.of(segment, pack.buffer)
    durable(root).touch(segment.path)
    return reader


def read_segment(root: str, segment: Segment) -> SegmentReader:
    """A reader for ``segment``, for once.

    Raises:
        StateError: its pack is missing, or too short.
    """
    return SegmentReader.of(segment, _map(root, segment).buffer)


def keep_open(root: str, live: Mapping[str, Sequence[Segment]]) -> None:
    """Let go of all packs of ``root`` without ``live`` segments (by store), and look whether all
    live ones fit into memory, opened already or not.

    Memory is unmapped with the last array that shows it, so a reader may go on.
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
            # It may leave the directory again before it is mapped.
            if not durable(root).fetch(segment):
                raise
    return map_pack(root, segment.path)


def close_all() -> None:
    """Let go of everything, as the end of the process would."""
    _ROOTS.clear()
    prefetch.enable(False)
