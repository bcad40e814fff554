"""Random recorded streams: typed key columns over small common domains, and event times.

A batch has neighbouring rows of each stream. For ``anabranch replay``, a stream has equally many
rows in every batch until it ends; with ``cuts`` (local engine only) there are bursts, batches
without rows of a stream, and empty batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

_START = datetime(2024, 3, 1, tzinfo=UTC)
_TIMESTAMP, _LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")

#: Domain -> the Arrow types of its columns; all values of a domain are valid in all its types.
_TYPES: dict[str, tuple[pa.DataType, ...]] = {
    "i": (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.decimal128(6, 0),
          pa.decimal128(9, 2), pa.decimal128(20, 4)),
    "s": (pa.string(),),
    "f": (pa.float32(), pa.float64(), pa.float64()),
    "m": (pa.float64(), pa.int32(), pa.decimal128(9, 2)),
    "d": (pa.date32(),),
    "t": (_TIMESTAMP, _TIMESTAMP, _LOCAL),
    "b": (pa.bool_(),),
    "w": (pa.int64(), pa.decimal128(20, 0), pa.decimal128(38, 6)),
}  # fmt: skip
_LATENESS = ("unbounded", "unbounded", "5 minutes", "PT15M", "30 minutes", "1 hour", "0 seconds")
_SMALL = ("0 seconds", "5 minutes")
_STRINGS = ("", "a", "A", "a ", "ä", "key", "a long key, number one", "a long key, number two")
_NOTES = ("kilo", "kappa", "lima", "", "o'neil", "é")


@dataclass(frozen=True, slots=True)
class Size:
    """Size of scenarios.

    Attributes:
        batches, streams, rows: ranges (first, last + 1); ``rows`` per stream and batch.
        queries: range of the number of queries.
        largest: maximum number of results of a query, and of a connected part of it.
        cuts: whether batches have bursts and gaps.
    """

    batches: tuple[int, int]
    streams: tuple[int, int]
    rows: tuple[int, int]
    queries: tuple[int, int]
    largest: int
    cuts: bool
    #: Share of scenarios in which nothing is stored for long: every stream has a small lateness,
    #: every query a window.
    brief: float = 0.0
    #: Share of queries that are written with subqueries, WITH and parentheses.
    respelled: float = 0.0
    #: Share of joins without an equality.
    theta: float = 0.0


#: Sizes of scenarios for ``anabranch replay``, and for many runs of the local engine.
RECORDED = Size((8, 15), (3, 6), (6, 26), (1, 7), 30_000, cuts=False)
LOCAL = Size((6, 12), (3, 6), (2, 12), (1, 6), 1_500, cuts=True, brief=0.3)


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column by which queries may join."""

    name: str
    domain: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Table:
    """One recorded stream: rows, types and properties."""

    name: str
    keys: tuple[KeyColumn, ...]
    data: pa.Table
    event_time: str | None
    lateness: str
    rows_per_batch: int
    cuts: tuple[int, ...] | None = None

    def names(self) -> list[str]:
        """Names of all columns except ``id``."""
        return [str(c) for c in self.data.column_names if c != "id"]

    def write(self, folder: Path) -> None:
        """Write the rows to a Parquet file."""
        pq.write_table(self.data, folder / f"{self.name}.parquet", row_group_size=50)

    def entry(self) -> dict[str, Any]:
        """The stream's entry in the scenario file."""
        doc: dict[str, Any] = {"path": f"{self.name}.parquet"}
        if self.event_time:
            doc |= {"event_time": self.event_time, "lateness": self.lateness}
        if self.cuts is not None:
            doc["cuts"] = list(self.cuts)
        return doc | {"rows_per_batch": self.rows_per_batch}


def make_tables(
    rng: np.random.Generator, batches: int, size: Size = RECORDED, *, brief: bool = False
) -> list[Table]:
    """Draw streams over common domains; the first lasts all ``batches``, others may end early."""
    chosen = ["i", *rng.choice(["s", "f", "m", "d", "t", "b", "w"], size=2, replace=False).tolist()]
    pools = {domain: _pool(domain, int(rng.integers(6, 25))) for domain in chosen}
    count = int(rng.integers(*size.streams))
    tables = []
    for number, counts in enumerate(_arrivals(rng, count, batches, size)):
        tables.append(_table(f"s{number}", pools, counts, size, rng, brief=brief))
    return tables


def _arrivals(
    rng: np.random.Generator, streams: int, batches: int, size: Size
) -> list[NDArray[np.int64]]:
    """Draw the number of rows of each stream in each batch."""
    counts = []
    for number in range(streams):
        per_batch = int(rng.integers(*size.rows))
        lasts = batches if number == 0 or rng.random() < 0.6 else int(rng.integers(4, batches + 1))
        if size.cuts:
            here = rng.poisson(per_batch, batches) * rng.choice([0, 1, 1, 1, 1, 4], batches)
            here[lasts:] = 0
        else:
            here = np.full(batches, per_batch)
            here[lasts:] = 0
            here[lasts - 1] -= int(rng.integers(0, per_batch))
        counts.append(here.astype(np.int64))
    if size.cuts:
        nothing, alone = rng.choice(batches, 2, replace=False)
        everybody = np.stack(counts)
        everybody[:, nothing] = 0
        chosen = int(rng.integers(streams))
        everybody[np.arange(streams) != chosen, alone] = 0
        everybody[chosen, alone] += 3
        counts = list(everybody)
    return counts


