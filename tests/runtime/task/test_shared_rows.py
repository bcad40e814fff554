"""Tests that views over one join share its rows, whenever they begin; a failing expression fails
only the views that read it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import redis as redis_client

from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.queries.views import View
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import optimise, parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.epochs.retention import watermarks
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.sinks.joined_rows import JoinedBatch
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.shared_rows import SHARED
from anabranch_runtime.task.worker import run_task
from tests.support.cases.states import stream
from tests.support.scenarios.seeds import mostly_slow
from tests.support.worlds.driven import KEYS, Killed, die, driver, job, publish
from tests.support.worlds.kept_tables import Here
from tests.support.worlds.view_runs import comparable, current_rows

ON = "FROM R JOIN S ON R.a = S.a"
#: In batch ``b``, ``S.b = b``.
VIEWS = {
    "by": f"SELECT S.b AS b, count(*) AS n {ON} GROUP BY S.b",
    "all": f"SELECT sum(S.b) AS s, max(R.a) AS m {ON}",
    "other": f"SELECT count(*) AS n {ON} AND S.b > 0",
}


def last_round(one: Driver) -> Any:
    return one.state.tables.rounds[-1]


def rows_of(one: Driver, folder: Path, name: str) -> list[tuple[Any, ...]]:
    (query,) = [q for q in one.control.ruleset(one.state.ruleset).queries if q.id == name]
    assert query.view is not None
    return sorted(current_rows(folder / "results" / name, query.view))


def test_rows_of_one_join_are_written_once(url: str, tmp_path: Path) -> None:
    publish(url, 0, VIEWS)
    one = driver(url, tmp_path, every=10)
    for batch in range(3):
        one.run(job(batch))
    found = last_round(one)
    (name, readers), *more = found.feeds.items()
    assert not more
    assert name.startswith(SHARED)
    assert sorted(readers) == ["all", "by"]
    assert sorted(segment.store for segment in found.rows) == ["other", name]
    assert one.state.queries["by"].results == one.state.queries["all"].results == 9
    assert rows_of(one, tmp_path, "by") == [(0, 3), (1, 3), (2, 3)]
    assert rows_of(one, tmp_path, "all") == [(9, 0)]
    assert rows_of(one, tmp_path, "other") == [(6,)]


def test_a_query_that_comes_later_shares_rows_from_then_on(url: str, tmp_path: Path) -> None:
    publish(url, 0, {"by": VIEWS["by"]})
    publish(url, 1, {"by": VIEWS["by"], "all": VIEWS["all"]})
    one = driver(url, tmp_path, every=2)
    for batch in range(3):
        one.run(job(batch))
    (readers,) = last_round(one).feeds.values()
    assert sorted(readers) == ["all", "by"]
    assert rows_of(one, tmp_path, "by") == [(0, 3), (1, 3), (2, 3)]
    # Five results have their last tuple in the batch: 2 * 3 + 0 + 1.
    assert rows_of(one, tmp_path, "all") == [(7, 0)]


def test_an_expression_that_fails_fails_its_readers(url: str, tmp_path: Path) -> None:
    bad = f"SELECT sum(10 / (S.b - 1)) AS s {ON}"
    publish(url, 0, {**VIEWS, "bad": bad})
    one = driver(url, tmp_path, every=10)
    for batch in range(3):
        one.run(job(batch))
    failure = one.state.queries["bad"].failure
    assert failure is not None
    assert failure.batch == 1
    assert one.state.queries["bad"].results == 1
    assert rows_of(one, tmp_path, "by") == [(0, 3), (1, 3), (2, 3)]
    assert rows_of(one, tmp_path, "all") == [(9, 0)]


def test_columns_have_the_names_of_the_reader(url: str, tmp_path: Path) -> None:
    publish(url, 0, VIEWS)
    one = driver(url, tmp_path, every=10)
    one.run(job(0))
    found = last_round(one)
    joined = JoinedBatch(str(one.settings.state), found.rows, found.feeds)
    queries = {str(q.id): q for q in one.control.ruleset(one.state.ruleset).queries}
    rows = joined.rows("all", queries["all"])
    assert rows is not None
    assert rows.column_names == [o.name for o in queries["all"].projection]
    assert rows.schema.types == [pa.int64(), pa.int64()]
    assert joined.rows("nobody", queries["all"]) is None
    assert "by" in joined


R, S = stream("R", "a", "v", lateness=3), stream("S", "a", "b", lateness=3)
STREAMS = {str(one.name): one for one in (R, S)}
AGGREGATES = (
    "count(*)", "sum({b})", "avg({v})", "sum({v} * {b})", "max({b})", "count(DISTINCT {v})",
)  # fmt: skip
WINDOWS = (None, 4, 15)


@dataclass
class _Later:
    """Views over ``R JOIN S`` that begin and end at any batch, in a driver that restarts and is
    killed.

    Attributes:
        rows: stream -> accepted tuples: batch, event time, ``a``, ``v`` or ``b``.
        texts, windows: by query. ``shared``: number of beginnings of queries with common rows ->
            number of queries. ``later``: number of views that have read sums over more rows.
    """

    url: str
    folder: Path
    rng: Random
    rows: dict[str, list[tuple[int, int, int, int]]] = field(
        default_factory=lambda: {"R": [], "S": []}
    )
    texts: dict[str, str] = field(default_factory=dict)
    windows: dict[str, int | None] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    shared: Counter[int] = field(default_factory=Counter)
    later: int = 0

    def __post_init__(self) -> None:
        self.present: list[str] = []
        self.known: dict[str, Activation] = {}
        self.window = self.rng.sample(WINDOWS, 2)
        self.keys = self.rng.sample(("", "{b} % 3", "{v} % 2"), 2)

    def publish(self, epoch: int) -> None:
        rng = self.rng
        if not self.present or rng.random() < 0.6:
            name = f"q{len(self.texts)}"
            key = rng.choice(self.keys)
            calls = ", ".join(f"{c} AS c{n}" for n, c in enumerate(rng.sample(AGGREGATES, 2)))
            self.texts[name] = f"SELECT {f'{key} AS k, ' if key else ''}{calls} FROM {{source}}" + (
                f" GROUP BY {key}" if key else ""
            )
            self.windows[name] = rng.choice(self.window)
            self.present.append(name)
        elif len(self.present) > 1 and rng.random() < 0.5:
            self.present.remove(self.present[0])
        parsed = [
            parse_sql(name, self.text(name, "R.v", "S.b", "R JOIN S ON R.a = S.a"), STREAMS,
                      self.windows[name])
            for name in self.present
        ]  # fmt: skip
        self.views |= {str(q.id): q.view for q in parsed if q.view is not None}
        plan = optimise(parsed, Statistics(), Options(parallelism=1))
        ruleset = compile_ruleset(
            plan, parsed, list(STREAMS.values()), epoch=epoch, parallelism=1, sinks={}
        )
        connection = redis_client.Redis.from_url(self.url)
        connection.set(KEYS.ruleset(epoch), rulesets.dumps(ruleset))
        connection.zadd(KEYS.published, {str(epoch): epoch})

    def text(self, name: str, v: str, b: str, source: str) -> str:
        return self.texts[name].format(v=v, b=b, source=source)

    def run(self, one: Driver) -> None:
        """Run a batch, of the next epoch."""
        rng, batch = self.rng, one.state.next_batch
        found, marks = dict[str, list[tuple[int, int, int]]](), watermarks(one.state)
        for name in self.rows:
            found[name] = [
                (max(0, 6 * batch + rng.randint(-9, 6)), rng.randrange(3), rng.randrange(7))
                for _ in range(rng.choice((0, 2, 5)))
            ]
            accepted = (row for row in found[name] if row[0] >= marks.get(name, 0))
            self.rows[name] += [(batch, *row) for row in accepted]

        def work(context: BatchContext) -> list[TaskReport]:
            blocks = []
            for name, rows in found.items():
                columns = [pa.array([row[n] for row in rows], pa.int64()) for n in (1, 2)]
                times = pa.array([row[0] for row in rows], pa.timestamp("us", tz="UTC"))
                names = [*(c for c, _ in STREAMS[name].columns)]
                blocks.append(Block(name, pa.record_batch([*columns, times], names=names)))
            known = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
            return [run_task(context, known, blocks, task=0, tasks=1, exchange=lambda m: [m])]

        if rng.random() < 0.15:
            with pytest.raises(Killed):
                one.run(die(work))
            one.tables.close()
            one = driver(self.url, self.folder, every=1)
            assert one.state.next_batch == batch
        one.run(work)
        self.known |= one.state.queries
        for readers in last_round(one).feeds.values() if one.state.tables.rounds else ():
            self.shared[len({self.known[q].activated_batch for q in readers})] += len(readers)
        peer = one.tables.peer
        assert isinstance(peer, Here)
        tables = [view.table for view in peer.keeper._views.values()]
        groups = [g for t in tables if t is not None and (g := t.groups) is not None]
        self.later += sum(r.earlier is not None for g in groups for r in g.readers)
        self.check()
        self.driver = one

    def check(self) -> None:
        """Compare the rows of all views with DuckDB's."""
        for name, view in self.views.items():
            if name not in self.known:
                continue
            own = [row for row in product(*self.rows.values()) if self.sees(name, *row)]
            joined = pa.table({
                "v": pa.array([r[3] for r, _ in own], pa.int64()),
                "b": pa.array([s[3] for _, s in own], pa.int64()),
            })  # fmt: skip
            with duckdb.connect() as connection:
                connection.register("joined", joined)
                wanted = connection.execute(self.text(name, "v", "b", "joined")).fetchall()
            found = current_rows(self.folder / "results" / name, view)
            assert comparable(found) == comparable(wanted), self.texts[name]

    def sees(self, name: str, r: tuple[int, ...], s: tuple[int, ...]) -> bool:
        """Whether a pair of tuples is a joined row of the view (``semantics.md``)."""
        known, window = self.known[name], self.windows[name]
        if r[2] != s[2] or (window is not None and abs(r[1] - s[1]) > window):
            return False
        end = known.expired_batch
        if max(r[0], s[0]) < known.activated_batch or (end is not None and max(r[0], s[0]) >= end):
            return False
        for alias, row in (("R", r), ("S", s)):
            first = known.visible_from[alias]
            timely = first.event_time is None or row[1] >= first.event_time
            if row[0] < known.activated_batch and not (row[0] >= first.batch and timely):
                return False
        return True


@pytest.mark.parametrize("seed", mostly_slow(range(80)))
def test_views_that_begin_in_any_batch_are_what_duckdb_says(
    seed: int, url: str, tmp_path: Path
) -> None:
    run = _Later(url, tmp_path, Random(seed))
    run.publish(0)
    one = driver(url, tmp_path, every=1)
    for batch in range(12):
        run.run(one)
        one = run.driver
        run.publish(batch + 1)
        if run.rng.random() < 0.15:
            one.tables.close()
            one = driver(url, tmp_path, every=1)
    one.tables.close()
    # Queries that have begun in several batches share rows and sums.
    assert run.later or seed not in range(4)
    assert run.shared[2] + run.shared[3] + run.shared[4] or seed not in range(4)
