"""The state backend ``rocksdb``: RocksDB by ``rocksdict`` (extra ``bench``), for comparison.

**Layout.** The key of an entry is ``number of the index (1 byte), hash of the join key (8 bytes,
most significant first)``; its value is the number (uint32) of full chunks, followed by the list of
the rows with that hash, encoded by ``row_codec``. A list beyond 8 KiB becomes a chunk, i.e. an
entry whose key also has the chunk's number, and the list starts empty again; so a frequent key's
rows are not all written again with every new row. A table with several indexes stores its rows once
per index. Probes look up hashes in ascending order, with one call per block of keys; Bloom filters
answer most look-ups that find nothing. As in the other backends, rows inserted by the open batch
are in memory; the commit writes them in one write batch.

**Layouts compared** (a million rows of 100 bytes, 10,000 probes a call, in thousands of probes a
second): this layout 97 hits, 290 misses; keys of hash and sequence number, with a prefix extractor,
prefix Bloom filters and iterators, 61 and 178, since moving and reading an iterator takes calls
from Python; probes in random order, 69 and 48. ``rocksdict`` has no merge operator, so a list is
read before rows are appended (one call for all keys of a commit). ``WriteBatch`` takes one key per
call. Compression is off, as in the other backends.

**Memory.** Of ``memory_limit`` the block cache gets a half, write buffers a quarter, and the open
batch a quarter: an insert of more is refused with ``memory-limit``.

**Expiry.** RocksDB's own expiry depends on the time of day, so it is not used. All expired rows are
removed together when they are more than half of a table.
"""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from rocksdict import (
    BlockBasedOptions,
    Cache,
    DataBlockIndexType,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from anabranch_runtime.columns.arrays import U64
from anabranch_runtime.errors import StateError
from anabranch_runtime.index.gather import BatchTable
from anabranch_runtime.index.keys import KeyVector, key_vector
from anabranch_runtime.index.matching import in_order
from anabranch_runtime.storage.partial import RowSet, Tables
from anabranch_runtime.storage.segment import TAU, IndexKey
from benchmarks.umjoin.backends.counting import runs
from benchmarks.umjoin.backends.delta import Part, append, part_of
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
from benchmarks.umjoin.backends.row_codec import RowCodec
from benchmarks.umjoin.backends.search import View, checked, known, present_at, within

#: Shares of the memory limit, as divisors.
_CACHE, _BUFFERS, _BATCH = 2, 4, 4
_BLOOM_BITS = 10
#: Size in bytes from which on a list becomes a full chunk.
_FULL = 8 << 10
#: Number of keys looked up in one call.
_KEYS = 1 << 14
_META = b"\xff"
_COUNT = struct.Struct("<I")
_CHUNK = struct.Struct(">I")
#: Maximum number of entries in a table's history of event times.
_HISTORY = 256


@dataclass(frozen=True, slots=True)
class Lists:
    """The decoded rows of several hashes.

    Attributes:
        rows: all rows, ordered by hash.
        ends: end of the rows of each hash.
    """

    rows: pa.RecordBatch
    ends: Ints


@dataclass(slots=True)
class RocksTable:
    """A table of the backend, which makes all its tables.

    Attributes:
        first: number of the table's first index among the indexes of all tables.
        rows: number of committed rows that have not been removed.
        history: least and greatest event time of each commit's rows, and their number.
    """

    backend: RocksBackend
    spec: TableSpec
    first: int
    rows: int = 0
    below: int | None = None
    history: list[list[int]] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    codec: RowCodec = field(init=False)
    _views: dict[IndexKey, View] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.codec = RowCodec(self.spec.stored)

    def insert(self, rows: pa.RecordBatch) -> None:
        """Insert rows; see ``Table.insert``."""
        found = self.spec.checked(rows)
        if found.num_rows:
            part = part_of(self.spec, found)
            self.backend.make_room(part)
            append(self.parts, part)
            self._views.clear()

    def probe(
        self,
        index: IndexKey,
        keys: Sequence[pa.Array],
        bounds: Bounds = Bounds(),  # noqa: B008 - frozen
        most: int = MOST,
    ) -> Iterator[Found]:
        """Probe the table; see ``Table.probe``."""
        if known(self.spec, index) not in self._views:
            self._views[index] = View(index, [p.run(index) for p in self.parts])
        if self.backend.batch >= 0 and len(keys[0]):
            for pairs in self._stored(index, keys, most):
                kept = within(pairs, bounds)
                if len(kept.positions):
                    yield kept
        yield from self._views[index].search(keys, bounds, most)

    def expire(self, below: int) -> None:
        """Expire rows; see ``Table.expire``."""
        self.below = below if self.below is None else max(self.below, below)

    @property
    def overdue(self) -> bool:
        """Whether more than half of the rows have expired."""
        if self.below is None:
            return False
        return 2 * sum(rows for _, last, rows in self.history if last < self.below) > self.rows

    def write(self, batch: WriteBatch) -> None:
        """Append the open batch's rows to the lists of their keys."""
        if not self.parts:
            return
        rows = pa.concat_batches([p.rows for p in self.parts])
        if self.spec.timed:
            taus = rows.column(TAU).to_numpy()
            self.history.append([int(taus.min()), int(taus.max()), rows.num_rows])
            if len(self.history) > _HISTORY:
                self.history = _coarser(self.history)
        for number, key in enumerate(self.spec.indexes, self.first):
            vector = key_vector([rows.column(c) for c in key.columns], key.types)
            hashes, chosen = _ascending(vector)
            self.rows += len(hashes) if number == self.first else 0
            if len(hashes):
                self._append(batch, number, hashes, rows.take(pa.array(chosen)))

    def clear(self) -> None:
        """Forget the open batch's rows, which are committed."""
        self.parts = []
        self._views.clear()

    def sweep(self) -> None:
        """Remove all expired rows."""
        assert self.below is not None
        for number in range(self.first, self.first + len(self.spec.indexes)):
            items = self.backend.items(number)
            while block := list(islice(items, _KEYS)):
                with self.backend.batch_of() as batch:
                    gone = self._without_expired(batch, block)
                    if number == self.first:
                        self.rows -= gone
        self.history = [h for h in self.history if h[1] >= self.below]

    def statistics(self, each: float) -> TableStatistics:
        """Return the contents of the table; ``each``: bytes per row and index on disk."""
        waiting = sum(p.rows.num_rows for p in self.parts)
        stored = int(each * self.rows * len(self.spec.indexes))
        return TableStatistics(self.rows + waiting, stored, None)

    def _stored(self, index: IndexKey, keys: Sequence[pa.Array], most: int) -> Iterator[Found]:
        number = self.first + self.spec.indexes.index(index)
        vector = key_vector(keys, index.types)
        hashes, positions = _ascending(vector)
        distinct, of_probe = np.unique(hashes, return_inverse=True)
        for at in range(0, len(distinct), _KEYS):
            lists = self._lists(number, distinct[at : at + _KEYS])
            low, high = np.searchsorted(of_probe, [at, at + _KEYS])
            counts = np.diff(lists.ends, prepend=0)[of_probe[low:high] - at]
            hit = np.flatnonzero(counts)
            asked, counts = of_probe[low:high][hit] - at, counts[hit]
            begins = lists.ends[asked] - counts
            table = Tables([BatchTable(lists.rows)])
            for first, end in runs(counts, most):
                many = counts[first:end]
                inside = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
                rows = (np.repeat(begins[first:end], many) + inside).astype(np.int32)
                found = np.repeat(positions[low:high][hit[first:end]], many).astype(np.int32)
                pairs = Found(found, RowSet(table, None, rows))
                yield pairs if vector.exact else checked(index, keys, pairs)

    def _lists(self, number: int, hashes: U64) -> Lists:
        """Read the rows of each hash."""
        heads = self.backend.get(_keys(number, hashes))
        pieces: list[bytes] = []
        ends: list[int] = []
        full: list[tuple[int, int]] = []
        for which, head in enumerate(heads):
            if head is not None:
                (chunks,) = _COUNT.unpack_from(head)
                if chunks:
                    full.append((which, chunks))
        others: dict[int, list[bytes]] = {}
        if full:
            names = _keys(number, hashes)
            asked = [names[which] + _CHUNK.pack(i) for which, n in full for i in range(n)]
            found = iter(self.backend.whole(asked))
            others = {which: list(islice(found, chunks)) for which, chunks in full}
        for which, head in enumerate(heads):
            if head is not None:
                pieces += others.get(which, ())
                pieces.append(head[_COUNT.size :])
            ends.append(len(pieces))
        data = np.frombuffer(b"".join(pieces), np.uint8)
        bounds = np.cumsum([0, *map(len, pieces)])
        starts, counts = self.codec.split(data, bounds[:-1], bounds[1:])
        before = np.concatenate(([0], np.cumsum(counts)))
        return Lists(self.codec.decode(data, starts), before[np.array(ends, np.int64)])

    def _append(self, batch: WriteBatch, number: int, hashes: U64, rows: pa.RecordBatch) -> None:
        data, starts = self.codec.encode(rows)
        text = data.tobytes()
        distinct, first = np.unique(hashes, return_index=True)
        bounds = starts[np.append(first, len(hashes))].tolist()
        names = _keys(number, distinct)
        for at in range(0, len(names), _KEYS):
            block = names[at : at + _KEYS]
            for i, (name, head) in enumerate(zip(block, self.backend.get(block), strict=True), at):
                more = text[bounds[i] : bounds[i + 1]]
                chunks, old = 0, b""
                if head is not None:
                    (chunks,), old = _COUNT.unpack_from(head), head[_COUNT.size :]
                if len(old) + len(more) > _FULL:
                    batch.put(name + _CHUNK.pack(chunks), old + more)
                    batch.put(name, _COUNT.pack(chunks + 1))
                else:
                    batch.put(name, _COUNT.pack(chunks) + old + more)

    def _without_expired(self, batch: WriteBatch, items: list[tuple[bytes, bytes]]) -> int:
        """Rewrite lists without expired rows; returns the number of these. Chunks may
        become empty.
        """
        heads = [len(key) == 9 for key, _ in items]
        data = np.frombuffer(b"".join(value for _, value in items), np.uint8)
        bounds = np.cumsum([0, *(len(value) for _, value in items)])
        begins = bounds[:-1] + np.where(heads, _COUNT.size, 0)
        starts, counts = self.codec.split(data, begins, bounds[1:])
        rows = self.codec.decode(data, starts)
        kept = rows.column(TAU).to_numpy() >= self.below
        if kept.all():
            return 0
        text, places = self.codec.encode(rows.filter(pa.array(kept)))
        left = np.concatenate(([0], np.cumsum(kept)))
        ends = np.cumsum(counts)
        for i, (key, value) in enumerate(items):
            low, high = left[ends[i] - counts[i]], left[ends[i]]
            if high - low == counts[i]:
                continue
            content = text[places[low] : places[high]].tobytes()
            head = value[: _COUNT.size] if heads[i] else b""
            if heads[i] and not content and not _COUNT.unpack(head)[0]:
                batch.delete(key)
            else:
                batch.put(key, head + content)
        return int(len(kept) - kept.sum())


class RocksBackend:
    """The backend; see the module's docstring."""

    kind = BackendKind.ROCKSDB

    def __init__(self, folder: Path, tables: Mapping[str, TableSpec], memory_limit: int) -> None:
        """Arguments as for ``opening.open_backend``."""
        self.folder = folder
        self._memory = memory_limit
        self._closed = False
        first = 0
        self._tables = {}
        for name, spec in tables.items():
            self._tables[name] = RocksTable(self, spec, first)
            first += len(spec.indexes)
        if first >= _META[0]:
            raise StateError("bad-table", "there are more indexes than the backend can number")
        self.batch = -1
        self._home = Home(folder, self.kind, tables)
        try:
            with self._diagnosing():
                self._db = Rdict(str(folder / "rocksdb"), options(memory_limit))
                self._load()
        except BaseException:
            self._home.leave()
            raise

    @property
    def tables(self) -> Mapping[str, RocksTable]:
        """The tables by name."""
        return self._tables

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of ``keys``; None for missing keys."""
        with self._diagnosing():
            found = self._db.get([*keys]) if keys else []
        return found or []

    def whole(self, keys: list[bytes]) -> list[bytes]:
        """Return the values of ``keys``, which must exist.

        Raises:
            StateError: ``damaged-rocksdb``.
        """
        found = [value for value in self.get(keys) if value is not None]
        if len(found) < len(keys):
            raise _damaged(self.folder, "a chunk of a list is missing")
        return found

    def items(self, number: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield all entries of an index."""
        wanted = ReadOptions()
        wanted.set_iterate_upper_bound(bytes([number + 1]))
        # Keys and values are bytes, since the database is opened in raw mode.
        yield from self._db.items(from_key=bytes([number]), read_opt=wanted)

    def batch_of(self) -> _Writing:
        """Context with a write batch that is written at the end, with the tables' metadata."""
        return _Writing(self)

    def write(self, batch: WriteBatch) -> None:
        """Write ``batch`` durably, with the tables' metadata."""
        meta = {
            "batch": self.batch,
            "tables": {n: [t.rows, t.below, t.history] for n, t in self._tables.items()},
        }
        batch.put(_META, json.dumps(meta).encode())
        durable = WriteOptions()
        durable.sync = True
        with self._diagnosing():
            self._db.write(batch, durable)

    def make_room(self, part: Part) -> None:
        """Check that one more part fits into the memory limit.

        Raises:
            StateError: ``memory-limit``.
        """
        need = part.bytes + sum(p.bytes for t in self._tables.values() for p in t.parts)
        if need * _BATCH > self._memory:
            raise StateError(
                "memory-limit",
                f"the open batch needs {need:,} bytes of memory and may take "
                f"{self._memory // _BATCH:,}",
                field="memory_limit",
                remedy="allow more, or make batches smaller",
            )

    def commit(self, batch: int) -> None:
        """Make the open batch durable; see ``Backend.commit``."""
        later(self.batch, batch)
        with self._diagnosing():
            writing = WriteBatch(raw_mode=True)
            for table in self._tables.values():
                table.write(writing)
            self.batch = batch
            self.write(writing)
            for table in self._tables.values():
                table.clear()
            for table in self._tables.values():
                if table.overdue:
                    table.sweep()

    def verify(self) -> None:
        """Verify checksums; see ``Backend.verify``."""
        careful = ReadOptions()
        careful.set_verify_checksums(True)
        with self._diagnosing():
            for _ in self._db.items(read_opt=careful):
                pass

    def statistics(self) -> BackendStatistics:
        """Return contents and sizes; see ``Backend.statistics``. The bytes written by merges are
        unknown: RocksDB counts them only with all its other statistics, which would take time.
        """
        rows = sum(t.rows * len(t.spec.indexes) for t in self._tables.values())
        live = self._property("rocksdb.estimate-live-data-size")
        live += self._property("rocksdb.cur-size-all-mem-tables")
        return BackendStatistics(
            tables={n: t.statistics(live / max(rows, 1)) for n, t in self._tables.items()},
            inserted=None,
            merged=None,
            disk=self._home.disk(),
            memory=sum(p.bytes for t in self._tables.values() for p in t.parts)
            + self._property("rocksdb.cur-size-all-mem-tables")
            + self._property("rocksdb.block-cache-usage"),
        )

    def close(self) -> None:
        """Unlock the folder; see ``Backend.close``."""
        if not self._closed:
            self._closed = True
            # Closing fails after a failed write; committed rows are in RocksDB's log.
            with contextlib.suppress(Exception):
                self._db.close()
            self._home.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def _property(self, name: str) -> int:
        return self._db.property_int_value(name) or 0

    def _load(self) -> None:
        found = self._db.get(_META)
        meta: dict[str, Any] = json.loads(found) if found else {"batch": -1, "tables": {}}
        self.batch = meta["batch"]
        for name, (rows, below, history) in meta["tables"].items():
            table = self._tables[name]
            table.rows, table.below, table.history = rows, below, history

    def _diagnosing(self) -> _Diagnosing:
        return _Diagnosing(self.folder)


class _Writing:
    def __init__(self, backend: RocksBackend) -> None:
        self._backend = backend
        self._batch = WriteBatch(raw_mode=True)

    def __enter__(self) -> WriteBatch:
        return self._batch

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self._backend.write(self._batch)


class _Diagnosing:
    """Context that converts RocksDB's messages into this package's errors; ``rocksdict`` raises a
    single kind of exception.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception):
            return
        with diagnosing(self._folder):
            if str(error).startswith("Corruption"):
                raise _damaged(self._folder, str(error)) from error
            raise error


def _damaged(folder: Path, why: str) -> StateError:
    return StateError(
        "damaged-rocksdb",
        f"{folder} is damaged: {why}",
        remedy="restore the folder from a backup, or begin again with an empty one",
    )


def options(memory_limit: int) -> Options:
    """Return the options with which the database is opened (see the module's docstring)."""
    table = BlockBasedOptions()
    table.set_bloom_filter(_BLOOM_BITS, False)
    table.set_block_cache(Cache(memory_limit // _CACHE))
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    table.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
    table.set_format_version(5)
    found = Options(raw_mode=True)
    found.create_if_missing(True)
    found.set_block_based_table_factory(table)
    found.set_db_write_buffer_size(memory_limit // _BUFFERS)
    found.set_write_buffer_size(max(memory_limit // _BUFFERS // 2, 64 << 10))
    found.set_compression_type(DBCompressionType.none())
    found.set_level_compaction_dynamic_level_bytes(True)
    found.increase_parallelism(2)
    found.set_keep_log_file_num(2)
    return found


def _ascending(vector: KeyVector) -> tuple[U64, I32]:
    """Return the ascending hashes of keys that are not NULL, and the position of each."""
    probes = in_order(vector.hashes, present_at(vector))
    # A full sort, since ``probes`` are only nearly sorted: hashes that differ in their last bits
    # may be in any order.
    order = np.argsort(probes.hashes, kind="stable")
    return probes.hashes[order], probes.order[order]


def _keys(number: int, hashes: U64) -> list[bytes]:
    words = np.empty((len(hashes), 9), np.uint8)
    words[:, 0] = number
    words[:, 1:] = hashes.astype(">u8").view(np.uint8).reshape(-1, 8)
    text = words.tobytes()
    return [text[at : at + 9] for at in range(0, len(text), 9)]


def _coarser(history: list[list[int]]) -> list[list[int]]:
    """Combine neighbouring entries of a history, to half of their number."""
    pairs = [history[i : i + 2] for i in range(0, len(history), 2)]
    return [[min(h[0] for h in p), max(h[1] for h in p), sum(h[2] for h in p)] for p in pairs]
