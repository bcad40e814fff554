"""Whole runs of joins of all kinds that look up rows of tables, or the latest rows of streams at
the time of a tuple's arrival, with kills and plan changes, against DuckDB.

Planner, driver and tasks run as in :mod:`.local_replay`. Rows of streams and tables come in random
batches. Results must equal DuckDB's for the same statement, in which each look-up also requires
that the row is there, and not replaced, in the left row's batch.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from anabranch_contract.protocol.activations import Activation
from anabranch_contract.queries.outer_joins import registered
from anabranch_planner.passes import parse_sql
from anabranch_runtime.driver.tables import MaintainedTables
from tests.support.oracles.oracle import Oracle
from tests.support.plain_service import stream_of
from tests.support.scenarios.file import read_scenario
from tests.support.scenarios.script import draw
from tests.support.worlds.kept_tables import lagging
from tests.support.worlds.local_replay import LocalReplay
from tests.support.worlds.outer_runs import emitted
from tests.support.worlds.view_runs import comparable

BEGIN = dt.datetime(1969, 12, 31, 23, 0, tzinfo=dt.UTC)
NEAR = "{a}.ts BETWEEN {b}.ts - INTERVAL '10' MINUTE AND {b}.ts + INTERVAL '10' MINUTE"
ON = ("", "", " AND t1.x > 3", " AND t1.x > s.v", " AND s.v > 2", " AND t1.y = 'a'")
WHERE = ("", "", "t1.x IS NULL", "t1.x IS NULL OR t1.x > 4", "t1.y <> 'b'")
WINDOW = "window(s.ts, '10 minutes')"
#: Stream -> its columns; ``t`` and ``u`` are tables.
COLUMNS = {
    "s": {"k": pa.int32(), "v": pa.int64(), "ts": pa.timestamp("us", "UTC")},
    "r": {"k": pa.int32(), "w": pa.string(), "ts": pa.timestamp("us", "UTC")},
    "t": {"k": pa.int32(), "x": pa.int64(), "y": pa.string(), "ts": pa.timestamp("us", "UTC")},
    "u": {"x": pa.int64(), "z": pa.float64(), "ts": pa.timestamp("us", "UTC")},
}
#: A table in a statement, with its alias.
_TABLE = re.compile(r"\b([tu]) ([tu]\d)\b")


@dataclass(frozen=True, slots=True)
class Drawn:
    """Random statement in pieces; ``joins`` are (kind, table with alias, condition).

    Attributes:
        above: GROUP BY of a view over its rows; "": no view.
    """

    select: str
    left: str
    joins: tuple[tuple[str, str, str], ...]
    where: str
    above: str = ""

    def sql(self, visible: str = "") -> str:
        """Return the SQL text; ``visible`` is an additional condition on left rows."""
        rows = f"FROM {self.left}"
        for kind, table, on in self.joins:
            rows += f" {kind} JOIN {table} ON {on}"
        conditions = [c for c in (self.where, visible) if c]
        rows += f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {self.select} {rows} {self.above}"


def draw_statement(rng: Random, *, above: bool = False) -> Drawn:
    """Return a random statement with look-ups."""
    two = rng.random() < 0.4
    left = f"s JOIN r ON r.k = s.k AND {NEAR.format(a='r', b='s')}" if two else "s"
    items = ["s.k AS sk", "s.v AS sv", *(["r.w AS rw"] if two else [])]
    inner = rng.random() < 0.25
    if inner:
        left += " JOIN t t0 ON t0.k = s.k"
        items.append("t0.x AS x0")
    joins: list[tuple[str, str, str]] = []
    where = [rng.choice(("", "", "s.v < 7", "s.k > 0"))]
    first = rng.choice(("LEFT", "LEFT", "LEFT SEMI", "LEFT ANTI"))
    key = "s.v % 5" if rng.random() < 0.2 else "s.k"
    on = f"t1.k = {key}"
    on += rng.choice(ON)
    joins.append((first, "t t1", on))
    if first == "LEFT":
        items += rng.choice(
            (["t1.x AS x1"], ["t1.x AS x1", "t1.y AS y1"], ["coalesce(t1.x, -1) AS c"])
        )
        where.append(
            rng.choice(("", "", "t1.x IS NULL", "t1.x IS NULL OR t1.x > 4", "t1.y <> 'b'"))
        )
    if rng.random() < 0.6:
        kind = rng.choice(("LEFT", "LEFT", "LEFT SEMI", "LEFT ANTI"))
        links = ["u1.x = s.v", "u1.x = s.v AND u1.z > 1.5"]
        if first == "LEFT":
            links += ["u1.x = t1.x", "u1.x = t1.x", "u1.x = t1.x AND u1.z > s.v"]
        joins.append((kind, "u u1", rng.choice(links)))
        if kind == "LEFT":
            items.append("u1.z AS z1")
            where.append(rng.choice(("", "", "u1.z IS NOT NULL", "u1.z IS NULL")))
            if rng.random() < 0.3:
                joins.append(("LEFT", "t t3", "t3.x = u1.x"))
                items.append("t3.k AS k3")
    clause = " AND ".join(f"({c})" for c in where if c)
    if not above:
        return Drawn(", ".join(items), left, tuple(joins), clause)
    value = "t1.y" if first == "LEFT" else "s.v"
    key, group = rng.choice((("s.k AS sk", "s.k"), (f"{WINDOW}.start AS w", WINDOW)))
    counts = f"{key}, count(*) AS n, count({value}) AS m, sum(s.v) AS v"
    return Drawn(counts, left, tuple(joins), clause, f"GROUP BY {group}")


@dataclass(slots=True)
class LookUpReplay:
    """Run of some look-up statements over random streams and tables, in ``folder``.

    Attributes:
        above: whether statements have views over the look-ups.
        hosts: whether tasks are on several hosts.
    """

    folder: Path
    redis: str
    seed: int
    above: bool = False
    hosts: bool = False
    drawn: dict[str, Drawn] = field(init=False, default_factory=dict)
    #: Stream that keeps the latest row per key -> its key.
    latest: dict[str, str] = field(init=False, default_factory=dict)

    def play(self) -> Counter[str]:
        """Run the statements, and compare with DuckDB; return counts of events.

        Raises:
            AssertionError: something else has been emitted than should have been.
        """
        rng = Random(self.seed)
        count = 1 if self.above else rng.randint(1, 3)
        for n in range(count):
            self.drawn[f"q{n}"] = draw_statement(rng, above=self.above)
        if rng.random() < 0.4:
            self.latest = {name: rng.choice(("k", "x")) for name in "t"} | {"u": "x"}
            self.latest = {name: key for name, key in self.latest.items() if rng.random() < 0.7}
        batches = rng.randint(4, 9)
        path = self._write(batches, rng)
        out = self.folder / "out"
        out.mkdir()
        script = draw(self.seed, batches)
        rationed = frozenset(b for b in range(batches) if rng.random() < 0.2)
        hosts = tuple(rng.choice((1, 2, 3)) for _ in range(batches)) if self.hosts else (1,)
        script = replace(script, rationed=rationed, hosts=hosts)
        lags, made = Random(self.seed + 1), list[MaintainedTables]()

        def tables(root: Path, results: Path) -> MaintainedTables:
            made.append(lagging(root, results, lags))
            return made[-1]

        replay = LocalReplay(path, out, self.redis, script=script, tables=tables)
        activations = replay.run()
        shown = {name: one.shown for name, one in made[-1].counts().items()}
        oracle = replay.oracle()
        try:
            for name, drawn in self.drawn.items():
                self._compare(name, drawn, oracle, activations, shown, replay.events)
        finally:
            oracle.close()
        return replay.events

    def _sql(self, drawn: Drawn) -> str:
        """Return the statement's SQL for the engine."""

        def versioned(found: re.Match[str]) -> str:
            name, alias = found.groups()
            if name not in self.latest:
                return found[0]
            return (
                f"{name} FOR SYSTEM_TIME AS OF {'PROCTIME()' if alias > 't0' else 's.ts'} {alias}"
            )

        return _TABLE.sub(versioned, drawn.sql())

    def _write(self, batches: int, rng: Random) -> Path:
        streams: dict[str, Any] = {}
        base = 0
        rows: dict[str, list[list[Any]]] = {name: [] for name in COLUMNS}
        cuts: dict[str, list[int]] = {name: [] for name in COLUMNS}
        for _ in range(batches):
            for name in COLUMNS:
                sizes = (0, 2, 8, 20) if name in ("s", "r") else (0, 0, 2, 5)
                rows[name] += (_row(name, base, rng) for _ in range(rng.choice(sizes)))
                cuts[name].append(len(rows[name]))
            base += rng.choice((0, 5, 20))
        for name, columns in COLUMNS.items():
            arrays = zip(*rows[name], strict=True) if rows[name] else [[] for _ in columns]
            kinds = columns.values()
            found = [pa.array(list(a), kind) for a, kind in zip(arrays, kinds, strict=True)]
            pq.write_table(pa.table(found, names=list(columns)), self.folder / f"{name}.parquet")
            entry = {"path": f"{name}.parquet", "rows_per_batch": 1, "cuts": cuts[name]}
            if name in ("s", "r") or name in self.latest:
                entry |= {"event_time": "ts", "lateness": "5 minutes"}
            if name in self.latest:
                entry |= {"retain": "all", "retention": {"latest": [self.latest[name]]}}
            elif name not in ("s", "r"):
                entry |= {"kind": "table"}
                if rng.random() < 0.6:
                    entry["key"] = [rng.choice(("k", "y"))] if name == "t" else ["x"]
            streams[name] = entry
        queries = {
            name: {"sql": self._sql(drawn), "register_at": rng.choice((0, 0, 1, 2))}
            for name, drawn in self.drawn.items()
        }
        if rng.random() < 0.5:
            # Unlike the other statements, this one is rationed.
            sql = f"SELECT s.v, r.w FROM s JOIN r ON r.k = s.k AND {NEAR.format(a='r', b='s')}"
            queries["plain"] = {"sql": sql, "register_at": 0}
        document = {
            "streams": streams,
            "queries": queries,
            "epochs": {"every": rng.choice((1, 2, 3))},
            "objective": "tuples",
            "parallelism": rng.choice((1, 3)),
        }
        path = self.folder / "scenario.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    def _compare(
        self,
        name: str,
        drawn: Drawn,
        oracle: Oracle,
        activations: dict[str, Activation],
        shown: dict[str, int],
        events: Counter[str],
    ) -> None:
        scenario = read_scenario(self.folder / "scenario.yaml")
        streams = {n: stream_of(scenario, n) for n in scenario.streams}
        for n, key in self.latest.items():
            streams[n] = replace(streams[n], latest=(key,))
        query = parse_sql(name, self._sql(drawn), streams)
        found = without_nan(emitted(self.folder / "out" / "results" / name, query))
        wanted: list[tuple[Any, ...]] = []
        activation = activations.get(f"{name}+left")
        if activation is not None:
            left = ["s", *(["r"] if " JOIN r " in drawn.left else [])]
            batch = f"greatest({', '.join(f'{a}.__batch' for a in left)}, -1)"
            seen = [f"{batch} >= {activation.activated_batch}"]
            for alias in left:
                since = activation.visible_from[alias]
                old = f"{alias}.__batch >= {since.batch}"
                if since.event_time is not None:
                    old += f" AND {alias}.__tau >= {since.event_time}"
                seen.append(f"({alias}.__batch >= {activation.activated_batch} OR ({old}))")
                seen.append(f"NOT {alias}.__late AND NOT {alias}.__invalid AND NOT {alias}.__ahead")

            seen_from = {
                alias: since.batch
                for run, one in activations.items()
                if registered(run) == name
                for alias, since in one.visible_from.items()
            }

            def of(table: str, alias: str) -> str:
                there = f"{alias}.__batch <= {batch}"
                if table in self.latest:
                    same, own = self.latest[table], f"{table}_later"
                    valid = "NOT {0}.__late AND NOT {0}.__invalid AND NOT {0}.__ahead"
                    return (
                        f"{there} AND {alias}.__batch >= {seen_from[alias]} "
                        f"AND {valid.format(alias)} AND NOT EXISTS (SELECT 1 FROM {table} {own} "
                        f"WHERE {own}.{same} = {alias}.{same} AND {own}.__tau > {alias}.__tau "
                        f"AND {own}.__batch <= {batch} AND {valid.format(own)})"
                    )
                if not scenario.streams[table].key:
                    return there
                return f"{there} AND ({alias}.__gone_ IS NULL OR {alias}.__gone_ > {batch})"

            if " JOIN t t0 " in drawn.left:
                seen.append(of("t", "t0"))
            joins = tuple(
                (kind, table, f"{on} AND {of(*table.split())}") for kind, table, on in drawn.joins
            )
            sql = replace(drawn, joins=joins).sql(" AND ".join(seen))
            bucket = "time_bucket(INTERVAL '10 minutes', s.ts)"
            sql = sql.replace(f"{WINDOW}.start", bucket).replace(WINDOW, bucket)
            for kind in ("SEMI", "ANTI"):
                sql = sql.replace(f"LEFT {kind}", kind)
            wanted = without_nan(oracle.db.execute(sql).fetchall())
        assert found == wanted, f"{drawn.sql()}\n{found}\n{wanted}"
        assert shown.get(name, 0) == len(wanted), drawn.sql()
        kinds = [kind for kind, _, _ in drawn.joins]
        events["statements"] += 1
        events["results"] += len(wanted)
        events["chains"] += len(kinds) > 1
        events["windows"] += WINDOW in drawn.above
        events["rows without a partner"] += sum(None in row[1:] for row in wanted)
        events["as of arrival"] += any(f"JOIN {name} " in drawn.sql() for name in self.latest)
        events.update(kinds)


def _row(name: str, base: int, rng: Random) -> list[Any]:
    key = rng.choice((None, *range(6)))
    ts = BEGIN + dt.timedelta(seconds=base * 60 + rng.randrange(-600, 900))
    text = rng.choice((None, "a", "b", "é"))
    made = {
        "s": [key, rng.randrange(9), ts],
        "r": [key, text, ts],
        "t": [key, rng.choice((None, *range(9))), text, ts],
        "u": [rng.choice((None, *range(9))), rng.choice((None, 0.5, 2.0, float("nan"))), ts],
    }
    return made[name]


def without_nan(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return ``rows`` sorted, with a text in place of NaN, which is not equal to itself."""
    return comparable([tuple("NaN" if v != v else v for v in row) for row in rows])
