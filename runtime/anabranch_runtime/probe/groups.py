"""Groups of the segments that probes read, with properties computed once per batch.

A group has those segments of a store (or of one partition of it) that have rows of an interval of
batches. Many probes read the same group, so it caches properties of its segments, as arrays with
one entry per segment.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from anabranch_runtime.columns.arrays import Bools, Ints
from anabranch_runtime.index.hash_index import HashIndex
from anabranch_runtime.index.matching import described
from anabranch_runtime.state.coverage import Interval
from anabranch_runtime.storage.partial import Tables
from anabranch_runtime.storage.segment import (
    UNCHANGED,
    ChangedColumns,
    IndexKey,
    Segment,
    SegmentReader,
)
from anabranch_runtime.storage.segment_cache import open_segment

_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1


@dataclass(slots=True)
class SegmentGroup:
    """Segments of a store with rows of an interval of batches, as probes of one batch read them.

    Attributes:
        readers: the segments.
        partition: number of their partition; -1: several partitions.
        rows: number of rows per segment.
        clipped: mask of segments that have rows of batches outside the interval.
        current: mask of segments that have rows of this batch.
        tables: the same segments, as tables to gather column values from.
        work: number of look-ups plus matches per segment; None: not counted.
    """

    readers: tuple[SegmentReader, ...]
    partition: int
    rows: Ints
    clipped: Bools
    current: Bools
    tables: Tables
    work: Ints | None = None
    any_clipped: bool = field(init=False)
    any_current: bool = field(init=False)
    _columns: dict[tuple[str, bool], Ints] = field(default_factory=dict)
    _whole: tuple[Bools, int] | None = None
    _indexes: dict[IndexKey, tuple[list[HashIndex], Ints]] = field(default_factory=dict)
    _times: dict[int, tuple[Ints, Ints]] = field(default_factory=dict)
    _parts: dict[bytes, SegmentGroup] = field(default_factory=dict)
    _some: dict[bytes, Tables] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.any_clipped, self.any_current = bool(self.clipped.any()), bool(self.current.any())

    @property
    def whole(self) -> tuple[Bools, int]:
        """Mask of segments that have only rows of the interval's earlier batches; their rows."""
        if self._whole is None:
            mask = ~(self.clipped | self.current)
            self._whole = mask, int(self.rows[mask].sum())
        return self._whole

    def columns(self, name: str, *, current: bool) -> Ints:
        """Return addresses of a column in ``current`` segments (else ``clipped``); 0 for others."""
        found = self._columns.get((name, current))
        if found is None:
            found = self._columns[name, current] = np.zeros(len(self.readers), np.int64)
            # The column isn't located in other segments; few segments have rows of this batch.
            for i in np.flatnonzero(self.current if current else self.clipped):
                found[i] = self.readers[i].place(name).first
        return found

    def indexes(self, key: IndexKey, build: Callable[[SegmentReader], list[pa.Array]]) -> Ints:
        """Return the segments' indexes over ``key`` for ``matching.match``; ``build``: returns the
        key columns of a segment that has no such index."""
        found = self._indexes.get(key)
        if found is None:
            opened = [r.index(key, lambda r=r: build(r)) for r in self.readers]  # type: ignore[misc]
            found = self._indexes[key] = (opened, described(opened))
        return found[1]

    def times(self, member: int) -> tuple[Ints, Ints]:
        """Return each segment's least and greatest event time of its rows' ``member``-th member."""
        found = self._times.get(member)
        if found is None:
            segments = [r.segment for r in self.readers]
            least = [_LEAST if (t := s.tau_min[member]) is None else t for s in segments]
            greatest = [_GREATEST if (t := s.tau_max[member]) is None else t for s in segments]
            found = (np.array(least, np.int64), np.array(greatest, np.int64))
            self._times[member] = found
        return found

    def having(self, found: Ints, rows: int) -> tuple[Tables, Ints]:
        """Return tables of segments from which to gather ``rows`` rows, and the segments' indexes.

        If ``rows`` is small, only segments with a match (``found[i] > 0``) are taken, since to
        locate a column in all segments would take longer than to gather from it.
        """
        if rows >= len(self.readers):
            return self.tables, np.arange(len(self.readers))
        hit = np.flatnonzero(found)
        key = hit.tobytes()
        tables = self._some.get(key)
        if tables is None:
            tables = self._some[key] = Tables([self.readers[i] for i in hit])
        return tables, hit

    def where(self, mask: Bools) -> SegmentGroup:
        """Return the group of the segments for which ``mask`` is True."""
        key = mask.tobytes()
        found = self._parts.get(key)
        if found is None:
            readers = tuple(r for r, kept in zip(self.readers, mask, strict=True) if kept)
            found = self._parts[key] = SegmentGroup(
                readers,
                self.partition,
                self.rows[mask],
                self.clipped[mask],
                self.current[mask],
                Tables(readers),
                None if self.work is None else np.zeros(len(readers), np.int64),
            )
        return found

    def count(self, tuples: int, found: Ints) -> None:
        """Count a probe's ``tuples`` look-ups in each segment, and ``found`` matches by segment."""
        if self.work is not None:
            self.work += found
            self.work += tuples

    def add_work(self, to: Ints) -> None:
        """Add the counted ``work`` (look-ups and matches) to ``to``, an array by partition."""
        if self.work is not None:
            np.add.at(to, [r.segment.partition for r in self.readers], self.work)
            for part in self._parts.values():
                part.add_work(to)


