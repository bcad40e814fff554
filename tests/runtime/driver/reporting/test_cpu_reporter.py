"""Tests of the CPU seconds of batches, as read from Redis."""

from __future__ import annotations

import time
from collections import defaultdict
from itertools import count
from pathlib import Path

import pytest
import redis as redis_client

from anabranch_contract.protocol.profile import CpuGroup, CpuReport, CpuUse
from anabranch_contract.rest.profile import used_between
from anabranch_runtime.cpu import add_called, metered
from anabranch_runtime.driver.attempts import Job
from anabranch_runtime.driver.reporting import cpu_reporter
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.expressions import user_functions
from anabranch_runtime.task.context import BatchContext
from tests.support.cases.states import RS
from tests.support.functions.registered import ENVIRONMENT
from tests.support.worlds.driven import KEYS, driver, job, publish

#: Groups of tasks' CPU seconds.
OF_TASKS = (CpuGroup.SOURCE, CpuGroup.INSERT, CpuGroup.PROBE, CpuGroup.SINK, CpuGroup.TASK)


@pytest.fixture(autouse=True)
def _every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_reporter, "EVERY", 0.0)
    monkeypatch.setattr(cpu_reporter, "REST", 0.0)


def reported(url: str) -> CpuReport:
    text = redis_client.Redis.from_url(url).get(KEYS.profile)
    assert isinstance(text, bytes)
    return CpuReport.loads(text)


def kept(reports: list[TaskReport], batch: int, copies: int) -> Job:
    """Return a batch whose task reports are added to ``reports``."""
    inner = job(batch, copies=copies)

    def run(context: BatchContext) -> list[TaskReport]:
        found = inner(context)
        reports.extend(found)
        return found

    return run


def test_seconds_of_tasks_are_those_of_their_processes(url: str, tmp_path: Path) -> None:
    publish(url, 0, {"q": RS, "twin": RS})
    one, reports = driver(url, tmp_path, every=50, fanout=2), list[TaskReport]()
    one.run(kept(reports, 0, 1))
    earlier = reported(url).uses
    reports.clear()
    for batch in range(1, 6):
        one.run(kept(reports, batch, 60))
    found = used_between(earlier, reported(url).uses, {})
    seconds = defaultdict[CpuGroup, float](float)
    for use in found:
        seconds[use.group] += use.seconds
    process = sum(sum(report.measured.cpu.values()) for report in reports)
    assert sum(seconds[group] for group in OF_TASKS) == pytest.approx(process)
    assert all(seconds[group] > 0 for group in OF_TASKS)
    assert seconds[CpuGroup.MERGE] > 0
    queries = {(use.group, use.name): use.queries for use in found}
    assert queries[CpuGroup.SOURCE, "R"] == ("q", "twin")
    assert queries[CpuGroup.SINK, "twin"] == ("twin",)
    steps = [use for use in found if use.group is CpuGroup.PROBE and use.name]
    assert {use.name for use in steps} == {"R>S", "S>R"}
    assert all(use.queries == ("q", "twin") for use in steps)
    laps = {use.name for use in found if use.group is CpuGroup.DRIVER and use.seconds > 0}
    assert laps >= {"plan", "begin", "publish", "commit", "report"}


def test_threads_beside_batches_count_for_their_streams_and_views(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = driver(url, tmp_path, every=50)
    one.run(job(0))
    with metered(CpuGroup.SOURCE, "R"), metered(CpuGroup.VIEW, "q~2"):
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
    earlier = reported(url).uses
    one.tick()
    spent = {(u.group, u.name): u for u in used_between(earlier, reported(url).uses, {})}
    assert spent[CpuGroup.SOURCE, "R"].seconds >= 0.02
    assert spent[CpuGroup.VIEW, "q"].seconds >= 0.02
    assert spent[CpuGroup.VIEW, "q"].queries == ("q",)


def test_users_functions_count_for_the_queries_that_call_them(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent = list[float]()

    def add(seconds: float) -> None:
        spent.append(seconds)
        add_called(seconds)

    monkeypatch.setattr(user_functions, "add_called", add)
    for variable, value in ENVIRONMENT.items():
        monkeypatch.setenv(variable, value)
    calling = "SELECT R.a, inverse(S.b + 1) AS i FROM R JOIN S ON R.a = S.a"
    publish(url, 0, {"q": RS, "calls": calling})
    one, reports = driver(url, tmp_path, every=50), list[TaskReport]()
    one.run(kept(reports, 0, 1))
    earlier = reported(url).uses
    spent.clear()
    batches = count(1)
    while sum(spent) <= 0.02:
        one.run(kept(reports, next(batches), 150))
    seconds = {
        u.name: u.seconds
        for u in used_between(earlier, reported(url).uses, {})
        if u.queries == ("calls",)
    }
    assert sum(seconds.values()) > sum(spent)
    assert seconds.keys() >= {"calls"}
    user_functions.end_all()


def test_uses_of_earlier_plans_lose_their_names_but_not_their_seconds(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_reporter, "MOST", -1000)
    publish(url, 0, {"q": RS})
    publish(url, 1, {"other": RS})
    one = driver(url, tmp_path, every=4)
    for batch in range(3):
        one.run(job(batch))
    earlier = reported(url).uses
    assert any(use.queries == ("q",) for use in earlier)
    for batch in range(3, 8):
        # The epoch ends after the first batch.
        one.run(job(batch))
    later = reported(url).uses
    assert not any(use.queries == ("q",) for use in later)
    found = used_between(earlier, later, {})
    assert all(use.seconds > -1e-9 for use in found if use.group in (CpuGroup.PROBE, CpuGroup.SINK))
    grown = sum(map(_seconds, later)) - sum(map(_seconds, earlier))
    assert sum(map(_seconds, found)) == pytest.approx(grown)


def _seconds(use: CpuUse) -> float:
    return use.seconds
