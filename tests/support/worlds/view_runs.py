"""Runs of random views, which are fed joined rows batch by batch, and compared with DuckDB.

A view is drawn as a statement over one stream, in Spark's words and in DuckDB's, which differ for
time windows only.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_contract.plans.ruleset import QuerySpec, Ruleset
from anabranch_contract.protocol.activations import Activation, ViewRows
from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_contract.queries.views import CHANGE, View
from anabranch_planner.passes import parse_sql
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.driver.tables import MaintainedTables
from anabranch_runtime.expressions.evaluate import evaluate
from anabranch_runtime.sinks.delivery import WrittenVersion
from anabranch_runtime.sinks.joined_rows import column_name, rows_schema
from anabranch_runtime.sinks.sampling import with_slots
from tests.support.worlds.kept_tables import TableWorld

MINUTE = 60_000_000
_BEGIN = int(dt.datetime(2024, 1, 1, tzinfo=dt.UTC).timestamp()) * 1_000_000
COLUMNS = {
    "k": "int", "g": "string", "d": "decimal(8,2)", "b": "boolean", "n": "bigint",
    "ts": "timestamp",
}  # fmt: skip
STREAM = Stream(
    StreamName("t"), tuple((c, parse_type(t)) for c, t in COLUMNS.items()), "ts", lateness=0
)
SCHEMA = pa.schema([(c, arrow_type(t)) for c, t in STREAM.columns])
_KEYS = ("k", "g", "b", "k % 3", "lower(g)", "n", "coalesce(g, 'none')", "d > 5")
_AGGREGATES = (
    "count(*)", "count(d)", "sum(d)", "sum(n)", "min(g)", "max(g)", "min(ts)", "max(d)",
    "count(DISTINCT k)", "count(DISTINCT g)", "sum(d * 2 + n)", "count(*) FILTER (WHERE k > 1)",
    "sum(n) FILTER (WHERE b)", "count_if(d > 3)", "max(CASE WHEN b THEN n END)",
    "sum(n) + count(*)", "bool_or(b)", "CAST(avg(d) AS DOUBLE)",
)  # fmt: skip
#: Spark's average of a decimal in DuckDB's SQL: six digits, the last rounded half up.
_AVERAGE = (
    "sign(sum(d)) * ((2 * abs(CAST(sum(d) * 1000000 AS HUGEINT)) + count(d)) // (2 * count(d)))"
    " / 1000000.0"
)
_HAVING = ("count(*) > 2", "sum(n) < 3", "max(d) >= 4 OR min(k) = 0", "count(DISTINCT g) = 1")


@dataclass(frozen=True, slots=True)
class Drawn:
    """Random view in both dialects; ``ordered``: ORDER BY in DuckDB's SQL, with ties broken."""

    spark: str
    duck: str


def draw_view(rng: Random) -> Drawn:
    """Return a random view."""
    if rng.random() < 0.15:
        return _ranked(rng)
    if rng.random() < 0.1:
        keys = rng.sample(_KEYS, rng.randint(1, 3))
        named = ", ".join(f"{key} AS o{i}" for i, key in enumerate(keys))
        text = f"SELECT DISTINCT {named} FROM t"
        return Drawn(text, text)
    grouped_by = rng.sample(_KEYS, rng.choice((0, 1, 1, 2)))
    return draw_grouped(rng, grouped_by, draw_window(rng) if rng.random() < 0.35 else None)


