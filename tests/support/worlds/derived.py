"""Queries over queries in whole runs (service, planner, driver, tasks) without Spark, and the
oracle.

Streams are folders of Parquet files with inserts and deletes. Queries are registered over REST, by
name or as one nested statement. Tables lag behind, batches are killed before and after their
commit, and the driver is restarted. When nothing changes any more, every query's rows must equal
DuckDB's result over the net input.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_runtime.columns.arrow_types import spark_type
from anabranch_runtime.control import Control, fetch_ruleset
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.sources.batch_input import Sources
from anabranch_runtime.sources.blocks import read_pieces
from anabranch_runtime.sources.feeds import Feeds
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.worker import run_task
from tests.support.surroundings.policy import OPEN
from tests.support.worlds.changed_views import COLUMNS, draw_row, draw_statement
from tests.support.worlds.fed import Killed
from tests.support.worlds.kept_tables import lagging
from tests.support.worlds.service import Service
from tests.support.worlds.view_runs import comparable

#: A stream without deletes, and one of upserts, in addition to :data:`COLUMNS`.
OTHERS = {
    "d": {"v": pa.int32(), "g": pa.string()},
    "e": {"id": pa.int32(), "v": pa.float64(), "g": pa.string()},
}
TABLE = {"t": {"v": pa.int32(), "n": pa.int64()}}
#: A stream of changes with event times and a small lateness.
TIMED = {"f": {"k": pa.int32(), "v": pa.int64(), "ts": pa.timestamp("us", tz="UTC")}}
_KINDS: dict[str, dict[str, Any]] = {
    "d": {"kind": "stream"},
    "t": {"kind": "table"},
    "f": {"kind": "changes", "event_time": "ts", "lateness": "1 minute"},
    "e": {"kind": "upsert", "key": ["id"], "changes": {"operation": "op"}},
}


@dataclass
class Derived:
    """A pipeline in ``folder`` under ``service``, which is in live mode.

    Attributes:
        streams: stream -> types of its columns.
        net: stream -> row -> its multiplicity in the net input.
    """

    service: Service
    folder: Path
    rng: Random = field(default_factory=lambda: Random(0))
    streams: Mapping[str, Mapping[str, pa.DataType]] = field(default_factory=lambda: COLUMNS)
    net: dict[str, Counter[tuple[Any, ...]]] = field(init=False)
    events: Counter[str] = field(init=False, default_factory=Counter)
    statements: dict[str, str] = field(init=False, default_factory=dict)
    _files: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.net = {name: Counter() for name in self.streams}
        for name, columns in self.streams.items():
            (self.folder / name).mkdir(parents=True)
            self.service.post(
                "/v1/streams?wait=0",
                {
                    "name": name,
                    "columns": {c: str(spark_type(kind)) for c, kind in columns.items()},
                    **_KINDS.get(name, {"kind": "changes"}),
                    "source": {"format": "files", "path": str(self.folder / name)},
                },
            )
        self.start()

    def start(self) -> None:
        """Start the runtime, or kill it and start it again."""
        results = self.folder / "results"
        settings = DriverSettings(
            self.folder / "state",
            results,
            epoch_batches=self.rng.choice((1, 2)),
            epoch_seconds=0.0,
            patience=120.0,
            target_latency=None,
            access=OPEN,
        )
        settings.state.mkdir(parents=True, exist_ok=True)
        control = Control(self.service.settings.redis_url, self.service.keys.namespace)
        tables = lagging(settings.state, results, self.rng)
        self.driver = Driver(settings, control, tables=tables)
        self.driver.announce()
        self._records: list[Any] = []
        self.service.answered()

    def query(self, name: str, sql: str, **more: Any) -> dict[str, Any]:
        """Register a query over REST."""
        self.statements[name] = sql
        return self.service.post("/v1/queries", {"id": name, "sql": sql, **more})

    def write(self, name: str, rows: list[tuple[str, tuple[Any, ...]]]) -> None:
        """Write a file with rows of a stream, and add them to ``net``."""
        columns, kind = self.streams[name], _KINDS.get(name, {}).get("kind")
        for operation, values in rows:
            if kind == "upsert":
                self.net[name] = Counter(row for row in self.net[name] if row[0] != values[0])
            if kind != "upsert" or operation == "insert":
                self.net[name][values] += 1 if operation == "insert" else -1
        found = zip(*(values for _, values in rows), strict=True)
        arrays = [pa.array(list(x), k) for x, k in zip(found, columns.values(), strict=True)]
        names = [*columns]
        if kind not in ("stream", "table"):
            arrays.append(pa.array([operation for operation, _ in rows]))
            names.append("op")
        self.put(name, pa.table(arrays, names=names))

    def put(self, name: str, rows: pa.Table) -> None:
        """Write a file of a stream whose rows ``net`` does not count."""
        self._files += 1
        partial = self.folder / name / f".{self._files}"
        pq.write_table(rows, partial)
        partial.rename(partial.with_name(f"{self._files:06d}.parquet"))

    def draw(self) -> None:
        """Write random rows of some streams."""
        for name in self.streams:
            rows: list[tuple[str, tuple[Any, ...]]] = []
            present = list(self.net[name].elements())
            for _ in range(self.rng.choice((0, 5, 12))):
                if present and name != "d" and self.rng.random() < 0.4:
                    gone = present.pop(self.rng.randrange(len(present)))
                    rows.append(("delete", gone))
                else:
                    present.append(_draw_row(name, self.rng))
                    rows.append(("insert", present[-1]))
            if name != "e":
                self.rng.shuffle(rows)
            if rows:
                self.write(name, rows)

    def turn(self, *, killed: float = 0.0) -> bool:
        """Plan a batch and run it, with random events before; returns whether there was one.

        Args:
            killed: probability that the batch is killed, before or after its commit.
        """
        self.driver.tick()
        self.service.answered()
        records = self.driver.control.streams()
        if records != self._records:
            self._records = records
            control = self.driver.progress.rate_limiter.input
            feeds = Feeds(
                *(records, 2, self.service.settings.redis_url, self.service.keys.namespace),
                *(str(self.folder / "state"), OPEN, control),
                results=str(self.folder / "results"),
            )
            sources = Sources({"feeds": feeds}, 2, tuple(records), frozenset(feeds.feeds))
            self.driver.read(sources)
        offsets = self.driver.plan()
        if offsets is None:
            return False
        dies = self.rng.random() < killed

        def job(context: BatchContext) -> list[TaskReport]:
            known = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)

            def failed(piece: Any, why: Any) -> None:
                raise AssertionError(f"{piece}: {why}")

            blocks = read_pieces(chain(*context.input.shares), failed)
            reports = [run_task(context, known, blocks, task=0, tasks=1, exchange=lambda m: [m])]
            if dies and self.rng.random() < 0.5:
                raise Killed
            return reports

        try:
            self.driver.run(job, offsets)
        except Killed:
            self.events["killed"] += 1
            self.driver.tables.close()
            self.start()
        else:
            self.events["batches"] += 1
            if dies:
                self.events["restarted"] += 1
                self.driver.tables.close()
                self.start()
        return True

    def settle(self, turns: int = 8) -> None:
        """Run batches until nothing has changed for ``turns`` turns, each of 10 ms or more."""
        quiet = 0
        while quiet < turns:
            ran = self.turn()
            self.driver.tables.drain()
            quiet = 0 if ran else quiet + 1
            time.sleep(0.01)

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """Return the present rows of a query, sorted, with floats rounded."""
        return comparable(self.present(name))

    def present(self, name: str) -> list[tuple[Any, ...]]:
        """Return the present rows of a query, according to its result files."""
        shown = self.service.get(f"/v1/queries/{name}")
        meaning, folder = shown["normalised"], self.folder / "results" / shown["run"]
        files = sorted(map(str, folder.glob("*.parquet")))
        if not files:
            return []
        output = [o["name"] for o in meaning["output"]]
        with duckdb.connect() as connection:
            if meaning["view"] is not None:
                by = ", ".join(f'"{name}"' for name in meaning["view"]["identity"])
                over = f"PARTITION BY {by}" if by else ""
                listed = ", ".join(f'"{o}"' for o in output)
                numbered = f"*, row_number() OVER ({over} ORDER BY anabranch_version DESC) AS nth"
                sql = (
                    f"SELECT {listed} FROM (SELECT {numbered} FROM read_parquet(?)) "
                    "WHERE nth = 1 AND anabranch_change = 'upsert'"
                )
                return connection.execute(sql, [files]).fetchall()
            listed = ", ".join(f'"{o}"' for o in output)
            found = connection.execute(f"SELECT {listed} FROM read_parquet(?)", [files]).fetchall()
        if output[-1] != "anabranch_change":
            return found
        net: Counter[tuple[Any, ...]] = Counter()
        for *values, change in found:
            net[tuple(values)] += 1 if change == "insert" else -1
        assert min(net.values(), default=0) >= 0, "a row is deleted more often than inserted"
        return list(net.elements())

    def wanted(self, name: str) -> list[tuple[Any, ...]]:
        """Return DuckDB's result over the net input."""
        with duckdb.connect() as connection:
            for stream, columns in self.streams.items():
                kept = list(self.net[stream].elements())
                arrays = list(zip(*kept, strict=True)) or [() for _ in columns]
                kinds = columns.values()
                found = [pa.array(list(x), kind) for x, kind in zip(arrays, kinds, strict=True)]
                connection.register(stream, pa.table(found, names=list(columns)))
            for query, sql in self.statements.items():
                connection.execute(f'CREATE TEMP VIEW "{query}" AS {sql}')
            return comparable(connection.execute(f'SELECT * FROM "{name}"').fetchall())

    def check(self) -> None:
        """Compare all queries with DuckDB, after :meth:`settle`."""
        for name, sql in self.statements.items():
            found, wanted = self.rows(name), self.wanted(name)
            assert found == wanted, f"{name}: {sql}\n{found}\n{wanted}\n{self.statements}"
            self.events["rows"] += len(wanted)


