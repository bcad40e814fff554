"""Tests of the loop of batches: it runs while input waits, pauses while none does, and ends by an
error.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_runtime.driver import batch_loop
from anabranch_runtime.driver.batch_loop import LONGEST, BatchLoop, BatchPace
from anabranch_runtime.sources.batch_input import FEW
from anabranch_runtime.sources.planned import InputControl
from tests.support.surroundings.redis import redis_url
from tests.support.worlds.fed import Fed
from tests.support.worlds.processes import wait_until


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[Fed]:
    with redis_url() as url:
        yield Fed(url, tmp_path / "fed")


def test_it_runs_batches_until_it_is_left(fed: Fed) -> None:
    committed: list[int] = []
    loop = BatchLoop(fed.driver, fed._job, lambda: committed.append(fed.driver.state.next_batch))
    loop.start()
    fed.file("a.parquet", [1, 2, 3])
    fed.push([1, 2, 3])
    wait_until("the loop", lambda: len(fed.results()) == 3)
    fed.push([1])
    wait_until("the loop", lambda: len(fed.results()) == 4)
    wait_until("the loop", lambda: loop.leave(0.1))
    assert loop.error is None
    assert committed == list(range(1, fed.driver.state.next_batch + 1))
    fed.check()
    fed.push([2])
    time.sleep(0.2)
    assert len(fed.results()) == 4


def test_groups_of_results_are_delivered_though_no_batch_comes(tmp_path: Path) -> None:
    with redis_url() as url:
        fed = Fed(url, tmp_path / "fed", SinkSpec(commit_interval=500_000))
        loop = BatchLoop(fed.driver, fed._job, lambda: None)
        loop.start()
        fed.file("a.parquet", [1, 2, 3])
        fed.push([1, 2, 3])
        began = time.monotonic()
        wait_until("a group", lambda: len(fed.results()) == 3)
        assert time.monotonic() - began < 10
        wait_until("the loop", lambda: loop.leave(0.1))
        assert loop.error is None
        assert fed.driver.publisher.parked() == {}


def test_input_in_the_pipelines_redis_ends_a_pause(
    fed: Fed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_loop, "PAUSES", (30.0, 30.0))
    loop = BatchLoop(fed.driver, fed._job, lambda: None)
    loop.start()
    for number in range(3):
        time.sleep(0.2)
        began = time.monotonic()
        fed.push([number])
        wait_until("the loop", partial(fed.has_results, "s", number + 1))
        assert time.monotonic() - began < 15
    loop._leaving.set()
    fed.push([4])
    wait_until("the loop", lambda: loop.leave(0.1))
    assert loop.error is None


def test_no_batch_begins_while_it_is_held(fed: Fed) -> None:
    loop = BatchLoop(fed.driver, fed._job, lambda: None)
    with loop.between_batches() as held:
        assert held
        loop.start()
        fed.push([1])
        time.sleep(0.3)
        assert fed.driver.state.next_batch == 0
        with loop.between_batches() as again:
            assert not again
    wait_until("the loop", lambda: fed.driver.state.next_batch > 0)
    wait_until("the loop", lambda: loop.leave(0.1))


def test_an_error_ends_it(fed: Fed) -> None:
    class Unexpected(Exception):
        pass

    def fails(context: object) -> list[object]:
        raise Unexpected

    loop = BatchLoop(fed.driver, fails, lambda: None)  # type: ignore[arg-type]
    fed.push([1])
    loop.start()
    wait_until("the loop", lambda: loop.error is not None)
    assert isinstance(loop.error, Unexpected)
    assert loop.leave(5)
    # The next loop repeats the batch.
    again = BatchLoop(fed.driver, fed._job, lambda: None)
    again.start()
    wait_until("the loop", lambda: fed.results("s") != [])
    wait_until("the loop", lambda: again.leave(0.1))


def test_pauses_follow_batches_only_where_input_gathers(
    fed: Fed, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[int] = []

    def noted(_: BatchPace, rows: int, seconds: float) -> float:
        paused.append(rows)
        return 0.0

    monkeypatch.setattr(BatchPace, "pause", noted)
    sources = fed.driver.progress.sources
    assert sources is not None
    for expected in ([1], []):
        paused.clear()
        loop = BatchLoop(fed.driver, fed._job, lambda: None)
        batches = fed.driver.state.next_batch
        fed.push([1])
        loop.start()
        wait_until("a batch", partial(fed.has_batches, batches + 1))
        wait_until("the loop", partial(loop.leave, 0.1))
        assert loop.error is None
        assert paused == expected
        # Batches of recordings have a fixed size; these sources have no feeds.
        fed.driver.progress.sources = replace(sources, feeds=frozenset())


def test_pauses_end_where_fixed_costs_do_not_dominate() -> None:
    pace = BatchPace()
    assert pace.pause(10, 0.02) == pytest.approx(0.06)
    assert pace.pause(10, 0.03) == pytest.approx(0.03, rel=0.1)
    assert pace.pause(10, 0.05) == 0
    assert pace.pause(10, 3.0) == 0
    assert BatchPace().pause(0, 1.0) == LONGEST
    # The loop notices within some hundred batches that the machine has become slower.
    for _ in range(300):
        pace.pause(10, 0.2)
    assert pace.pause(10, 0.2) == LONGEST


def test_no_pause_delays_a_snapshot(fed: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The small batches of a snapshot measure the next ones: with pauses there would be one in
    three seconds.
    """
    monkeypatch.setattr(BatchPace, "pause", lambda *_: 3600.0)
    monkeypatch.setattr(InputControl, "reads_snapshot", True)
    committed: list[int] = []
    loop = BatchLoop(fed.driver, fed._job, lambda: committed.append(fed.driver.state.next_batch))
    loop.start()
    for number in range(1, 4):
        fed.push([number])
        wait_until("the loop", lambda: len(committed) == number)  # noqa: B023
    wait_until("the loop", lambda: loop.leave(0.1))
    assert loop.error is None


def test_large_batches_of_equal_length_have_no_pauses() -> None:
    pace = BatchPace()
    assert [pace.pause(FEW + 1, 0.1) for _ in range(3)] == [0.0] * 3
    # Batches with rows say nothing about the time of an empty one.
    assert pace.pause(10, 0.02) == pytest.approx(0.06)
