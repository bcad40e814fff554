"""Tests of bad changes (deletes, updates) in whole runs: results, messages, and
unaffected queries.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pytest

from anabranch_contract.protocol.progress import Mode
from anabranch_service.settings import ServiceSettings
from tests.support.oracles.oracle import SIGNED
from tests.support.worlds.changed_views import COLUMNS
from tests.support.worlds.derived import TIMED, Derived
from tests.support.worlds.kept_tables import Lagging
from tests.support.worlds.service import Service, eventually, serving

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
#: Query whose stream has no bad input.
OTHER = "SELECT t, count(*) AS n FROM c GROUP BY t"
_NUMBERS = count()


@pytest.fixture
def live(settings: ServiceSettings) -> Iterator[Service]:
    namespace = f"bad{next(_NUMBERS)}"
    with serving(replace(settings, mode=Mode.LIVE, namespace=namespace)) as service:
        yield service


@pytest.fixture
def world(live: Service, tmp_path: Path) -> Iterator[Derived]:
    made = Derived(live, tmp_path, streams={**COLUMNS, **TIMED})
    made.query("other", OTHER)
    yield made
    made.driver.tables.close()


def written(world: Derived, **rows: list[tuple[str, tuple[Any, ...]]]) -> None:
    """Write rows of streams, and one row of the other query, and run all batches."""
    world.write("c", [("insert", (1, "t"))])
    for name, some in rows.items():
        world.write(name, some)
    eventually(lambda: _read(world), "all files are read")
    assert world.rows("other") == world.wanted("other")


def _read(world: Derived) -> bool:
    """Run batches until nothing changes for some turns; return whether all files have been read."""
    world.settle(4)
    offsets = world.driver.state.offsets
    assert offsets is not None
    read = {feed.rpartition("-")[0]: at for feed, at in offsets.sources["feeds"].items()}
    written = {name: len([*(world.folder / name).glob("*.parquet")]) for name in world.streams}
    return all(read[name][0] == count for name, count in written.items() if count)


def signed(world: Derived, name: str) -> dict[tuple[Any, ...], int]:
    """Return each row of a query without a view with the sum of its changes."""
    files = str(world.folder / "results" / name / "*.parquet")
    found = duckdb.execute(
        f"SELECT v, w, {SIGNED} AS n FROM read_parquet(?) GROUP BY ALL HAVING n <> 0", [files]
    ).fetchall()
    return {(v, w): number for v, w, number in found}


def test_deletes_of_rows_that_are_not_there(world: Derived) -> None:
    """Such deletes count -1 until their row arrives: in joins; views show only groups with rows."""
    world.query("joined", "SELECT a.v, b.w FROM a JOIN b ON b.k = a.k")
    world.query("kept", "SELECT a.v, b.w FROM a LEFT JOIN b ON b.k = a.k")
    world.query("counted", "SELECT k, count(*) AS n, sum(v) AS s, max(v) AS m FROM a GROUP BY k")
    written(
        world,
        a=[("insert", (1, 5, "x")), ("insert", (2, 6, "x"))],
        b=[("insert", (1, 1, 0.5)), ("insert", (3, 1, 0.5))],
    )
    # Deletes of rows that have not arrived; one row arrives after its delete in the same file.
    written(
        world,
        a=[("delete", (3, 7, "x")), ("delete", (2, 9, "x")), ("insert", (2, 4, "x"))],
        c=[("delete", (2, "u")), ("insert", (2, "u"))],
    )
    assert signed(world, "joined") == {(5, 1): 1, (7, 1): -1}
    assert world.rows("kept") == [(4, None), (5, 1), (6, None)]
    assert world.rows("counted") == [(1, 1, 5, 5), (2, 1, 1, 6)]
    # A second delete of the same row.
    written(world, a=[("delete", (1, 5, "x")), ("delete", (1, 5, "x"))])
    assert signed(world, "joined") == {(5, 1): -1, (7, 1): -1}
    assert world.rows("kept") == [(4, None), (6, None)]
    assert world.rows("counted") == [(2, 1, 1, 6)]
    # The deleted rows arrive.
    written(world, a=[("insert", (1, 5, "x")), ("insert", (3, 7, "x")), ("insert", (2, 9, "x"))])
    assert signed(world, "joined") == {}
    assert world.rows("counted") == [(2, 2, 10, 6)]
    world.check()
    written(world, a=[("insert", (1, 5, "x"))])
    world.check()


@pytest.mark.e2e
def test_a_late_delete_is_counted_and_its_row_stays(world: Derived) -> None:
    world.query("joined", "SELECT f.v, b.w FROM f JOIN b ON b.k = f.k")
    world.query("counted", "SELECT k, count(*) AS n, sum(v) AS s FROM f GROUP BY k")
    late, later = BEGIN, BEGIN + dt.timedelta(minutes=10)
    written(
        world,
        f=[("insert", (1, 5, late)), ("insert", (1, 6, later))],
        b=[("insert", (1, 1, 0.5))],
    )
    eventually(lambda: _read_alone(world), "the watermark has passed")
    written(world, f=[("delete", (1, 5, late)), ("delete", (1, 6, later))])
    eventually(lambda: _f(world)["late_tuples"] == 1, "the late delete is reported")
    assert signed(world, "joined") == {(5, 1): 1}
    assert world.rows("counted") == [(1, 1, 5)]


def _read_alone(world: Derived) -> bool:
    """Run a batch without rows of the stream ``f``; return whether its rows so far are a finished
    load (no row is late within a load).
    """
    written(world)
    watermark: str | None = _f(world)["watermark"]
    return watermark == "2026-01-01T00:09:00Z"


def _f(world: Derived) -> dict[str, Any]:
    world.turn()
    return world.service.get("/v1/streams/f")


def test_upserts_need_a_key(live: Service) -> None:
    body = {"name": "prices", "columns": {"k": "int", "v": "bigint"}, "kind": "upsert"}
    for key in (None, [], ["none"]):
        refused = live.post("/v1/streams?wait=0", {**body, "key": key}, 422)
        assert any("key" in error["field"] for error in refused["errors"]), refused
        assert refused["errors"][0]["message"]
    assert live.get("/v1/streams")["items"] == []


@pytest.mark.e2e
def test_a_subquery_that_gives_several_rows_fails_its_query_only(world: Derived) -> None:
    world.query("chosen", "SELECT a.v FROM a WHERE a.k = (SELECT w FROM b WHERE k = 1)")
    world.query("distinct", "SELECT a.v FROM a WHERE a.k = (SELECT DISTINCT w FROM b)")
    world.query("beside", "SELECT a.v, b.w FROM a JOIN b ON b.k = a.k")
    written(world, a=[("insert", (1, 5, "x"))], b=[("insert", (1, 1, 0.5))])
    written(world, b=[("insert", (2, 1, 0.5))])
    world.check()
    written(world, b=[("insert", (1, 2, 0.5))])
    for name in ("chosen", "distinct"):
        failed = world.service.get(f"/v1/queries/{name}")
        assert failed["status"] == "failed"
        assert failed["failure"]["code"] == "several-rows"
        assert "a scalar subquery gives several rows" in failed["failure"]["message"]
        assert "max(x)" in failed["failure"]["remedy"]
        del world.statements[name]
    written(world, a=[("insert", (1, 9, "x"))], b=[("delete", (1, 2, 0.5))])
    world.check()


#: Queries whose memory grows with each row: many groups, a long text, many values of a group, many
#: rows without partners; and a session that never ends.
EXPLODING = {
    "groups": "SELECT k, v, count(*) AS n FROM f GROUP BY k, v",
    "lists": "SELECT k, string_agg(CAST(v AS STRING), ',' ORDER BY v) AS vs FROM f GROUP BY k",
    "medians": "SELECT k, median(v) AS m, count(DISTINCT v) AS d FROM f GROUP BY k",
    "outer": "SELECT f.v, b.w FROM f LEFT JOIN b ON b.k = f.k",
}
SESSIONS = (
    "SELECT k, session_window.end AS until, sum(v) AS s FROM f "
    "GROUP BY k, session_window(ts, '5 minutes')"
)


@pytest.mark.e2e
def test_tables_that_grow_without_end_wait_and_others_go_on(world: Derived) -> None:
    for name, sql in EXPLODING.items():
        world.query(name, sql)
    world.service.post("/v1/queries", {"id": "sessions", "sql": SESSIONS})
    world.query("counted", "SELECT k, count(*) AS n, sum(v) AS s FROM f GROUP BY k")
    written(world, f=[("insert", (1, 5, BEGIN))])
    peer = world.driver.tables.peer
    assert isinstance(peer, Lagging)
    held = peer.keeper._views
    peer.keeper.most = max(view.bytes for view in held.values()) + (1 << 16)
    rows = [("insert", (1, n, BEGIN + dt.timedelta(seconds=n))) for n in range(6000)]
    world.write("f", rows)
    world.write("c", [("insert", (1, "t"))])
    for _ in range(6):
        world.turn()
        peer.drain()
    problems = world.driver.tables.problems()
    assert problems.keys() == {*EXPLODING, "sessions"}
    for name, problem in problems.items():
        assert f"queries.{name}: its groups and rows take" in problem
        assert "--table-memory" in problem
    assert all(view.bytes <= peer.keeper.most for view in held.values())
    assert len(world.rows("groups")) < 100  # the first few rows are a batch of their own
    assert world.rows("counted") == [(1, 6001, sum(range(6000)) + 5)]
    assert world.rows("other") == world.wanted("other")
    # With more memory the queries continue without a gap.
    peer.keeper.most = None
    written(world, f=[("delete", (1, 5999, rows[-1][1][2]))])
    assert world.driver.tables.problems() == {}
    world.check()
    until = BEGIN + dt.timedelta(seconds=5998, minutes=5)
    assert world.present("sessions") == [(1, until, sum(range(5999)) + 5)]
