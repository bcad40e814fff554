"""Segments: immutable runs of a store's rows in pack files, which every worker memory-maps.

On-disk format, version 1. A *pack* has the segments that one task of a batch wrote at one level:

    8 bytes   magic ``ANBPACK1``
    blobs     each aligned to 64 bytes
    footer    JSON: {"version": 1, "segments": [descriptor, ...]}
    8 bytes   little-endian length of the footer
    4 bytes   little-endian CRC-32 of the footer
    8 bytes   magic ``ANBPACK1``

A file without the closing magic was never finished and is garbage. A segment is a range of blobs:
one Arrow IPC stream with a single uncompressed record batch (so columns are read in place), and
per index four raw arrays (``hashes`` uint64, ``rows`` uint32, ``starts`` uint32, ``filter``
uint64). Every blob's CRC-32 is in the descriptor and is checked at the pipeline's start
(``storage.verify``) and whenever the segment is merged; probes check only the file's length.

Columns: a base store has the stream's columns plus ``#sigma`` and ``#tau`` (arrival number and
event time; the latter only if the stream has one); a store of joined rows has
``<member>.<column>``, ``#sigma:<member>`` and ``#tau:<member>``.
"""

from __future__ import annotations

import contextlib
import io
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_contract import codec
from anabranch_contract.queries.changes import TUPLE_WEIGHT
from anabranch_contract.queries.joins import ARRIVAL
from anabranch_runtime import faults
from anabranch_runtime.errors import StateError
from anabranch_runtime.index.gather import ColumnPlace, DerivedColumn, place_of
from anabranch_runtime.index.hash_index import HashIndex, build_index
from anabranch_runtime.index.keys import key_vector
from anabranch_runtime.storage.paging import Mapped, map_file

MAGIC = b"ANBPACK1"
VERSION = 1
ALIGNMENT = 64
#: Up to this many rows are copied into one buffer, which is faster than writing each column.
_FEW = 1 << 14
#: Low bits of an arrival number (sigma): position within the batch. The highest two of these are
#: the stream's rank (``Routes.ranks``); the range of the other bits is divided equally among tasks.
#: The high bits suffice for 2,147,483,648 batches: three years at 20 batches a second.
OFFSET_BITS = 32

SIGMA = ARRIVAL
TAU = "#tau"

#: Remedy in errors for a pack that is found damaged while the pipeline runs.
AGAIN = "start the pipeline again: it rolls back to the last intact batch, or reports why it can't"
#: (offset, length, crc32) of a blob in its pack.
Blob = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment's descriptor, as manifests contain it.

    Attributes:
        store, partition: the segment's store and partition.
        path: the pack, relative to the state's root.
        rows: number of rows.
        first_batch, last_batch: range of batches in which the last members of rows arrived.
        tau_min, tau_max: per member, least and greatest event time (microseconds); empty without
            event times.
        level: number of merges that have led to the segment; 0: written by a batch.
        data: blob of the record batch.
        indexes: (index name, whether hashes are unique, blobs of hashes, rows, starts and filter).
    """

    store: str
    partition: int
    path: str
    rows: int
    first_batch: int
    last_batch: int
    tau_min: tuple[int | None, ...]
    tau_max: tuple[int | None, ...]
    level: int
    data: Blob
    indexes: tuple[tuple[str, bool, tuple[Blob, Blob, Blob, Blob]], ...]

    @property
    def blobs(self) -> tuple[Blob, ...]:
        """The segment's blobs, in their order in the pack."""
        return (self.data, *(b for _, _, blobs in self.indexes for b in blobs))

    @property
    def bytes(self) -> int:
        """Size of the segment on disk in bytes, including indexes."""
        total = self.data[1]
        for _, _, blobs in self.indexes:
            for blob in blobs:
                total += blob[1]
        return total


@dataclass(frozen=True, slots=True)
class Merge:
    """Segments of one store partition to be merged into one."""

    segments: tuple[Segment, ...]

    @property
    def bytes(self) -> int:
        """Size of the segments on disk in bytes."""
        return sum(segment.bytes for segment in self.segments)


@dataclass(frozen=True, slots=True)
class IndexKey:
    """The columns of an index: their names in the segment, and their key types."""

    columns: tuple[str, ...]
    types: tuple[str, ...]

    @property
    def name(self) -> str:
        """The index's name in descriptors of segments."""
        return ",".join(f"{c}:{t}" for c, t in zip(self.columns, self.types, strict=True))


@dataclass(frozen=True, slots=True)
class ChangedColumns:
    """Columns of a store that have changed since some of its rows were written.

    Attributes:
        added: columns that rows of a base store may lack, with the value that such rows then have.
        types: the present types of widened columns, by name in the segment.
        dropped: columns of a base store that only earlier rows still have.
    """

    added: Mapping[str, pa.Scalar]
    types: Mapping[str, pa.DataType]
    dropped: frozenset[str] = frozenset()


UNCHANGED = ChangedColumns({}, {})


