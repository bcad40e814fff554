"""Rations from the service's schedule, made good by the runtime, with processes that are killed.

A stated capacity stands for an overload: whatever arrives is rationed as soon as something has been
measured, on machines of any speed. Once nothing arrives any more, all that is owed is paid, and the
results are those of DuckDB over all rows.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract.plans.rations import Overload
from anabranch_runtime.sinks.ledger import read_paid, read_rations
from tests.support.worlds.processes import LivePipeline, kill, live_pipeline

if TYPE_CHECKING:
    from pathlib import Path

START = datetime(2024, 5, 1, tzinfo=UTC)
JOIN = (
    "SELECT a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k "
    "AND b.ts BETWEEN a.ts - INTERVAL 10 MINUTES AND a.ts + INTERVAL 10 MINUTES"
)
SUMS = (
    "SELECT window.start AS begin, count(*) AS pairs, sum(b.v) AS total FROM a JOIN b ON a.k = b.k "
    "AND b.ts BETWEEN a.ts - INTERVAL 10 MINUTES AND a.ts + INTERVAL 10 MINUTES "
    "GROUP BY window(a.ts, '5 minutes')"
)
#: Rows of ``a`` without a partner.
LONELY = (
    "SELECT a.v AS av FROM a LEFT ANTI JOIN b ON a.k = b.k "
    "AND b.ts BETWEEN a.ts - INTERVAL 10 MINUTES AND a.ts + INTERVAL 10 MINUTES"
)
NEAR = "a.k = b.k AND abs(epoch_us(a.ts) - epoch_us(b.ts)) <= 600000000"
#: Rows of ``a`` that no partner can come for any more: ``b`` is up to a minute late.
OVER = "epoch_us(a.ts) + 600000000 < (SELECT max(epoch_us(ts)) - 60000000 FROM b)"


class _Feeder:
    """Drops files whose event times go on by a minute each."""

    def __init__(self, live: LivePipeline, folder: Path) -> None:
        self._live, self._folder, self._rng = live, folder, Random(7)
        self.files = self.rows = 0
        for name in "ab":
            (folder / name).mkdir()
            live.client.create_stream(
                name,
                (("k", "bigint"), ("v", "int"), ("ts", "timestamp")),
                event_time="ts",
                lateness="1 minute",
                source={"format": "parquet", "path": str(folder / name)},
            )

    def drop(self, rows: int = 40) -> None:
        """A file for each stream."""
        for name in "ab":
            times = [
                START + timedelta(seconds=60 * self.files + self._rng.randrange(60))
                for _ in range(rows)
            ]
            table = pa.table(
                {
                    # Half of the keys of ``a`` are none of ``b``.
                    "k": pa.array(
                        [self._rng.randrange(24 if name == "a" else 12) for _ in range(rows)],
                        pa.int64(),
                    ),
                    "v": pa.array(range(self.rows, self.rows + rows), pa.int32()),
                    "ts": pa.array(sorted(times), pa.timestamp("us", tz="UTC")),
                }
            )
            path = self._folder / name / f"{self.files:06d}.parquet"
            pq.write_table(table, path.with_suffix(".part"))
            path.with_suffix(".part").rename(path)
        self.files, self.rows = self.files + 1, self.rows + rows

    def drop_slowly(self) -> None:
        """Files, and time for a batch of them."""
        self.drop()
        time.sleep(0.3)

    def drop_until_rationed(self) -> bool:
        """Files; whether a batch has withheld something by now."""
        self.drop_slowly()
        return bool(self._live.progress().rationing.rations)

    def has_read(self) -> bool:
        """Whether all of it was read."""
        streams = self._live.progress().streams
        return all(streams.get(n, {}).get("input", 0) >= self.rows for n in "ab")


@pytest.mark.spark
@pytest.mark.slow
def test_what_is_rationed_live_is_made_good_after_a_crash(tmp_path: Path) -> None:
    with live_pipeline(tmp_path / "home", epoch_batches=1000, epoch_seconds=3.0) as live:
        feeder = _Feeder(live, tmp_path)
        live.client.create_query(JOIN, name="pairs")
        live.client.create_query(SUMS, name="sums")
        live.client.create_query(LONELY, name="lonely")
        live.wait("activity", lambda: live.client.query("lonely").status == "active")
        live.client.update_settings(overload="ration-with-catch-up", capacity=0.2)

        live.wait("rations", feeder.drop_until_rationed)
        assert live.progress().rationing.policy is Overload.CATCH_UP
        for _ in range(4):
            feeder.drop_slowly()
        live.wait("a debt", lambda: live.progress().rationing.owed > 0)
        kill(live.pipeline, "runtime")
        feeder.drop()
        live.start_runtime()
        live.wait("all rows", feeder.has_read)
        live.wait("payment", lambda: live.progress().rationing.owed == 0)

        late = live.client.query("pairs").rationed
        assert late is not None
        assert (late.caught_up > 0, late.owed, late.withheld, late.completeness) == (True, 0, 0, 1)
        assert read_rations(live.results)
        assert read_paid(live.results)
        found = sorted(duckdb.read_parquet(f"{live.results}/pairs/*.parquet").fetchall())
        join = f"FROM a JOIN b ON {NEAR}"
        with _database(tmp_path) as connection:
            lonely = connection.execute(
                f"SELECT a.v FROM a WHERE {OVER} AND NOT EXISTS (FROM b WHERE {NEAR})"
            ).fetchall()
            expected = connection.execute(f"SELECT a.v, b.v {join}").fetchall()
            sums = connection.execute(
                "SELECT time_bucket(INTERVAL 5 MINUTES, a.ts), count(*), sum(b.v) "
                f"{join} GROUP BY 1"
            ).fetchall()
        assert found == sorted(expected)
        live.wait("lonely rows", lambda: len(_results(live, "lonely")) >= len(lonely))
        assert _results(live, "lonely") == sorted(lonely)
        live.pipeline.finish_runtime()
        view = _view_rows(live.results / "sums")
        # The clock has let go nothing that is owed.
        assert view == sorted((b.astimezone(UTC), n, s) for b, n, s in sums)


@pytest.mark.spark
@pytest.mark.slow
def test_no_anti_join_lies_under_rations_through_a_crash(tmp_path: Path) -> None:
    with live_pipeline(tmp_path / "home", epoch_batches=1000, epoch_seconds=3.0) as live:
        feeder = _Feeder(live, tmp_path)
        live.client.create_query(LONELY, name="lonely")
        live.wait("activity", lambda: live.client.query("lonely").status == "active")
        live.client.update_settings(overload="ration", capacity=0.9)

        live.wait("rations", feeder.drop_until_rationed)
        for _ in range(4):
            feeder.drop_slowly()
        # Pairs of rows that were kept so far are withheld from now on.
        live.client.update_settings(overload="ration", capacity=0.2)

        def undecided() -> int:
            feeder.drop_slowly()
            kept = live.client.query("lonely").rationed
            return 0 if kept is None else kept.undecided

        live.wait("undecided rows", lambda: undecided() > 0)
        kill(live.pipeline, "runtime")
        feeder.drop()
        live.start_runtime()
        before = len(_results(live, "lonely"))
        live.wait("more", lambda: undecided() > 0 and len(_results(live, "lonely")) > before)
        found = _results(live, "lonely")
        with _database(tmp_path) as connection:
            statement = f"SELECT a.v FROM a WHERE NOT EXISTS (FROM b WHERE {NEAR})"
            lonely = connection.execute(statement).fetchall()
        assert len(set(found)) == len(found)
        assert set(found) < set(lonely)


def _database(folder: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name in "ab":
        files = folder / name / "*.parquet"
        connection.execute(f"CREATE VIEW {name} AS FROM read_parquet('{files}')")
    return connection


def _results(live: LivePipeline, query: str) -> list[tuple[object, ...]]:
    """What a query's files have, sorted; nothing before the first of them."""
    files = sorted(str(f) for f in (live.results / query).glob("*.parquet"))
    return sorted(duckdb.read_parquet(files).fetchall()) if files else []


def _view_rows(folder: Path) -> list[tuple[object, ...]]:
    files = [str(f) for f in sorted(folder.glob("*.parquet"))]
    newest = "row_number() OVER (PARTITION BY begin ORDER BY anabranch_version DESC) AS nth"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.execute(
            f"SELECT begin, pairs, total FROM (SELECT *, {newest} FROM read_parquet(?)) "
            "WHERE nth = 1 AND anabranch_change = 'upsert'",
            [files],
        ).fetchall()
    return sorted((b.astimezone(UTC), n, s) for b, n, s in rows)
