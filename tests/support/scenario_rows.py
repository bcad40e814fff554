"""Random recorded streams: typed key columns over small shared domains, and event times."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_START = datetime(2024, 3, 1, tzinfo=UTC)
_TIMESTAMP, _LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")

#: Domain -> the Arrow types its columns may have. All values of a domain fit all its types.
_TYPES: dict[str, tuple[pa.DataType, ...]] = {
    "i": (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.decimal128(6, 0),
          pa.decimal128(9, 2), pa.decimal128(20, 4)),
    "s": (pa.string(),),
    "f": (pa.float32(), pa.float64(), pa.float64()),
    "m": (pa.float64(), pa.int32(), pa.decimal128(9, 2)),
    "d": (pa.date32(),),
    "t": (_TIMESTAMP, _TIMESTAMP, _LOCAL),
}  # fmt: skip
_LATENESS = ("unbounded", "unbounded", "5 minutes", "PT15M", "30 minutes", "1 hour", "0 seconds")
_NOTES = ("kilo", "kappa", "lima", "", "o'neil", "é")


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column that queries may join on."""

    name: str
    domain: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Table:
    """One recorded stream."""

    name: str
    keys: tuple[KeyColumn, ...]
    data: pa.Table
    event_time: str | None
    lateness: str
    rows_per_batch: int

    def names(self) -> list[str]:
        """All columns but ``id``."""
        return [str(c) for c in self.data.column_names if c != "id"]

    def write(self, folder: Path) -> None:
        """Write the rows as Parquet."""
        pq.write_table(self.data, folder / f"{self.name}.parquet", row_group_size=50)

    def entry(self) -> dict[str, Any]:
        """The stream's entry in the scenario file."""
        doc: dict[str, Any] = {"path": f"{self.name}.parquet"}
        if self.event_time:
            doc |= {"event_time": self.event_time, "lateness": self.lateness}
        return doc | {"rows_per_batch": self.rows_per_batch}


def make_tables(rng: np.random.Generator, batches: int) -> list[Table]:
    """3 to 5 streams; the first lasts all ``batches``, others may end early."""
    chosen = ["i", *rng.choice(["s", "f", "m", "d", "t"], size=2, replace=False).tolist()]
    pools = {domain: _pool(domain, int(rng.integers(6, 25))) for domain in chosen}
    tables = []
    for number in range(int(rng.integers(3, 6))):
        lasts = batches if number == 0 or rng.random() < 0.6 else int(rng.integers(4, batches + 1))
        tables.append(_table(f"s{number}", pools, lasts, rng))
    return tables


def _pool(domain: str, size: int) -> list[Any]:
    make: dict[str, Callable[[int], Any]] = {
        "i": lambda k: k - 2,
        "s": lambda k: ["", "a", "A", "a ", "ä", "key"][k] if k < 6 else f"key-{k}",
        "f": lambda k: [float("nan"), 0.0, -0.0, float("inf")][k] if k < 4 else (k - 8) / 4,
        "m": lambda k: k - 3,
        "d": lambda k: date(1969, 12, 30) + timedelta(days=k if k < 5 else 19_700 + k),
        "t": lambda k: (
            datetime(1969, 12, 31, 23, 59, 58, tzinfo=UTC) + timedelta(microseconds=k * 500_001)
        ),
    }
    return [make[domain](k) for k in range(size)]


def _table(name: str, pools: dict[str, list[Any]], batches: int, rng: np.random.Generator) -> Table:
    per_batch = int(rng.integers(6, 26))
    rows = per_batch * batches - int(rng.integers(0, per_batch))
    keys, columns = [], {"id": pa.array(range(rows), pa.int64())}
    nulls = float(rng.choice([0.0, 0.05, 0.12]))
    for domain, pool in pools.items():
        for number in range(1, 2 + int(rng.random() < 0.4)):
            kind = _TYPES[domain][int(rng.integers(len(_TYPES[domain])))]
            key = KeyColumn(f"{domain}{number}", domain, kind)
            keys.append(key)
            columns[key.name] = _key_values(pool, kind, rows, nulls, rng)
    columns["v"] = pa.array(_with_nulls(rng.integers(0, 9, rows).tolist(), 0.05, rng), pa.int32())
    columns["note"] = pa.array(_with_nulls(rng.choice(_NOTES, rows).tolist(), 0.1, rng))
    columns["flag"] = pa.array(_with_nulls((rng.random(rows) < 0.5).tolist(), 0.1, rng), pa.bool_())
    amounts = [Decimal(int(x)) / 100 for x in rng.integers(0, 6000, rows)]
    columns["amount"] = pa.array(_with_nulls(amounts, 0.05, rng), pa.decimal128(12, 2))
    timed = rng.random() < 0.85
    lateness = str(rng.choice(_LATENESS))
    columns["ts"] = _event_times(rows, per_batch, rng)
    return Table(name, tuple(keys), pa.table(columns), "ts" if timed else None, lateness, per_batch)


def _key_values(
    pool: list[Any], kind: pa.DataType, rows: int, nulls: float, rng: np.random.Generator
) -> pa.Array:
    skew = float(rng.choice([0.0, 0.0, 0.8]))
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


def _event_times(rows: int, per_batch: int, rng: np.random.Generator) -> pa.Array:
    """About ten minutes a batch, out of order by some minutes, a few rows by much more."""
    spread = float(rng.choice([2.0, 8.0, 20.0]))
    minutes = np.arange(rows) / per_batch * 10 + rng.normal(0, spread, rows)
    minutes -= np.where(rng.random(rows) < 0.04, rng.exponential(60, rows), 0)
    # Whole seconds for the most part, so that equal times and exact bounds occur.
    micros = np.where(rng.random(rows) < 0.8, np.round(minutes) * 60e6, minutes * 60e6)
    local = rng.random() < 0.15
    start = _START.replace(tzinfo=None) if local else _START
    times = [start + timedelta(microseconds=int(m)) for m in micros]
    kind = _LOCAL if local else _TIMESTAMP
    return pa.array(_with_nulls(times, float(rng.choice([0.0, 0.03])), rng), kind)


def _with_nulls(values: list[Any], share: float, rng: np.random.Generator) -> list[Any]:
    missing = rng.random(len(values)) < share
    return [None if gone else v for v, gone in zip(values, missing, strict=True)]
