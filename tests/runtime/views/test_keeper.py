"""Tests that views equal DuckDB's results over all joined rows, at any time and
through restarts.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_runtime.errors import SinkError
from anabranch_runtime.faults import Point
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sinks.webhook.writer import WebhookWriter
from anabranch_runtime.views import keeper, kept
from tests.support.surroundings.deliveries import sink
from tests.support.surroundings.receiver import SECRET, Fault, receiving
from tests.support.worlds.kept_tables import Lagging
from tests.support.worlds.processes import wait_until
from tests.support.worlds.view_runs import MINUTE, SCHEMA, Drawn, ViewRun, run_seed

#: Before 1970, where Spark's own watermark can't be.
BEGIN = dt.datetime(1950, 1, 1, tzinfo=dt.UTC)


def rows(*values: tuple[int | None, int, int]) -> pa.RecordBatch:
    """Return rows of (k, n, minute)."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "k": k,
                "g": "g",
                "d": Decimal(n % 1000),
                "b": True,
                "n": n,
                "ts": BEGIN + dt.timedelta(minutes=minute),
            }
            for k, n, minute in values
        ],
        SCHEMA,
    )


def minutes(count: int) -> int:
    return int(BEGIN.timestamp()) * 1_000_000 + count * MINUTE


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., ViewRun]]:
    runs: list[ViewRun] = []

    def begin(statement: str, duck: str = "", sink: SinkSpec | None = None) -> ViewRun:
        drawn = Drawn(statement, duck or statement)
        run = ViewRun(tmp_path / str(len(runs)), drawn, sink or SinkSpec(), Random(len(runs)))
        runs.append(run)
        return run

    yield begin
    for run in runs:
        run.tables.close()


