"""The state backend ``lsm`` (the default): an LSM tree per table, of the runtime's immutable
segments.

A commit writes the rows that the batch has inserted as one segment per table, in one pack file, and
then the manifest, by one rename. Segments are merged as in the runtime (``state.merging``), in a
separate thread. A probe searches a table's segments and the open batch in one call.

**Memory.** Segments are memory-mapped: their pages are clean pages of the kernel's cache, which are
freed if memory is scarce. Anonymous memory holds the open batch and one merge. The batch may use a
quarter of ``memory_limit``: further rows are written to a segment before the commit. A merge may
use half of it, and makes no segment whose construction would take more; so with little memory for a
large state, a table has more segments of the last level, and probes search more filters.

**Files.** ``backend.json``, ``manifest.json`` (documents with checksums, see ``state.files``) and
``segments/*.pack`` (see ``storage.segment``). A pack that the manifest does not name is garbage.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from anabranch_contract import codec
from anabranch_contract.protocol.merging import FANOUT
from anabranch_runtime.epochs.merging import LARGEST, STALL, merge_groups, replaced
from anabranch_runtime.storage.depth import Verify
from anabranch_runtime.storage.documents import Kind, read_document, write_document
from anabranch_runtime.storage.segment import OFFSET_BITS, IndexKey, PackWriter, Segment
from anabranch_runtime.storage.segment_cache import keep_open, open_segment
from anabranch_runtime.storage.verify import verify_packs
from anabranch_runtime.task.compact import MERGED
from benchmarks.umjoin.backends.delta import Part, append, joined, part_of
from benchmarks.umjoin.backends.home import Home, diagnosing, later
from benchmarks.umjoin.backends.interface import (
    MOST,
    BackendKind,
    BackendStatistics,
    Bounds,
    Found,
    TableSpec,
    TableStatistics,
)
from benchmarks.umjoin.backends.merger import Merger, Task, columns_of
from benchmarks.umjoin.backends.search import GREATEST, Run, View, known

KIND = Kind("backend-manifest", "state")
#: Shares of the memory limit, as divisors.
_BATCH, _MERGE = 4, 2
#: Bytes per row and index while a merge sorts an index: entries before, during and after, and
#: buckets.
_SORTING = 48


@dataclass(slots=True)
class LsmTable:
    """A table of the backend, which makes all its tables."""

    backend: LsmBackend
    name: str
    spec: TableSpec
    #: Committed segments, oldest first, and segments spilled by the open batch.
    segments: tuple[Segment, ...]
    spilled: tuple[Segment, ...] = ()
    parts: list[Part] = field(default_factory=list)
    below: int | None = None
    _views: dict[IndexKey, View] = field(default_factory=dict)

    def insert(self, rows: pa.RecordBatch) -> None:
        """Insert rows; see ``Table.insert``."""
        checked = self.spec.checked(rows)
        if not checked.num_rows:
            return
        append(self.parts, part_of(self.spec, checked))
        self._views.clear()
        self.backend.make_room()

    def probe(
        self,
        index: IndexKey,
        keys: Sequence[pa.Array],
        bounds: Bounds = Bounds(),  # noqa: B008 - frozen
        most: int = MOST,
    ) -> Iterator[Found]:
        """Probe the table; see ``Table.probe``."""
        view = self._views.get(known(self.spec, index))
        if view is None:
            root = str(self.backend.folder)
            runs = [_run(root, s, index) for s in (*self.segments, *self.spilled)]
            view = self._views[index] = View(index, [*runs, *(p.run(index) for p in self.parts)])
        return view.search(keys, bounds, most)

    def expire(self, below: int) -> None:
        """Expire rows; see ``Table.expire``. Whole segments are removed with the next commit."""
        self.below = below if self.below is None else max(self.below, below)

    def commit(self, written: Segment | None) -> None:
        """Replace the open batch's rows by the segment ``written``."""
        self.segments = (*self.segments, *self.spilled, *([written] if written else []))
        self.spilled, self.parts = (), []
        self._views.clear()

    def without_expired(self) -> None:
        """Drop segments whose rows have all expired."""
        if self.below is not None:
            self.segments = tuple(s for s in self.segments if _last_tau(s) >= self.below)

    def replace(self, task: Task, by: Segment) -> bool:
        """Replace the parts of a merge by its result ``by``; False if a part has expired."""
        if not set(task.merge.segments) <= set(self.segments):
            return False
        self.segments = replaced(self.segments, task.merge, by)
        return True

    def merges(self, memory: int) -> list[Task]:
        """Return the merges that are due, each within ``memory`` bytes."""
        durations: tuple[int | None, ...] = ()
        if self.below is not None and self.segments:
            durations = (max(_last_tau(s) for s in self.segments) - self.below,)
        rows = sum(s.rows for s in self.segments)
        each = sum(s.bytes for s in self.segments) / max(rows, 1)
        largest = int(memory / (each + _SORTING * len(self.spec.indexes)))
        found = merge_groups(self.segments, FANOUT, durations, min(largest, LARGEST))
        return [Task(self.name, self.spec, merge) for merge in found]

    def statistics(self) -> TableStatistics:
        """Return the contents of the table."""
        stored = (*self.segments, *self.spilled)
        return TableStatistics(
            rows=sum(s.rows for s in stored) + sum(p.rows.num_rows for p in self.parts),
            bytes=sum(s.bytes for s in stored),
            segments=len(stored),
        )


