"""Test of a live pipeline: streams, queries and settings are added and removed while files arrive.

Each file is dropped by itself and waited for, so the batch that read it is known. What DuckDB
computes over the files, from what the API says of each query's activation, must be in the results.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract.rest.queries import QueryOut
from tests.support.worlds.processes import LivePipeline, kill, live_pipeline

START = datetime(2024, 5, 1, tzinfo=UTC)
TIMESTAMP = pa.timestamp("us", tz="UTC")
#: Allowed lateness in minutes.
LATENESS = 20

#: A row: key, value, minutes after START (None: no event time).
Row = tuple[int, int, int | None]

AB = "SELECT a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k"
ABC = "SELECT a.v AS av, b.v AS bv, c.v AS cv FROM a JOIN b ON a.k = b.k JOIN c ON b.k = c.k"
AA = "SELECT x.v AS av, y.v AS bv FROM a x JOIN a y ON x.k = y.k"
BA = "SELECT b.v AS bv, a.v AS av FROM b JOIN a ON b.v = a.v"


@dataclass
class World:
    """A live pipeline and all rows that were written for it."""

    live: LivePipeline
    folder: Path
    #: Rows that are neither late nor invalid: (stream, batch, key, value, event time in
    #: microseconds).
    rows: list[tuple[str, int, int, int, int]] = field(default_factory=list)
    late: dict[str, int] = field(default_factory=dict)
    invalid: dict[str, int] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    files: int = 0

    def stream(self, name: str) -> None:
        """Register a stream that reads the Parquet files of a folder."""
        (self.folder / name).mkdir()
        self.live.client.create_stream(
            name,
            (("k", "bigint"), ("v", "int"), ("ts", "timestamp")),
            event_time="ts",
            lateness=f"{LATENESS} minutes",
            source={"format": "parquet", "path": str(self.folder / name)},
        )
        self.read[name] = self.late[name] = self.invalid[name] = 0

    def query(self, name: str, sql: str, **more: str) -> None:
        """Register a query."""
        self.live.client.create_query(sql, name=name, **more)  # type: ignore[arg-type]

    def wait_for(self, name: str, status: str) -> QueryOut:
        """Wait until a query has the status ``status``."""
        self.live.wait(
            f"{name} to be {status}", lambda: self.live.client.query(name).status == status
        )
        return self.live.client.query(name)

    def drop(self, name: str, rows: Sequence[Row]) -> int:
        """Write a file into a stream's folder and wait until it is read; return the batch that read
        it.
        """
        self.read[name] += len(rows)
        self.write(name, rows)
        self.live.wait(f"{self.read[name]} rows of {name}", lambda: self.has_read(name))
        batch = self.live.progress().committed - 1
        mark = self.newest[name] - LATENESS * 60_000_000 if name in self.newest else None
        for key, value, minutes in rows:
            if minutes is None:
                self.invalid[name] += 1
                continue
            tau = micros(minutes)
            self.newest[name] = max(self.newest.get(name, tau), tau)
            if mark is not None and tau < mark:
                self.late[name] += 1
            else:
                self.rows.append((name, batch, key, value, tau))
        # After a load has ended, rows of the next file are late relative to it.
        if name in self.newest:
            self.live.wait(f"the load of {name} to end", lambda: self.has_ended(name))
        return batch

    def has_ended(self, name: str) -> bool:
        """Whether the stream's watermark includes all of its rows."""
        mark = self.live.progress().telemetry.watermarks.get(name)
        return mark == self.newest[name] - LATENESS * 60_000_000

    def has_read(self, name: str) -> bool:
        """Whether all files in a stream's folder have been read."""
        return self.live.progress().streams.get(name, {}).get("input", 0) >= self.read[name]

    def write(self, name: str, rows: Sequence[Row]) -> None:
        """Write a file into a stream's folder, without waiting."""
        times = [None if m is None else START + timedelta(minutes=m) for _, _, m in rows]
        table = pa.table(
            {
                "k": pa.array([k for k, _, _ in rows], pa.int64()),
                "v": pa.array([v for _, v, _ in rows], pa.int32()),
                "ts": pa.array(times, TIMESTAMP),
            }
        )
        self.files += 1
        # Spark ignores names that begin with a dot; after the rename the file is complete at once.
        partial = self.folder / name / f".{self.files}.partial"
        pq.write_table(table, partial)
        partial.rename(self.folder / name / f"{self.files:04d}.parquet")

    def check(self, name: str, sql: str, window: int | None = None) -> int:
        """Compare a query's results with DuckDB's; return their number."""
        info = self.live.client.query(name)
        expected = self._expected(info, sql, window)
        assert sorted(self.results(name)) == expected, (name, info.document())
        assert info.results == len(expected)
        return len(expected)

    def results(self, name: str) -> list[tuple[object, ...]]:
        """Return the rows in a query's result files."""
        files = sorted(map(str, (self.live.results / name).glob("*.parquet")))
        return duckdb.read_parquet(files).fetchall() if files else []

    def _expected(self, info: QueryOut, sql: str, window: int | None) -> list[tuple[object, ...]]:
        said = info.document()
        db = duckdb.connect()
        db.execute("CREATE TABLE rows (stream TEXT, batch INT, k BIGINT, v INT, tau BIGINT);")
        if self.rows:
            db.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", self.rows)
        for stream in self.read:
            db.execute(f"CREATE VIEW {stream} AS SELECT * FROM rows WHERE stream = '{stream}'")
        aliases = sorted(said["visible_from"])
        where = []
        for alias, seen in said["visible_from"].items():
            stored = f"{alias}.batch >= {seen['batch']}"
            if seen["event_time"] is not None:
                moment = datetime.fromisoformat(seen["event_time"])
                stored += f" AND {alias}.tau >= {(moment - EPOCH) // timedelta(microseconds=1)}"
            where.append(f"({alias}.batch >= {said['activated_batch']} OR ({stored}))")
        last = f"greatest({', '.join(f'{a}.batch' for a in aliases)})"
        where.append(f"{last} >= {said['activated_batch']}")
        if said["expired_batch"] is not None:
            where.append(f"{last} < {said['expired_batch']}")
        if window is not None:
            taus = ", ".join(f"{a}.tau" for a in aliases)
            where.append(f"greatest({taus}) - least({taus}) <= {window * 60_000_000}")
        found = db.execute(f"{sql} WHERE {' AND '.join(where)}").fetchall()
        db.close()
        return sorted(found)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(minutes: int) -> int:
    """Return a row's event time in microseconds since 1970."""
    return (START + timedelta(minutes=minutes) - EPOCH) // timedelta(microseconds=1)


