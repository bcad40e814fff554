"""The state backend ``memory`` (the reference): all state in anonymous memory, found by hash
tables.

It is the state of a multi-way join operator without a state store, so other backends are compared
with it. Rows are in blocks of ``2**16``, and each index is one chained hash table. An insert that
would exceed ``memory_limit`` is refused with ``memory-limit``.

**Durability.** A commit appends the rows of the batch to a log and then replaces ``log.json``,
which has the length of the log. Opening reads the log from its beginning. When more than half of
the rows have expired, the others are written to a new log.

The log: 8 bytes ``ANBLOG01``; then records: length of the payload (uint64, little-endian); CRC-32
of the table's number followed by the payload (uint32); number of the table in the order of names
(uint16); payload (one Arrow IPC stream).
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_runtime.errors import StateError
from anabranch_runtime.index.gather import BatchTable
from anabranch_runtime.index.keys import key_vector
from anabranch_runtime.index.matching import in_order
from anabranch_runtime.storage.documents import Kind, read_document, sync_path, write_document
from anabranch_runtime.storage.partial import RowSet, Tables, narrow
from anabranch_runtime.storage.segment import SIGMA, TAU, IndexKey
from benchmarks.umjoin.backends.hash_chains import enchain, follow
from benchmarks.umjoin.backends.home import Home, diagnosing, later
from benchmarks.umjoin.backends.interface import (
    I32,
    MOST,
    BackendKind,
    BackendStatistics,
    Bounds,
    Found,
    Ints,
    TableSpec,
    TableStatistics,
)
from benchmarks.umjoin.backends.search import GREATEST, LEAST, checked, known, present_at

MAGIC = b"ANBLOG01"
KIND = Kind("log", "state")
_RECORD = struct.Struct("<QIH")
_BLOCK_BITS = 16
_BLOCK = 1 << _BLOCK_BITS
_NONE = np.empty(0, np.int64)
#: Number of rows for which an empty table has capacity.
_FIRST_ROOM = 1 << 10


class Growing:
    """An array that grows at its end; when it is full, its capacity doubles."""

    def __init__(self, kind: type[np.generic]) -> None:
        self.values: NDArray[Any] = np.empty(0, kind)

    def reserve(self, rows: int) -> None:
        """Increase the capacity to at least ``rows`` rows."""
        if rows > len(self.values):
            wider = np.empty(room_for(rows), self.values.dtype)
            wider[: len(self.values)] = self.values
            self.values = wider


def room_for(rows: int) -> int:
    """Return the capacity of an array that must hold ``rows`` rows."""
    return max(_FIRST_ROOM, 1 << (rows - 1).bit_length()) if rows else 0


class Chains:
    """An index: a chained hash table over a table's rows."""

    #: Bytes per row of capacity: hash, validity, next row, bucket.
    EACH = 8 + 1 + 4 + 4

    def __init__(self, key: IndexKey) -> None:
        self.key = key
        self._hashes, self._valid = Growing(np.uint64), Growing(np.bool_)
        self._after = Growing(np.int32)
        self._bits = 1
        self._heads: I32 = np.full(2, -1, np.int32)

    def add(self, first: int, columns: Sequence[pa.Array]) -> None:
        """Add the rows from ``first`` on, with their key columns."""
        vector = key_vector(columns, self.key.types)
        end = first + len(vector)
        for array in (self._hashes, self._valid, self._after):
            array.reserve(end)
        self._hashes.values[first:end] = vector.hashes
        self._valid.values[first:end] = True if vector.valid is None else vector.valid
        bits = (len(self._hashes.values) - 1).bit_length()
        if bits > self._bits:
            first, self._bits = 0, bits
            self._heads = np.full(1 << bits, -1, np.int32)
        enchain(
            self._hashes.values,
            self._valid.values,
            first,
            end,
            self._bits,
            self._heads,
            self._after.values,
        )

    def pairs(
        self, keys: Sequence[pa.Array], bounds: Bounds, most: int, sigma: Ints, tau: Ints
    ) -> Iterator[tuple[I32, I32, bool]]:
        """Return position and row of pairs, and whether equal hashes mean equal keys."""
        vector = key_vector(keys, self.key.types)
        probes = in_order(vector.hashes, present_at(vector))
        before = _NONE if bounds.before is None else bounds.before
        low, high = bounds.low, bounds.high
        if low is not None or high is not None:
            low = np.full(len(vector), LEAST) if low is None else low
            high = np.full(len(vector), GREATEST) if high is None else high
        at = 0
        while at < len(probes):
            positions, rows, at = follow(
                probes.hashes,
                probes.order,
                at,
                most,
                self._hashes.values,
                self._bits,
                self._heads,
                self._after.values,
                sigma,
                before,
                tau,
                _NONE if low is None else low,
                _NONE if high is None else high,
            )
            if len(positions):
                yield positions, rows, vector.exact


