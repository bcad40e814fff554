"""Whole runs of outer, semi and anti joins whose probes are rationed, with kills, against DuckDB.

Planner, driver and tasks run as in :mod:`.local_replay`. Emitted rows must follow
from the ledger beside the results: all pairs that were not withheld, and all left rows that were
not withheld and can't have had a withheld pair. Paid debts count as never withheld.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from anabranch_contract.plans.rations import Ranking
from anabranch_contract.protocol.activations import LeftRows
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.passes import parse_sql
from anabranch_runtime.driver.tables import MaintainedTables
from anabranch_runtime.index.ranks import WHOLE, limit, ranks
from anabranch_runtime.sinks.completeness import Completeness
from tests.support.oracles.ledger import made_good, read_completeness, read_rations
from tests.support.scenarios.script import Script, draw
from tests.support.worlds import outer_runs
from tests.support.worlds.kept_tables import lagging
from tests.support.worlds.local_replay import LocalReplay
from tests.support.worlds.outer_runs import BEGIN, STREAMS, Drawn
from tests.support.worlds.view_runs import MINUTE

#: (batch, k, v, ts) of a stream's rows.
Rows = list[tuple[int, int | None, int, dt.datetime]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Emitted and expected rows of a run of outer joins, and its events.

    Attributes:
        share: share of the outer join's rows without rations that were emitted.
        missing: number of missing left rows, estimated from each emitted row's chance.
        left: the runtime's counts of left rows.
        said: the same from the file beside the results; None: nothing was withheld.
    """

    statement: str
    found: list[tuple[Any, ...]]
    wanted: list[tuple[Any, ...]]
    events: Counter[str]
    share: float
    missing: float
    left: LeftRows
    said: Completeness | None


