"""Views and outer joins over streams of changes, in whole runs with kills and rewires, and the
oracle.

Planner, driver and tasks run as in :mod:`.local_replay`. Rows are inserted, deleted and updated in
any order within a batch. After every batch, the table according to its changes (for an outer join
without a view, the sum of its changes) must equal DuckDB's result over the net input.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from anabranch_contract.protocol.activations import Activation
from anabranch_contract.queries.outer_joins import registered
from anabranch_contract.queries.views import View
from anabranch_planner.passes import parse_sql
from anabranch_runtime.driver.tables import MaintainedTables
from tests.support.oracles.asof import as_lateral
from tests.support.plain_service import stream_of
from tests.support.scenarios.file import read_scenario
from tests.support.scenarios.script import draw
from tests.support.worlds.kept_tables import lagging
from tests.support.worlds.local_replay import LocalReplay
from tests.support.worlds.view_runs import comparable, current_rows, summed_rows

#: Stream -> its columns.
COLUMNS = {
    "a": {"k": pa.int32(), "v": pa.int64(), "g": pa.string()},
    "b": {"k": pa.int32(), "w": pa.int64(), "x": pa.float64()},
    "c": {"v": pa.int64(), "t": pa.string()},
}
SOURCES = (
    ("a", ("a.k", "a.g"), ("a.v", "a.k")),
    ("a JOIN b ON b.k = a.k", ("a.k", "a.g", "b.w % 3"), ("a.v", "b.w", "a.v + b.w")),
    ("a JOIN b ON b.k = a.k AND b.w > 2", ("a.g", "b.w"), ("a.v", "b.x")),
    ("a JOIN a a2 ON a2.k = a.k", ("a.g", "a2.g"), ("a.v", "a2.v")),
    (
        "a JOIN b ON b.k = a.k JOIN c ON c.v = a.v",
        ("a.g", "c.t", "b.k"),
        ("b.w", "c.v", "b.w * c.v"),
    ),
)
#: Outer, semi or anti joins: FROM, a condition of WHERE, columns.
OUTER = (
    ("a LEFT JOIN b ON b.k = a.k", "", ("a.k", "a.g", "b.w"), ("a.v", "b.w")),
    ("a LEFT JOIN b ON b.k = a.k", "b.w IS NULL OR b.w > 2", ("a.k", "b.w"), ("a.v", "b.w")),
    ("a LEFT JOIN b ON b.k = a.k AND b.w > 2 AND a.v < 5", "", ("a.g", "b.w"), ("a.v", "b.w")),
    ("b RIGHT JOIN a ON b.k = a.k", "", ("a.k", "a.g"), ("a.v", "b.w")),
    ("a LEFT JOIN a a2 ON a2.k = a.v", "", ("a.g", "a2.g"), ("a.v", "a2.v")),
    ("a LEFT JOIN b ON b.k = a.k LEFT JOIN c ON c.v = b.w", "", ("a.g", "c.t"), ("b.w", "c.v")),
    ("a LEFT JOIN b ON b.k = a.k LEFT JOIN c ON c.v = a.v", "", ("b.w", "c.t"), ("b.w", "a.v")),
    (
        "a LEFT JOIN b ON b.k = a.k LEFT JOIN c ON c.v = b.w AND b.w > 1 AND a.v > 2",
        "c.v IS NULL",
        ("a.g", "b.w"),
        ("b.w", "a.v"),
    ),
    ("a LEFT JOIN b ON b.k = a.k JOIN c ON c.v = b.w", "", ("a.g", "c.t"), ("b.w", "a.v")),
    ("a LEFT JOIN b ON b.k = a.k JOIN c ON c.v = a.v", "", ("a.g", "c.t"), ("b.w", "a.v")),
    ("a JOIN b ON b.k = a.k LEFT JOIN c ON c.v = b.w", "", ("a.g", "c.t"), ("b.w", "c.v")),
    ("a FULL JOIN b ON b.k = a.k AND b.w > 2", "", ("a.k", "b.w"), ("a.v", "b.w")),
    ("a JOIN b ON b.k = a.k FULL JOIN c ON c.v = b.w", "", ("a.g", "c.t"), ("c.v", "a.v")),
    ("a SEMI JOIN b ON b.k = a.k AND b.w > a.v", "", ("a.k", "a.g"), ("a.v", "a.k")),
    ("a ANTI JOIN b ON b.k = a.k", "", ("a.k", "a.g"), ("a.v", "a.k")),
    ("a", "EXISTS (SELECT 1 FROM b WHERE b.k = a.k)", ("a.k", "a.g"), ("a.v", "a.k")),
    ("a", "a.k IN (SELECT DISTINCT k FROM b WHERE w > a.v)", ("a.k", "a.g"), ("a.v", "a.k")),
    (
        "a LEFT JOIN c ON c.v = a.v",
        "NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND w > 2)",
        ("a.k", "c.t"),
        ("a.v", "c.v"),
    ),
    (
        "a LEFT JOIN b ON b.k = a.k SEMI JOIN c ON c.v = b.w",
        "",
        ("a.k", "b.w"),
        ("a.v", "b.w"),
    ),
    (
        "a LEFT JOIN (b JOIN c ON c.v = b.w) ON b.k = a.k",
        "",
        ("a.g", "c.t"),
        ("a.v", "b.w"),
    ),
)
#: The same for ASOF joins.
NEAREST = (
    ("a ASOF JOIN b ON b.k = a.k AND b.w <= a.v", "", ("a.g", "b.w"), ("a.v", "b.w")),
    ("a ASOF LEFT JOIN b ON b.k = a.k AND b.w > a.v", "", ("a.g", "b.w"), ("b.w", "a.v")),
    (
        "a ASOF LEFT JOIN b ON a.k = b.k AND a.v >= b.w AND b.w >= a.v - 2",
        "b.w IS NULL OR b.w > 1",
        ("a.g", "b.w"),
        ("a.v", "b.w"),
    ),
    (
        "a JOIN c ON c.v = a.v ASOF LEFT JOIN b ON b.k = a.k AND b.w < a.v",
        "",
        ("a.g", "c.t"),
        ("b.w", "a.v"),
    ),
    ("a ASOF JOIN a a2 ON a2.k = a.k AND a2.v < a.v", "", ("a.g", "a2.v"), ("a2.v", "a.v")),
)
AGGREGATES = (
    "count(*)", "count({v})", "sum({v})", "min({v})", "max({v})", "count(DISTINCT {v})",
    "sum(DISTINCT {v})", "count(*) FILTER (WHERE {v} > 3)", "max_by({u}, {v})", "median({v})",
    "min(a.g)", "max(a.g)",
)  # fmt: skip
#: Functions of neighbouring rows and positions; ``{o}``: the window.
NEIGHBOURS = (
    "lag({v}) {o}", "lead({v}, 2) {o}", "{v} - lag({v}, 1, {v}) {o}", "row_number() {o}",
    "coalesce(lag({v}, 3) {o}, 0)",
)  # fmt: skip
HAVING = ("count(*) > 1", "sum({v}) > 4", "max({v}) <> 3")


def draw_statement(rng: Random, *, outer: bool = False) -> str:
    """Draw a view with the same meaning in Spark and in DuckDB; ``outer``: over outer joins, or an
    outer join without a view.
    """
    source, *condition, keys, values = rng.choice((*OUTER, *NEAREST) if outer else SOURCES)
    where = rng.choice(("", "", " WHERE a.v < 7", " WHERE a.k > 1"))
    if any(condition):
        where += f"{' AND' if where else ' WHERE'} ({condition[0]})"
    drawn = rng.random()
    if outer and drawn < 0.5:
        named = ", ".join(f"{column} AS c{n}" for n, column in enumerate((*keys, values[0])))
        return f"SELECT {named} FROM {source}{where}"
    if drawn < 0.06 or (outer and drawn < 0.55):
        return _neighbours(rng, source, where, keys, values)
    keys_of = rng.sample(keys, rng.randint(1, min(2, len(keys))))
    named = ", ".join(f"{key} AS k{n}" for n, key in enumerate(keys_of))
    if drawn < 0.12:
        return f"SELECT DISTINCT {named} FROM {source}{where}"
    exact = [value for value in values if value != "b.x"]
    some = [
        one.format(v=rng.choice(exact if "DISTINCT" in one else values), u=values[0])
        for one in rng.sample(AGGREGATES, 3)
    ]
    # For ties in max_by, both engines may choose different values.
    some = [one if not one.startswith("max_by") else "count(*)" for one in some]
    listed = ", ".join(f"{one} AS v{n}" for n, one in enumerate(some))
    if drawn < 0.22:
        return f"SELECT {listed} FROM {source}{where}"
    having = f" HAVING {rng.choice(HAVING).format(v=values[0])}" if rng.random() < 0.3 else ""
    grouped = ", ".join(keys_of)
    if drawn < 0.35:
        grouped = f"ROLLUP ({grouped})"
    order = ""
    if drawn > 0.85:
        ties = ", ".join(f"{key} NULLS FIRST" for key in keys_of)
        order = f" ORDER BY count(*) DESC, {ties} LIMIT {rng.randint(1, 3)}"
    return f"SELECT {named}, {listed} FROM {source}{where} GROUP BY {grouped}{having}{order}"


@dataclass(slots=True)
class ChangedViewReplay:
    """A run of some views over random changes, in ``folder``.

    Attributes:
        hosts: whether tasks are on several hosts.
        outer: whether the statements have outer joins; some streams then only insert.
    """

    folder: Path
    redis: str
    seed: int
    hosts: bool = False
    outer: bool = False
    #: Streams without deletes.
    plain: frozenset[str] = field(init=False, default=frozenset())
    #: Stream -> its key, if its rows replace others with the key.
    keyed: dict[str, str] = field(init=False, default_factory=dict)
    #: Streams with retention.
    retained: frozenset[str] = field(init=False, default=frozenset())
    #: Statements with past results.
    past: frozenset[str] = field(init=False, default=frozenset())
    #: Stream -> (batch, operation, values) of its rows.
    rows: dict[str, list[tuple[int, str, tuple[Any, ...]]]] = field(init=False)
    statements: dict[str, str] = field(init=False)

    def play(self) -> Counter[str]:
        """Run, and compare after every batch; returns counts of events.

        Raises:
            AssertionError: a table has wrong rows.
        """
        rng = Random(self.seed)
        count = rng.randint(1, 4)
        self.statements = {f"q{n}": draw_statement(rng, outer=self.outer) for n in range(count)}
        if self.outer:
            share = rng.choice((0.3, 0.3, 1.0))
            self.plain = frozenset(name for name in COLUMNS if rng.random() < share)
            if "c" not in self.plain and rng.random() < 0.4:
                self.keyed = {"c": "v"}
        # Without past results, deletes may concern rows that are not visible.
        some = len(self.plain) == len(COLUMNS)
        # Past rows of an ASOF join are stored only by retention.
        stored = not some and any("ASOF" in sql for sql in self.statements.values())
        self.retained = frozenset(
            name for name in COLUMNS if rng.random() < 0.5 or stored or name not in self.plain
        )
        self.past = frozenset(
            name
            for name, sql in self.statements.items()
            if self._is_stored(sql) and (not some or rng.random() < 0.5)
        )
        batches = rng.randint(4, 8)
        self.rows = {name: self._draw(name, batches, rng) for name in COLUMNS}
        path = self._write(batches, rng)
        out = self.folder / "out"
        out.mkdir()
        script = draw(self.seed, batches)
        hosts = tuple(rng.choice((1, 2, 3)) for _ in range(batches)) if self.hosts else (1,)
        script = replace(script, rationed=frozenset(), owed=frozenset(), hosts=hosts)
        script = replace(script, past=self.past)
        lags, made = Random(self.seed + 1), list[MaintainedTables]()

        def tables(root: Path, results: Path) -> MaintainedTables:
            made.append(lagging(root, results, lags))
            return made[-1]

        replay = LocalReplay(path, out, self.redis, script=script, tables=tables)
        activations = replay.run()
        events = replay.events
        scenario = read_scenario(path)
        streams = {name: stream_of(scenario, name) for name in scenario.streams}
        for name, sql in self.statements.items():
            query = parse_sql(name, sql, streams)
            assert query.outer is None or query.outer.kept
            if name not in activations:
                # The ruleset of this statement's first epoch was published after the last batch.
                continue
            begun = activations[name].activated_batch
            # Past results of a later query are computed over several batches.
            for batch in range(0 if begun == 0 else batches, batches + 1):
                found = self._upto(out / "results" / name, query.view, batch)
                since = self._visible(name, activations)
                wanted = self._wanted(sql, batch, since)
                assert found == wanted, f"{sql}\nafter batch {batch}: {found}\n{wanted}"
            if query.view is not None:
                assert made[-1].counts()[name].shown == len(self._wanted(sql, batches, since))
            events["rows"] += len(self._wanted(sql, batches, since))
            events["without past"] += begun > 0 and name not in self.past
            events["late view"] += begun > 0
        return events

    def _is_stored(self, sql: str) -> bool:
        """Whether past rows of the statement are stored; for an ASOF join, only by retention."""
        alone = {"b"} if "JOIN c" in sql else {"a", "b"}
        return "ASOF" not in sql or alone <= self.retained

    def _upto(self, folder: Path, view: View | None, batch: int) -> list[tuple[Any, ...]]:
        """Return the rows according to the changes up to ``batch``; after the last one, according
        to all changes.
        """
        below = self.folder / "upto" / folder.name / str(batch)
        below.mkdir(parents=True)
        last = max((b for rows in self.rows.values() for b, _, _ in rows), default=0)
        for file in folder.glob("version-*.parquet"):
            if int(file.stem.partition("-")[2]) <= batch + 1 or batch > last:
                (below / file.name).symlink_to(file)
        # Joined rows have a file per batch and task.
        for file in folder.glob("[0-9]*.parquet"):
            if int(file.stem.partition("-")[0]) <= batch or batch > last:
                (below / file.name).symlink_to(file)
        if view is None:
            return comparable(summed_rows(below))
        return comparable(current_rows(below, view))

    def _visible(self, name: str, activations: Mapping[str, Activation]) -> dict[str, int]:
        """Map aliases to the first batch whose rows a query sees, the same in all of its joins;
        without past results, the batch in which the query began.
        """
        found: dict[str, set[int]] = defaultdict(set)
        for join, one in activations.items():
            if registered(join) == name:
                for alias, seen in one.visible_from.items():
                    found[alias.rpartition(".")[2].rstrip("_")].add(seen.batch)
                    if name not in self.past:
                        assert seen.batch == one.activated_batch
        assert all(len(batches) == 1 for batches in found.values()), f"{name}: {found}"
        return {alias: min(batches) for alias, batches in found.items()}

    def _wanted(self, sql: str, batch: int, since: Mapping[str, int]) -> list[tuple[Any, ...]]:
        """Return DuckDB's result over the net input of the batches from ``since`` (by alias) on."""
        sql = sql.replace(" a a2 ", " a2 ")
        with duckdb.connect() as connection:
            for name in (*COLUMNS, "a2"):
                columns = COLUMNS[name[0]]
                kept = self._net(name[0], since.get(name, 0), batch)
                arrays = list(zip(*kept, strict=True)) or [() for _ in columns]
                kinds = columns.values()
                found = [pa.array(list(x), kind) for x, kind in zip(arrays, kinds, strict=True)]
                connection.register(name, pa.table(found, names=list(columns)))
            sql = as_lateral(sql) if "ASOF" in sql else sql
            if "ROLLUP" in sql:
                # Without rows, Spark has no total, but DuckDB has one.
                source = sql[sql.index(" FROM ") : sql.index(" GROUP BY ")]
                if not connection.execute(f"SELECT count(*){source}").fetchall()[0][0]:
                    return []
            return comparable(connection.execute(sql).fetchall())

    def _net(self, name: str, since: int, batch: int) -> list[tuple[Any, ...]]:
        """Return the net input of a stream."""
        net: Counter[tuple[Any, ...]] = Counter()
        latest: dict[Any, tuple[Any, ...]] = {}
        for when, operation, values in self.rows[name]:
            if not since <= when <= batch:
                continue
            net[values] += 1 if operation in ("c", "+U") else -1
            latest.pop(values[0], None)
            if operation == "c":
                latest[values[0]] = values
        return list(latest.values() if name in self.keyed else net.elements())

    def _draw(self, name: str, batches: int, rng: Random) -> list[tuple[int, str, tuple[Any, ...]]]:
        """Draw rows of a stream; at the end of a batch, no row is deleted more often
        than inserted.
        """
        found: list[tuple[int, str, tuple[Any, ...]]] = []
        present: list[tuple[Any, ...]] = []
        for batch in range(batches):
            fresh: list[tuple[int, str, tuple[Any, ...]]] = []
            for _ in range(rng.choice((0, 3, 8, 15))):
                drawn = rng.random()
                if name in self.keyed:
                    row = (rng.randrange(6), *draw_row(name, rng)[1:])
                    fresh.append((batch, "c" if drawn < 0.8 else "d", row))
                    continue
                if drawn < 0.45 or not present or name in self.plain:
                    present.append(draw_row(name, rng))
                    fresh.append((batch, "c", present[-1]))
                    continue
                gone = present.pop(rng.randrange(len(present)))
                if drawn < 0.75:
                    fresh.append((batch, "d", gone))
                    continue
                fresh.append((batch, "-U", gone))
                present.append((gone[0], *draw_row(name, rng)[1:]))
                fresh.append((batch, "+U", present[-1]))
            rng.shuffle(fresh)
            found += fresh
        return found or [(0, "c", (0, *draw_row(name, rng)[1:]))]

    def _write(self, batches: int, rng: Random) -> Path:
        """Write the scenario's files."""
        streams: dict[str, Any] = {}
        for name, columns in COLUMNS.items():
            rows = self.rows[name]
            values = list(zip(*(v for _, _, v in rows), strict=True))
            arrays = [
                pa.array(list(x), kind) for x, kind in zip(values, columns.values(), strict=True)
            ]
            names, changes = list(columns), name not in self.plain
            if changes:
                arrays.append(pa.array([operation for _, operation, _ in rows]))
                names.append("op")
            table = pa.table(arrays, names=names)
            pq.write_table(table, self.folder / f"{name}.parquet")
            streams[name] = {
                "path": f"{name}.parquet",
                "rows_per_batch": 1,
                "cuts": [sum(r[0] <= batch for r in rows) for batch in range(batches)],
            }
            if name in self.retained:
                streams[name]["retain"] = "all"
            if changes:
                streams[name] |= {"kind": "changes", "changes": {"operation": "op"}}
            if name in self.keyed:
                streams[name] |= {"kind": "upsert", "key": [self.keyed[name]]}
        queries = {
            name: {"sql": sql, "register_at": rng.choice((0, 0, 1, 2))}
            for name, sql in self.statements.items()
        }
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


