"""Tests of replaced queries with cutover when complete, live and with kills: readers who poll see
in each batch exactly the old or exactly the new statement's results, and never go back.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pyarrow as pa
import pytest
from redis import Redis

from anabranch_client.errors import ClientError
from tests.support.worlds.processes import LivePipeline, kill, live_pipeline, meanwhile
from tests.support.worlds.two_streams import JOIN, NEAR, Feeder

pytestmark = [pytest.mark.spark, pytest.mark.slow]

#: Has no window, so all rows are kept in stores.
KEEPER = "SELECT a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k AND a.v = b.v"
#: Query -> its SQL before and after, and both for DuckDB.
REPLACED = {
    "pairs": (
        (JOIN, f"SELECT a.v AS av, b.v AS bv FROM a JOIN b ON {NEAR}"),
        (
            f"{JOIN} AND a.v > b.v",
            f"SELECT a.v AS av, b.v AS bv FROM a JOIN b ON {NEAR} AND a.v > b.v",
        ),
    ),
    "counts": (
        (
            "SELECT a.k AS k, count(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY a.k",
            "SELECT a.k AS k, count(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY a.k",
        ),
        (
            "SELECT a.k AS k, count(*) AS n FROM a JOIN b ON a.k = b.k WHERE b.v > 50 GROUP BY a.k",
            "SELECT a.k AS k, count(*) AS n FROM a JOIN b ON a.k = b.k WHERE b.v > 50 GROUP BY a.k",
        ),
    ),
}  # fmt: skip
#: A sink to which both runs of a query write.
SHARED = {"format": "redis-stream", "options": {"stream": "out"}}
Row = tuple[Any, ...]
#: (batch, run, rows) of a query's table, as a reader saw it.
Look = tuple[int, str, list[Row]]


def look(table: pa.Table) -> Look:
    noted = table.schema.metadata
    rows = sorted(zip(*(c.to_pylist() for c in table.columns), strict=True))
    return int(noted[b"anabranch_batch"]), noted[b"anabranch_run"].decode(), rows


def poll(live: LivePipeline, found: dict[str, list[Look]], over: threading.Event) -> None:
    """Read the queries' tables by name continuously, also while the service is down."""
    while not over.is_set():
        for name, looks in found.items():
            try:
                looks.append(look(live.client.table(name)))
            except (ClientError, httpx.HTTPError, ValueError):
                time.sleep(0.2)


def answers(live: LivePipeline, sql: str, batch: int) -> list[Row]:
    """Return DuckDB's results over the rows read up to ``batch``."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name in "ab":
            files = [
                str(path)
                for path in sorted((live.results / f"rows_of_{name}").glob("*.parquet"))
                if int(path.stem.partition("-")[0]) <= batch
            ]
            rows = (
                f"FROM read_parquet({files})"
                if files
                else "(SELECT 0 AS k, 0 AS v, now() AS ts) LIMIT 0"
            )
            connection.execute(f"CREATE VIEW {name} AS {rows}")
        return sorted(connection.execute(sql).fetchall())


def check(live: LivePipeline, name: str, looks: list[Look]) -> None:
    """Check that each look shows exactly one statement's results in its batch, and none
    goes back.
    """
    (_, old), (_, new) = REPLACED[name]
    known: dict[tuple[int, str], list[Row]] = {}
    for before, after in pairwise(looks):
        assert after[0] >= before[0], f"{name}: batch {after[0]} after {before[0]}"
        assert (before[1], after[1]) != (f"{name}~2", name), f"{name}: back to the old run"
    for batch, run, rows in looks:
        wanted = known.get((batch, run))
        if wanted is None:
            wanted = known[batch, run] = answers(live, new if run == f"{name}~2" else old, batch)
        assert rows == wanted, f"{name}: {run} as of batch {batch}"
    assert {run for _, run, _ in looks} == {name, f"{name}~2"}


def test_readers_of_a_name_see_one_statement_s_answer(tmp_path: Path) -> None:
    with live_pipeline(tmp_path / "home", epoch_batches=1000, epoch_seconds=2.0) as live:
        feeder = Feeder(live, tmp_path)
        for name in "ab":
            rows = f"SELECT {name}.k AS k, {name}.v AS v, {name}.ts AS ts FROM {name}"
            live.client.create_query(rows, name=f"rows_of_{name}")
        live.client.create_query(KEEPER, name="keeper")
        for name, ((old, _), _) in REPLACED.items():
            live.client.create_query(old, name=name)
        live.client.create_query(JOIN, name="sunk", sink=SHARED)

        def is_active(name: str) -> bool:
            return live.client.query(name).status == "active"

        for name in (*REPLACED, "sunk"):
            live.wait(f"{name} to be active", partial(is_active, name))
        for _ in range(12):
            feeder.drop_slowly()
        live.wait("the first rows", feeder.has_read)
        looks: dict[str, list[Look]] = {name: [] for name in REPLACED}
        with meanwhile(partial(poll, live, looks)):
            for name, (_, (new, _)) in REPLACED.items():
                body = {"sql": new, "past": "stored", "cutover": "when-complete"}
                change = live.client.put_query(name, body)
                assert (change.action, change.query and change.query.run) == (
                    "replaced", f"{name}~2",
                )  # fmt: skip
                assert live.client.query(name).run == name
            shared: dict[str, Any] = {"past": "stored", "sink": SHARED, "cutover": "when-complete"}
            live.client.put_query("sunk", {"sql": f"{JOIN} AND a.v > b.v", **shared})
            feeder.drop_slowly()
            kill(live.pipeline, "service")
            live.pipeline.start_service()
            feeder.drop_slowly()
            kill(live.pipeline, "runtime")
            live.start_runtime()

            def cut_over() -> bool:
                feeder.drop_slowly()
                return all(live.client.query(n).run == f"{n}~2" for n in (*REPLACED, "sunk"))

            live.wait("both cutovers", cut_over)
            kill(live.pipeline, "runtime")
            feeder.drop_slowly()
            live.start_runtime()
            live.wait("the last rows", feeder.has_read)
            live.wait("the views", live.has_current_views)
            time.sleep(2)
        for name, found in looks.items():
            check(live, name, found)
            first, second = live.client.query_runs(name).items
            assert (first.status, second.status) == ("expired", "active")
            assert first.expired_batch is not None
            # In a batch before the cutover, the old statement's results can still be read.
            then = first.expired_batch - 2
            assert look(live.client.table(name, batch=then))[1] == name
            rows = live.client.table(name, batch=then)
            assert look(rows)[2] == answers(live, REPLACED[name][0][1], then)
            assert look(live.client.table(name, batch=then + 1))[1] == f"{name}~2"
        last = live.client.query_runs("sunk").items[0].expired_batch
        assert last is not None
        (_, old), (_, new) = REPLACED["pairs"]
        later = Counter(answers(live, new, 10**9)) - Counter(answers(live, new, last - 1))
        assert sunk(live) == Counter(answers(live, old, last - 1)) + later


def sunk(live: LivePipeline) -> Counter[Row]:
    """Return the rows in the Redis Stream of the shared sink."""
    with Redis.from_url(live.pipeline.redis_url, decode_responses=True) as redis:
        found: Any = redis.xrange("out")
    rows = (json.loads(entry["data"]) for _, entry in found)
    return Counter((row["av"], row["bv"]) for row in rows)
