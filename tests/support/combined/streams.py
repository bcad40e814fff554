"""Random streams of every kind, and their net input after each batch as DuckDB's tables."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.queries.changes import ChangeFormat
from anabranch_contract.queries.joins import StreamKind
from anabranch_runtime.columns.arrow_types import spark_type
from tests.support.worlds.changed_views import COLUMNS

MINUTE = 60_000_000
BEGIN = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
_TIME = pa.timestamp("us", "UTC")
#: Columns that include an interval of days and one of months.
_INTERVALS = {"k": pa.int32(), "wait": pa.duration("us"), "age": pa.int32(), "ts": _TIME}
#: Stream -> columns; ``subqueries.Grammar`` reads the first three streams.
SCHEMAS: dict[str, dict[str, pa.DataType]] = {
    **COLUMNS,
    "h": {"k": pa.int32(), "v": pa.int64(), "g": pa.string(), "ts": _TIME},
    "d": {"k": pa.int32(), "v": pa.int64(), "ts": _TIME},
    "f": {"k": pa.int32(), "w": pa.int64(), "ts": _TIME},
    "p": {"k": pa.int32(), "w": pa.int64(), "g": pa.string()},
    "l": {"k": pa.int32(), "w": pa.int64(), "ts": _TIME},
    "e": _INTERVALS,
    "r": _INTERVALS,
}
#: Column -> its type in SQL, if Arrow's differs.
_TYPES = {"age": "interval year to month"}
#: Operation -> number of rows that it adds.
WEIGHTS = {"c": 1, "+U": 1, "d": -1, "-U": -1}
#: A number greater than that of every batch.
NEVER = 1 << 30
#: Name of the view of a table's current rows in DuckDB.
CURRENT = "{}_now"

Row = tuple[Any, ...]


class Kind(StrEnum):
    """Kind of a random stream."""

    INSERTS = "inserts"
    CHANGES = "changes"
    UPSERT = "upsert"
    TABLE = "table"
    LATEST = "latest"


@dataclass(slots=True)
class RandomStream:
    """A random stream: its files in ``folder``, and all rows written so far.

    Attributes:
        key: number of leading columns of the key; 0: none.
        lateness, ttl: in microseconds; None: no row is late, or rows are kept without limit.
        rows: (operation, values) in the order of files.
        ends: batch -> number of rows read up to it, with the watermark before it.
        sizes: possible numbers of rows in a file.
    """

    name: str
    kind: Kind
    folder: Path
    lateness: int | None = None
    retained: bool = True
    key: int = 0
    ttl: int | None = None
    rows: list[tuple[str, Row]] = field(default_factory=list)
    ends: list[tuple[int, int | None]] = field(default_factory=list)
    sizes: tuple[int, ...] = (0, 4, 10)
    _present: list[Row] = field(default_factory=list)
    _owed: list[tuple[str, Row]] = field(default_factory=list)

    @property
    def columns(self) -> Mapping[str, pa.DataType]:
        """The columns without the operation."""
        return SCHEMAS[self.name]

    @property
    def has_operation(self) -> bool:
        """Whether rows have an operation."""
        return self.kind in (Kind.CHANGES, Kind.UPSERT)

    @property
    def record(self) -> StreamRecord:
        """The stream's record as the service stores it."""
        types = {c: _TYPES.get(c) or str(spark_type(t)) for c, t in self.columns.items()}
        columns = [ColumnRecord(name=c, type=kind) for c, kind in types.items()]
        if self.has_operation:
            columns.append(ColumnRecord(name="op", type="string"))
        names = tuple(self.columns)[: self.key]
        changes = ChangeFormat("op", key=names) if self.kind is Kind.UPSERT else ChangeFormat("op")
        kinds = {Kind.CHANGES: "changes", Kind.UPSERT: "upsert", Kind.TABLE: "table"}
        return StreamRecord(
            name=self.name,
            columns=tuple(columns),
            event_time="ts" if "ts" in self.columns else None,
            lateness=self.lateness,
            ttl=self.ttl,
            latest=names if self.kind in (Kind.TABLE, Kind.LATEST) else (),
            retain=None if self.retained else 0,
            kind=StreamKind(kinds.get(self.kind, "stream")),
            changes=changes if self.has_operation else None,
            source=SourceRecord(format="files", path=str(self.folder)),
            registration=f"{self.name}-1",
        )

    def write(self, rng: Random, minutes: int) -> None:
        """Write a file of random rows, or none; event times are around ``minutes``."""
        fresh, self._owed = self._owed, []
        for _ in range(rng.choice(self.sizes)):
            drawn = rng.random()
            if self.kind is Kind.UPSERT:
                fresh.append(("c" if drawn < 0.8 else "d", self._draw(rng, minutes)))
            elif self.kind is not Kind.CHANGES or drawn < 0.55 or not self._present:
                fresh.append(("c", self._draw(rng, minutes)))
                self._present.append(fresh[-1][1])
            else:
                gone = self._present.pop(rng.randrange(len(self._present)))
                if drawn < 0.8:
                    fresh.append(("d", gone))
                    continue
                fresh.append(("-U", gone))
                again = list(self._draw(rng, minutes))
                again[0] = gone[0]
                fresh.append(("+U", tuple(again)))
                self._present.append(tuple(again))
        if self.kind is Kind.CHANGES:
            rng.shuffle(fresh)
            if fresh and rng.random() < 0.05:
                # The delete may be in an earlier batch than its insert.
                at = rng.randrange(len(fresh))
                self._owed = [fresh.pop(at)] if WEIGHTS[fresh[at][0]] > 0 else []
        if fresh:
            self._put(fresh)

    def finish(self) -> None:
        """Write the inserts whose deletes were written before them."""
        if self._owed:
            fresh, self._owed = self._owed, []
            self._put(fresh)

    def _put(self, fresh: list[tuple[str, Row]]) -> None:
        arrays = list(self._arrays([row for _, row in fresh]))
        names = list(self.columns)
        if self.has_operation:
            arrays.append(pa.array([operation for operation, _ in fresh]))
            names.append("op")
        partial = self.folder / f".{len(self.rows)}"
        pq.write_table(pa.table(arrays, names=names), partial)
        self.rows += fresh
        partial.rename(self.folder / f"{len(self.rows):06d}.parquet")

    def _arrays(self, rows: list[Row]) -> list[pa.Array]:
        values = list(zip(*rows, strict=True)) or [() for _ in self.columns]
        return [pa.array(list(v), t) for v, t in zip(values, self.columns.values(), strict=True)]

    def _draw(self, rng: Random, minutes: int) -> Row:
        if self.name in "er":
            wait = rng.choice((None, -30_000_000, 0, 60_000_000, 90_000_000, 86_400_500_000))
            at = BEGIN + dt.timedelta(minutes=minutes, seconds=rng.randrange(0, 900, 30))
            return rng.choice((None, *range(4))), wait, rng.choice((None, -1, 0, 13, 25)), at
        key, text = rng.choice((None, *range(5))), rng.choice((None, "x", "y", "é"))
        value = rng.choice((None, *range(8)))
        if self.name == "c":
            return (rng.randrange(7) if self.kind is Kind.UPSERT else value), text
        drawn = {
            "k": key,
            "v": value,
            "g": text,
            "w": rng.randrange(6),
            "x": rng.choice((None, 0.5, -2.0)),
            "ts": BEGIN + dt.timedelta(minutes=minutes, seconds=rng.randrange(-900, 900)),
        }
        return tuple(drawn[name] for name in self.columns)

    def read(self, count: int, mark: int | None) -> None:
        """Record the input of a batch.

        Args:
            count: number of rows read up to the end of the batch.
            mark: watermark before the batch in microseconds; None: none.
        """
        self.ends.append((count, mark))

    @property
    def late(self) -> int:
        """Number of late rows among those read so far."""
        starts = [0, *(end for end, _ in self.ends)]
        return sum(
            self._is_late(row, mark)
            for start, (end, mark) in zip(starts, self.ends, strict=False)
            for _, row in self.rows[start:end]
        )

    def net(self, batch: int) -> list[tuple[Row, int, int]] | None:
        """Return the rows that exist after ``batch``, with the batches that inserted and superseded
        each; None if some row was deleted before its insert.
        """
        rows, start = list[tuple[int, str, Row]](), 0
        for number, (end, mark) in enumerate(self.ends[: batch + 1]):
            read = self.rows[start:end]
            rows += ((number, op, row) for op, row in read if not self._is_late(row, mark))
            start = end
        if self.kind is Kind.UPSERT:
            current = dict[Row, Row]()
            for _, op, row in rows:
                current.pop(row[: self.key], None)
                if op == "c":
                    current[row[: self.key]] = row
            return [(row, 0, NEVER) for row in current.values()]
        if self.kind is Kind.CHANGES:
            sums = Counter[Row]()
            for _, op, row in rows:
                sums[row] += WEIGHTS[op]
            negative = min(sums.values(), default=0) < 0
            return None if negative else [(row, 0, NEVER) for row in sums.elements()]
        return [(row, when, self._superseded(rows, at)) for at, (when, _, row) in enumerate(rows)]

    def _superseded(self, rows: list[tuple[int, str, Row]], at: int) -> int:
        """Return the batch that supersedes a row of a table, or of a stream with latest rows."""
        when, _, row = rows[at]
        own = row[: self.key]
        if not self.key or None in own:
            return NEVER
        if self.kind is Kind.TABLE:
            later = (n for n, _, other in rows[at + 1 :] if other[: self.key] == own)
        else:
            later = (n for n, _, o in rows if o[: self.key] == own and o[-1] > row[-1])
        return max(min(later, default=NEVER), when)

    def _is_late(self, row: Row, mark: int | None) -> bool:
        if mark is None or self.lateness is None:
            return False
        micros = (row[-1] - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
        return bool(micros < mark)

    def fill(self, connection: duckdb.DuckDBPyConnection, batch: int) -> bool:
        """Create DuckDB's table of the net input after ``batch``, with the batches of arrival and
        supersession in columns ``arr_`` and ``sup_``, and a view of a table's current rows. Returns
        False if there is no net input (a delete before its insert).
        """
        found = self.net(batch)
        if found is None:
            return False
        arrays = self._arrays([row for row, _, _ in found])
        arrays += [pa.array([pair[n] for pair in found], pa.int64()) for n in (1, 2)]
        connection.register(self.name, pa.table(arrays, names=[*self.columns, "arr_", "sup_"]))
        if self.kind is Kind.TABLE:
            connection.execute(
                f"CREATE OR REPLACE TEMP VIEW {CURRENT.format(self.name)} AS"
                f" SELECT {', '.join(self.columns)} FROM {self.name} WHERE sup_ = {NEVER}"
            )
        return True


def draw_streams(folder: Path, rng: Random) -> dict[str, RandomStream]:
    """Draw the streams of a run, of random kinds."""

    def made(name: str, kind: Kind, lateness: int | None = None, *, key: int = 0) -> RandomStream:
        home = folder / name
        home.mkdir(parents=True)
        plain = kind is Kind.INSERTS
        return RandomStream(
            name,
            kind,
            home,
            lateness,
            retained=not plain or rng.random() < 0.85,
            key=key,
            sizes=(0, 2, 4) if kind is Kind.TABLE else (0, 4, 10),
        )

    def late() -> int | None:
        return rng.choice((None, 30 * MINUTE, 10 * MINUTE))

    changing = (Kind.CHANGES, Kind.CHANGES, Kind.INSERTS)
    c, h = rng.choice((Kind.UPSERT, *changing)), rng.choice(changing)
    found = [
        made("a", rng.choice(changing)),
        made("b", rng.choice(changing)),
        made("c", c, key=int(c is Kind.UPSERT)),
        made("h", h, None if h is Kind.CHANGES else late()),
        made("d", Kind.INSERTS, late()),
        made("f", Kind.INSERTS, late()),
        made("p", Kind.TABLE, key=rng.choice((0, 1, 1))),
        made("l", Kind.LATEST, late(), key=1),
    ]
    return {stream.name: stream for stream in found}
