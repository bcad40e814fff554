"""Tests of views with equal prefixes, which share groups: they equal DuckDB's views and separate
views after every batch, while views come and go at any batch, sinks fail, the runtime restarts, and
rows are deleted or late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_contract.plans.ruleset import QuerySpec, Ruleset
from anabranch_contract.queries.expressions import Column, Output
from anabranch_contract.queries.joins import QueryId
from anabranch_contract.queries.types import parse_type
from anabranch_contract.queries.views import VERSION, WEIGHT, View, change_columns
from anabranch_planner.passes import parse_sql
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.errors import SinkError
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sinks.joined_rows import column_name
from anabranch_runtime.tables.groups import GroupReader, Groups
from tests.support.scenarios.seeds import mostly_slow
from tests.support.worlds.kept_tables import Lagging, TableWorld
from tests.support.worlds.view_runs import (
    SCHEMA,
    STREAM,
    Drawn,
    comparable,
    current_rows,
    draw_grouped,
    draw_rows,
    draw_window,
    evaluated,
)

KEYS = ("k", "g", "k % 3", "lower(g)", "coalesce(g, 'none')")
BIGINT = parse_type("bigint")
SINK = SinkSpec("redis-stream", (("key", "k"),))
WEIGHTS = pa.schema([*SCHEMA, ("#weight", pa.int64())])


@dataclass
class _Present:
    """A query that exists from batch ``first`` until before ``end``."""

    query: QuerySpec
    drawn: Drawn
    first: int
    end: int = 1 << 30

    @property
    def view(self) -> View:
        assert self.query.view is not None
        return self.query.view


@dataclass
class _Pipeline:
    """Views over common rows; those with Redis sinks sometimes fail."""

    folder: Path
    rng: Random
    deletes: bool = False
    queries: dict[str, _Present] = field(default_factory=dict)
    relations: Any = ()
    #: Rows of each batch, with weights.
    batches: list[pa.RecordBatch] = field(default_factory=list)
    refuses: bool = False
    taken: dict[str, dict[int, list[Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world = TableWorld(
            self.folder, Ruleset(0, (STREAM,), (), (), (), (), (), ()), self.rng,
            writers={SINK.kind: self._write},
        )  # fmt: skip

    def register(self, drawn: Drawn) -> str:
        name = f"q{len(self.queries)}"
        found = parse_sql(name, drawn.spark, {"t": STREAM})
        weight = (Output(WEIGHT, Column("t", "#weight", BIGINT)),) if self.deletes else ()
        query = QuerySpec(
            QueryId(name),
            tuple((m.alias, m.label, m.relation) for m in found.members),
            found.bounds,
            (*found.projection, *weight),
            SINK if self.rng.random() < 0.3 else SinkSpec(),
            found.view,
        )
        self.relations = found.relations
        self.queries[name] = _Present(query, drawn, len(self.batches))
        return name

    def drop(self, name: str) -> None:
        self.queries[name].end = len(self.batches)

    @property
    def present(self) -> list[_Present]:
        return [one for one in self.queries.values() if one.end > len(self.batches)]

    def _write(self, delivery: Delivery) -> None:
        if self.refuses:
            raise ValueError("not today")
        versions = self.taken.setdefault(delivery.query, {})
        versions[delivery.batch] = delivery.read().to_pylist()

    def feed(self, rows: pa.RecordBatch, alone: Sequence[str] = ()) -> None:
        """Run a batch whose rows all queries share, except those in ``alone``."""
        some = [one.query for one in self.present]
        self.world.ruleset = Ruleset(0, (STREAM,), self.relations, tuple(some), (), (), (), ())
        joined: dict[str, pa.Table] = {}
        shared = tuple(str(q.id) for q in some if str(q.id) not in alone)
        if shared:
            joined["shared:one"] = _joined(rows, [q for q in some if str(q.id) in shared])
        for query in some:
            if str(query.id) in alone:
                joined[str(query.id)] = _joined(rows, [query])
        self.batches.append(rows)
        self.world.feed(joined, feeds={"shared:one": shared})

    @property
    def groups(self) -> list[Groups]:
        """Return the number of distinct groups tables of the present views."""
        peer = self.world.tables.peer
        assert isinstance(peer, Lagging)
        tables = [view.table for view in peer.keeper._views.values()]
        found = [table.groups for table in tables if table is not None]
        return list({id(one): one for one in found if one is not None}.values())

    @property
    def later(self) -> list[GroupReader]:
        """Return the number of readers of groups that have seen fewer rows."""
        readers = (reader for groups in self.groups for reader in groups.readers)
        return [reader for reader in readers if reader.earlier is not None]

    def check(self) -> int:
        """Compare all versions; return the number of comparisons with DuckDB."""
        self.refuses, compared = False, 0
        self.world.tables.drain()
        for name, one in self.queries.items():
            last = min(one.end, len(self.batches))
            if last <= one.first:
                # No batch has included it.
                continue
            self._check_alone(name, one, last)
            for batch in range(one.first, last):
                folder = self.folder / "upto" / name / str(batch)
                folder.mkdir(parents=True)
                kinds = change_columns(one.view)
                schema = pa.schema([(n, arrow_type(kind)) for n, kind in kinds])
                for version, rows in self._versions(name).items():
                    if version <= batch + 1 and rows:
                        table = pa.Table.from_pylist(rows, schema)
                        pq.write_table(table, folder / f"{version:03}.parquet")
                found = comparable(current_rows(folder, one.view))
                wanted = self._wanted(one, batch)
                if wanted is not None:
                    compared += 1
                    assert found == wanted, f"{one.drawn.spark}\nbatch {batch}\n{found}\n{wanted}"
        return compared

    def _versions(self, name: str) -> dict[int, list[Any]]:
        if name in self.taken:
            return self.taken[name]
        return _versions(self.world.results / name)

    def _check_alone(self, name: str, one: _Present, last: int) -> None:
        """Compare every version with that of a pipeline with this query only."""
        query = replace(one.query, sink=SinkSpec())
        ruleset = Ruleset(0, (STREAM,), self.relations, (query,), (), (), (), ())
        world = TableWorld(self.folder / "alone" / name, ruleset)
        for rows in self.batches[one.first : last]:
            world.feed({name: _joined(rows, [query])})
        world.tables.drain()
        world.tables.close()
        alone = {
            version + one.first if version else 0: _plain(rows, version)
            for version, rows in _versions(world.results / name).items()
        }
        found = {v: _plain(rows, v) for v, rows in self._versions(name).items() if rows}
        assert found == alone, one.drawn.spark

    def _wanted(self, one: _Present, batch: int) -> list[tuple[Any, ...]] | None:
        """Return DuckDB's result; None if rows from before the query have been deleted."""
        rows = pa.Table.from_batches(self.batches[one.first : batch + 1], WEIGHTS)
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("given", rows)
            connection.execute(
                'CREATE TABLE net AS SELECT k, g, d, b, n, ts, sum("#weight") AS w FROM given '
                "GROUP BY ALL"
            )
            if connection.execute("SELECT 1 FROM net WHERE w < 0").fetchall():
                return None
            connection.execute(
                "CREATE TABLE t AS SELECT * EXCLUDE (w, i) FROM net CROSS JOIN range(100) AS r(i) "
                "WHERE i < w"
            )
            return comparable(connection.execute(one.drawn.duck).fetchall())


