"""Protocol of state backends: tables of rows that are found by key, durable batch by batch.

A backend holds the state of *one* operator in *one* process: a table per input (and per
intermediate result that the operator stores), called "table backend" in UMJoin: join key to tuples.
Rows are inserted into the open batch, where probes find them at once; :meth:`commit` makes the
batch durable. After a kill at any moment, opening the backend restores exactly the last committed
state. After an error the backend must be closed and opened again, with the same effect.

Stored rows have the table's columns, ``#sigma`` and, where the table is timed, ``#tau``:

- ``#sigma`` (int64, not NULL) is the arrival sequence number. It ascends from one insert into a
  table to the next, and its high bits are the number of the batch
  (``storage.segment.OFFSET_BITS``).
- ``#tau`` (int64, not NULL) is the event time in microseconds.

Keys are compared as in ``index.keys``: by value, whatever the width of a column; a key with a NULL
equals none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_runtime.errors import StateError
from anabranch_runtime.storage.partial import RowSet
from anabranch_runtime.storage.segment import SIGMA, TAU, IndexKey

Ints = NDArray[np.int64]
I32 = NDArray[np.int32]


#: Default for the number of pairs in one result of a probe.
MOST = 1 << 18


class BackendKind(StrEnum):
    """Kinds of state backends."""

    LSM = "lsm"
    MEMORY = "memory"
    ROCKSDB = "rocksdb"


@dataclass(frozen=True, slots=True)
class TableSpec:
    """Definition of a table of a backend.

    Attributes:
        columns: its columns, without ``#sigma`` and ``#tau``.
        indexes: the keys by which it is probed: columns and key types.
        timed: whether rows have ``#tau``; other tables never expire rows.
    """

    columns: pa.Schema
    indexes: tuple[IndexKey, ...]
    timed: bool = False

    def __post_init__(self) -> None:
        for name in self.columns.names:
            if name in (SIGMA, TAU) or self.columns.names.count(name) > 1:
                raise StateError(
                    "bad-table", f"column {name!r} is reserved or named twice", field=name
                )
        for index in self.indexes:
            for column in index.columns:
                if column not in self.columns.names:
                    raise StateError(
                        "bad-table", f"an index names no column {column!r}", field=column
                    )

    @property
    def stored(self) -> pa.Schema:
        """The schema of stored rows."""
        own = [SIGMA, TAU] if self.timed else [SIGMA]
        return pa.schema([*self.columns, *(pa.field(n, pa.int64(), nullable=False) for n in own)])

    def checked(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return ``rows`` with their columns in the table's order.

        Raises:
            StateError: ``bad-rows``: a column is missing, has another type, or has a NULL that is
                not allowed.
        """
        arrays = []
        for field in self.stored:
            at = rows.schema.get_field_index(field.name)
            if at < 0 or rows.column(at).type != field.type:
                found = "missing" if at < 0 else str(rows.column(at).type)
                raise StateError(
                    "bad-rows",
                    f"column {field.name!r} should be {field.type} and is {found}",
                    field=field.name,
                    remedy="cast the rows to the table's columns",
                )
            if field.name in (SIGMA, TAU) and rows.column(at).null_count:
                raise StateError("bad-rows", f"{field.name!r} has NULL", field=field.name)
            arrays.append(rows.column(at))
        return pa.RecordBatch.from_arrays(arrays, schema=self.stored)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Further conditions on the rows that a probe finds; None: no condition.

    Attributes:
        before: upper limit of ``#sigma``, exclusive, for each probe.
        low, high: limits of ``#tau`` in microseconds, inclusive, for each probe.
    """

    before: Ints | None = None
    low: Ints | None = None
    high: Ints | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Pairs found by probes: row ``i`` of ``rows`` has the key of probe ``positions[i]``."""

    positions: I32
    rows: RowSet


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """Contents of a table; None: unknown.

    Attributes:
        rows: number of stored rows, including expired rows that have not been removed yet.
        bytes: size of these rows with indexes, on disk or, if the state is in memory, in memory.
        segments: number of immutable segments that a probe may have to search.
    """

    rows: int
    bytes: int
    segments: int | None


@dataclass(frozen=True, slots=True)
class BackendStatistics:
    """Contents of a backend, and bytes written for them; None: unknown.

    Attributes:
        tables: name of a table -> its contents.
        inserted: bytes that batches have written, indexes included. ``merged``: bytes that merges
            have written.
        disk: bytes of all files.
        memory: bytes of anonymous memory of the state at present, without results of probes.
    """

    tables: Mapping[str, TableStatistics]
    inserted: int | None
    merged: int | None
    disk: int
    memory: int | None

    @property
    def bytes(self) -> int:
        """Size in bytes of the rows of all tables."""
        return sum(t.bytes for t in self.tables.values())

    @property
    def write_amplification(self) -> float | None:
        """Number of times that a byte is written, on average."""
        if not self.inserted or self.merged is None:
            return None
        return (self.inserted + self.merged) / self.inserted

    @property
    def space_amplification(self) -> float | None:
        """Ratio of the bytes of files to the bytes of rows."""
        return self.disk / self.bytes if self.bytes else None


class Table(Protocol):
    """One table of a backend."""

    @property
    def spec(self) -> TableSpec:
        """The table's definition."""

    def insert(self, rows: pa.RecordBatch) -> None:
        """Append rows to the open batch (see :meth:`TableSpec.checked`).

        Raises:
            StateError: ``bad-rows``; ``memory-limit``; ``disk-full``, ``not-writable``.
            KeyTypeError: a column can't be a key of its index's type.
        """

    def probe(
        self,
        index: IndexKey,
        keys: Sequence[pa.Array],
        bounds: Bounds = Bounds(),
        most: int = MOST,
    ) -> Iterator[Found]:
        """Yield the rows that have the probes' keys, as pairs of a probe and a row.

        Args:
            index: one of the table's indexes.
            keys: one column per part of the key, with an entry per probe.
            bounds: further conditions on rows.
            most: maximum number of pairs to yield at once; exceeded only by a single probe with
                more.

        Raises:
            StateError: ``no-index``; stored rows can't be read.
        """

    def expire(self, below: int) -> None:
        """Permit the removal of rows with event times below ``below`` (microseconds), and of no
        others. The backend decides when it removes them, so callers restrict ``bounds`` if they
        must not see these rows.
        """


class Backend(Protocol):
    """The state of one operator; only one process may open it."""

    @property
    def kind(self) -> BackendKind:
        """The kind of the backend."""

    @property
    def tables(self) -> Mapping[str, Table]:
        """The tables by name."""

    @property
    def batch(self) -> int:
        """Number of the last committed batch; -1: none."""

    def commit(self, batch: int) -> None:
        """Make all inserted rows durable, as ``batch``, whose number must be greater than the last
        one.

        Raises:
            StateError: ``batch-order``; ``disk-full``, ``not-writable``.
        """

    def verify(self) -> None:
        """Read everything that is durable and compare it with its checksums.

        Raises:
            StateError: the state is damaged; the message names the file.
        """

    def statistics(self) -> BackendStatistics:
        """Return contents and sizes of the backend."""

    def close(self) -> None:
        """Unlock the folder. Rows that were not committed are lost."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *args: object) -> None: ...
