"""Runs of outer, semi and anti joins that are fed left rows and pairs as batches would find them,
against DuckDB.

Streams have late tuples, which are rejected as in the engine. The rows emitted by the end must be
all pairs, and all left rows without partners whose deadline the partner's watermark has passed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa

from anabranch_contract.plans.ruleset import QuerySpec, Ruleset
from anabranch_contract.protocol.activations import ViewRows
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import parse_sql
from anabranch_runtime.driver.tables import MaintainedTables
from anabranch_runtime.sinks import outer_rows
from anabranch_runtime.sinks.parquet import output_schema
from tests.support.worlds.kept_tables import TableWorld
from tests.support.worlds.view_runs import MINUTE, comparable, current_rows

BEGIN = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
COLUMNS = {"k": "int", "v": "bigint", "ts": "timestamp"}
STREAMS = {
    name: Stream(
        StreamName(name),
        tuple((c, parse_type(t)) for c, t in COLUMNS.items()),
        "ts",
        lateness=5 * MINUTE,
    )
    for name in ("a", "b", "c")
}
_TIMES = (
    ("c.ts BETWEEN a.ts AND a.ts + INTERVAL '{m}' MINUTE", "a", 1),
    ("c.ts <= a.ts + INTERVAL '{m}' MINUTE", "a", 1),
    ("c.ts BETWEEN a.ts - INTERVAL '{m}' MINUTE AND a.ts", "a", 0),
    ("c.ts BETWEEN a.ts - INTERVAL '{m}' MINUTE AND a.ts + INTERVAL '{m}' MINUTE", "a", 1),
)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Random outer, semi or anti join; ``deadline`` is in DuckDB's SQL.

    Attributes:
        above: of a view over its rows, the SELECT list, what stands after WHERE, and the same as
            DuckDB's statement over the rows ``r`` that there would be without it.
    """

    kind: str
    select: str
    left: str
    on: str
    where: str
    deadline: str
    above: tuple[str, str, str] | None = None

    @property
    def spark(self) -> str:
        """Return the statement in Spark's SQL."""
        kind = {"left": "LEFT", "semi": "LEFT SEMI", "anti": "LEFT ANTI"}[self.kind]
        where = f" WHERE {self.where}" if self.where else ""
        select, after, _ = self.above or (self.select, "", "")
        return f"SELECT {select} FROM {self.left} {kind} JOIN c ON {self.on}{where}{after}"


def draw(rng: Random) -> Drawn:
    """Return a random outer, semi or anti join."""
    kind = rng.choice(("left", "left", "semi", "anti"))
    minutes = rng.choice((5, 20, 40))
    pattern, _, sign = rng.choice(_TIMES)
    two = rng.random() < 0.5
    left = "a JOIN b ON b.k = a.k" if two else "a"
    if two and rng.random() < 0.5:
        left += " AND b.ts BETWEEN a.ts - INTERVAL '10' MINUTE AND a.ts + INTERVAL '10' MINUTE"
    on = f"c.k = a.k AND {pattern.format(m=minutes)}"
    if rng.random() < 0.3:
        on += rng.choice((" AND c.v > a.v", " AND a.v > 2", " AND c.v > 1"))
    where = rng.choice(("", "", "a.v < 7", "a.k > 1"))
    items = ["a.k AS x", "a.v AS y", *(["b.v AS z"] if two else [])]
    if kind == "left":
        items += rng.choice((["c.v AS w"], ["c.v AS w", "c.ts AS t"], ["coalesce(c.v, -1) AS w"]))
    above = None
    if rng.random() < 0.3:
        some = "count(c.v)" if kind == "left" else "count(a.v)"
        items = ["a.k AS x", "c.v AS w" if kind == "left" else "a.v AS w"]
        above = rng.choice(
            (
                (
                    f"a.k AS x, count(*) AS n, {some} AS m",
                    " GROUP BY a.k",
                    "SELECT x, count(*), count(w) FROM r GROUP BY x",
                ),
                (f"count(*) AS n, {some} AS m", "", "SELECT count(*), count(w) FROM r"),
                (
                    "a.k AS x, count(*) AS n",
                    " GROUP BY a.k ORDER BY n DESC, x LIMIT 2",
                    "SELECT x, count(*) AS n FROM r GROUP BY x "
                    "ORDER BY n DESC, x NULLS FIRST LIMIT 2",
                ),
            )
        )
    deadline = f"a.ts + INTERVAL {minutes * sign} MINUTE"
    return Drawn(kind, ", ".join(items), left, on, where, deadline, above)


