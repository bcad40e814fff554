"""Views are what DuckDB makes of all joined rows, whenever one looks, and through restarts."""

from __future__ import annotations

import datetime as dt
import shutil
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_contract.protocol.activations import Activation
from anabranch_runtime.errors import SinkError
from anabranch_runtime.sinks import view_inputs as inputs
from anabranch_runtime.views.upkeep import Views
from tests.support.worlds.view_runs import MINUTE, SCHEMA, Drawn, ViewRun, run_seed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

#: Before 1970, where Spark's own watermark does not get.
BEGIN = dt.datetime(1950, 1, 1, tzinfo=dt.UTC)


def rows(*values: tuple[int | None, int, int]) -> pa.RecordBatch:
    """Rows of (k, n, minute)."""
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
def start(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., ViewRun]]:
    runs: list[ViewRun] = []

    def begin(statement: str, duck: str = "", sink: SinkSpec | None = None) -> ViewRun:
        drawn = Drawn(statement, duck or statement)
        run = ViewRun(spark, tmp_path / str(len(runs)), drawn, sink or SinkSpec())
        runs.append(run)
        return run

    yield begin
    for run in runs:
        run.views.close()


def changes(run: ViewRun) -> list[dict[str, object]]:
    files = sorted((run.folder / "results" / "v").glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


#: Groups, windows, HAVING, LIMIT of groups and of rows, OFFSET, DISTINCT, sets of values.
FEW = (0, 2, 10, 14, 15)


@pytest.mark.parametrize("seed", FEW)
def test_a_random_view_is_what_the_oracle_says(
    seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    run_seed(spark, tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_random_views_are_what_the_oracle_says(
    seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    run_seed(spark, tmp_path, seed)


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
    assert run.views.lag() == {"v": 0}
    first = len(changes(run))
    run.feed(rows((3, 0, 0)))
    run.check()
    assert [(c["k"], c["c"], c["anabranch_change"]) for c in changes(run)[first:]] == [
        (3, 2, "upsert"),
        (2, None, "delete"),
    ]


def test_aggregates_of_nothing_are_a_row(start: Callable[..., ViewRun]) -> None:
    run = start("SELECT count(*) AS c, sum(n) AS s FROM t")
    run.views.drain()
    assert run.table() == [(0, None)]
    run.feed(rows((1, 4, 0)))
    run.check()
    run.restart()
    run.check()
    assert run.table() == [(1, 4)]


def test_windows_that_are_over_are_let_go_and_no_late_row_is_lost(
    start: Callable[..., ViewRun],
) -> None:
    run = start(
        "SELECT window.start, k, count(*) AS c FROM t GROUP BY window(ts, '10 minutes'), k",
        "SELECT time_bucket(INTERVAL 10 MINUTE, ts), k, count(*) AS c FROM t GROUP BY ALL",
    )
    # The greatest event time is far ahead of the watermark: Spark's own would end all before it.
    run.feed(rows((1, 0, 0), (1, 0, 500)), minutes(0))
    run.check()
    run.feed(rows((1, 0, 1)), minutes(30))
    run.check()
    run.feed(rows((1, 0, 31)), minutes(31))
    run.check()
    run.feed(rows((1, 0, 32)), minutes(32))
    run.check()
    kept = run.views._kept["v"].parts[0].query
    assert kept is not None
    progress = kept.lastProgress
    assert progress is not None
    (operator,) = progress["stateOperators"]
    # The windows from 500 and from 30 on; the one from 0 on is gone.
    assert operator["numRowsTotal"] == 2
    all_of_it = [o for p in kept.recentProgress for o in p["stateOperators"]]
    assert sum(o["numRowsRemoved"] for o in all_of_it) == 1
    assert sum(o["numRowsDroppedByWatermark"] for o in all_of_it) == 0


def test_a_batch_that_is_published_again_does_not_count_twice(
    start: Callable[..., ViewRun],
) -> None:
    run = start("SELECT k, count(*) AS c FROM t GROUP BY k")
    batch = rows((1, 0, 0), (2, 0, 0))
    run.stage(batch)
    run.feed(batch)
    run.check()
    # The state is rolled back by a batch, which comes again.
    run.views.close()
    run.next_batch -= 1
    run.rows.pop()
    run.begin()
    run.feed(batch)
    run.check()


def test_a_batch_that_was_not_committed_is_forgotten(start: Callable[..., ViewRun]) -> None:
    run = start("SELECT k, count(*) AS c FROM t GROUP BY k")
    run.feed(rows((1, 0, 0)))
    run.stage(rows((7, 0, 0)))
    run.check()
    run.restart()
    run.feed(rows((2, 0, 0)))
    run.check()


def test_a_release_that_was_interrupted_is_completed(start: Callable[..., ViewRun]) -> None:
    run = start("SELECT k, count(*) AS c FROM t GROUP BY k")
    run.feed(rows((1, 0, 0)))
    run.check()
    run.views.close()
    home = inputs.home_of(run.folder / "results", "v")
    run.stage(rows((2, 0, 0)))
    run.rows.append(rows((2, 0, 0)))
    run.next_batch += 1
    # As killed after the note of it, before the files have moved.
    (home / "released").write_text("1")
    run.begin()
    run.check()


def test_a_view_goes_on_though_spark_failed_while_it_looked_for_news(
    start: Callable[..., ViewRun],
) -> None:
    run = start("SELECT k, sum(n) AS s FROM t GROUP BY k")
    run.feed(rows((1, 2, 0)))
    run.check()
    first = run.views._kept["v"].parts[0].query
    assert first is not None
    # As while releases come and go: what Spark has just found is not there any more.
    folder, aside = run.folder / "results" / ".views" / "v" / "input" / "gone", run.folder / "aside"
    end = time.monotonic() + 60
    while first.isActive:
        assert time.monotonic() < end, "Spark did not look"
        folder.mkdir()
        for number in range(100):
            (folder / str(number)).mkdir()
        folder.rename(aside)
        shutil.rmtree(aside)
    run.feed(rows((1, 3, 0)))
    run.check()
    assert run.table() == [(1, 5)]


def test_a_folder_may_have_a_name_that_looks_like_a_pattern(
    spark: SparkSession, tmp_path: Path
) -> None:
    sql = "SELECT k, sum(n) AS s FROM t GROUP BY k"
    run = ViewRun(spark, tmp_path / "a {b,c} [d] *?", Drawn(sql, sql))
    run.feed(rows((1, 2, 0)))
    run.check()
    run.views.close()
    assert run.table() == [(1, 2)]


def test_a_sum_that_overflows_is_told_and_the_view_waits(start: Callable[..., ViewRun]) -> None:
    run = start("SELECT k, sum(n) AS s FROM t GROUP BY k")
    run.feed(rows((1, 1, 0)))
    run.check()
    run.feed(rows((1, (1 << 62), 0), (1, (1 << 62), 0)))
    with pytest.raises(SinkError, match="overflow"):
        run.views.drain()
    assert "overflow" in run.views.problems()["v"]
    assert run.table() == [(1, 1)]


def test_a_division_by_nothing_is_told_though_having_rules_other_rows_out(
    start: Callable[..., ViewRun],
) -> None:
    run = start("SELECT k, 10 / sum(n) AS s FROM t GROUP BY k HAVING sum(n) <> 0")
    run.feed(rows((1, 0, 0), (2, 5, 0)))
    run.views.drain()
    assert [row[0] for row in run.table()] == [2]
    other = start("SELECT k, 10 / sum(n) AS s FROM t GROUP BY k")
    other.feed(rows((1, 0, 0), (2, 5, 0)))
    with pytest.raises(SinkError, match=r"divisor is zero"):
        other.views.drain()


def test_a_view_that_is_withdrawn_ends_with_what_was_found(start: Callable[..., ViewRun]) -> None:
    run = start("SELECT k, count(*) AS c FROM t GROUP BY k")
    run.feed(rows((1, 0, 0)))
    run.views.committed(run.next_batch, {}, run.ruleset(with_view=False))
    run.views.drain()
    assert run.table() == [(1, 1)]
    assert not inputs.home_of(run.folder / "results", "v").exists()
    assert not (run.folder / "views" / "v").exists()


def test_rows_are_told_in_order(start: Callable[..., ViewRun]) -> None:
    run = start("SELECT k, count(*) AS c FROM t GROUP BY k ORDER BY c DESC, k")
    run.feed(rows((1, 0, 0), (2, 0, 0), (2, 0, 0), (None, 0, 0)))
    run.views.drain()
    told = run.told["v"]
    assert told.columns == ("k", "c")
    assert told.rows == ('{"k":2,"c":2}', '{"k":null,"c":1}', '{"k":1,"c":1}')


def test_an_offset_passes_over_rows_that_come_back(start: Callable[..., ViewRun]) -> None:
    run = start("SELECT n, k FROM t ORDER BY n LIMIT 2 OFFSET 1")
    run.feed(rows((1, 5, 0), (1, 6, 0), (1, 7, 0)))
    run.check()
    assert run.table() == [(6, 1), (7, 1)]
    run.feed(rows((1, 4, 0)))
    run.check()
    assert run.table() == [(5, 1), (6, 1)]


def test_a_view_whose_rows_are_lost_says_so(start: Callable[..., ViewRun]) -> None:
    run = start("SELECT k, count(*) AS c FROM t GROUP BY k")
    run.views.close()
    run.views = Views(run.session, run.folder / "other", run.folder / "o", {}, run.tell)
    run.views.begin(3)
    run.views.committed(3, {}, run.ruleset(), {"v": Activation(0, {}, results=7)})
    (problem,) = run.views.problems().values()
    assert "the results directory does not have" in problem
    with pytest.raises(SinkError, match="replace the query by itself"):
        run.views.drain()


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
    run = start("SELECT sum(n) AS s FROM t HAVING count(*) > (SELECT count(*) / 2 FROM t)")
    run.views.drain()
    assert run.table() == []
    run.feed(rows((1, 4, 0), (1, 5, 0)))
    run.check()
    assert run.table() == [(9,)]