class PackWriter:
    """Writes one pack. The file gets its name only when it is complete, and is durable once
    :meth:`Durable.upload` has returned.

    Used as a context manager: after an error no file is left.
    """

    def __init__(self, root: Path, name: str) -> None:
        self._root = root
        self._name = name
        self._final = root / name
        self._partial = self._final.with_name(self._final.name + ".partial")
        self._final.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._partial.open("wb")
        self._file.write(MAGIC)
        self._at = len(MAGIC)
        self.segments: list[Segment] = []

    def __enter__(self) -> PackWriter:
        return self

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        try:
            if kind is None and self.segments:
                self._complete()
        finally:
            # On a full disk, closing may fail too; on a read-only disk there is no file.
            with contextlib.suppress(OSError):
                self._file.close()
            with contextlib.suppress(OSError):
                self._partial.unlink(missing_ok=True)

    def _complete(self) -> None:
        footer = json.dumps({"version": VERSION, "segments": codec.to_json(self.segments)}).encode()
        self._file.write(footer)
        self._file.write(len(footer).to_bytes(8, "little"))
        self._file.write(zlib.crc32(footer).to_bytes(4, "little"))
        self._file.write(MAGIC)
        self._file.flush()
        faults.reach(faults.Point.STORING)
        self._partial.rename(self._final)

    def add(
        self,
        batch: pa.RecordBatch,
        *,
        store: str,
        partition: int,
        members: Sequence[str],
        indexes: Sequence[tuple[IndexKey, HashIndex]],
        level: int = 0,
    ) -> Segment:
        """Append ``batch`` as a segment of ``store``; it must not be empty.

        ``members``: labels of the joined relations; empty for rows of a base store.
        """
        names = [f":{m}" for m in members] or [""]
        sigmas = np.stack([_numpy(batch.column(SIGMA + n)) for n in names])
        last = sigmas.max(axis=0) >> OFFSET_BITS
        taus = [
            _numpy(batch.column(TAU + n)) if TAU + n in batch.schema.names else None for n in names
        ]
        segment = Segment(
            store=store,
            partition=partition,
            path=self._name,
            rows=batch.num_rows,
            first_batch=int(last.min()),
            last_batch=int(last.max()),
            tau_min=tuple(None if t is None else int(t.min()) for t in taus),
            tau_max=tuple(None if t is None else int(t.max()) for t in taus),
            level=level,
            data=self._stream(batch),
            indexes=tuple(
                (
                    key.name,
                    index.unique,
                    (
                        self._blob(index.hashes),
                        self._blob(index.rows),
                        self._blob(index.starts),
                        self._blob(index.filter),
                    ),
                )
                for key, index in indexes
            ),
        )
        self.segments.append(segment)
        return segment

    def add_plain(self, rows: pa.RecordBatch, *, store: str, batch: int) -> Segment:
        """Append rows as a segment without arrival numbers, event times or indexes."""
        data = self._stream(rows)
        segment = Segment(
            store, 0, self._name, rows.num_rows, batch, batch, (), (), 0, data, indexes=()
        )
        self.segments.append(segment)
        return segment

    def _stream(self, batch: pa.RecordBatch) -> Blob:
        """Write the rows as a blob. Many rows are written by column, without copying them all."""
        if batch.num_rows < _FEW:
            copy = pa.BufferOutputStream()
            with pa.ipc.new_stream(copy, batch.schema) as writer:
                writer.write_batch(batch)
            return self._blob(copy.getvalue())
        self._align()
        start, sink = self._at, _Counted(self._file)
        # To a Python file object, Arrow writes columns' buffers without copying them.
        with pa.PythonFile(sink, mode="w") as file, pa.ipc.new_stream(file, batch.schema) as writer:
            writer.write_batch(batch)
        self._at = start + sink.written
        return (start, sink.written, sink.crc)

    def _blob(self, data: pa.Buffer | NDArray[Any]) -> Blob:
        plain = np.ascontiguousarray(data).data if isinstance(data, np.ndarray) else data
        view = memoryview(plain)
        view = view.cast("B") if view.nbytes else memoryview(b"")
        self._align()
        start = self._at
        self._file.write(view)
        self._at = start + view.nbytes
        return (start, view.nbytes, zlib.crc32(view))

    def _align(self) -> None:
        pad = -self._at % ALIGNMENT
        self._file.write(b"\0" * pad)
        self._at += pad


