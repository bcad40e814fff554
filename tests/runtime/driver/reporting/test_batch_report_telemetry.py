"""Tests of counters for monitoring, also in the driver's progress."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import redis

from anabranch_contract.protocol.ages import bin_of
from anabranch_contract.protocol.batches import PHASES
from anabranch_contract.protocol.progress import Latencies, Progress, Telemetry
from anabranch_runtime.driver.reporting.batch_report import counted
from tests.support.worlds.driven import KEYS, driver, job, publish


def test_batches_are_added_up() -> None:
    found = counted(Telemetry(), 100.0, 0.5, {"enter": 0.1, "probe": 0.4}, {"s": 0.3, "t": 700.0})
    found = counted(found, 101.0, 0.7, {"enter": 0.1, "commit": 0.6}, {"t": 700.0})
    assert (found.batches, found.seconds, found.committed_at) == (2, 1.2, 101.0)
    assert found.phases == {"enter": 0.2, "probe": 0.4, "commit": 0.6}
    assert found.latencies == Latencies((0, 0, 1, *[0] * 8, 2, 0), 1400.3)
    assert found.ages == {"s": {bin_of(0.3): 1}, "t": {bin_of(700.0): 2}}


def test_the_progress_has_what_the_batches_of_the_run_took(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    first = driver(url, tmp_path)
    first.run(job(0))
    again = driver(url, tmp_path)
    again.run(job(1))
    text = redis.Redis.from_url(url).get(KEYS.runtime)
    assert isinstance(text, bytes)
    found = Progress.loads(text).telemetry
    assert found.batches == 1
    assert found.committed_at == pytest.approx(time.time(), abs=60)
    assert set(found.phases) == {"enter", "spark", "commit", *PHASES}
    assert 0 < sum(found.phases.values()) <= 2 * found.seconds
    assert found.latencies.counts == ()
    assert found.parked == {}
