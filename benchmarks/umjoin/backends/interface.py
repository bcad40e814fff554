"""State backends: tables of rows that are found by key, durable batch by batch.

A backend holds the state of *one* operator in *one* process: a table per input (and per
intermediate result, where the operator keeps any), which is the "table backend" of UMJoin: join key
to tuples. Rows are inserted into the open batch, where probes find them at once; :meth:`commit`
makes the batch durable. After a kill at any moment a backend opens with exactly what was
committed last. After an error it has to be closed and opened again, which does the same.

Stored rows have the table's columns, ``#sigma`` and, where the table is timed, ``#tau``:

- ``#sigma`` (int64, not NULL) is the arrival sequence. Within a table it ascends from one insert
  to the next, and its high bits are the number of the batch (``storage.segment.OFFSET_BITS``).
- ``#tau`` (int64, not NULL) is the event time in microseconds.

Keys compare as ``index.keys`` says: by value, whatever the width of a column; a NULL part equals
nothing.
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


#: Pairs that a probe hands over at once by default.
MOST = 1 << 18


class BackendKind(StrEnum):
    """The backends there are."""

    LSM = "lsm"
    MEMORY = "memory"
    ROCKSDB = "rocksdb"


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table.

    Attributes:
        columns: its columns, without ``#sigma`` and ``#tau``.
        indexes: by which columns, in which key types, it is probed.
        timed: whether rows have ``#tau``; without it nothing expires.
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
        """``rows`` with their columns in the table's order.

        Raises:
            StateError: ``bad-rows``: a column is missing, of another type, or has NULL where there
                must not be any.
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
    """Further conditions on rows, per probe; None: no condition.

    Attributes:
        before: its ``#sigma`` is smaller.
        low, high: its ``#tau`` is not below, not above (microseconds).
    """

    before: Ints | None = None
    low: Ints | None = None
    high: Ints | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Pairs: row ``i`` of ``rows`` has the key of probe ``positions[i]``."""

    positions: I32
    rows: RowSet


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """Contents of a table. None: not known.

    Attributes:
        rows: stored, rows below the limit of :meth:`Table.expire` included until they are gone.
        bytes: what these take, indexes included: on disk, or in memory where that is the state.
        segments: immutable runs that a probe may have to ask.
    """

    rows: int
    bytes: int
    segments: int | None


@dataclass(frozen=True, slots=True)
class BackendStatistics:
    """Contents of a backend, and bytes written for them. None: not known.

    Attributes:
        tables: name -> its contents.
        inserted: bytes that batches have written, indexes included; ``merged``: that were written
            again to keep the state in order.
        disk: bytes of all files.
        memory: bytes of anonymous memory that the state takes now, without what probes return.
    """

    tables: Mapping[str, TableStatistics]
    inserted: int | None
    merged: int | None
    disk: int
    memory: int | None

    @property
    def bytes(self) -> int:
        """Bytes of all rows."""
        return sum(t.bytes for t in self.tables.values())

    @property
    def write_amplification(self) -> float | None:
        """How often a byte is written."""
        if not self.inserted or self.merged is None:
            return None
        return (self.inserted + self.merged) / self.inserted

    @property
    def space_amplification(self) -> float | None:
        """Bytes of files over bytes of rows."""
        return self.disk / self.bytes if self.bytes else None


class Table(Protocol):
    """One table of a backend."""

    @property
    def spec(self) -> TableSpec:
        """The definition that it was opened with."""

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
        """The rows that have the probes' keys.

        Args:
            index: one of the table's.
            keys: one column per part of the index, as long as there are probes.
            bounds: what else rows must satisfy.
            most: pairs to hand over at once. A probe is not divided, so there may be more where
                one alone has more.

        Raises:
            StateError: ``no-index``; stored rows can't be read.
        """

    def expire(self, below: int) -> None:
        """Rows whose event time (microseconds) is smaller may go; no other will ever go. How soon
        they do is the backend's business, so callers that must not see them restrict ``bounds``.
        """


class Backend(Protocol):
    """The state of one operator; its process is the only one that may open it."""

    @property
    def kind(self) -> BackendKind:
        """Which backend it is."""

    @property
    def tables(self) -> Mapping[str, Table]:
        """Name -> table."""

    @property
    def batch(self) -> int:
        """The batch that was committed last; -1: none."""

    def commit(self, batch: int) -> None:
        """Everything up to here is durable, and is ``batch``, which must be greater than the last.

        Raises:
            StateError: ``batch-order``; ``disk-full``, ``not-writable``.
        """

    def verify(self) -> None:
        """Read everything that is durable and compare it with its checksums.

        Raises:
            StateError: it is damaged; the message names the file.
        """

    def statistics(self) -> BackendStatistics:
        """Contents of the backend."""

    def close(self) -> None:
        """Give up the folder. Rows that were not committed are lost."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *args: object) -> None: ...