class LiveSegments:
    """Segments that probes may read: of earlier batches, and written so far in this batch.

    Attributes:
        changes: number of times that segments have been added.
    """

    def __init__(
        self,
        root: str,
        batch: int,
        segments: Mapping[str, Sequence[Segment]],
        counted: Mapping[str, int] | None = None,
        changed: Callable[[str], ChangedColumns] = lambda _: UNCHANGED,
    ) -> None:
        """Index the segments.

        Args:
            counted: store -> number of partitions, for stores whose lookups and matches are counted
                per partition (:meth:`work`).
            changed: returns columns of a store that may have changed (``Layout.changed``).
        """
        self._root, self._batch, self._changed = root, batch, changed
        self._changes: list[frozenset[str]] = []
        self._work = {name: np.zeros(count, np.int64) for name, count in (counted or {}).items()}
        self._by_store = {store: list(known) for store, known in segments.items()}
        self._groups: dict[tuple[str, Interval, bool], list[SegmentGroup]] = {}

    def add(self, segments: Iterable[Segment]) -> None:
        """Add segments that a task has just written in this batch."""
        changed = set()
        for segment in segments:
            self._by_store.setdefault(segment.store, []).append(segment)
            changed.add(segment.store)
        if changed:
            self._changes.append(frozenset(changed))
        self._note(changed)
        self._groups = {k: g for k, g in self._groups.items() if k[0] not in changed}

    @property
    def changes(self) -> int:
        """Number of times that segments were added in this batch."""
        return len(self._changes)

    def changed(self, since: int) -> frozenset[str]:
        """Return the stores that got segments after the first ``since`` :attr:`changes`."""
        return frozenset().union(*self._changes[since:])

    def add_work(self, partitions: Sequence[tuple[str, int]], work: Ints) -> None:
        """Add ``work`` (number of look-ups plus matches per segment) for counted stores.

        Args:
            partitions: store and partition of each segment.
        """
        if self._work:
            for (store, partition), count in zip(partitions, work.tolist(), strict=True):
                if store in self._work:
                    self._work[store][partition] += count

    def work(self) -> dict[str, Ints]:
        """Return, by counted store, the number of lookups plus matches per partition in this batch.
        Call it once: a second call would count the work of the present groups twice."""
        self._note(self._work)
        return self._work

    def _note(self, stores: Container[str]) -> None:
        for (store, _, _), groups in self._groups.items():
            for group in groups if store in stores and store in self._work else ():
                group.add_work(self._work[store])

    def count(self, store: str) -> int:
        """Return the number of a store's live segments."""
        return len(self._by_store.get(store, ()))

    def within(self, store: str, interval: Interval) -> list[SegmentReader]:
        """Return the segments of a store that have rows of ``interval``, as one group."""
        low, high = interval
        changed = self._changed(store) if store in self._by_store else UNCHANGED
        return [
            open_segment(self._root, segment, changed)
            for segment in self._by_store.get(store, ())
            if segment.first_batch <= high and segment.last_batch >= low
        ]

    def groups(self, store: str, interval: Interval, *, split: bool) -> list[SegmentGroup]:
        """Group the segments with rows of ``interval``: by partition if ``split``, else in one."""
        key = (store, interval, split)
        found = self._groups.get(key)
        if found is None:
            found = self._groups[key] = self._make(store, interval, split=split)
        return found

    def _make(self, store: str, interval: Interval, *, split: bool) -> list[SegmentGroup]:
        partitions: dict[int, list[SegmentReader]] = {}
        for reader in self.within(store, interval):
            partitions.setdefault(reader.segment.partition if split else -1, []).append(reader)
        counted = store in self._work
        return [self._group(readers, p, interval, counted) for p, readers in partitions.items()]

    def _group(
        self, readers: Sequence[SegmentReader], partition: int, interval: Interval, counted: bool
    ) -> SegmentGroup:
        low, high = interval
        segments = [r.segment for r in readers]
        return SegmentGroup(
            tuple(readers),
            partition,
            np.array([s.rows for s in segments], np.int64),
            np.array([s.first_batch < low or s.last_batch > high for s in segments], np.bool_),
            np.array([s.last_batch >= self._batch for s in segments], np.bool_),
            Tables(readers),
            np.zeros(len(readers), np.int64) if counted else None,
        )
