"""Tests of queries registered late that emit results of past rows, live: a join and a view, through
a crash.
"""

from __future__ import annotations

from datetime import UTC
from pathlib import Path

import pytest

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

#: Has no window, so all rows are kept in stores.
KEEPER = "SELECT a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k AND a.v = b.v"


@pytest.mark.spark
@pytest.mark.slow
def test_a_query_that_comes_late_has_all_results(tmp_path: Path) -> None:
    with live_pipeline(tmp_path / "home", epoch_batches=1000, epoch_seconds=2.0) as live:
        feeder = Feeder(live, tmp_path)
        live.client.create_query(KEEPER, name="keeper")
        live.wait("activity", lambda: live.client.query("keeper").status == "active")
        # Windows of the first rows end long before the late queries are registered.
        for _ in range(30):
            feeder.drop()
        live.wait("all rows", feeder.has_read)
        for name, sql in (("pairs", JOIN), ("sums", SUMS)):
            live.client.create_query(sql, name=name, past="stored")
        live.client.create_query(JOIN, name="from-now-on")
        live.wait("activity", lambda: live.client.query("sums").status == "active")
        kill(live.pipeline, "runtime")
        feeder.drop()
        live.start_runtime()
        live.wait("new rows", feeder.has_read)

        def emitted(name: str) -> bool:
            past = live.client.query(name).past_results
            return past is not None and past.status == "emitted"

        for name in ("pairs", "sums"):
            live.wait(f"the past of {name}", lambda name=name: emitted(name))  # type: ignore[misc]
        live.client.pause_query("pairs")
        live.wait("a pause", lambda: live.client.query("pairs").status == "paused")
        live.client.resume_query("pairs")
        live.wait("another run", lambda: live.client.query("pairs").status == "active")
        live.wait("the view", live.has_current_views)
        live.pipeline.finish_runtime()

        first, second = live.client.query_runs("pairs").items
        query = live.client.query("pairs")
        assert (query.past, query.past_results) == ("stored", None)
        assert second.results == 0
        with database(tmp_path) as connection:
            pairs = connection.execute(f"SELECT a.v, b.v FROM a JOIN b ON {NEAR}").fetchall()
            sums = connection.execute(
                "SELECT time_bucket(INTERVAL 5 MINUTES, a.ts), count(*), sum(b.v) "
                f"FROM a JOIN b ON {NEAR} GROUP BY 1"
            ).fetchall()
        assert results(live, "pairs") == sorted(pairs)
        assert first.results == len(pairs)
        assert 0 < len(results(live, "from-now-on")) < len(pairs) / 2
        assert view_rows(live.results / "sums") == sorted(
            (b.astimezone(UTC), n, s) for b, n, s in sums
        )