def _draw_row(name: str, rng: Random) -> tuple[Any, ...]:
    if name not in OTHERS:
        return draw_row(name, rng)
    text = rng.choice((None, "x", "y", "z"))
    number = rng.choice((None, *range(8)))
    if name == "d":
        return number, text
    return rng.randrange(5), None if number is None else float(number), text


_LOWER = ("SELECT a.k AS k0, a.v AS v0 FROM a WHERE a.v < 6", "SELECT a.k AS k0, b.w AS v0 FROM a "
          "JOIN b ON b.k = a.k")  # fmt: skip
#: Statements over ``{x}`` and ``{y}``, which both have a number ``v0``.
_UPPER = (
    "SELECT x.v0 AS o0 FROM {x} x WHERE x.v0 > 1",
    "SELECT x.v0 AS o0, count(*) AS v0 FROM {x} x GROUP BY x.v0",
    "SELECT count(*) AS o0, sum(x.v0) AS v0, max(x.v0) AS v1 FROM {x} x",
    "SELECT DISTINCT x.v0 FROM {x} x",
    "SELECT x.v0, y.v0 AS o1 FROM {x} x JOIN {y} y ON y.v0 = x.v0",
    "SELECT x.v0, count(*) AS o1 FROM {x} x JOIN {y} y ON y.v0 = x.v0 + 1 GROUP BY x.v0",
    "SELECT x.v0, b.x AS o1 FROM {x} x JOIN b ON b.w = x.v0",
    "SELECT c.t, count(*) AS v0, sum(x.v0) AS v1 FROM {x} x JOIN c ON c.v = x.v0 GROUP BY c.t "
    "HAVING count(*) > 1",
    "SELECT x.v0, count(*) AS o1 FROM {x} x GROUP BY x.v0 ORDER BY o1 DESC, v0 NULLS FIRST LIMIT 2",
)


