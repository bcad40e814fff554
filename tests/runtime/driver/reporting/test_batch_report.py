"""Tests of the driver's reports of committed batches: phases, tasks, times."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import redis as redis_client

from anabranch_contract.protocol import batches as protocol
from anabranch_contract.protocol.batches import BatchReport
from anabranch_contract.protocol.progress import Mode, Progress
from anabranch_runtime.control import Control
from anabranch_runtime.driver.reporting import reporting
from anabranch_runtime.driver.reporting.batch_report import Times, batch_report
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.state.manifest import State
from tests.support.worlds.driven import KEYS, driver, job, publish


def reports(url: str) -> list[BatchReport]:
    texts = redis_client.Redis.from_url(url).lrange(KEYS.batches, 0, -1)
    return [BatchReport.loads(text) for text in texts]


def test_the_phases_are_those_of_the_task_that_worked_longest() -> None:
    quick = TaskReport(phases={"read": 0.1, "probe": 0.1, "wait": 0.7})
    slow = TaskReport(phases={"read": 0.1, "probe": 0.5, "store": 0.0, "wait": 0.3})
    found = batch_report(State(), [quick, slow], Times(1.0, 1.25, 2.5, 2.75))
    assert (found.slowest, found.tasks) == (1, 2)
    assert found.phases == {"read": 100, "wait": 300, "probe": 500}
    assert (found.work, found.mean_work) == (600, 400)
    assert (found.begin, found.job, found.commit) == (250, 1250, 250)


def test_a_batch_without_tasks_is_reported() -> None:
    found = batch_report(State(), [], Times(1.0, 1.0, 1.0, 1.0))
    assert (found.tasks, found.work, found.phases) == (0, 0, {})


def test_every_committed_batch_is_reported_once(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = driver(url, tmp_path)
    before = time.time()
    for number in range(2):
        one.run(job(number))
    found = reports(url)
    assert [report.batch for report in found] == [0, 1]
    assert all(report.until >= before for report in found)
    assert all(report.tasks == 1 and report.tuples for report in found)


def test_live_the_reports_of_quick_batches_are_sent_together(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(url, 0)
    one = driver(url, tmp_path, Mode.LIVE, every=1000)
    monkeypatch.setattr(reporting, "PAUSE", 3600.0)
    for number in range(3):
        one.run(job(number))
    # The first batch began a ruleset, so it is reported.
    assert [report.batch for report in reports(url)] == [0]
    one.tick()
    assert [report.batch for report in reports(url)] == [0, 1, 2]
    text = redis_client.Redis.from_url(url).get(KEYS.runtime)
    assert Progress.loads(text).committed == 3  # type: ignore[arg-type]
    monkeypatch.setattr(reporting, "PAUSE", 0.0)
    one.run(job(3))
    assert [report.batch for report in reports(url)] == [0, 1, 2, 3]


def test_only_the_newest_are_kept(url: str) -> None:
    control = Control(url, KEYS.namespace)
    report = batch_report(State(), [], Times(0.0, 0.0, 0.0, 0.0))
    for _ in range(5):
        control.report(Progress("running"), {}, [report] * (protocol.BATCHES_KEPT // 4))
    assert len(reports(url)) == protocol.BATCHES_KEPT
