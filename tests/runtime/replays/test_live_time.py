"""Test that live, the clock for idle streams counts only the time during which the
pipeline runs.
"""

from __future__ import annotations

import time
from pathlib import Path

from anabranch_contract.protocol.progress import Mode
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.task.context import BatchContext
from tests.support.worlds.driven import driver, job, publish


def test_interruptions_do_not_count(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    readings: list[int | None] = []

    def run(batch: int) -> None:
        def watched(context: BatchContext) -> list[TaskReport]:
            readings.append(context.times.clock)
            return job(batch)(context)

        one.run(watched)

    one = driver(url, tmp_path, Mode.LIVE)
    run(0)
    time.sleep(0.05)
    run(1)
    first, second = readings
    assert first is not None
    assert second is not None
    assert second - first >= 50_000
    assert one.state.clock == second

    time.sleep(0.3)
    began = time.monotonic()
    one = driver(url, tmp_path, Mode.LIVE)
    run(2)
    third = readings[2]
    assert third is not None
    assert second <= third <= second + (time.monotonic() - began) * 1e6
    assert all(s.active_at is not None for s in one.state.streams.values())


def test_a_replay_does_not_look_at_the_time(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = driver(url, tmp_path)
    seen: list[int | None] = []

    def watched(context: BatchContext) -> list[TaskReport]:
        seen.append(context.times.clock)
        return job(0)(context)

    one.run(watched)
    assert seen == [None]
    times = [s.max_tau for s in one.state.streams.values() if s.max_tau is not None]
    assert one.state.clock == max(times, default=None)