@dataclass(slots=True)
class MemoryTable:
    """A table of the backend, which makes all its tables."""

    backend: MemoryBackend
    spec: TableSpec
    rows: int = 0
    below: int | None = None
    #: Rows inserted by the open batch.
    fresh: list[pa.RecordBatch] = field(default_factory=list)
    _blocks: list[BatchTable] = field(default_factory=list)
    _bytes: int = 0
    _sigma: Growing = field(default_factory=lambda: Growing(np.int64))
    _tau: Growing = field(default_factory=lambda: Growing(np.int64))
    _indexes: dict[IndexKey, Chains] = field(default_factory=dict)
    _tables: Tables | None = None

    def __post_init__(self) -> None:
        self._indexes = {key: Chains(key) for key in self.spec.indexes}

    def insert(self, rows: pa.RecordBatch) -> None:
        """Insert rows; see ``Table.insert``."""
        found = self.spec.checked(rows)
        if not found.num_rows:
            return
        for key in self.spec.indexes:
            # Check the key types before anything is changed.
            key_vector([found.column(c).slice(0, 0) for c in key.columns], key.types)
        self.backend.make_room(self, found)
        self.add(found)
        self.fresh.append(found)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add ``rows``, which are durable already or will be with the commit."""
        first = self.rows
        self.rows += rows.num_rows
        for name, growing in ((SIGMA, self._sigma), (TAU, self._tau)):
            if name in rows.schema.names:
                growing.reserve(self.rows)
                growing.values[first : self.rows] = rows.column(name).to_numpy()
        for key, index in self._indexes.items():
            index.add(first, [rows.column(c) for c in key.columns])
        whole = rows
        if first % _BLOCK:
            tail = self._blocks.pop().batch
            self._bytes -= tail.nbytes
            whole = pa.concat_batches([tail, rows])
        for at in range(0, whole.num_rows, _BLOCK):
            # Copy the rows, so that no larger buffer is kept in memory.
            block = pa.concat_batches([whole.slice(at, _BLOCK), whole.slice(0, 0)])
            self._blocks.append(BatchTable(block))
            self._bytes += block.nbytes
        self._tables = None

    def probe(
        self,
        index: IndexKey,
        keys: Sequence[pa.Array],
        bounds: Bounds = Bounds(),  # noqa: B008 - frozen
        most: int = MOST,
    ) -> Iterator[Found]:
        """Probe the table; see ``Table.probe``."""
        chains = self._indexes[known(self.spec, index)]
        if not self.rows or not len(keys[0]):
            return
        if self._tables is None:
            self._tables = Tables(self._blocks)
        tables = self._tables
        sigma, tau = self._sigma.values, self._tau.values
        for positions, rows, exact in chains.pairs(keys, bounds, most, sigma, tau):
            which: NDArray[np.integer[Any]] | None = None
            if len(tables) > 1:
                which = (rows >> _BLOCK_BITS).astype(narrow(len(tables)))
            pairs = Found(positions, RowSet(tables, which, rows & np.int32(_BLOCK - 1)))
            if not exact:
                pairs = checked(index, keys, pairs)
            if len(pairs.positions):
                yield pairs

    def expire(self, below: int) -> None:
        """Expire rows; see ``Table.expire``. Commits remove them when they are more than half of
        all.
        """
        self.below = below if self.below is None else max(self.below, below)

    @property
    def overdue(self) -> bool:
        """Whether more than half of the rows have expired."""
        if self.below is None:
            return False
        return 2 * int((self._tau.values[: self.rows] < self.below).sum()) > self.rows

    def forget(self) -> None:
        """Remove all expired rows."""
        blocks, self.rows, self._bytes = self._blocks, 0, 0
        self._blocks, self._sigma, self._tau = [], Growing(np.int64), Growing(np.int64)
        self._indexes = {key: Chains(key) for key in self.spec.indexes}
        self._tables = None
        for block in blocks:
            taus = block.batch.column(TAU).to_numpy()
            kept = block.batch.filter(pa.array(taus >= self.below))
            if kept.num_rows:
                self.add(kept)

    def batches(self) -> list[pa.RecordBatch]:
        """Return all rows in batches."""
        return [block.batch for block in self._blocks]

    def memory(self, more: pa.RecordBatch | None = None) -> int:
        """Return the bytes of the table with the rows ``more``, including temporary copies."""
        words = 2 if self.spec.timed else 1
        each = 8 * words + Chains.EACH * len(self._indexes)
        if more is None:
            return self._bytes + each * room_for(self.rows)
        before, after = room_for(self.rows), room_for(self.rows + more.num_rows)
        # Arrays are copied one after the other when they grow.
        copied = 8 * before if after > before else 0
        return self._bytes + 2 * int(more.nbytes) + each * after + copied

    def statistics(self) -> TableStatistics:
        """Return the contents of the table."""
        return TableStatistics(self.rows, self.memory(), None)


class MemoryBackend:
    """The backend; see the module's docstring."""

    kind = BackendKind.MEMORY

    def __init__(self, folder: Path, tables: Mapping[str, TableSpec], memory_limit: int) -> None:
        """Arguments as for ``opening.open_backend``."""
        self.folder = folder
        self._memory = memory_limit
        self._specs = dict(tables)
        self._tables: dict[str, MemoryTable] = {}
        self._home = Home(folder, self.kind, tables)
        try:
            with diagnosing(folder):
                state = _first(folder)
                self._log: str = state["log"]
                self._length: int = state["length"]
                self.batch: int = state["batch"]
                self._written: list[int] = state["written"]
                self._load(state["below"])
                for path in folder.glob("*.log"):
                    if path.name != self._log:
                        path.unlink()
        except BaseException:
            self._home.leave()
            raise
        self._closed = False

    @property
    def tables(self) -> Mapping[str, MemoryTable]:
        """The tables by name."""
        return self._tables

    def make_room(self, table: MemoryTable, rows: pa.RecordBatch) -> None:
        """Check that ``rows`` fit into the memory limit.

        Raises:
            StateError: ``memory-limit``.
        """
        others = sum(t.memory() for t in self._tables.values() if t is not table)
        need = others + table.memory(rows)
        if need > self._memory:
            raise StateError(
                "memory-limit",
                f"the state needs {need:,} bytes of memory and may take {self._memory:,}",
                field="memory_limit",
                remedy="allow more, or use the backend 'lsm', which keeps state on disk",
            )

    def commit(self, batch: int) -> None:
        """Make the open batch durable; see ``Backend.commit``."""
        later(self.batch, batch)
        with diagnosing(self.folder):
            fresh = {name: t.fresh for name, t in self._tables.items()}
            if any(t.overdue for t in self._tables.values()):
                self._renew(batch)
            else:
                self._written[0] += self._append(self.folder / self._log, fresh)
            for table in self._tables.values():
                table.fresh = []
            write_document(self.folder / "log.json", KIND, self._document(batch))
            self.batch = batch
            for path in self.folder.glob("*.log"):
                if path.name != self._log:
                    path.unlink()

    def verify(self) -> None:
        """Verify checksums; see ``Backend.verify``."""
        state = _first(self.folder)
        for _ in _records(self.folder / state["log"], state["length"], len(self._specs)):
            pass

    def statistics(self) -> BackendStatistics:
        """Return contents and sizes; see ``Backend.statistics``."""
        return BackendStatistics(
            tables={name: t.statistics() for name, t in self._tables.items()},
            inserted=self._written[0],
            merged=self._written[1],
            disk=self._home.disk(),
            memory=sum(t.memory() for t in self._tables.values()),
        )

    def close(self) -> None:
        """Unlock the folder; see ``Backend.close``."""
        if not self._closed:
            self._closed = True
            self._tables = {}
            self._home.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def _load(self, below: Mapping[str, int | None]) -> None:
        names = sorted(self._specs)
        self._tables = {
            name: MemoryTable(self, spec, below=below.get(name))
            for name, spec in self._specs.items()
        }
        for number, payload in _records(self.folder / self._log, self._length, len(names)):
            table = self._tables[names[number]]
            with pa.ipc.open_stream(payload) as reader:
                for rows in reader:
                    self.make_room(table, rows)
                    table.add(rows)

    def _renew(self, batch: int) -> None:
        """Write the rows that have not expired to a new log."""
        for table in self._tables.values():
            if table.overdue:
                table.forget()
        self._log, self._length = f"{batch}.log", len(MAGIC)
        _write(self.folder / self._log, MAGIC)
        self._written[1] += self._append(
            self.folder / self._log, {name: t.batches() for name, t in self._tables.items()}
        )

    def _append(self, path: Path, rows: Mapping[str, list[pa.RecordBatch]]) -> int:
        """Append rows by table to the log; returns the number of bytes."""
        began = self._length
        with path.open("r+b") as file:
            # The end of the file may have rows of a batch that was not committed.
            file.truncate(self._length)
            file.seek(self._length)
            for number, name in enumerate(sorted(rows)):
                for batch in rows[name]:
                    sink = pa.BufferOutputStream()
                    with pa.ipc.new_stream(sink, batch.schema) as writer:
                        writer.write_batch(batch)
                    payload = sink.getvalue()
                    file.write(_RECORD.pack(payload.size, _checksum(number, payload), number))
                    file.write(payload)
                    self._length += _RECORD.size + payload.size
            file.flush()
            os.fsync(file.fileno())
        return self._length - began

    def _document(self, batch: int) -> dict[str, Any]:
        return {
            "batch": batch,
            "log": self._log,
            "length": self._length,
            "written": self._written,
            "below": {name: t.below for name, t in self._tables.items()},
        }