class LsmBackend:
    """The backend; see the module's docstring."""

    kind = BackendKind.LSM

    def __init__(
        self,
        folder: Path,
        tables: Mapping[str, TableSpec],
        memory_limit: int,
        *,
        beside: bool = True,
    ) -> None:
        """Arguments: ``opening.open_backend``; ``beside``: merge in a thread, not in the commit."""
        self.folder = folder
        self._memory = memory_limit
        self._home = Home(folder, self.kind, tables)
        self._merger = Merger(folder, beside)
        self._closed = False
        try:
            with diagnosing(folder):
                state = _first(folder)
            self.batch: int = state["batch"]
            #: Bytes written by batches, and by merges.
            self._written: list[int] = list(state["written"])
            self._tables = {
                name: LsmTable(self, name, spec, state["segments"].get(name, ()))
                for name, spec in tables.items()
            }
            for name, table in self._tables.items():
                table.below = state["below"].get(name)
            verify_packs(folder, self._segments(), Verify.FOOTERS)
            with diagnosing(folder):
                self._sweep()
        except BaseException:
            self._home.leave()
            raise

    @property
    def tables(self) -> Mapping[str, LsmTable]:
        """The tables by name."""
        return self._tables

    def make_room(self) -> None:
        """Write the open batch's rows to segments if they exceed their share of memory.

        Raises:
            StateError: ``disk-full`` or ``not-writable``.
        """
        if sum(p.bytes for t in self._tables.values() for p in t.parts) * _BATCH <= self._memory:
            return
        for name, segment in self._write("spilled").items():
            table = self._tables[name]
            table.spilled = (*table.spilled, segment)
            table.parts = []
            table._views.clear()

    def commit(self, batch: int) -> None:
        """Make the open batch durable; see ``Backend.commit``."""
        later(self.batch, batch)
        with diagnosing(self.folder):
            for table in self._tables.values():
                if len(table.segments) >= STALL * FANOUT and self._stalled(table):
                    self._merger.wait()
            written = self._write("batch")
            for name, table in self._tables.items():
                table.commit(written.get(name))
                table.without_expired()
            for task, segment in self._merger.take():
                if self._tables[task.table].replace(task, segment):
                    self._written[1] += segment.bytes
            write_document(self.folder / "manifest.json", KIND, self._document(batch))
            self.batch = batch
            self._sweep()
        if not self._merger.busy:
            share = self._memory // _MERGE
            self._merger.begin([m for t in self._tables.values() for m in t.merges(share)])

    def verify(self) -> None:
        """Verify checksums; see ``Backend.verify``."""
        state = _read(self.folder)
        segments = [s for found in state["segments"].values() for s in found]
        verify_packs(self.folder, segments, Verify.FULL)

    def statistics(self) -> BackendStatistics:
        """Return contents and sizes; see ``Backend.statistics``."""
        return BackendStatistics(
            tables={name: t.statistics() for name, t in self._tables.items()},
            inserted=self._written[0],
            merged=self._written[1],
            disk=self._home.disk(),
            memory=sum(p.bytes for t in self._tables.values() for p in t.parts),
        )

    def close(self) -> None:
        """Unlock the folder; see ``Backend.close``."""
        if self._closed:
            return
        self._closed = True
        self._merger.close()
        keep_open(str(self.folder), {})
        for table in self._tables.values():
            table.parts = []
            table._views.clear()
        self._home.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def _segments(self) -> list[Segment]:
        return [s for t in self._tables.values() for s in (*t.segments, *t.spilled)]

    def _stalled(self, table: LsmTable) -> bool:
        """Whether merging is so far behind that the operator should wait for it."""
        tasks = table.merges(self._memory // _MERGE)
        levels = [s.level for s in table.segments]
        return any(levels.count(t.merge.segments[0].level) >= STALL * FANOUT for t in tasks)

    def _write(self, what: str) -> dict[str, Segment]:
        """Write the open batch's rows as segments in one pack; return table -> segment."""
        waiting = {name: t for name, t in self._tables.items() if t.parts}
        if not waiting:
            return {}
        with diagnosing(self.folder):
            name = f"segments/{what}-{uuid.uuid4().hex}.pack"
            with PackWriter(self.folder, name) as writer:
                for table in waiting.values():
                    part = joined(table.parts)
                    writer.add(
                        part.rows,
                        store=table.name,
                        partition=0,
                        members=(),
                        indexes=list(part.indexes.items()),
                    )
        self._written[0] += sum(s.bytes for s in writer.segments)
        return {s.store: s for s in writer.segments}

    def _document(self, batch: int) -> dict[str, Any]:
        return {
            "batch": batch,
            "written": self._written,
            "segments": {name: t.segments for name, t in self._tables.items()},
            "below": {name: t.below for name, t in self._tables.items()},
        }

    def _sweep(self) -> None:
        """Remove packs that no manifest names, except packs that are being written."""
        named = {s.path for s in self._segments()}
        for path in (self.folder / "segments").glob("*"):
            found = f"segments/{path.name}"
            if found not in named and not self._under_way(path):
                path.unlink(missing_ok=True)
        keep_open(str(self.folder), {"": tuple(self._segments())})

    def _under_way(self, path: Path) -> bool:
        return self._merger.busy and path.name.startswith(MERGED)


def _run(root: str, segment: Segment, key: IndexKey) -> Run:
    reader = open_segment(root, segment)
    return Run(
        reader,
        reader.index(key, lambda: columns_of(key)(reader)),
        (segment.first_batch << OFFSET_BITS, ((segment.last_batch + 1) << OFFSET_BITS) - 1),
        None if segment.tau_max[0] is None else (_first_tau(segment), _last_tau(segment)),
    )


def _first_tau(segment: Segment) -> int:
    (tau,) = segment.tau_min
    return -GREATEST if tau is None else tau


def _last_tau(segment: Segment) -> int:
    (tau,) = segment.tau_max
    return GREATEST if tau is None else tau


def _first(folder: Path) -> dict[str, Any]:
    """Read the last committed manifest. A new folder gets a manifest before any other file, so that
    a folder that has lost its manifest is not taken for a new one.
    """
    path = folder / "manifest.json"
    if not path.exists() and not (folder / "segments").exists():
        nothing: dict[str, Any] = {"batch": -1, "written": [0, 0], "segments": {}, "below": {}}
        write_document(path, KIND, nothing)
    return _read(folder)


def _read(folder: Path) -> dict[str, Any]:
    """Read the last committed manifest.

    Raises:
        StateError: ``damaged-backend-manifest`` or ``unknown-version``.
    """
    state: dict[str, Any] = read_document(folder / "manifest.json", KIND)
    found = {
        n: tuple(codec.from_json(s, Segment) for s in some) for n, some in state["segments"].items()
    }
    return {**state, "segments": found}