def lower_statement(rng: Random) -> str:
    """Draw a statement over streams, with a number ``v0`` that is equal in both engines."""
    if rng.random() < 0.25:
        return rng.choice(_LOWER)
    while True:
        drawn = draw_statement(rng)
        texts = ("min(a.g) AS v0", "max(a.g) AS v0", "median", "b.x", "ROLLUP")
        if " AS v0" in drawn and not any(text in drawn for text in texts):
            return drawn


def upper_statement(rng: Random, below: list[str]) -> str:
    """Draw a statement over some of ``below``: names, or statements in parentheses."""
    return rng.choice(_UPPER).format(x=rng.choice(below), y=rng.choice(below))


def run_seed(service: Service, folder: Path, seed: int) -> Counter[str]:
    """Run random queries over queries, registered at random times.

    Raises:
        AssertionError: a query has wrong rows.
    """
    rng = Random(seed)
    world = Derived(service, folder, rng)
    names = [f"q{number}" for number in range(rng.randint(3, 6))]
    readable = list[str]()
    for number, name in enumerate(names):
        upper = number > 0 and rng.random() < 0.75
        below = [*readable, *(f"({lower_statement(rng)})" for _ in range(rng.choice((0, 1, 2))))]
        sql = upper_statement(rng, below) if upper and below else lower_statement(rng)
        made = world.query(name, sql)
        readable += [name for o in made["normalised"]["output"] if o["name"] == "v0"]
        for _ in range(rng.choice((0, 0, 1, 3))):
            world.draw()
            world.turn(killed=0.25)
    world.settle()
    world.check()
    for _ in range(rng.randint(1, 4)):
        world.draw()
        world.turn(killed=0.25)
    world.settle()
    world.check()
    read = [service.get(f"/v1/queries/{name}")["reads"] for name in names]
    world.events["levels"] += sum(map(bool, read))
    world.events["parts"] += sum("." in one for some in read for one in some)
    return world.events