def _first(folder: Path) -> dict[str, Any]:
    """Read the last committed document; a new folder gets an empty log."""
    path = folder / "log.json"
    if not path.exists() and not any(folder.glob("*.log")):
        nothing = {"batch": -1, "log": "first.log", "length": 8, "written": [0, 0], "below": {}}
        write_document(path, KIND, nothing)
    state: dict[str, Any] = read_document(path, KIND)
    if state["batch"] < 0 and not (folder / state["log"]).exists():
        _write(folder / state["log"], MAGIC)
    return state


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    sync_path(path.parent)


def _records(path: Path, length: int, tables: int) -> Iterator[tuple[int, bytes]]:
    """Yield the committed records of a log: number of the table, and payload.

    Raises:
        StateError: ``damaged-log``.
    """
    remedy = "restore the folder from a backup, or begin again with an empty one"
    try:
        with path.open("rb") as file:
            at = len(MAGIC)
            if file.read(at) != MAGIC:
                raise StateError("damaged-log", f"{path} is not a log", remedy=remedy)
            while at < length:
                head = file.read(_RECORD.size)
                size, crc, number = _RECORD.unpack(head) if len(head) == _RECORD.size else (0, 0, 0)
                fits = at + _RECORD.size + size <= length
                payload = file.read(size) if fits and len(head) == _RECORD.size else b""
                if len(payload) < max(size, 1) or _checksum(number, payload) != crc:
                    raise StateError(
                        "damaged-log",
                        f"{path} is damaged: what begins at byte {at} does not match its checksum",
                        remedy=remedy,
                    )
                if number >= tables:
                    raise StateError(
                        "damaged-log", f"{path} has rows of an unknown table", remedy=remedy
                    )
                at += _RECORD.size + size
                yield number, payload
    except FileNotFoundError as cause:
        raise StateError("damaged-log", f"{path} is missing", remedy=remedy) from cause


def _checksum(number: int, payload: pa.Buffer | bytes) -> int:
    return zlib.crc32(memoryview(payload), zlib.crc32(number.to_bytes(2, "little")))