class _Counted(io.RawIOBase):
    """Writer of a part of a file; counts its bytes, and computes its checksum."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.written = 0
        self.crc = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.written

    def write(self, data: Any, /) -> int:
        with memoryview(data) as view:
            self._file.write(view)
            self.crc = zlib.crc32(view, self.crc)
            self.written += view.nbytes
            return view.nbytes


class SegmentReader:
    """A segment opened for reading; columns and indexes are views of the mapped file.

    Attributes:
        lines: cache of values that callers derive from the segment, by key.
        derived: name -> column computed from the rows by a caller, readable by :meth:`place`.
        changed: columns that may have changed since the rows were written.
    """

    def __init__(
        self, segment: Segment, buffer: pa.Buffer, changed: ChangedColumns = UNCHANGED
    ) -> None:
        self.segment, self.changed = segment, changed
        self._buffer = buffer
        self._batch: pa.RecordBatch | None = None
        self._places: dict[str, ColumnPlace] = {}
        self._indexes: dict[IndexKey, HashIndex] = {}
        self._made: dict[str, pa.Array] = {}
        self.lines: dict[str, bytes] = {}
        self.derived: dict[str, DerivedColumn] = {}

    @property
    def rows(self) -> int:
        """Number of rows of the segment."""
        return self.segment.rows

    @staticmethod
    def of(
        segment: Segment, buffer: pa.Buffer, changed: ChangedColumns = UNCHANGED
    ) -> SegmentReader:
        """Open ``segment`` in the pack with the bytes ``buffer``.

        Raises:
            StateError: the pack is too short.
        """
        end = max(offset + length for offset, length, _ in segment.blobs)
        if buffer.size < end:
            raise StateError(
                "damaged-pack",
                f"{segment.path} has {buffer.size} bytes and should have more than {end}",
                remedy=AGAIN,
            )
        return SegmentReader(segment, buffer, changed)

    @property
    def batch(self) -> pa.RecordBatch:
        """The segment's rows, as they were written."""
        if self._batch is None:
            offset, length, _ = self.segment.data
            with pa.ipc.open_stream(self._buffer.slice(offset, length)) as reader:
                self._batch = reader.read_next_batch()
        return self._batch

    @property
    def complete(self) -> pa.RecordBatch:
        """Rows with the present columns and types; columns that the segment lacks come last."""
        there = self.batch.schema.names
        names = [name for name in there if name not in self.changed.dropped]
        missing = [name for name in self.changed.added if name not in names]
        if not missing and not self._cast and len(names) == len(there):
            return self.batch
        columns = {name: self.column(name) for name in names}
        hidden = {n: columns.pop(n) for n in (TUPLE_WEIGHT, SIGMA, TAU) if n in columns}
        columns |= {name: self.column(name) for name in missing} | hidden
        return pa.RecordBatch.from_pydict(columns)

    @property
    def _cast(self) -> frozenset[str]:
        """Names of columns that are stored with an earlier type, and cast when they are read."""
        schema, types = self.batch.schema, self.changed.types
        there = (name for name in types if name in schema.names)
        return frozenset(name for name in there if schema.field(name).type != types[name])

    def column(self, name: str) -> pa.Array:
        """Return a column of the segment by name."""
        added, types = self.changed.added, self.changed.types
        if name not in added and name not in types:
            return self.batch.column(name)
        found = self._made.get(name)
        if found is None:
            there = name in self.batch.schema.names
            found = self.batch.column(name) if there else pa.repeat(added[name], self.rows)
            if name in types:
                found = found.cast(types[name])
            # A concurrent task may have made it first; others may already use its addresses.
            found = self._made.setdefault(name, found)
        return found

    def place(self, name: str) -> ColumnPlace:
        """Return the memory addresses of the buffers of the segment's column ``name``."""
        found = self._places.get(name)
        if found is None:
            made = self.derived.get(name)
            found = place_of(self.column(name)) if made is None else made.place
            found = self._places.setdefault(name, found)
        return found

    def index(self, key: IndexKey, columns: Callable[[], list[pa.Array]]) -> HashIndex:
        """Return the index over ``key``: from the file, or built now from ``columns()`` if the
        segment has none. The reader keeps a built index."""
        found = self._indexes.get(key)
        if found is None:
            name = key.name
            stored = next((x for x in self.segment.indexes if x[0] == name), None)
            if stored is None:
                found = build_index(key_vector(columns(), key.types))
            else:
                _, unique, blobs = stored
                hashes, rows, starts, screen = (self._buffer.slice(o, n) for o, n, _ in blobs)
                found = HashIndex(
                    np.frombuffer(hashes, np.uint64),
                    np.frombuffer(rows, np.uint32),
                    np.frombuffer(starts, np.uint32),
                    unique,
                    np.frombuffer(screen, np.uint64),
                )
            # A concurrent task may have built it first; others may already use its addresses.
            found = self._indexes.setdefault(key, found)
        return found

    def verify(self) -> None:
        """Compare every blob of the segment with its checksum.

        Raises:
            StateError: the file is damaged.
        """
        for offset, length, crc in self.segment.blobs:
            if zlib.crc32(memoryview(self._buffer.slice(offset, length))) != crc:
                raise StateError(
                    "damaged-segment",
                    f"{self.segment.path} at byte {offset} does not match its checksum",
                    remedy="restore the state directory from a backup",
                )


def map_pack(root: str, path: str) -> Mapped:
    """Map a pack into memory.

    Raises:
        StateError: the pack can't be read.
    """
    try:
        return map_file(Path(root) / path)
    except OSError as cause:
        raise StateError("missing-pack", f"{path} can't be read: {cause}", remedy=AGAIN) from cause


def _numpy(array: pa.Array) -> NDArray[np.int64]:
    return array.to_numpy(zero_copy_only=True)  # type: ignore[no-any-return]