@dataclass(slots=True)
class OuterRun:
    """Run of one outer, semi or anti join in ``folder``, over three streams, whose event times are
    datetimes, or microseconds if Python has no such datetime.
    """

    folder: Path
    drawn: Drawn
    streams: Mapping[str, Stream] = field(default_factory=lambda: STREAMS)
    rng: Random = field(default_factory=lambda: Random(0))
    query: JoinQuery = field(init=False)
    world: TableWorld = field(init=False)
    #: Tuples that were not late: (stream, batch, k, v, ts in microseconds).
    rows: list[tuple[str, int, int | None, int, int]] = field(init=False, default_factory=list)
    marks: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.query = parse_sql("v", self.drawn.spark, self.streams)
        streams = tuple(self.streams.values())
        relations = tuple({r.id: r for q in self.query.planned for r in q.relations}.values())
        ruleset = Ruleset(0, streams, relations, (self._spec(self.query),), (), (), (), ())
        self.world = TableWorld(self.folder, ruleset, self.rng, self._tell)

    @property
    def tables(self) -> MaintainedTables:
        """Return the maintained tables of the join."""
        return self.world.tables

    def _tell(self, views: Mapping[str, ViewRows]) -> None:
        assert self.drawn.above is not None, "an outer join is not a table"

    def _spec(self, query: JoinQuery) -> QuerySpec:
        members = tuple((m.alias, m.label, m.relation) for m in query.members)
        return QuerySpec(
            query.id,
            members,
            query.bounds,
            query.projection,
            view=query.view,
            outer=query.outer,
            left_of=None if query is self.query else self.query.id,
        )

    def feed(self, arriving: Sequence[tuple[str, int | None, int, dt.datetime | int]]) -> None:
        """Feed one batch of tuples (stream, k, v, ts), and commit it."""
        batch = self.world.state.next_batch
        for name, k, v, ts in arriving:
            moment = ts if isinstance(ts, int) else (ts - EPOCH) // dt.timedelta(microseconds=1)
            if moment >= self.marks.get(name, moment):
                self.rows.append((name, batch, k, v, moment))
        joined = {str(query.id): self._found(query, batch) for query in self.query.planned}
        for name, stream in self.streams.items():
            seen = [r[4] for r in self.rows if r[0] == name]
            if seen and stream.lateness is not None:
                self.marks[name] = max(seen) - stream.lateness
        marks = {stream: self.marks.get(name) for name, stream in self.streams.items()}
        self.world.feed({name: rows for name, rows in joined.items() if rows.num_rows}, marks)

    def _connection(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        for name in self.streams:
            connection.execute(f"CREATE TABLE {name} (batch INT, k INT, v BIGINT, ts TIMESTAMPTZ)")
            own = [list(r[1:]) for r in self.rows if r[0] == name]
            if own:
                connection.executemany(
                    f"INSERT INTO {name} VALUES (?, ?, ?, make_timestamptz(?))", own
                )
        return connection

    def _found(self, query: JoinQuery, batch: int) -> pa.Table:
        """Return a batch's results of one of the joins: rows whose last tuple arrives in it."""
        alias_of = {m.label: m.alias for m in query.members}
        shown = ", ".join(
            f"{alias_of[o.expr.alias]}.{o.expr.name} AS {o.name}"  # type: ignore[union-attr,index]
            for o in query.projection
        )
        parts = [f"{alias}.batch" for alias in alias_of.values()]
        left = [f"{alias}.batch" for alias in alias_of.values() if alias != "c"]
        shown += f", greatest({', '.join([*left, '-1'])}) AS {outer_rows.BATCH}"
        conditions = [f"greatest({', '.join([*parts, '-1'])}) = {batch}"]
        if self.drawn.where:
            conditions.append(self.drawn.where)
        source = self.drawn.left
        if query is self.query:
            source += f" JOIN c ON {self.drawn.on}"
        with self._connection() as connection:
            found = connection.sql(
                f"SELECT {shown} FROM {source} WHERE {' AND '.join(conditions)}"
            ).to_arrow_table()
        schema = output_schema(self._spec(query))
        mark = pa.scalar(self.marks.get("c"), schema.field(outer_rows.FLOOR).type)
        found = found.append_column(outer_rows.FLOOR, pa.repeat(mark, found.num_rows))
        columns = [found[f.name].cast(f.type) for f in schema]
        return pa.table(columns, schema=schema)

    def table(self) -> list[tuple[Any, ...]]:
        """Return the emitted rows; of a view, its current rows."""
        return emitted(self.folder / "results" / "v", self.query)

    def wanted(self) -> list[tuple[Any, ...]]:
        """Return the rows expected so far, by DuckDB."""
        with self._connection() as connection:
            return should_be(self.drawn, connection, self.marks.get("c"))


def emitted(results: Path, query: JoinQuery) -> list[tuple[Any, ...]]:
    """Return the rows in a query's sink; of a view, its current rows."""
    if query.view is not None:
        return comparable(current_rows(results, query.view))
    files = [str(f) for f in sorted(results.glob("*.parquet"))]
    if not files:
        return []
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return comparable(connection.execute("SELECT * FROM read_parquet(?)", [files]).fetchall())


def should_be(
    drawn: Drawn,
    connection: duckdb.DuckDBPyConnection,
    mark: int | None,
    pair_kept: str = "true",
    left_kept: str = "true",
) -> list[tuple[Any, ...]]:
    """Return a statement's expected rows over the DuckDB tables ``a``, ``b`` and ``c``.

    Args:
        mark: the watermark of ``c`` in microseconds.
        pair_kept, left_kept: conditions on emitted pairs and on emitted left rows.
    """
    over = "false" if mark is None else f"epoch_us({drawn.deadline}) < {mark}"
    where = f"WHERE {drawn.where or 'true'}"
    exists = f"EXISTS (SELECT 1 FROM c WHERE {drawn.on})"
    left = f"FROM {drawn.left} {where} AND {over} AND {left_kept} AND"
    if drawn.kind == "left":
        nothing = drawn.select.replace("c.v", "NULL::BIGINT").replace("c.ts", "NULL::TIMESTAMPTZ")
        statement = (
            f"SELECT {drawn.select} FROM {drawn.left} JOIN c ON {drawn.on} {where} AND {pair_kept} "
            f"UNION ALL SELECT {nothing} {left} NOT {exists}"
        )
    else:
        statement = f"SELECT {drawn.select} {left} {'NOT' * (drawn.kind == 'anti')} {exists}"
    if drawn.above is not None:
        connection.execute(f"CREATE VIEW r AS {statement}")
        statement = drawn.above[2]
    return comparable(connection.execute(statement).fetchall())


def run_seed(folder: Path, seed: int) -> tuple[str, int]:
    """Run a random outer join over random tuples, some of them late, with restarts."""
    rng = Random(seed)
    run = OuterRun(folder, draw(rng), rng=rng)
    try:
        base = 0
        for _ in range(rng.randint(3, 6)):
            arriving = [
                (
                    rng.choice("abc"),
                    None if rng.random() < 0.1 else rng.randrange(5),
                    rng.randrange(10),
                    BEGIN + dt.timedelta(seconds=base * 60 + rng.randrange(-900, 1800)),
                )
                for _ in range(rng.choice((0, 3, 20, 40)))
            ]
            run.feed(arriving)
            base += rng.choice((0, 10, 30))
            then = rng.random()
            if then < 0.3:
                run.tables.drain()
            elif then < 0.5:
                run.world.restart()
        # The last event time moves the watermark, so that all left rows decided before are emitted.
        run.feed([("c", None, 0, BEGIN + dt.timedelta(minutes=base + 40))])
        run.tables.drain()
        found, wanted = run.table(), run.wanted()
        assert found == wanted, f"{run.drawn.spark}\n{found}\n{wanted}"
        assert run.tables.counts()["v"].shown == len(wanted), run.drawn.spark
        return run.drawn.spark, len(wanted)
    finally:
        run.tables.close()