def _pool(domain: str, size: int) -> list[Any]:
    make: dict[str, Callable[[int], Any]] = {
        "i": lambda k: k - 2,
        "s": lambda k: _STRINGS[k] if k < len(_STRINGS) else f"key-{k}",
        "f": lambda k: [float("nan"), 0.0, -0.0, float("inf")][k] if k < 4 else (k - 8) / 4,
        "m": lambda k: k - 3,
        "d": lambda k: date(1969, 12, 30) + timedelta(days=k if k < 5 else 19_700 + k),
        "t": lambda k: (
            datetime(1969, 12, 31, 23, 59, 58, tzinfo=UTC) + timedelta(microseconds=k * 500_001)
        ),
        "b": lambda k: k == 1,
        # Different integers that are equal as floats.
        "w": lambda k: [2**53, 2**53 + 1, -(2**63), 2**63 - 1, 2**32][k] if k < 5 else k - 8,
    }
    return [make[domain](k) for k in range(2 if domain == "b" else size)]


def _table(
    name: str,
    pools: dict[str, list[Any]],
    counts: NDArray[np.int64],
    size: Size,
    rng: np.random.Generator,
    *,
    brief: bool,
) -> Table:
    rows = int(counts.sum())
    keys, columns = [], {"id": pa.array(range(rows), pa.int64())}
    nulls = float(rng.choice([0.0, 0.05, 0.12]))
    for domain, pool in pools.items():
        for number in range(1, 2 + int(rng.random() < 0.4)):
            kind = _TYPES[domain][int(rng.integers(len(_TYPES[domain])))]
            key = KeyColumn(f"{domain}{number}", domain, kind)
            keys.append(key)
            columns[key.name] = _key_values(pool, kind, rows, nulls, rng)
    columns["v"] = pa.array(_with_nulls(rng.integers(0, 9, rows).tolist(), 0.05, rng), pa.int32())
    notes = rng.choice(_NOTES, rows).tolist()
    columns["note"] = pa.array(_with_nulls(notes, 0.1, rng), pa.string())
    columns["flag"] = pa.array(_with_nulls((rng.random(rows) < 0.5).tolist(), 0.1, rng), pa.bool_())
    amounts = [Decimal(int(x)) / 100 for x in rng.integers(0, 6000, rows)]
    columns["amount"] = pa.array(_with_nulls(amounts, 0.05, rng), pa.decimal128(12, 2))
    timed = brief or rng.random() < 0.85
    lateness = str(rng.choice(_SMALL if brief else _LATENESS))
    columns["ts"] = _event_times(counts, rng)
    data = pa.table(columns)
    if rows and rng.random() < 0.4:  # rows that come again, as they are
        again = np.where(rng.random(rows) < 0.1, rng.integers(0, rows, rows), np.arange(rows))
        data = data.take(pa.array(again))
    cuts = tuple(np.cumsum(counts).tolist()) if size.cuts else None
    event_time = "ts" if timed else None
    return Table(name, tuple(keys), data, event_time, lateness, max(int(counts[0]), 1), cuts)


def _key_values(
    pool: list[Any], kind: pa.DataType, rows: int, nulls: float, rng: np.random.Generator
) -> pa.Array:
    skew = float(rng.choice([0.0, 0.0, 0.8, 1.6]))
    weights = 1.0 / np.arange(1, len(pool) + 1) ** skew
    picks = rng.choice(rng.permutation(len(pool)), rows, p=weights / weights.sum())
    values = [pool[k] for k in picks]
    if pa.types.is_decimal(kind):
        values = [Decimal(v) for v in values]
    elif pa.types.is_floating(kind):
        values = [float(v) for v in values]
    elif kind == _LOCAL:
        values = [v.replace(tzinfo=None) for v in values]
    return pa.array(_with_nulls(values, nulls, rng), kind)


def _event_times(counts: NDArray[np.int64], rng: np.random.Generator) -> pa.Array:
    """Draw event times: ten minutes per batch, disordered by minutes, a few by much more."""
    rows = int(counts.sum())
    spread = float(rng.choice([2.0, 8.0, 20.0]))
    batch = np.repeat(np.arange(len(counts)), counts)
    within = np.concatenate([np.arange(n) / max(n, 1) for n in counts]) if rows else np.zeros(0)
    minutes = (batch + within) * 10 + rng.normal(0, spread, rows)
    minutes -= np.where(rng.random(rows) < 0.04, rng.exponential(60, rows), 0)
    # Mostly whole seconds, so that equal times and exact bounds occur.
    micros = np.where(rng.random(rows) < 0.8, np.round(minutes) * 60e6, minutes * 60e6)
    local = rng.random() < 0.15
    start = _START.replace(tzinfo=None) if local else _START
    times = [start + timedelta(microseconds=int(m)) for m in micros]
    kind = _LOCAL if local else _TIMESTAMP
    return pa.array(_with_nulls(times, float(rng.choice([0.0, 0.03])), rng), kind)


def _with_nulls(values: list[Any], share: float, rng: np.random.Generator) -> list[Any]:
    missing = rng.random(len(values)) < share
    return [None if gone else v for v, gone in zip(values, missing, strict=True)]
