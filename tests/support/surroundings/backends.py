"""State backends for tests: opening, and expected answers by an obvious implementation."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch_runtime.storage.segment import SIGMA, TAU, IndexKey
from benchmarks.umjoin.backends.interface import Backend, BackendKind, Bounds, Table, TableSpec
from benchmarks.umjoin.backends.lsm import LsmBackend
from benchmarks.umjoin.backends.opening import open_backend

KINDS = tuple(BackendKind)
#: Memory limit sufficient for all tests.
PLENTY = 1 << 28


def opened(
    folder: Path,
    tables: Mapping[str, TableSpec],
    kind: BackendKind,
    limit: int = PLENTY,
) -> Backend:
    """Open a backend that merges during commits, so that tests are repeatable."""
    if kind is BackendKind.LSM:
        return LsmBackend(folder, tables, limit, beside=False)
    return open_backend(folder, tables, limit, kind)


@dataclass
class Reference:
    """Expected contents of a table: rows as dicts, and the number of durable ones."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    durable: int = 0

    def commit(self) -> None:
        self.durable = len(self.rows)

    def reopen(self) -> None:
        del self.rows[self.durable :]

    def probe(
        self,
        columns: Sequence[str],
        keys: Sequence[Sequence[Any]],
        bounds: Bounds,
        below: int | None,
    ) -> set[tuple[int, int]]:
        """Return (position, ``#sigma``) of all pairs, except those whose rows may have expired."""
        return {
            (position, row[SIGMA])
            for row in self.rows
            for position, key in enumerate(zip(*keys, strict=True))
            if (below is None or row[TAU] >= below)
            and all(
                value is not None and same(value, row[c])
                for value, c in zip(key, columns, strict=True)
            )
            and _within(row, position, bounds)
        }


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal as keys: NaN equals itself, NULL equals nothing."""
    if one is None or other is None:
        return False
    if isinstance(one, float) and one != one:
        return bool(other != other)
    return bool(one == other)


def _within(row: dict[str, Any], position: int, bounds: Bounds) -> bool:
    return (
        (bounds.before is None or row[SIGMA] < bounds.before[position])
        and (bounds.low is None or row[TAU] >= bounds.low[position])
        and (bounds.high is None or row[TAU] <= bounds.high[position])
    )


def pairs(
    table: Table,
    index: IndexKey,
    keys: Sequence[pa.Array],
    bounds: Bounds = Bounds(),  # noqa: B008 - frozen
    below: int | None = None,
    most: int = 1 << 18,
) -> list[tuple[int, dict[str, Any]]]:
    """Position and row of each pair of a table's probe, except rows that may have expired."""
    found = []
    for part in table.probe(index, keys, bounds, most):
        names = table.spec.stored.names
        columns = [part.rows.column(name).to_pylist() for name in names]
        for position, *values in zip(part.positions.tolist(), *columns, strict=True):
            row = dict(zip(names, values, strict=True))
            if below is None or row[TAU] >= below:
                found.append((position, row))
    return found


#: Types of columns, the key type in which they are compared, and values.
DOMAINS: list[tuple[list[pa.DataType], str, list[Any]]] = [
    ([pa.int8(), pa.int32(), pa.int64()], "bigint", [-1, 0, 1, 100]),
    (
        [pa.decimal128(12, 2), pa.int32(), pa.decimal128(38, 2)],
        "decimal(38,2)",
        [Decimal(-1), Decimal(0), Decimal(7), Decimal(100)],
    ),
    ([pa.string()], "string", ["", "a", "b", "a longer value than one word", "é"]),
    ([pa.binary()], "binary", [b"", b"\0", b"\0\0", b"x" * 70]),
    ([pa.float64(), pa.float32()], "double", [0.0, -0.0, 1.5, float("nan"), float("inf")]),
    ([pa.bool_()], "boolean", [True, False]),
    ([pa.date32()], "date", [dt.date(1960, 1, 1), dt.date(2024, 2, 29)]),
    (
        [pa.timestamp("us"), pa.timestamp("ms")],
        "timestamp",
        [dt.datetime(1999, 1, 1), dt.datetime(2024, 2, 29, 1, 2, 3)],  # noqa: DTZ001
    ),
]


def array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values as a column; exact numbers are converted as the type requires."""
    if pa.types.is_integer(kind):
        values = [None if v is None else int(v) for v in values]
    return pa.array(values, kind)


def stored(
    spec: TableSpec, columns: Mapping[str, Any], first: int, taus: Any = None
) -> pa.RecordBatch:
    """Return rows in a table's form, with sequence numbers from ``first`` on."""
    arrays = [
        array(columns[f.name], f.type) if isinstance(columns[f.name], list)
        else pa.array(columns[f.name]) for f in spec.columns
    ]  # fmt: skip
    count = len(arrays[0])
    arrays.append(pa.array(np.arange(first, first + count, dtype=np.int64)))
    if spec.timed:
        arrays.append(pa.array(np.asarray(taus, np.int64)))
    return pa.RecordBatch.from_arrays(arrays, schema=spec.stored)