def draw_grouped(
    rng: Random, grouped_by: Sequence[str], window: tuple[str, str, int] | None
) -> Drawn:
    """Return a random aggregation over these groups."""
    shown = [k for k in grouped_by if rng.random() < 0.85]
    aggregates = rng.sample(_AGGREGATES, rng.randint(1, 4))
    items = [*shown, *(["window.start", "window.end"] if window else []), *aggregates]
    listed = ", ".join(f"{item} AS o{i}" for i, item in enumerate(items))
    where = " WHERE k < 6" if rng.random() < 0.2 else ""
    having = f" HAVING {rng.choice(_HAVING)}" if rng.random() < 0.35 else ""
    spark_keys = [*grouped_by, *([window[0]] if window else [])]
    duck_keys = [*grouped_by, *(["window_start"] if window else [])]
    rng.shuffle(spark_keys)
    grouped = f" GROUP BY {', '.join(spark_keys)}" if spark_keys else ""
    duck_grouped = f" GROUP BY {', '.join(duck_keys)}" if duck_keys else ""
    order = duck_order = ""
    if spark_keys and rng.random() < 0.35:
        first = len(items)
        down = rng.choice(("", " DESC", " DESC NULLS FIRST", " NULLS LAST"))
        # Ties are broken by the row's identity; the statement orders by it explicitly.
        ties = [*grouped_by, *(["window.start", "window.end"] if window else [])]
        limit = f" LIMIT {rng.randint(1, 4)}" + (
            f" OFFSET {rng.randint(1, 2)}" * (rng.random() < 0.3)
        )
        order = f" ORDER BY {first}{down}, {', '.join(ties)}{limit}"
        nulls = down if "NULLS" in down else down + (" NULLS LAST" if down else " NULLS FIRST")
        tied = ", ".join(f"{t} NULLS FIRST" for t in ties)
        duck_order = f" ORDER BY {first}{nulls}, {tied}{limit}"
    source = window[1] if window else "t"
    text = f"SELECT {listed} FROM t{where}{grouped}{having}{order}"
    duck = f"SELECT {listed} FROM {source}{where}{duck_grouped}{having}{duck_order}"
    # ``count_if`` over NULLs only is 0 in Spark, NULL in DuckDB.
    duck = duck.replace("count_if(d > 3)", "coalesce(count_if(d > 3), 0)")
    duck = duck.replace("CAST(avg(d) AS DOUBLE)", _AVERAGE)
    duck = duck.replace("window.start", "window_start").replace(
        "window.end", f"window_start + to_microseconds({window[2] if window else 0})"
    )
    return Drawn(text, duck)


def _ranked(rng: Random) -> Drawn:
    items = rng.sample(("k", "g", "d", "n", "d * 2", "ts"), 3)
    listed = ", ".join(f"{item} AS o{i}" for i, item in enumerate(items))
    key, down = rng.choice(("n", "d", "k", "ts", "k % 3")), rng.choice(("", " DESC"))
    limit = f"LIMIT {rng.randint(1, 6)}" + (f" OFFSET {rng.randint(1, 3)}" * (rng.random() < 0.3))
    nulls = " NULLS LAST" if down else " NULLS FIRST"
    ties = ", ".join(f"{item} NULLS FIRST" for item in items)
    return Drawn(
        f"SELECT {listed} FROM t ORDER BY {key}{down} {limit}",
        f"SELECT {listed} FROM t ORDER BY {key}{down}{nulls}, {ties} {limit}",
    )