@pytest.mark.spark
@pytest.mark.e2e
def test_a_day_in_the_life_of_a_live_pipeline(tmp_path: Path) -> None:
    with live_pipeline(tmp_path) as live:
        world = World(live, tmp_path)

        # Queries become active although no rows arrive.
        world.stream("a")
        world.stream("b")
        world.query("ab", AB)
        world.query("windowed", AB, window="30 minutes")
        first = world.wait_for("ab", "active")
        world.wait_for("windowed", "active")
        # Spark begins with an empty batch, before or after the activation.
        begun = first.activated_batch
        assert begun in (0, 1)
        assert first.complete == "always"
        assert live.progress().committed <= 1

        world.drop("a", [(k, 10 + k, k) for k in range(6)])
        world.drop("b", [(k % 4, 20 + k, k) for k in range(8)])
        world.drop("a", [(1, 30, 40), (2, 31, 45), (9, 32, 45)])
        assert world.check("ab", AB) > world.check("windowed", AB, 30) > 0

        # Late tuples and those without event time are counted, and not joined.
        before = world.check("ab", AB)
        world.drop("a", [(1, 40, 24), (1, 41, 25), (2, 42, None), (3, 43, None), (9, 44, 46)])
        assert (world.late["a"], world.invalid["a"]) == (1, 2)
        info = live.client.stream("a")
        assert (info.input_tuples, info.late_tuples, info.invalid_tuples) == (14, 1, 2)
        counts = {"input": 14, "late": 1, "invalid": 2, "ahead": 0, "unseen": 0}
        assert live.progress().streams["a"] == counts
        assert world.check("ab", AB) == before + 2

        # A stream that is added later is read, and a query with a limited lifetime expires.
        live.client.update_settings(optimizer="individual")
        world.stream("c")
        world.query("abc", ABC)
        world.query("brief", BA, ttl="10 seconds")
        joined = world.wait_for("abc", "active").document()
        assert joined["visible_from"]["a"] == {"batch": begun, "event_time": None}
        assert joined["visible_from"]["b"] == {"batch": begun, "event_time": None}
        assert joined["activated_batch"] == live.progress().committed
        assert live.client.current_epoch().epoch.optimizer == "individual"
        world.drop("c", [(k, 50 + k, 50) for k in range(4)])
        world.drop("b", [(1, 30, 50), (2, 31, 51)])
        assert world.check("abc", ABC) > 0
        assert world.check("ab", AB) > before + 2

        brief = world.wait_for("brief", "expired")
        assert brief.expired_batch is not None
        ended = world.check("brief", BA)
        world.drop("b", [(3, 10, 52), (3, 32, 52)])
        assert world.check("brief", BA) == ended
        world.check("abc", ABC)

        # Without the service the pipeline continues with its rules; with it, planning continues.
        kill(live.pipeline, "service")
        epoch = live.progress().epoch
        for minute in range(4):
            world.drop("a", [(minute, 60 + minute, 55 + minute), (1, 70 + minute, 55)])
        assert live.progress().epoch > epoch
        live.client.close()
        live.client = live.pipeline.start_service()
        world.check("ab", AB)
        world.check("abc", ABC)
        live.client.update_settings(optimizer="clash")
        world.query("late", AA)
        late = world.wait_for("late", "active").document()
        assert {v["batch"] for v in late["visible_from"].values()} == {begun}
        assert late["activated_batch"] == live.progress().committed
        assert live.client.current_epoch().epoch.optimizer == "clash"
        world.drop("a", [(1, 90, 60), (5, 91, 60)])
        world.drop("c", [(1, 92, 60)])

        for name, sql in (("ab", AB), ("abc", ABC), ("late", AA)):
            assert world.check(name, sql) > 0
        world.check("windowed", AB, 30)

        # Periods were measured all the time, also without the service.
        series = live.client.series()
        lengths = [period.seconds for period in series.periods]
        assert min(lengths) >= 3
        for name, rates in series.relations.items():
            pairs = zip(rates, lengths, strict=True)
            arrived = sum(rate * seconds for rate, seconds in pairs if rate is not None)
            assert arrived <= world.read[name] + 1e-6
        reached = {(tuple(s.head), tuple(s.target)) for s in series.steps}
        assert {(("a",), ("b",)), (("b",), ("a",))} <= reached
        live.pipeline.finish_runtime()