@dataclass(slots=True)
class OuterReplay:
    """Run of one outer, semi or anti join over random streams, in ``folder``.

    Attributes:
        owed: whether some withheld results are made good.
        keys: how many keys tuples have, beside NULL. ``sizes``: of the batches of a stream.
    """

    folder: Path
    redis: str
    seed: int
    owed: bool = False
    keys: int = 12
    sizes: tuple[int, ...] = (0, 3, 15, 30)
    drawn: Drawn = field(init=False)
    query: JoinQuery = field(init=False)
    rows: dict[str, Rows] = field(init=False)

    def play(self) -> Verdict:
        """Run the statement, and compare emitted rows with expected ones."""
        rng = Random(self.seed)
        self.drawn = outer_runs.draw(rng)
        self.query = parse_sql("v", self.drawn.spark, STREAMS)
        batches = rng.randint(5, 9)
        self.rows = {name: self._draw_rows(batches, rng) for name in STREAMS}
        path = self._write(batches, rng)
        script = self._script(batches)
        out = self.folder / "out"
        out.mkdir()
        lags, made = Random(self.seed + 1), list[MaintainedTables]()

        def tables(root: Path, results: Path) -> MaintainedTables:
            made.append(lagging(root, results, lags))
            return made[-1]

        replay = LocalReplay(path, out, self.redis, script=script, tables=tables)
        replay.run()
        events = replay.events
        found = outer_runs.emitted(out / "results" / "v", self.query)
        assert made[-1].counts()["v"].shown == len(found), self.drawn.spark
        wanted, share, missing = self._wanted(out / "results", batches, events)
        left, said = made[-1].left_rows()["v"], read_completeness(out / "results", "v")
        return Verdict(self.drawn.spark, found, wanted, events, share, missing, left, said)

    def _script(self, batches: int) -> Script:
        rng = Random(self.seed + 2)
        rationed = frozenset(b for b in range(batches) if rng.random() < 0.4)
        owed = frozenset(b for b in rationed if self.owed and rng.random() < 0.85)
        return replace(draw(self.seed, batches), rationed=rationed, owed=owed)

    def _draw_rows(self, batches: int, rng: Random) -> Rows:
        found: Rows = []
        base = 0
        for batch in range(batches - 1):
            for _ in range(rng.choice(self.sizes)):
                ts = BEGIN + dt.timedelta(seconds=base * 60 + rng.randrange(-900, 1800))
                found.append((batch, rng.choice((None, *range(self.keys))), rng.randrange(10), ts))
            base += rng.choice((0, 10, 30))
        # The last event time moves the watermark, so that all left rows decided before are emitted.
        found.append((batches - 1, None, 0, BEGIN + dt.timedelta(minutes=base + 40)))
        return found

    def _write(self, batches: int, rng: Random) -> Path:
        """Write the scenario's input files."""
        streams: dict[str, Any] = {}
        for name, rows in self.rows.items():
            columns = list(zip(*rows, strict=True))
            table = pa.table(
                {
                    "k": pa.array(columns[1], pa.int32()),
                    "v": pa.array(columns[2], pa.int64()),
                    "ts": pa.array(columns[3], pa.timestamp("us", "UTC")),
                }
            )
            pq.write_table(table, self.folder / f"{name}.parquet")
            cuts = [sum(1 for r in rows if r[0] <= batch) for batch in range(batches)]
            streams[name] = {
                "path": f"{name}.parquet",
                "event_time": "ts",
                "lateness": "5 minutes",
                "rows_per_batch": 1,
                "cuts": cuts,
            }
        document = {
            "streams": streams,
            "queries": {"v": {"sql": self.drawn.spark, "register_at": 0}},
            "epochs": {"every": rng.choice((1, 2, 3))},
            # If costs were seconds, plans for so few rows would keep no intermediate results.
            "objective": "tuples",
            "parallelism": rng.choice((1, 3)),
        }
        path = self.folder / "scenario.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    def _marks(self, name: str, batch: int) -> int | None:
        """Return the watermark of a stream at the beginning of a batch."""
        seen = [_micros(r[3]) for r in self.rows[name] if r[0] < batch]
        return max(seen) - 5 * MINUTE if seen else None

    def _wanted(
        self, results: Path, batches: int, events: Counter[str]
    ) -> tuple[list[tuple[Any, ...]], float, float]:
        """Return the expected rows, and ``share`` and ``missing`` of the verdict."""
        left = ["a", "b"] if "JOIN b" in self.drawn.left else ["a"]
        came = f"greatest({', '.join(f'{name}.batch' for name in left)}, -1)"
        last = f"greatest({came}, c.batch)"
        rank = "(SELECT rank FROM ranked WHERE ranked.k IS NOT DISTINCT FROM a.k)"
        withheld = f"EXISTS (SELECT 1 FROM held h WHERE {rank} >= h.least AND h.batch"
        since = f">= {came} AND h.mark <= epoch_us({self.drawn.deadline})"
        pair_kept = f"NOT {withheld} = {last})"
        left_kept = f"NOT {withheld} = {came}) AND NOT {withheld} {since})"
        mark = self._marks("c", batches)
        with duckdb.connect() as connection:
            self._fill(connection, batches, self._held(results, events))
            whole = outer_runs.should_be(self.drawn, connection, mark)
            connection.execute("DROP VIEW IF EXISTS r")
            found = outer_runs.should_be(self.drawn, connection, mark, pair_kept, left_kept)
            below = replace(self.drawn, above=None)
            most = len(outer_runs.should_be(below, connection, mark))
            kept = len(outer_runs.should_be(below, connection, mark, pair_kept, left_kept))
            least = f"(SELECT min(h.least) FROM held h WHERE h.batch = {came} OR h.batch {since})"
            scaled = f"{WHOLE} / coalesce(nullif({least}, 0), {WHOLE}) - 1 AS missing"
            given = replace(below, kind="anti" if below.kind == "left" else below.kind)
            given = replace(given, select=scaled)
            weights = outer_runs.should_be(given, connection, mark, left_kept=left_kept)
        events["something withheld"] += whole != found
        return found, kept / most if most else 1.0, sum(weight for (weight,) in weights)

    def _held(self, results: Path, events: Counter[str]) -> list[tuple[int, int, int]]:
        """The withheld pairs: (batch, watermark of ``c`` at its beginning, least withheld rank)."""
        paid, found = made_good(results), []
        for one in read_rations(results):
            mark = self._marks("c", one.first)
            assert (one.first, one.watermarks.get("c")) == (one.last, mark)
            shares = {ration.share for ration in one.rations}
            assert {str(ration.query) for ration in one.rations} == {"v", "v+left"}
            assert len(shares) == 1
            goals = {(one.first, "v", "c"), (one.first, "v", "a"), (one.first, "v+left", "a")}
            assert not goals & paid or goals <= paid
            if goals <= paid:
                events["made good"] += 1
            else:
                never = -(1 << 62)
                found.append((one.first, never if mark is None else mark, limit(shares.pop())))
        return found

    def _fill(
        self, connection: duckdb.DuckDBPyConnection, batches: int, held: list[tuple[int, int, int]]
    ) -> None:
        """Create DuckDB tables: rows that were not late, rationed batches, and ranks of keys."""
        connection.execute("SET TimeZone = 'UTC'")
        for name, rows in self.rows.items():
            connection.execute(f"CREATE TABLE {name} (batch INT, k INT, v BIGINT, ts TIMESTAMPTZ)")
            marks = [self._marks(name, batch) for batch in range(batches)]
            on_time = [r for r in rows if (m := marks[r[0]]) is None or _micros(r[3]) >= m]
            connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?)", on_time)
        connection.execute("CREATE TABLE held (batch INT, mark BIGINT, least BIGINT)")
        if held:
            connection.executemany("INSERT INTO held VALUES (?, ?, ?)", held)
        known = (None, *range(self.keys))
        keys = pa.array(known, pa.int32())
        ranking = Ranking((("k", "bigint"),), by_batch=False)
        numbers = ranks(ranking, lambda _: keys, len(known), 0).tolist()
        connection.execute("CREATE TABLE ranked (k INT, rank BIGINT)")
        ranked = list(zip(known, numbers, strict=True))
        connection.executemany("INSERT INTO ranked VALUES (?, ?)", ranked)


def _micros(moment: dt.datetime) -> int:
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