def _joined(rows: pa.RecordBatch, queries: Sequence[QuerySpec]) -> pa.Table:
    columns = {column_name(o): o.expr for query in queries for o in query.projection}
    arrays = [evaluated(expr, rows) for expr in columns.values()]
    return pa.Table.from_arrays(arrays, names=list(columns))


def _versions(folder: Path) -> dict[int, list[Any]]:
    files = folder.glob("version-*.parquet")
    return {int(f.stem.partition("-")[2]): pq.read_table(f).to_pylist() for f in files}


def _plain(rows: list[dict[str, Any]], version: int) -> list[str]:
    assert all(row[VERSION] == version for row in rows)
    return sorted(
        repr([(n, v) for n, v in row.items() if n != "anabranch_version"]) for row in rows
    )


def _weighted(rows: pa.RecordBatch, weights: Sequence[int]) -> pa.RecordBatch:
    arrays = [*rows.columns, pa.array(weights, pa.int64())]
    return pa.RecordBatch.from_arrays(arrays, schema=WEIGHTS)


# Seed 1 deletes rows.
@pytest.mark.parametrize("seed", mostly_slow([1, 0, *range(2, 120)]))
def test_views_of_one_prefix_are_what_each_is_alone(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    run = _Pipeline(tmp_path, rng, deletes=rng.random() < 0.5)
    groupings = [
        (
            rng.sample(KEYS, rng.choice((0, 1, 1, 2))),
            draw_window(rng) if rng.random() < 0.3 else None,
        )
        for _ in range(rng.choice((1, 1, 2)))
    ]

    def some() -> Drawn:
        keys, window = rng.choice(groupings)
        while True:
            drawn = draw_grouped(rng, rng.sample(keys, len(keys)), window)
            if " WHERE k < 6" not in drawn.spark:
                return drawn

    for _ in range(rng.randint(2, 6)):
        run.register(some())
    most, _ = _drive(run, some, 0.2)
    compared = run.check()
    run.world.tables.close()
    assert compared > 1
    assert most > 1 or seed not in range(10)


@pytest.mark.parametrize("seed", mostly_slow([1, 0, *range(2, 60)]))
def test_sums_of_views_that_begin_later_are_what_each_is_alone(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    run = _Pipeline(tmp_path, rng, deletes=rng.random() < 0.6)
    keys, window = rng.sample(KEYS, rng.choice((0, 1, 2))), None
    if rng.random() < 0.3:
        window = draw_window(rng)

    def some() -> Drawn:
        while True:
            drawn = draw_grouped(rng, rng.sample(keys, len(keys)), window)
            query = parse_sql("q", drawn.spark, {"t": STREAM})
            assert query.view is not None
            sums = all(one.is_linear for one in query.view.aggregates)
            if " WHERE k < 6" not in drawn.spark and (sums or rng.random() < 0.03):
                return drawn

    run.register(some())
    run.feed(_weighted(draw_rows(rng, 30, 0), [1] * 30))
    run.world.tables.drain()
    run.register(some())
    _, later = _drive(run, some, 0.5)
    compared = run.check()
    later += len(run.later)
    run.world.tables.close()
    assert compared > 1
    assert later or seed not in range(6)


def _drive(run: _Pipeline, some: Callable[[], Drawn], often: float) -> tuple[int, int]:
    """Run batches while views come and go; return the maximum numbers of readers of groups, and of
    readers with fewer rows.

    Args:
        often: probability that a view of ``some`` begins after a batch.
    """
    rng, alive, most, later = run.rng, list[pa.RecordBatch](), 1, 0
    for _ in range(rng.randint(5, 8)):
        rows = draw_rows(rng, rng.choice((0, 1, 5, 30)), 60 * rng.randrange(3))
        weights = [1] * rows.num_rows
        if run.deletes and alive and rng.random() < 0.6:
            gone = alive.pop(rng.randrange(len(alive)))
            rows = pa.concat_batches([rows, gone])
            weights += [-1] * gone.num_rows
        elif rows.num_rows:
            alive.append(rows)
        # Some queries may find the same rows in a separate join.
        alone = [str(o.query.id) for o in run.present if rng.random() < 0.5]
        run.refuses = rng.random() < 0.3
        run.feed(_weighted(rows, weights), alone if rng.random() < 0.15 else ())
        assert all("not today" in one for one in run.world.tables.problems().values())
        most = max(most, *(len(groups.readers) for groups in run.groups), 0)
        later = max(later, len(run.later))
        event = rng.random()
        if event < 0.15:
            run.world.restart()
        elif event < 0.25:
            last = run.batches.pop()
            run.world.roll_back()
            run.feed(last)
        elif event < 0.25 + often:
            run.register(some())
        elif event < 0.4 + often and len(run.present) > 1:
            # Often the first one.
            chosen = run.present[0] if rng.random() < 0.5 else rng.choice(run.present)
            run.drop(str(chosen.query.id))
        elif event < 0.5 + often:
            try:
                run.world.tables.drain()
            except SinkError:
                assert run.refuses
    return most, later


def test_a_view_that_fails_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    run = _Pipeline(tmp_path, Random(3))
    for text in (
        "SELECT k, sum(n) AS s FROM t GROUP BY k",
        "SELECT k, 6 / sum(n) AS q FROM t GROUP BY k",
        "SELECT k, sum(n) AS s, max(n) AS m FROM t GROUP BY k HAVING max(n) > 2",
    ):
        run.register(Drawn(text, text))
    for name, one in run.queries.items():
        one.query = replace(one.query, sink=SinkSpec())
        run.queries[name] = one
    batches = [[(1, 3), (2, 2)], [(1, -3)], [(1, 1)], [(2, 5)]]
    for batch in batches:
        moments = draw_rows(Random(0), len(batch), 0)["ts"].to_pylist()
        rows = [{"k": k, "n": n, "ts": t} for (k, n), t in zip(batch, moments, strict=True)]
        run.feed(_weighted(pa.RecordBatch.from_pylist(rows, SCHEMA), [1] * len(rows)))
    with pytest.raises(SinkError, match="divisor is zero"):
        run.world.tables.drain()
    (groups,) = [one for one in run.groups if len(one.readers) == 2]
    assert len(groups.aggregates) == 2
    assert sorted(run._versions("q1")) == [1]
    # After a restart the first two rounds are included again, together.
    run.world.restart()
    with pytest.raises(SinkError, match="divisor is zero"):
        run.world.tables.drain()
    run.drop("q1")
    for name in ("q0", "q2"):
        run._check_alone(name, run.queries[name], len(run.batches))
    run.world.tables.close()


def test_groups_keep_each_aggregate_once_and_only_while_it_is_read(tmp_path: Path) -> None:
    run = _Pipeline(tmp_path, Random(5))
    for text in (
        "SELECT k, g, avg(n) AS a, count(*) AS c FROM t GROUP BY k, g",
        "SELECT g, k, sum(n) AS s FROM t GROUP BY g, k HAVING count(*) > 1 LIMIT 2",
        "SELECT k AS x, sum(n) AS s, max(n) AS m FROM t GROUP BY g, k",
        "SELECT k, sum(n) AS s FROM t GROUP BY k",
    ):
        run.register(Drawn(text, text))
    run.feed(_weighted(draw_rows(Random(1), 20, 0), [1] * 20))
    one, other = sorted(run.groups, key=lambda groups: len(groups.readers), reverse=True)
    assert [len(one.readers), len(other.readers)] == [3, 1]
    # Number of rows, sum and count of n for avg and sum, the maximum of n.
    assert one._parts.width == 1 + 2 + 1 + 2
    assert one.prefix.text == "t.g, t.k"
    run.drop("q2")
    run.feed(_weighted(draw_rows(Random(2), 20, 0), [1] * 20))
    run.feed(_weighted(draw_rows(Random(3), 20, 0), [1] * 20))
    one = max(run.groups, key=lambda groups: len(groups.readers))
    assert (len(one.readers), one._parts.width) == (2, 1 + 2 + 1)
    # A query registered later has seen fewer rows, so its maxima need separate groups; sums of the
    # others can be used for it.
    late = "SELECT k, g, max(n) AS m FROM t GROUP BY k, g"
    run.register(Drawn(late, late))
    run.feed(_weighted(draw_rows(Random(4), 20, 0), [1] * 20))
    run.world.tables.drain()
    assert sorted(len(groups.readers) for groups in run.groups) == [1, 3]
    run.world.tables.close()


def _totals(folder: Path, *texts: str) -> _Pipeline:
    """Return a pipeline in which a query of ``texts`` begins before each batch."""
    run = _Pipeline(folder, Random(5))
    for batch, text in enumerate(texts):
        run.register(Drawn(text, text))
        run.feed(_weighted(draw_rows(Random(batch), 20, 0), [1] * 20))
        run.world.tables.drain()
    return run


def test_sums_of_all_beginnings_read_common_groups(tmp_path: Path) -> None:
    run = _totals(
        tmp_path,
        "SELECT k, g, count(*) AS c FROM t GROUP BY k, g",
        "SELECT k, g, sum(n) AS s FROM t GROUP BY k, g",
        "SELECT g, k, avg(n) AS a FROM t GROUP BY g, k HAVING count(*) > 1",
    )
    (common,) = run.groups
    assert (len(common.readers), len(run.later)) == (3, 2)
    # Others continue when the first query is deleted, without its rows.
    run.drop("q0")
    for batch in (6, 7):
        run.feed(_weighted(draw_rows(Random(batch), 20, 0), [1] * 20))
    run.world.tables.drain()
    (common,) = run.groups
    assert (len(common.readers), len(run.later)) == (2, 1)
    own = {(row["k"], row["g"]) for rows in run.batches[1:] for row in rows.to_pylist()}
    assert len(common) == len(own)
    run.check()
    run.world.tables.close()


def test_lines_of_all_beginnings_read_common_groups(tmp_path: Path) -> None:
    run = _totals(
        tmp_path,
        "SELECT g, regr_r2(n, k) AS r FROM t GROUP BY g",
        "SELECT g, regr_r2(n, k) AS r, regr_sxx(k, n) AS x FROM t GROUP BY g",
        "SELECT g, regr_sxy(n, k) AS y, regr_syy(n, k) AS z, regr_r2(k, n) AS r FROM t GROUP BY g",
    )
    (common,) = run.groups
    assert (len(common.readers), len(run.later)) == (3, 2)
    run.check()
    run.world.tables.close()


def test_rounded_sums_of_doubles_are_not_subtracted(tmp_path: Path) -> None:
    huge = "SELECT k, sum(CASE WHEN n > 2 THEN 1.0e60 ELSE 1.5e0 END) AS s FROM t GROUP BY k"
    run = _totals(tmp_path, huge, huge, huge.replace("1.0e60", "2.5e0"))
    assert sorted(len(groups.readers) for groups in run.groups) == [1, 1, 1]
    assert not run.later
    run.check()
    run.world.tables.close()