def changes(run: ViewRun) -> list[dict[str, object]]:
    files = sorted((run.folder / "results" / "v").glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


#: Groups, windows, HAVING, LIMIT of groups and of rows, OFFSET, DISTINCT, sets of values.
FEW = (0, 2, 10, 14, 15)


@pytest.mark.parametrize("seed", FEW)
def test_a_random_view_is_what_the_oracle_says(seed: int, tmp_path: Path) -> None:
    run_seed(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_random_views_are_what_the_oracle_says(seed: int, tmp_path: Path) -> None:
    run_seed(tmp_path, seed)


def test_a_group_that_having_rules_out_is_deleted(start: Callable[..., ViewRun]) -> None:
    run = start("SELECT k, sum(n) AS s FROM t GROUP BY k HAVING sum(n) < 5")
    run.feed(rows((1, 2, 0), (2, 9, 0)))
    run.check()
    run.feed(rows((1, 4, 0)))
    run.check()
    assert [(c["k"], c["s"], c["anabranch_change"]) for c in changes(run)] == [
        (1, 2, "upsert"),
        (1, None, "delete"),
    ]


def test_only_what_changes_is_written(start: Callable[..., ViewRun]) -> None:
    run = start("SELECT k, count(*) AS c FROM t GROUP BY k ORDER BY c DESC, k LIMIT 2")
    run.feed(rows((1, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0)))
    run.check()
    assert run.tables.lag() == {"v": 0}
    first = len(changes(run))
    run.feed(rows((3, 0, 0)))
    run.check()
    assert [(c["k"], c["c"], c["anabranch_change"]) for c in changes(run)[first:]] == [
        (3, 2, "upsert"),
        (2, None, "delete"),
    ]


def test_aggregates_of_nothing_are_a_row(start: Callable[..., ViewRun]) -> None:
    run = start("SELECT count(*) AS c, sum(n) AS s FROM t")
    run.tables.drain()
    assert run.table() == [(0, None)]
    run.feed(rows((1, 4, 0)))
    run.check()
    run.restart()
    run.check()
    assert run.table() == [(1, 4)]


def test_windows_that_are_over_are_let_go_and_no_late_row_is_lost(
    start: Callable[..., ViewRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "MOST_KEPT", 0)
    run = start(
        "SELECT window.start, k, count(*) AS c FROM t GROUP BY window(ts, '10 minutes'), k",
        "SELECT time_bucket(INTERVAL 10 MINUTE, ts), k, count(*) AS c FROM t GROUP BY ALL",
    )
    # The greatest event time is far ahead of the watermark.
    run.feed(rows((1, 0, 0), (1, 0, 500)), minutes(0))
    run.check()
    run.feed(rows((1, 0, 1)), minutes(30))
    run.check()
    run.feed(rows((1, 0, 31)), minutes(31))
    run.check()
    run.feed(rows((1, 0, 32)), minutes(32))
    run.check()
    peer = run.tables.peer
    assert isinstance(peer, Lagging)
    (table,) = (view._table for view in peer.keeper._views.values())
    # The windows from minutes 500 and 30 on; the one from 0 on has been removed.
    assert table is not None
    assert (len(table), table.forgotten) == (2, 1)


def test_a_batch_that_comes_again_does_not_count_twice(start: Callable[..., ViewRun]) -> None:
    run = start("SELECT k, count(*) AS c FROM t GROUP BY k")
    batch = rows((1, 0, 0), (2, 0, 0))
    run.feed(batch)
    run.check()
    run.rows.pop()
    run.world.roll_back()
    run.feed(batch)
    run.check()


def test_a_batch_that_was_not_committed_is_not_there(start: Callable[..., ViewRun]) -> None:
    run = start("SELECT k, count(*) AS c FROM t GROUP BY k")
    run.feed(rows((1, 0, 0)))
    run.world.stage(run.stage(rows((7, 0, 0))))
    run.check()
    run.restart()
    run.feed(rows((2, 0, 0)))
    run.check()


class CrashError(BaseException):
    """The simulated death of the process."""


@pytest.mark.parametrize("point", [Point.VIEWED, Point.KEEPING])
@pytest.mark.parametrize("times", range(1, 5))
def test_versions_are_the_same_however_often_the_process_dies(
    point: Point, times: int, start: Callable[..., ViewRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, reached = start("SELECT k, count(*) AS c FROM t GROUP BY k"), 0
    monkeypatch.setattr(keeper, "ROUNDS", 1)

    def die(here: Point) -> None:
        nonlocal reached
        reached += here is point
        if here is point and reached == times:
            raise CrashError

    monkeypatch.setattr(keeper, "reach", die)
    for n in range(8):
        try:
            run.feed(rows((n % 3, 0, 0), (5, 0, 0)))
            run.tables.drain()
        except CrashError:
            run.world.begin()
    run.check()
    assert reached >= times
    assert len(run.world.state.tables.rounds) < 8
    versions = [str(c["anabranch_version"]) for c in changes(run)]
    assert sorted(versions) == [str(n // 2 + 1) for n in range(16)]


def test_rows_that_a_sink_refuses_wait_and_other_views_go_on(tmp_path: Path) -> None:
    taken, refuses = list[tuple[int, int]](), True

    def write(delivery: Delivery) -> None:
        if refuses:
            raise ValueError("not today")
        taken.append((delivery.batch, delivery.read().num_rows))

    sql = "SELECT k, count(*) AS c FROM t GROUP BY k"
    sink = SinkSpec("redis-stream", (("key", "k"),))
    run = ViewRun(tmp_path, Drawn(sql, sql), sink)
    run.world.writers[sink.kind] = write
    run.restart()
    for n in range(3):
        run.feed(rows((n, 0, 0)))
    with pytest.raises(SinkError, match="not today"):
        run.tables.drain()
    assert "not today" in run.tables.problems()["v"]
    assert run.tables.lag() == {"v": 2}
    run.restart()
    refuses = False
    run.tables.drain()
    assert run.tables.lag() == {"v": 0}
    assert taken == [(1, 1), (2, 1), (3, 1)]


def test_versions_are_posted_each_once_while_other_views_go_on(tmp_path: Path) -> None:
    sql = "SELECT k, count(*) AS c FROM t GROUP BY k"
    with receiving() as hook:
        to = sink("webhook", url=hook.url, secret=SECRET, timeout="5", rows="1")
        run = ViewRun(tmp_path, Drawn(sql, sql), to)
        posting = WebhookWriter("ns", AccessPolicy(hosts=("localhost",)))
        run.world.writers[to.kind] = lambda delivery: posting.write(delivery, "state")
        run.restart()
        faults = iter([Fault.SLOW, Fault.ERROR_AFTER, Fault.DROPPED])
        hook.fault, hook.delay = lambda _: next(faults, Fault.NONE), 0.3
        for n in range(3):
            run.feed(rows((0, 0, 0), (n, 0, 0)))
        failures: list[str] = []

        def posted() -> bool:
            try:
                run.tables.drain()
            except SinkError as error:
                # The error of an attempt is raised until the next attempt is due.
                failures.append(str(error))
                return False
            return True

        wait_until("all versions", posted)
        assert {kind for kind in ("500", "closed") for text in failures if kind in text} == {
            "500",
            "closed",
        }
        assert run.tables.problems() == {}
        found = hook.rows("v")
    versions = [one["anabranch_version"] for one in found]
    assert versions == sorted(versions)
    # The newest version of a key counts.
    assert {one["k"]: one["c"] for one in found} == {0: 4, 1: 1, 2: 1}
    assert len(found) == len(hook.ledger) < len(hook.seen)


def test_a_folder_may_have_a_name_that_looks_like_a_pattern(tmp_path: Path) -> None:
    sql = "SELECT k, sum(n) AS s FROM t GROUP BY k"
    run = ViewRun(tmp_path / "a {b,c} [d] *?", Drawn(sql, sql))
    run.feed(rows((1, 2, 0)))
    run.check()
    run.tables.close()
    assert run.table() == [(1, 2)]


def test_a_sum_that_overflows_is_reported_and_the_view_waits(start: Callable[..., ViewRun]) -> None:
    run = start("SELECT k, sum(n) AS s FROM t GROUP BY k")
    run.feed(rows((1, 1, 0)))
    run.check()
    run.feed(rows((1, (1 << 62), 0), (1, (1 << 62), 0)))
    with pytest.raises(SinkError, match="out of the range"):
        run.tables.drain()
    assert "out of the range" in run.tables.problems()["v"]
    assert run.table() == [(1, 1)]


def test_a_table_that_grows_beyond_its_memory_waits_and_goes_on_with_more(
    start: Callable[..., ViewRun],
) -> None:
    run = start("SELECT k, n, count(*) AS c FROM t GROUP BY k, n")
    run.feed(rows((1, 1, 0)))
    run.check()
    peer = run.tables.peer
    assert isinstance(peer, Lagging)
    keeper = peer.keeper
    keeper.most = keeper._views["v"].bytes + (1 << 16)
    run.feed(rows(*((n, n, 0) for n in range(20_000))))
    with pytest.raises(SinkError, match="more than 0 MiB"):
        run.tables.drain()
    assert "take" in run.tables.problems()["v"]
    assert keeper._views["v"].bytes < keeper.most
    run.feed(rows((2, 5, 0)))
    keeper.most = None
    run.check()
    assert len(run.table()) == 20_001


def test_a_division_by_nothing_is_reported_though_having_rules_other_rows_out(
    start: Callable[..., ViewRun],
) -> None:
    run = start("SELECT k, 10 / sum(n) AS s FROM t GROUP BY k HAVING sum(n) <> 0")
    run.feed(rows((1, 0, 0), (2, 5, 0)))
    run.tables.drain()
    assert [row[0] for row in run.table()] == [2]
    other = start("SELECT k, 10 / sum(n) AS s FROM t GROUP BY k")
    other.feed(rows((1, 0, 0), (2, 5, 0)))
    with pytest.raises(SinkError, match=r"divisor is zero"):
        other.tables.drain()


def test_a_view_that_is_withdrawn_ends_with_what_was_found(start: Callable[..., ViewRun]) -> None:
    run = start("SELECT k, count(*) AS c FROM t GROUP BY k")
    run.feed(rows((1, 0, 0)))
    run.world.ruleset = run.ruleset(with_view=False)
    for _ in range(2):
        run.world.feed({})
        run.tables.drain()
    run.world.feed({})
    assert run.table() == [(1, 1)]
    assert run.world.state.tables.held == {}
    assert not list(run.world.state.tables.segments)
    assert run.tables.counts()["v"].shown == 1


def test_rows_are_published_in_order(start: Callable[..., ViewRun]) -> None:
    run = start("SELECT k, count(*) AS c FROM t GROUP BY k ORDER BY c DESC, k")
    run.feed(rows((1, 0, 0), (2, 0, 0), (2, 0, 0), (None, 0, 0)))
    run.tables.drain()
    published = run.published["v"]
    assert published.columns == ("k", "c")
    assert published.rows == ('{"k":2,"c":2}', '{"k":null,"c":1}', '{"k":1,"c":1}')


def test_an_offset_passes_over_rows_that_come_back(start: Callable[..., ViewRun]) -> None:
    run = start("SELECT n, k FROM t ORDER BY n LIMIT 2 OFFSET 1")
    run.feed(rows((1, 5, 0), (1, 6, 0), (1, 7, 0)))
    run.check()
    assert run.table() == [(6, 1), (7, 1)]
    run.feed(rows((1, 4, 0)))
    run.check()
    assert run.table() == [(5, 1), (6, 1)]


def test_groups_are_compared_with_the_whole(start: Callable[..., ViewRun]) -> None:
    run = start(
        "SELECT k, sum(n) AS s, sum(n) / (SELECT sum(n) FROM t) AS share FROM t GROUP BY k "
        "HAVING sum(n) * 2 >= (SELECT max(n) + count(*) FROM t) ORDER BY s DESC"
    )
    run.feed(rows((1, 5, 0), (2, 1, 0), (3, 3, 0)))
    run.check()
    run.feed(rows((2, 9, 0)))
    run.check()
    run.restart()
    run.feed(rows((3, 4, 0), (3, 4, 0)))
    run.check()
    assert {c["anabranch_change"] for c in changes(run)} == {"upsert", "delete"}


def test_an_aggregate_may_be_compared_with_itself(start: Callable[..., ViewRun]) -> None:
    total = "(SELECT count(*) / 2 FROM t)"
    run = start(f"SELECT k, sum(n) AS s FROM t GROUP BY k HAVING count(*) > {total}")
    run.tables.drain()
    assert run.table() == []
    run.feed(rows((1, 4, 0), (1, 5, 0)))
    run.check()
    assert run.table() == [(1, 9)]