def draw_window(rng: Random) -> tuple[str, str, int]:
    """Return a time window in Spark's SQL, DuckDB's FROM with it, and the window's length."""
    slide = rng.choice((5, 10)) * MINUTE
    length = slide * rng.choice((1, 1, 2)) + rng.choice((0, 0, 3 * MINUTE))
    start = rng.choice((0, 0, 2 * MINUTE))
    text = f"window(ts, '{length // MINUTE} minutes', '{slide // MINUTE} minutes'"
    text += f", '{start // MINUTE} minutes')" if start else ")"
    many = -(-length // slide)
    rows = (
        "(SELECT *, make_timestamp(moment) AT TIME ZONE 'UTC' AS window_start FROM (SELECT *, "
        f"epoch_us(ts) - ((epoch_us(ts) - {start}) % {slide}) - i * {slide} AS moment "
        f"FROM t, range({many}) AS r(i)) WHERE moment + {length} > epoch_us(ts))"
    )
    return text, rows, length


def draw_rows(rng: Random, count: int, base: int) -> pa.RecordBatch:
    """Return random rows whose event times are up to an hour after ``base`` minutes, unordered."""
    begin = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)

    def maybe(value: Any, share: float = 0.15) -> Any:
        return None if rng.random() < share else value

    rows = [
        {
            "k": maybe(rng.randrange(8)),
            "g": maybe(rng.choice(("a", "A", "b", "ß", ""))),
            "d": maybe(Decimal(rng.randrange(-500, 1500)) / 100),
            "b": maybe(rng.random() < 0.5),
            "n": maybe(rng.randrange(-3, 6)),
            "ts": begin + dt.timedelta(seconds=60 * base + rng.randrange(3600)),
        }
        for _ in range(count)
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def current_rows(folder: Path, view: View) -> list[tuple[Any, ...]]:
    """Return a view's rows from the changes in ``folder``: the last one of each identity."""
    files = [str(f) for f in sorted(folder.glob("*.parquet"))]
    if not files:
        return []
    by = ", ".join(f'"{name}"' for name in view.identity)
    over = f"PARTITION BY {by}" if by else ""
    shown = ", ".join(f'"{o.name}"' for o in view.projection)
    numbered = f"*, row_number() OVER ({over} ORDER BY anabranch_version DESC) AS nth"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.execute(
            f"SELECT {shown} FROM (SELECT {numbered} FROM read_parquet(?)) "
            "WHERE nth = 1 AND anabranch_change = 'upsert'",
            [files],
        ).fetchall()


@dataclass(slots=True)
class ViewRun:
    """Maintenance of a random view in ``folder``.

    Attributes:
        published: the view's rows as last published. ``refuses``: whether publishing fails.
        written: version -> rows that it has written, and rows up to it.
        mark: the stream's watermark.
        missing: gaps of the joined rows, as of the last batch.
    """

    folder: Path
    drawn: Drawn
    sink: SinkSpec = field(default_factory=SinkSpec)
    rng: Random = field(default_factory=lambda: Random(0))
    published: dict[str, ViewRows] = field(init=False, default_factory=dict)
    written: dict[int, tuple[int, int]] = field(init=False, default_factory=dict)
    query: QuerySpec = field(init=False)
    relations: Any = field(init=False)
    world: TableWorld = field(init=False)
    rows: list[pa.RecordBatch] = field(init=False, default_factory=list)
    mark: int | None = field(init=False, default=None)
    missing: Activation | None = field(init=False, default=None)
    refuses: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        found = parse_sql("v", self.drawn.spark, {"t": STREAM})
        self.query = QuerySpec(
            found.id,
            tuple((m.alias, m.label, m.relation) for m in found.members),
            found.bounds,
            found.projection,
            self.sink,
            found.view,
        )
        self.relations = found.relations
        self.world = TableWorld(self.folder, self.ruleset(), self.rng, self.tell, self.follow)

    @property
    def view(self) -> View:
        """Return the maintained view."""
        assert self.query.view is not None
        return self.query.view

    @property
    def tables(self) -> MaintainedTables:
        """Return the maintained tables."""
        return self.world.tables

    def tell(self, views: Mapping[str, ViewRows]) -> None:
        """Receive a view's published rows, unless the run ``refuses``."""
        if self.refuses:
            raise ValueError("not now")
        self.published |= views

    def follow(self, versions: Sequence[WrittenVersion]) -> None:
        """Receive the rows that versions have written, and their total."""
        for one in versions:
            assert one.query == "v"
            self.written[one.version] = one.rows.num_rows, one.total

    def ruleset(self, *, with_view: bool = True) -> Ruleset:
        """Return a ruleset with or without the view."""
        queries = (self.query,) if with_view else ()
        return Ruleset(0, (STREAM,), self.relations, queries, (), (), (), ())

    def stage(
        self, rows: pa.RecordBatch, slots: Sequence[tuple[pa.Array, pa.Array]] = ()
    ) -> dict[str, pa.Table]:
        """Write the joined rows of the next batch, as its tasks would.

        Args:
            slots: of a rationed batch, ranks and shares of the rows (``sinks.sampling``).
        """
        relation = self.relations[0]
        kept = rows
        for condition in relation.filter:
            kept = kept.filter(evaluated(condition, kept))
        columns = {column_name(o): o.expr for o in self.query.projection}
        arrays = [evaluated(expr, kept) for expr in columns.values()]
        schema = with_slots(rows_schema(self.query), len(slots))
        arrays += [array for slot in slots for array in slot]
        return {"v": pa.Table.from_arrays(arrays, schema=schema)}

    def feed(
        self,
        rows: pa.RecordBatch,
        mark: int | None = None,
        slots: Sequence[tuple[pa.Array, pa.Array]] = (),
    ) -> None:
        """Run one committed batch; ``mark`` is the stream's watermark after it."""
        self.rows.append(rows)
        self.mark = mark
        self.world.queries = {} if self.missing is None else {"v": self.missing}
        self.world.feed(self.stage(rows, slots), {STREAM: mark})

    def restart(self) -> None:
        """Close the view, and open it again from disk."""
        self.world.restart()

    def check(self) -> None:
        """Bring the view up to date, and compare it with DuckDB."""
        self.tables.drain()
        found, wanted = self.table(), self.wanted()
        assert found == wanted, f"{self.drawn.spark}\n{found}\n{wanted}"
        assert self.tables.counts()["v"].shown == len(wanted), self.drawn.spark
        # Changes are numbered without gaps, also if batches were repeated.
        numbers, total = sorted(self.written.items()), 0
        for _, (rows, upto) in numbers:
            total += rows
            assert upto == total, self.drawn.spark
        if numbers:
            assert self.tables.written() == {"v": (numbers[-1][0], total)}, self.drawn.spark

    def table(self) -> list[tuple[Any, ...]]:
        """Return the view's rows from its changes: the last one of each identity."""
        return comparable(current_rows(self.folder / "results" / "v", self.view))

    def wanted(self) -> list[tuple[Any, ...]]:
        """Return the expected rows: DuckDB's result over all rows so far."""
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            t = pa.Table.from_batches(self.rows, SCHEMA)
            connection.register("t", t)
            return comparable(connection.execute(self.drawn.duck).fetchall())


def evaluated(expr: Expr, rows: pa.RecordBatch) -> pa.Array:
    """Return the values of an expression over rows of the stream."""
    return evaluate(expr, lambda column: rows.column(column.name), rows.num_rows)


def comparable(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows sorted and in uniform notation, with floats rounded."""
    return sorted((tuple(map(plain, row)) for row in rows), key=repr)


def plain(value: Any) -> Any:
    """Return a value in uniform notation: arrays as tuples, structs as (name, value) tuples."""
    if isinstance(value, float):
        return round(value, 5)
    if isinstance(value, Decimal):
        return value.normalize() + 0
    if isinstance(value, dict):
        return tuple((name, plain(one)) for name, one in value.items())
    return tuple(map(plain, value)) if isinstance(value, list | tuple) else value


def run_seed(folder: Path, seed: int) -> tuple[str, int]:
    """Maintain a random view over random rows, checked at random times, with restarts and failed
    batches; return the statement and the final number of rows.
    """
    rng = Random(seed)
    run = ViewRun(folder, draw_view(rng), rng=rng)
    base = 0
    try:
        for _ in range(rng.randint(2, 5)):
            # The next batch's rows begin at the watermark after this batch.
            rows = draw_rows(rng, rng.choice((0, 1, 5, 30, 200)), base)
            base += rng.choice((0, 0, 30, 60))
            unknown = run.mark is None and rng.random() < 0.2
            run.feed(rows, None if unknown else _BEGIN + base * MINUTE)
            then = rng.random()
            if then < 0.4:
                run.check()
            elif then < 0.55:
                run.restart()
            elif then < 0.65:
                run.world.stage(run.stage(rows))
                run.restart()
            elif then < 0.75 and run.rows:
                # A failed batch rolls the view's state back, and is repeated.
                mark, last = run.mark, run.rows.pop()
                run.world.roll_back()
                run.feed(last, mark)
        run.check()
        return run.drawn.spark, len(run.wanted())
    finally:
        run.tables.close()


def summed_rows(folder: Path) -> list[tuple[Any, ...]]:
    """Return the view's rows as the sum of all changes in ``folder``."""
    net: Counter[tuple[Any, ...]] = Counter()
    for file in sorted(folder.iterdir()):
        for row in pq.read_table(file).to_pylist():
            kind = row.pop(CHANGE, "insert")
            net[tuple(row.values())] += 1 if kind == "insert" else -1
    assert all(count >= 0 for count in net.values()), f"deleted more than inserted: {net}"
    return list(net.elements())