def _neighbours(
    rng: Random, source: str, where: str, keys: tuple[str, ...], values: tuple[str, ...]
) -> str:
    """Return a statement with values of other rows; rows that are equal in its order are equal in
    all columns.
    """
    key, value = rng.choice(keys), rng.choice(values)
    columns = dict.fromkeys((*keys, *values))
    order = ", ".join(f"{column} NULLS FIRST" for column in columns)
    over = f"OVER (PARTITION BY {key} ORDER BY {order})"
    named = ", ".join(f"{column} AS c{n}" for n, column in enumerate(columns))
    some = [one.format(v=value, o=over) for one in rng.sample(NEIGHBOURS, rng.randint(1, 3))]
    beside = ", ".join(f"{call} AS n{n}" for n, call in enumerate(some))
    return f"SELECT {named}, {beside} FROM {source}{where}"


def draw_row(name: str, rng: Random) -> tuple[Any, ...]:
    """Draw a row of a stream."""
    key, text = rng.choice((None, *range(4))), rng.choice((None, "x", "y", "é"))
    value = rng.choice((None, *range(8)))
    made = {
        "a": (key, value, text),
        "b": (key, rng.randrange(6), rng.choice((None, 0.5, -2.0))),
        "c": (value, text),
    }
    return made[name]
