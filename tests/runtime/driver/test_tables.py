"""Tests of the process of maintained tables: it follows the state, also after restarts, and needs
sinks.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import psutil
import pytest

from anabranch_contract.connectors.sinks import SinkKind, SinkSpec
from anabranch_contract.protocol.activations import ViewRows
from anabranch_runtime.control import Control
from anabranch_runtime.cpu import CpuUses
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.driver.tables import MaintainedTables, TablesApart
from anabranch_runtime.errors import PipelineError, SinkError
from anabranch_runtime.sinks.delivery import Delivery
from tests.support.surroundings.kin import kin
from tests.support.surroundings.policy import OPEN
from tests.support.worlds.kept_tables import TableWorld
from tests.support.worlds.view_runs import STREAM, Drawn, ViewRun, draw_rows

SQL = "SELECT k, count(*) AS c FROM t GROUP BY k"


@pytest.fixture
def start(redis: str, tmp_path: Path) -> Iterator[Callable[..., ViewRun]]:
    """Return a driver of a view whose table is maintained by a separate process."""
    made: list[MaintainedTables] = []

    def begin(sink: SinkSpec | None = None, **writers: Callable[[Delivery], None]) -> ViewRun:
        run = ViewRun(tmp_path, Drawn(SQL, SQL), sink or SinkSpec())
        settings = DriverSettings(tmp_path / "state", tmp_path / "results", access=OPEN)
        kinds = {SinkKind(name): write for name, write in writers.items()}

        def tables() -> MaintainedTables:
            made.append(
                MaintainedTables(tmp_path / "state", TablesApart(settings, redis, "test", kinds))
            )
            return made[-1]

        run.world.make = tables
        run.restart()
        return run

    yield begin
    for one in made:
        with contextlib.suppress(PipelineError):
            one.close()


def processes() -> list[psutil.Process]:
    """Return the running processes of maintained tables."""
    return kin(lambda words: "spawn_main" in " ".join(words))


def test_rounds_are_included_beside_and_after_a_restart(
    start: Callable[..., ViewRun], redis: str
) -> None:
    run, rng = start(), Random(1)
    for _ in range(3):
        run.feed(draw_rows(rng, 40, 0))
    run.check()
    run.restart()
    run.feed(draw_rows(rng, 40, 0))
    run.check()
    shown = Control(redis, "test")._redis.hget(Control(redis, "test").keys.views, "v")
    assert isinstance(shown, bytes)
    assert ViewRows.loads(shown).total == len(run.wanted())


def test_cpu_time_of_tables_is_reported(start: Callable[..., ViewRun]) -> None:
    run, spent = start(), list[CpuUses]()
    run.tables.beside = spent.append
    run.feed(draw_rows(Random(2), 40, 0))
    run.tables.drain()
    assert sum(seconds for uses in spent for (_, name), seconds in uses.items() if name == "v") > 0


def test_tables_that_are_up_to_date_are_drained_at_once(start: Callable[..., ViewRun]) -> None:
    run = start()
    run.feed(draw_rows(Random(6), 5, 0))
    run.tables.drain()
    begun = time.monotonic()
    run.tables.drain()
    # An idle process waits for up to a minute.
    assert time.monotonic() - begun < 30


def test_sinks_of_spark_are_written_by_the_driver(start: Callable[..., ViewRun]) -> None:
    taken, refuses = list[tuple[int, int]](), [True]

    def write(delivery: Delivery) -> None:
        if refuses[0]:
            raise SinkError("no-disk", "the disk is full")
        taken.append((delivery.batch, delivery.read().num_rows))

    run = start(SinkSpec("json", path="x"), **{SinkKind.FILES.value: write})
    run.feed(draw_rows(Random(3), 5, 0))
    with pytest.raises(SinkError, match="the disk is full"):
        run.tables.drain()
    refuses[0] = False
    run.tables.drain()
    assert [version for version, _ in taken] == [1]


def test_the_loss_of_the_process_is_an_error(start: Callable[..., ViewRun]) -> None:
    run = start()
    run.feed(draw_rows(Random(4), 5, 0))
    run.tables.drain()
    (process,) = processes()
    process.kill()
    process.wait()
    with pytest.raises(PipelineError) as caught:
        run.tables.drain()
    assert caught.value.code == "views-lost"
    run.world.begin()
    run.feed(draw_rows(Random(5), 5, 0))
    run.check()


def test_without_tables_there_is_no_process(redis: str, tmp_path: Path) -> None:
    before = processes()
    settings = DriverSettings(tmp_path / "state", tmp_path / "results", access=OPEN)
    run = ViewRun(tmp_path, Drawn(SQL, SQL))
    world = TableWorld(tmp_path, run.ruleset(with_view=False))
    world.make = lambda: MaintainedTables(
        tmp_path / "state", TablesApart(settings, redis, "test", {})
    )
    world.restart()
    world.feed({}, {STREAM: None})
    world.tables.drain()
    assert (world.tables.problems(), world.tables.lag(), world.tables.counts()) == ({}, {}, {})
    world.tables.close()
    assert processes() == before