@pytest.mark.spark
@pytest.mark.slow
def test_a_live_runtime_killed_while_files_drop_in_ends_exact(tmp_path: Path) -> None:
    with live_pipeline(tmp_path) as live:
        world = World(live, tmp_path)
        for name in ("a", "b", "c"):
            world.stream(name)
        world.query("ab", AB)
        world.query("abc", ABC)
        world.wait_for("abc", "active")
        world.drop("a", [(k, 10 + k, k) for k in range(6)])
        world.drop("b", [(k % 4, 20 + k, k) for k in range(8)])

        for number, after in enumerate((0.0, 0.4, 0.8)):
            # Killed before or after the file was read: its batch is known afterwards.
            minute = 10 + number
            world.query(f"new{number}", AB)
            rows: list[Row] = [(number, 30 + number, minute), (1, 40 + number, minute)]
            world.write("c", rows)
            time.sleep(after)
            kill(live.pipeline, "runtime")
            live.start_runtime()
            world.read["c"] += 2
            live.wait("c to be read", lambda: world.has_read("c"))
            batch = live.progress().committed - 1
            world.rows += [("c", batch, k, v, micros(m)) for k, v, m in rows if m is not None]
            world.wait_for(f"new{number}", "active")
            world.drop("a", [(number, 50 + number, minute + 1)])
            world.drop("b", [(number, 60 + number, minute + 1)])

        assert world.check("abc", ABC) > 0
        for name in ("ab", "new0", "new1", "new2"):
            assert world.check(name, AB) > 0
