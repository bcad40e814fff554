"""Tests of rations from the service's schedule, whose withheld results the runtime makes good, with
killed processes.

A stated capacity stands for an overload: arriving rows are rationed as soon as something has been
measured, on machines of any speed. Once no more rows arrive, the pipeline catches up on all owed
rows, and the results equal DuckDB's over all rows.
"""

from __future__ import annotations

from datetime import UTC
from pathlib import Path

import duckdb
import pytest

from anabranch_contract.plans.rations import Overload
from tests.support.oracles.ledger import read_paid, read_rations
from tests.support.worlds.processes import kill, live_pipeline
from tests.support.worlds.two_streams import (
    JOIN,
    NEAR,
    SUMS,
    Feeder,
    database,
    results,
    view_rows,
)

#: SQL for rows of ``a`` without a partner.
LONELY = (
    "SELECT a.v AS av FROM a LEFT ANTI JOIN b ON a.k = b.k "
    "AND b.ts BETWEEN a.ts - INTERVAL 10 MINUTES AND a.ts + INTERVAL 10 MINUTES"
)
#: SQL condition for rows of ``a`` for which no partner can arrive any more: ``b`` is up to a minute
#: late.
OVER = "epoch_us(a.ts) + 600000000 < (SELECT max(epoch_us(ts)) - 60000000 FROM b)"


@pytest.mark.spark
@pytest.mark.slow
def test_what_is_rationed_live_is_made_good_after_a_crash(tmp_path: Path) -> None:
    with live_pipeline(tmp_path / "home", epoch_batches=1000, epoch_seconds=3.0) as live:
        feeder = Feeder(live, tmp_path)
        live.client.create_query(JOIN, name="pairs")
        live.client.create_query(SUMS, name="sums")
        live.client.create_query(LONELY, name="lonely")
        live.wait("activity", lambda: live.client.query("lonely").status == "active")
        live.client.update_settings(
            overload="ration-with-catch-up", allocation="jaqpot", capacity=0.2
        )

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
        with database(tmp_path) as connection:
            lonely = connection.execute(
                f"SELECT a.v FROM a WHERE {OVER} AND NOT EXISTS (FROM b WHERE {NEAR})"
            ).fetchall()
            expected = connection.execute(f"SELECT a.v, b.v {join}").fetchall()
            sums = connection.execute(
                "SELECT time_bucket(INTERVAL 5 MINUTES, a.ts), count(*), sum(b.v) "
                f"{join} GROUP BY 1"
            ).fetchall()
        assert found == sorted(expected)
        live.wait("lonely rows", lambda: len(results(live, "lonely")) >= len(lonely))
        assert results(live, "lonely") == sorted(lonely)
        live.wait("the view", live.has_current_views)
        live.pipeline.finish_runtime()
        view = view_rows(live.results / "sums")
        # The watermark has removed nothing that is owed.
        assert view == sorted((b.astimezone(UTC), n, s) for b, n, s in sums)


@pytest.mark.spark
@pytest.mark.slow
def test_no_anti_join_lies_under_rations_through_a_crash(tmp_path: Path) -> None:
    with live_pipeline(tmp_path / "home", epoch_batches=1000, epoch_seconds=3.0) as live:
        feeder = Feeder(live, tmp_path)
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
        before = len(results(live, "lonely"))
        live.wait("more", lambda: undecided() > 0 and len(results(live, "lonely")) > before)
        found = results(live, "lonely")
        with database(tmp_path) as connection:
            statement = f"SELECT a.v FROM a WHERE NOT EXISTS (FROM b WHERE {NEAR})"
            lonely = connection.execute(statement).fetchall()
        assert len(set(found)) == len(found)
        assert set(found) < set(lonely)
